// Thumbnails of a site's heads, and all of them as one picture, of which each button shows its piece.

import { Scale } from "./colour.js";

// {shape: [H, h, w], values: [Float32Array, …], mean: Float32Array}; undefined while on their way.
export function thumbsOf(app, run, site) {
  const raw = app.library.blob(site.thumbs.blob);
  return raw ? app.kept(`thumbs/${run.id}/${site.name}`, () => parted(raw, site, app.bundle.codes.thumbs)) : raw;
}

// A code is the root of a weight's share of the head's peak, in steps from 1 on; 0 is hidden.
function parted(raw, { thumbs: { shape }, peaks }, steps) {
  const [heads, rows, columns] = shape;
  const size = rows * columns;
  const weight = (code, peak) => (code === 0 ? Number.NaN : peak * ((code - 1) / steps) ** 2);
  const piece = (head) => Float32Array.from(raw.subarray(head * size, (head + 1) * size), (code) => weight(code, peaks[head]));
  const values = Array.from({ length: heads }, (_, head) => piece(head));
  const mean = values[0].map((_, at) => values.reduce((sum, one) => sum + one[at], 0) / heads);
  return { shape, values, mean };
}

// The heads and after them their mean, side by side, as the address of a picture; undefined while on their way.
export function atlas(app, run, site) {
  const thumbs = thumbsOf(app, run, site);
  if (!thumbs) return thumbs;
  return app.kept(`atlas/${run.id}/${site.name}/${app.colours}`, () => drawnAtlas(thumbs, app.stops(false)));
}

function drawnAtlas({ shape, values, mean }, stops) {
  const [heads, rows, columns] = shape;
  const node = document.createElement("canvas");
  [node.width, node.height] = [columns * (heads + 1), rows];
  const pen = node.getContext("2d");
  [...values, mean].forEach((one, at) => {
    const scale = new Scale(one.reduce((a, b) => Math.max(a, b || 0), 0), false, true, stops);
    pen.drawImage(scale.picture(one, rows, columns), at * columns, 0);
  });
  return node.toDataURL();
}
