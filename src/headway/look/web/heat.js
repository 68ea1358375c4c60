// Weights over a picture: a light that falls where the query looks.

import { largest } from "./field.js";

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

// How high the picture is for its width; tall ones stand in a square.
export function pictureForm({ run, columns }) {
  const [tall, wide] = run.picture ? [run.picture.height, run.picture.width] : columns.grid;
  return Math.min(1, tall / wide);
}

// The picture in its own colours where the query looks, and dark elsewhere: as bright as the weight is beside the
// largest.  A line goes around the cells that hold half of the weight.  Differences are colours over the picture.
export function heat(scene, axis, row, box, field = scene.app.field) {
  const { app, pen } = scene;
  const [x, y, width, height] = box;
  const image = app.run.picture ? imageOf(app, app.run.picture.src) : null;
  pen.imageSmoothingEnabled = image !== null && width < image.naturalWidth * 2;
  if (image) pen.drawImage(image, x, y, width, height);
  else pen.fillStyle = field.signed ? app.inks.card : app.inks.accent, pen.fillRect(x, y, width, height);
  if (field.signed) return coloured(scene, axis, row, box, app.scaleOf(field));
  const [rows, columns] = axis.grid;
  const veil = document.createElement("canvas");
  [veil.width, veil.height] = [columns, rows];
  const thin = veil.getContext("2d");
  const most = strongestCell(axis, row);
  for (let at = 0; at < rows * columns; at++) {
    const part = Math.max(0, row.weights[axis.first + at] ?? 0) / most;
    thin.globalAlpha = app.state.heat * (1 - (app.state.root ? Math.sqrt(part) : part));
    thin.fillRect(at % columns, Math.floor(at / columns), 1, 1);
  }
  pen.imageSmoothingEnabled = Math.min(rows, columns) >= SMOOTH;
  pen.drawImage(veil, x, y, width, height);
  ringedHalf(pen, axis, row.weights, box);
}

const SMOOTH = 7; // rows and columns of cells from which on light falls off smoothly

function coloured(scene, axis, { weights, hidden }, [x, y, width, height], scale) {
  const { app, pen } = scene;
  const [rows, columns] = axis.grid;
  for (let at = 0; at < rows * columns; at++) {
    if (hidden[axis.first + at]) continue;
    const weight = weights[axis.first + at] ?? 0;
    const [left, right] = edges(x, width, at % columns, columns);
    const [top, bottom] = edges(y, height, Math.floor(at / columns), rows);
    pen.globalAlpha = app.state.heat * (0.3 + 0.7 * scale.strength(weight));
    pen.fillStyle = scale.css(weight);
    pen.fillRect(left, top, right - left, bottom - top);
  }
  pen.globalAlpha = 1;
}

// The fewest cells that together hold half of the weight on all cells.
function halfOf(axis, weights) {
  const cells = [...weights.subarray(axis.first, axis.index(axis.grid[0], 0)).entries()].sort((a, b) => b[1] - a[1]);
  const whole = cells.reduce((sum, [, weight]) => sum + weight, 0);
  const found = new Set();
  let sum = 0;
  for (const [cell, weight] of cells) {
    if (sum >= whole / 2 || weight <= 0) break;
    found.add(cell);
    sum += weight;
  }
  return found;
}

function ringedHalf(pen, axis, weights, [x, y, width, height]) {
  const [rows, columns] = axis.grid;
  const half = halfOf(axis, weights);
  pen.beginPath();
  for (const cell of half) {
    const [row, column] = [Math.floor(cell / columns), cell % columns];
    const [left, right] = edges(x, width, column, columns);
    const [top, bottom] = edges(y, height, row, rows);
    if (row === 0 || !half.has(cell - columns)) pen.moveTo(left, top), pen.lineTo(right, top);
    if (row === rows - 1 || !half.has(cell + columns)) pen.moveTo(left, bottom), pen.lineTo(right, bottom);
    if (column === 0 || !half.has(cell - 1)) pen.moveTo(left, top), pen.lineTo(left, bottom);
    if (column === columns - 1 || !half.has(cell + 1)) pen.moveTo(right, top), pen.lineTo(right, bottom);
  }
  for (const [colour, line] of [["rgba(0,0,0,.55)", 2.5], ["rgba(255,255,255,.9)", 1]]) {
    [pen.strokeStyle, pen.lineWidth] = [colour, line];
    pen.stroke();
  }
}

// The largest weight of a cell, in size.
export function strongestCell(axis, { weights }) {
  return largest(weights.subarray(axis.first, axis.index(axis.grid[0], 0))) || 1;
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
