// A field as pictures: only the tiles that are seen, the coarse ones first, finer ones over them when they come.

import { HeadField } from "./field.js";
import { thumbsOf } from "./thumbs.js";

// Paints cells y0 … y1, x0 … x1 of a field: cell (y, x) stands at (left + x·w, top + y·h) and is w × h large.
// Nothing is painted outside the frame.  Returns a notice for the reader: "" where the cells are exact.
export function paint(scene, field, scale, { left, top, w, h, y0, y1, x0, x1, frame }) {
  const { pen, app } = scene;
  pen.save();
  pen.beginPath();
  pen.rect(...frame);
  pen.clip();
  const wanted = levelFor(field, Math.min(w, h) * (window.devicePixelRatio || 1));
  pen.imageSmoothingEnabled = Math.min(w, h) * wanted.scale < 0.9;
  placeholder(scene, field, scale, { left, top, w, h });
  const levels = wanted === field.coarsest ? [wanted] : [field.coarsest, wanted];
  let whole = true;
  for (const level of levels) {
    const size = level.tile * level.scale;
    for (let i = Math.floor(y0 / size); i * size < y1; i++) {
      for (let j = Math.floor(x0 / size); j * size < x1; j++) {
        const picture = pictureOf(app, field, scale, level, i, j);
        if (picture === null && level === wanted) whole = false;
        if (!picture) continue;
        const [wide, tall] = [picture.width * level.scale * w, picture.height * level.scale * h];
        pen.drawImage(picture, left + j * size * w, top + i * size * h, wide, tall);
      }
    }
  }
  pen.restore();
  return remark(field, whole, wanted.scale);
}

// Where the file holds only the coarse map, and where a difference is one of blocks, the page says so in place.
function remark(field, whole, scale) {
  const blocks = "each cell is the difference of two block maxima, and may hide others inside";
  const absent = "the fine weights are not in this file; headway look … --live has them";
  if (!whole) return `coarse here: ${field.signed ? `${blocks}; ` : ""}${absent}`;
  return field.signed && scale > 1 ? `zoomed out: ${blocks}; zoom in to see each weight` : "";
}

// The coarsest level of which a cell still takes about a pixel.
function levelFor(field, pixels) {
  return field.levels.find((level) => level.scale * pixels >= 0.7) ?? field.coarsest;
}

function pictureOf(app, field, scale, level, i, j) {
  const key = `${field.key}/${level.scale}/${i}/${j}/${scale.most}/${scale.root}/${app.colours}`;
  const { values } = app.bitmaps;
  if (values.has(key)) return values.get(key);
  const tile = field.tile(level, i, j);
  if (!tile) return tile;
  const [, , rows, columns] = field.frame(level, i, j);
  return app.bitmaps.put(key, scale.picture(tile, rows, columns));
}

// Before the first tile of a head is there, its thumbnail is.
function placeholder(scene, field, scale, { left, top, w, h }) {
  const thumbs = field instanceof HeadField ? thumbsOf(scene.app, field.run, field.site) : null;
  if (!thumbs || field.tiles() !== undefined) return;
  const [, rows, columns] = thumbs.shape;
  const [tall, wide] = field.shape;
  scene.pen.drawImage(scale.picture(thumbs.values[field.head], rows, columns), left, top, wide * w, tall * h);
}
