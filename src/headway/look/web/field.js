// Weights of one site that can be drawn: of one head, the mean over heads, or the difference of two runs.
//
// A field is a matrix in tiles, at one or more scales.  Scale k holds the largest weight of each k × k cells, so that
// a thin diagonal is not lost.  tile(level, i, j) answers at once: floats, null (not in this file) or undefined (on
// its way); row(r) gives a query's weights, and `exact` says whether they are the weights or only bounds.

import { ABSENT } from "./source.js";

export class Field {
  constructor(site) {
    this.shape = site.shape;
    this.levels = [...site.levels].sort((a, b) => a.scale - b.scale);
    this.rows = new Map();
    this.top = undefined;
  }

  get signed() {
    return false;
  }

  // What stands before a number that is not exact, and what it is then.
  get bound() {
    return { mark: "≤ ", told: `the maximum of the surrounding cells; the exact weight is ${ABSENT}` };
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

  gathered(r) {
    const weights = new Float32Array(this.shape[1]);
    const [finest] = this.levels;
    const pieces = [];
    for (let j = 0; j * finest.tile < this.shape[1]; j++) {
      pieces.push(this.piece(weights, r, j * finest.tile, Math.min(this.shape[1], (j + 1) * finest.tile)));
    }
    return pieces.includes(undefined) ? undefined : { weights, exact: !pieces.includes(false) };
  }

  // Fills weights[from:to] by the finest level that is in the file; true if that is the weights themselves.
  piece(weights, r, from, to) {
    for (const level of this.levels) {
      const [y, x] = [Math.floor(r / level.scale), Math.floor(from / level.scale)];
      const [i, j] = [Math.floor(y / level.tile), Math.floor(x / level.tile)];
      const tile = this.tile(level, i, j);
      if (tile === undefined) return undefined;
      if (tile === null) continue;
      const [top, left, , columns] = this.frame(level, i, j);
      for (let c = from; c < to; c++) weights[c] = tile[(y - top) * columns + Math.floor(c / level.scale) - left];
      return level.scale === 1;
    }
    return false;
  }

  // The largest weight (in size) anywhere; undefined while it is not known.
  peak() {
    if (this.top !== undefined) return this.top;
    const { tile, shape } = this.coarsest;
    const tiles = [];
    for (let i = 0; i * tile < shape[0]; i++) {
      for (let j = 0; j * tile < shape[1]; j++) tiles.push(this.tile(this.coarsest, i, j));
    }
    if (tiles.includes(undefined)) return undefined; // all are asked for, and looked through once
    this.top = Math.max(0, ...tiles.map((values) => (values === null ? 0 : largest(values))));
    return this.top;
  }
}

export class HeadField extends Field {
  // library: {source, bytes: Shelf, tiles: Shelf, table: weight of each level of the quantisation}
  constructor(library, run, site, head) {
    super(site);
    Object.assign(this, { library, run, site, head, key: `${run}/${site.name}/${head}` });
  }

  tile(level, i, j) {
    return this.library.tiles.take(this.named(level, i, j), () => this.fetch(level, i, j));
  }

  named(level, i, j) {
    return `${this.key}/${level.scale}/${i}/${j}`;
  }

  async fetch(level, i, j) {
    const stacked = level.blobs[`*/${i}/${j}`];
    const id = stacked ?? level.blobs[`${this.head}/${i}/${j}`];
    if (id === undefined) return null;
    const { bytes, source, table } = this.library;
    const raw = await bytes.wait(id, () => source.blob(id));
    if (raw === null) return null;
    const [, , rows, columns] = this.frame(level, i, j);
    const first = stacked === undefined ? 0 : this.head * rows * columns;
    return translated(raw.subarray(first, first + rows * columns), table);
  }

  // One weight, waited for; null where it is not in the file.
  async weight(row, column) {
    const [level] = this.levels;
    const [i, j] = [Math.floor(row / level.tile), Math.floor(column / level.tile)];
    if (level.scale !== 1) return null;
    const tile = await this.library.tiles.wait(this.named(level, i, j), () => this.fetch(level, i, j));
    const [top, left, , columns] = this.frame(level, i, j);
    return tile === null ? null : tile[(row - top) * columns + column - left];
  }
}

export class MeanField extends Field {
  constructor(library, run, site) {
    super(site);
    this.heads = Array.from({ length: site.heads }, (_, head) => new HeadField(library, run, site, head));
    this.made = new Map();
    this.key = `${run}/${site.name}/mean`;
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

  async weight(row, column) {
    const all = await Promise.all(this.heads.map((head) => head.weight(row, column)));
    return all.includes(null) ? null : all.reduce((a, b) => a + b, 0) / all.length;
  }
}

export class DifferenceField extends Field {
  constructor(site, ours, theirs) {
    super(site);
    Object.assign(this, { ours, theirs, key: `${ours.key} - ${theirs.key}`, made: new Map() });
  }

  get signed() {
    return true;
  }

  // The largest weights of two blocks may stand in different cells: their difference bounds nothing.
  get bound() {
    const told = "the difference of two block maxima, which may be in different cells";
    return { mark: "coarse ", told: `${told}; the exact weights are ${ABSENT}` };
  }

  // Where only blocks are known, no difference is larger than the largest weight.
  peak() {
    if (this.coarsest.scale === 1) return super.peak();
    const [ours, theirs] = [this.ours.peak(), this.theirs.peak()];
    return ours === undefined || theirs === undefined ? undefined : Math.max(ours, theirs);
  }

  tile(level, i, j) {
    const key = `${level.scale}/${i}/${j}`;
    const other = this.theirs.levels.find((one) => one.scale === level.scale && one.tile === level.tile);
    if (other === undefined) return null;
    if (!this.made.has(key)) {
      const [a, b] = [this.ours.tile(level, i, j), this.theirs.tile(other, i, j)];
      if (a === undefined || b === undefined) return undefined;
      this.made.set(key, a === null || b === null ? null : a.map((value, at) => value - b[at]));
    }
    return this.made.get(key);
  }
}

function largest(values) {
  let most = 0;
  for (const value of values) {
    const size = value < 0 ? -value : value;
    if (size > most) most = size;
  }
  return most;
}

// Steps as weights.  A loop: `from` with a function takes ten times as long.
export function translated(steps, table) {
  const weights = new Float32Array(steps.length);
  for (let at = 0; at < steps.length; at++) weights[at] = table[steps[at]];
  return weights;
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

// −Σ w ln w of weights that sum to about 1, in nats.
export function spreadOf(weights) {
  let [total, sum] = [0, 0];
  for (const w of weights) {
    total += w;
    if (w > 0) sum -= w * Math.log(w);
  }
  return total > 0 ? Math.max(0, sum / total + Math.log(total)) : 0;
}
