// Weights of one site that can be drawn: of one head, the mean over heads, or the difference of two runs.
//
// A field is a matrix in tiles, at one or more scales.  Scale k holds the largest weight of each k × k cells, so that
// a thin diagonal is not lost.  tile(level, i, j) answers at once: floats (NaN: hidden), null (not in this file) or
// undefined (on its way).  row(r) gives a query's weights as the map has them, exact(r) to the last digit, where these
// are in the file or can be asked for: null where not.

import { Row, combinedRow, decoded } from "./codes.js";

export class Field {
  constructor(site) {
    this.site = site;
    this.shape = site.shape;
    this.levels = [...site.levels].sort((a, b) => a.scale - b.scale);
    this.rows = new Map();
    this.top = undefined;
  }

  get signed() {
    return false;
  }

  get coarsest() {
    return this.levels[this.levels.length - 1];
  }

  // [first row, first column, rows, columns] of a tile, in cells of its level
  frame(level, i, j) {
    const { tile, shape } = level;
    return [i * tile, j * tile, Math.min(tile, shape[0] - i * tile), Math.min(tile, shape[1] - j * tile)];
  }

  row(r) {
    if (this.rows.has(r)) return this.rows.get(r);
    const row = this.gathered(r);
    if (row === undefined) return undefined;
    if (this.rows.size > 256) this.rows.clear();
    this.rows.set(r, row);
    return row;
  }

  // All tiles of the coarsest level; undefined while one is on its way.
  tiles() {
    const { tile, shape } = this.coarsest;
    const tiles = [];
    for (let i = 0; i * tile < shape[0]; i++) {
      for (let j = 0; j * tile < shape[1]; j++) tiles.push(this.tile(this.coarsest, i, j));
    }
    return tiles.includes(undefined) ? undefined : tiles; // all are asked for
  }

  // The entropy of a query's weights in nats; null where it is not known, undefined while it is on its way.
  entropy() {
    return null;
  }

  // The strongest key of a query whose weights are pooled: {key, text}; null where it is not known.
  strongest() {
    return null;
  }
}

export class HeadField extends Field {
  // library: {source, bytes: Shelf, tiles: Shelf, classes, exact(run, site, head, row)}
  constructor(library, run, site, head) {
    super(site);
    Object.assign(this, { library, run, head, key: `${run.id}/${site.name}/${head}` });
  }

  peak() {
    return this.site.peaks[this.head];
  }

  tile(level, i, j) {
    const coded = this.coded(level, i, j);
    return coded ? coded.weights : coded;
  }

  coded(level, i, j) {
    return this.library.tiles.take(`${this.key}/${level.scale}/${i}/${j}`, () => this.fetch(level, i, j));
  }

  async fetch(level, i, j) {
    const stacked = level.blobs[`*/${i}/${j}`];
    const id = stacked ?? level.blobs[`${this.head}/${i}/${j}`];
    if (id === undefined) return null;
    const { bytes, source, classes } = this.library;
    const raw = await bytes.wait(id, () => source.blob(id));
    if (raw === null) return null;
    const [, , rows, columns] = this.frame(level, i, j);
    const which = stacked === undefined ? [1, 0] : [this.site.heads, this.head];
    return decoded(raw, [...which, rows, columns], classes);
  }

  gathered(r) {
    const wide = this.shape[1];
    const row = { weights: new Float32Array(wide), limits: new Float32Array(wide), decimals: 3, pooled: false };
    const [finest] = this.levels;
    const pieces = [];
    for (let j = 0; j * finest.tile < wide; j++) {
      pieces.push(this.piece(row, r, j * finest.tile, Math.min(wide, (j + 1) * finest.tile)));
    }
    if (pieces.includes(undefined)) return undefined;
    const made = Object.assign(new Row(row.weights, row.limits, row.decimals), { pooled: pieces.includes(false) });
    return made.pooled ? made : made.balanced();
  }

  // Fills from … to by the finest level that is in the file; true if that is the weights themselves, and no blocks.
  piece(row, r, from, to) {
    for (const level of this.levels) {
      const [y, x] = [Math.floor(r / level.scale), Math.floor(from / level.scale)];
      const [i, j] = [Math.floor(y / level.tile), Math.floor(x / level.tile)];
      const tile = this.coded(level, i, j);
      if (tile === undefined) return undefined;
      if (tile === null) continue;
      const [top, left, , columns] = this.frame(level, i, j);
      const fine = level.scale === 1;
      const half = 10 ** -tile.decimals[y - top] / 2;
      row.decimals = tile.decimals[y - top];
      for (let c = from; c < to; c++) {
        const at = (y - top) * columns + Math.floor(c / level.scale) - left;
        row.weights[c] = tile.weights[at];
        row.limits[c] = fine ? tile.limits[at] : blockLimit(tile, at, half);
      }
      return fine;
    }
    return false;
  }

  exact(r) {
    return this.library.exact(this.run, this.site, this.head, r);
  }

  entropy(r) {
    return this.library.entropy(this.site, this.head, r);
  }

  strongest(r) {
    return this.library.strongest(this.site, this.head, r);
  }
}

export class MeanField extends Field {
  constructor(library, run, site) {
    super(site);
    this.heads = Array.from({ length: site.heads }, (_, head) => new HeadField(library, run, site, head));
    Object.assign(this, { library, made: new Map(), key: `${run.id}/${site.name}/mean` });
  }

  peak() {
    return this.site.peaks[this.heads.length];
  }

  tile(level, i, j) {
    const key = `${level.scale}/${i}/${j}`;
    if (!this.made.has(key)) {
      const mean = combined(this.heads.map((head) => head.tile(level, i, j)), 1 / this.heads.length);
      if (mean === undefined) return undefined;
      this.made.set(key, mean);
    }
    return this.made.get(key);
  }

  gathered(r) {
    return together(this.heads.map((head) => head.row(r)), this.heads.map(() => 1 / this.heads.length));
  }

  exact(r) {
    return together(this.heads.map((head) => head.exact(r)), this.heads.map(() => 1 / this.heads.length));
  }

  entropy(r) {
    return this.library.entropy(this.site, this.heads.length, r);
  }
}

export class DifferenceField extends Field {
  constructor(ours, theirs) {
    super(ours.site);
    Object.assign(this, { ours, theirs, key: `${ours.key} - ${theirs.key}`, made: new Map() });
  }

  get signed() {
    return true;
  }

  // The largest size anywhere.  Where only blocks are known, no difference is larger than the largest weight.
  peak() {
    if (this.coarsest.scale > 1) return Math.max(this.ours.peak(), this.theirs.peak());
    const tiles = this.top === undefined ? this.tiles() : null;
    if (tiles === undefined) return undefined;
    this.top ??= Math.max(0, ...tiles.map((values) => (values === null ? 0 : largest(values))));
    return this.top;
  }

  tile(level, i, j) {
    const key = `${level.scale}/${i}/${j}`;
    const other = this.theirs.levels.find((one) => one.scale === level.scale && one.tile === level.tile);
    if (other === undefined) return null;
    if (!this.made.has(key)) {
      const [a, b] = [this.ours.tile(level, i, j), this.theirs.tile(other, i, j)];
      if (a === undefined || b === undefined) return undefined;
      this.made.set(key, a === null || b === null ? null : a.map((value, at) => difference(value, b[at])));
    }
    return this.made.get(key);
  }

  gathered(r) {
    return together([this.ours.row(r), this.theirs.row(r)], [1, -1]);
  }

  exact(r) {
    return together([this.ours.exact(r), this.theirs.exact(r)], [1, -1]);
  }
}

// The largest weight of a block is known to half a unit, or by its class.
function blockLimit({ weights, limits }, at, half) {
  return limits[at] > 0 ? limits[at] : limits[at] < 0 ? half : weights[at] + half;
}

// Hidden where both are; what one hides counts as 0.
function difference(a, b) {
  return a === a || b === b ? (a || 0) - (b || 0) : Number.NaN;
}

function together(rows, factors) {
  if (rows.includes(undefined)) return undefined;
  return rows.includes(null) ? null : combinedRow(rows, factors);
}

// The largest of some numbers, in size.
export function largest(values) {
  let most = 0;
  for (const value of values) {
    const size = value < 0 ? -value : value;
    if (size > most) most = size;
  }
  return most;
}

// The sum of tiles times a factor; undefined or null where any of them is.
function combined(tiles, factor) {
  if (tiles.includes(undefined)) return undefined;
  if (tiles.includes(null)) return null;
  const sum = new Float32Array(tiles[0].length);
  for (const tile of tiles) for (let at = 0; at < sum.length; at++) sum[at] += tile[at];
  return sum.map((value) => value * factor);
}

// The strongest of a row's keys: [[key, weight], …], by size.
export function strongest(weights, most) {
  const best = [];
  for (let key = 0; key < weights.length; key++) {
    const size = Math.abs(weights[key]);
    if (size === 0 || (best.length === most && size <= Math.abs(best[most - 1][1]))) continue;
    let place = best.length;
    while (place > 0 && Math.abs(best[place - 1][1]) < size) place -= 1;
    best.splice(place, 0, [key, weights[key]]);
    best.length = Math.min(best.length, most);
  }
  return best;
}
