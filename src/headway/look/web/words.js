// Pieces joined to words: a word looks as its pieces do on average, and is looked at as much as all its pieces together.
// So rows still sum to 1.

import { combinedRow, summedKeys } from "./codes.js";
import { Axis } from "./axis.js";
import { Field, largest } from "./field.js";

const LONGEST = 512; // tokens of an axis whose maps are joined: all rows are read at once

export function joinable(axis) {
  return axis.words.length > 0 && axis.count <= LONGEST;
}

// The words of an axis of tokens; `groups` are the first token of each and the one behind its last.
export function wordsOf(axis) {
  const groups = axis.words.map((from, at) => [from, axis.words[at + 1] ?? axis.count]);
  const labels = groups.map(([from, to]) => axis.labels.slice(from, to).map((label) => label.replace(/^##|@@$|<\/w>$/g, "")).join(""));
  const special = groups.flatMap(([from], at) => (axis.special.has(from) ? [at] : []));
  const joined = new Axis(axis.name, { kind: axis.kind, labels, special });
  const within = new Map(groups.flatMap(([from, to], at) => Array.from({ length: to - from }, (_, k) => [from + k, at])));
  return Object.assign(joined, { groups, within, noun: "word" });
}

export class WordField extends Field {
  constructor(base, rows, columns) {
    const size = Math.max(rows.count, columns.count);
    const shape = [rows.count, columns.count];
    super({ ...base.site, shape, levels: [{ scale: 1, tile: size, shape }] });
    Object.assign(this, { base, rowGroups: rows.groups, columnGroups: columns.groups, key: `${base.key}/words` });
  }

  get signed() {
    return this.base.signed;
  }

  peak() {
    if (this.top === undefined) {
      const tile = this.tile();
      if (tile) this.top = largest(tile);
    }
    return this.top;
  }

  // The whole map is one tile.
  tile() {
    if (this.whole) return this.whole;
    const rows = Array.from({ length: this.shape[0] }, (_, r) => this.row(r));
    if (rows.includes(undefined)) return undefined;
    const wide = this.shape[1];
    this.whole = new Float32Array(wide * rows.length);
    rows.forEach((row, r) => row.weights.forEach((w, c) => (this.whole[r * wide + c] = row.hidden[c] ? Number.NaN : w)));
    return this.whole;
  }

  gathered(r) {
    return this.joined(r, (token) => this.base.row(token));
  }

  exact(r) {
    return this.joined(r, (token) => this.base.exact(token));
  }

  joined(r, read) {
    const [from, to] = this.rowGroups?.[r] ?? [r, r + 1];
    const rows = Array.from({ length: to - from }, (_, k) => read(from + k)); // all are asked for
    if (rows.includes(undefined)) return undefined;
    if (rows.includes(null)) return null;
    const mean = rows.length === 1 ? rows[0] : combinedRow(rows, rows.map(() => 1 / rows.length));
    return this.columnGroups ? summedKeys(mean, this.columnGroups) : mean;
  }
}
