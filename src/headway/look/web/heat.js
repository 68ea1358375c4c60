// Weights over a picture.  The picture stays as the model read it; colours lie over it, stronger where weights are.

const pictures = new Map();

// An image that is loaded, or null while it is not.
export function imageOf(app, address) {
  if (!pictures.has(address)) {
    const image = new Image();
    pictures.set(address, image);
    image.decoding = "sync";
    image.src = address;
    if (!image.complete) app.during(image.decode().catch(() => {}));
  }
  const image = pictures.get(address);
  return image.complete && image.naturalWidth > 0 ? image : null;
}

// The largest rectangle of the picture's form in the middle of a room: [x, y, width, height].
export function framed(app, axis, x, y, width, height) {
  const picture = app.run.picture;
  const [tall, wide] = picture ? [picture.height, picture.width] : axis.grid;
  const size = Math.min(width / wide, height / tall);
  return [x + (width - wide * size) / 2, y + (height - tall * size) / 2, wide * size, tall * size];
}

// The picture under the weights of its cells.  Colours are relative to the strongest cell, so that faint ones show.
export function heat(scene, axis, row, box) {
  const { app, pen } = scene;
  const { weights, hidden } = row;
  const [x, y, width, height] = box;
  const image = app.run.picture ? imageOf(app, app.run.picture.src) : null;
  pen.imageSmoothingEnabled = image !== null && width < image.naturalWidth * 2;
  if (image) pen.drawImage(image, x, y, width, height);
  else pen.fillStyle = app.inks.card, pen.fillRect(x, y, width, height);
  const [rows, columns] = axis.grid;
  const scale = app.scale;
  const most = strongestCell(axis, row);
  for (let at = 0; at < rows * columns; at++) {
    if (hidden[axis.first + at]) continue;
    const weight = weights[axis.first + at] ?? 0;
    const share = Math.abs(weight) / most;
    const shown = app.state.root ? Math.sqrt(share) : share;
    const [left, right] = edges(x, width, at % columns, columns);
    const [top, bottom] = edges(y, height, Math.floor(at / columns), rows);
    pen.globalAlpha = app.state.heat * (0.3 + 0.7 * shown);
    pen.fillStyle = app.field.signed ? scale.css(weight) : scale.at(shown);
    pen.fillRect(left, top, right - left, bottom - top);
  }
  pen.globalAlpha = 1;
}

// The largest weight of a cell, in size.
export function strongestCell(axis, { weights }) {
  return weights.subarray(axis.first, axis.index(axis.grid[0], 0)).reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9);
}

// Edges of a cell on whole pixels, so that no seams appear between cells.
function edges(start, length, at, count) {
  return [Math.round(start + (length * at) / count), Math.round(start + (length * (at + 1)) / count)];
}

// The rectangle of a cell: [x, y, width, height]; null for a token that is none.
export function cellBox(axis, index, box) {
  const place = axis.place(index);
  if (place === null) return null;
  const [left, right] = edges(box[0], box[2], place.x, axis.grid[1]);
  const [top, bottom] = edges(box[1], box[3], place.y, axis.grid[0]);
  return [left, top, right - left, bottom - top];
}

// The index of the cell at a point; null outside the picture.
export function cellAt(axis, box, x, y) {
  const [column, row] = [((x - box[0]) / box[2]) * axis.grid[1], ((y - box[1]) / box[3]) * axis.grid[0]];
  const inside = column >= 0 && row >= 0 && column < axis.grid[1] && row < axis.grid[0];
  return inside ? axis.index(Math.floor(row), Math.floor(column)) : null;
}
