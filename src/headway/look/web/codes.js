// Codes of weights (headway/look/weight_codes.py) and rows of them: each number with what is known of it.

import { clamp } from "./state.js";
import { decimal, upward, weightText } from "./text.js";

const TINY = -1; // in place of a limit: the weight rounds to 0

// One head of a tile: weights (NaN: hidden), limits (0: the weight is rounded; else no weight is larger; TINY) and the
// decimals of each row.
export function decoded(raw, [heads, head, rows, columns], classes) {
  const lines = heads * rows;
  const packed = Math.ceil(columns / 3); // three symbols in a byte
  const word = (plane, line) => raw[plane * lines + line] + 256 * raw[(plane + 1) * lines + line];
  let [value, size] = [0, 0]; // of the rounded weights: the first of this head, and all
  for (let line = 0; line < lines; line++) (value += line < head * rows ? word(3, line) : 0), (size += word(3, line));
  value += (5 + packed) * lines;
  const decimals = raw.subarray(head * rows, (head + 1) * rows);
  const [weights, limits] = [new Float32Array(rows * columns), new Float32Array(rows * columns)];
  for (let r = 0; r < rows; r++) {
    const line = head * rows + r;
    const unit = 10 ** -decimals[r];
    const floor = word(1, line);
    const [reps, tops] = classesOf(floor, classes, unit);
    let [from, triple] = [5 * lines + line * packed, 0];
    for (let x = 0, at = r * columns; x < columns; x++, at++) {
      triple = x % 3 === 0 ? raw[from++] : Math.floor(triple / (classes + 3));
      const symbol = triple % (classes + 3);
      const rounded = symbol === classes + 2;
      weights[at] = rounded ? (floor + raw[value] + 256 * raw[value + size]) * unit : reps[symbol];
      if (rounded) value++;
      else limits[at] = tops[symbol];
    }
  }
  return { weights, limits, decimals };
}

// A weight in the middle of each class, 0 for one that rounds to it, and its upper end.
function classesOf(floor, classes, unit) {
  const ratio = (2 * floor + 1) ** (1 / classes);
  const [reps, tops] = [[Number.NaN, 0], [0, TINY]];
  for (let one = 1; one <= classes; one++) {
    tops.push((unit / 2) * ratio ** one);
    reps.push(tops[one + 1] / Math.sqrt(ratio));
  }
  return [reps, tops];
}

// The weights of a query: 0 where a key is hidden.  `limits` is null where the weights are exact.
export class Row {
  constructor(weights, limits = null, decimals = 3) {
    Object.assign(this, { weights, limits, decimals, mark: "", pooled: false });
    this.hidden = Uint8Array.from(weights, (w) => (w === w ? 0 : 1));
    this.hidden.forEach((one, key) => one && (weights[key] = 0));
  }

  get exact() {
    return this.limits === null;
  }

  // Whether a weight is known no better than by its class, or by the maximum of a block.
  bounded(key) {
    return this.limits !== null && this.limits[key] > 0;
  }

  // No weight is larger.
  upper(key) {
    if (this.exact || this.hidden[key]) return this.weights[key];
    return this.bounded(key) ? this.limits[key] : this.weights[key] + 10 ** -this.decimals / 2;
  }

  // The weight as it may be shown: each digit is right, or a bound is.
  text(key) {
    if (this.hidden[key]) return "masked";
    if (this.exact) return weightText(this.weights[key]);
    if (this.limits[key] === Infinity) return `coarse ${decimal(this.weights[key], 2)}`;
    return this.bounded(key) ? `≤ ${upward(this.limits[key])}` : `${this.mark}${decimal(this.weights[key], this.decimals)}`;
  }

  get texts() {
    return Array.from(this.weights, (_, key) => this.text(key));
  }

  // Rows sum to 1: what the rounded weights leave is that of the others; the rest was lost by rounding.
  balanced() {
    const { weights, limits } = this;
    const half = (10 ** -this.decimals / 2) * 0.999;
    let [rest, middle, tiny, rounded] = [1, 0, 0, 0];
    weights.forEach((w, key) => {
      if (limits[key] > 0) middle += w;
      else if (limits[key] < 0) tiny += 1;
      else if (w > 0) (rest -= w), (rounded += 1);
    });
    const each = tiny === 0 ? 0 : clamp((rest - middle) / tiny, 0, half);
    const factor = middle === 0 ? 1 : clamp((rest - tiny * each) / middle, 0.5, 2);
    const lost = rounded === 0 ? 0 : clamp((rest - tiny * each - factor * middle) / rounded, -half, half);
    weights.forEach((w, key) => {
      if (limits[key] > 0) weights[key] = Math.min(limits[key], w * factor);
      else if (limits[key] < 0) weights[key] = each;
      else if (w > 0) weights[key] = w + lost;
    });
    return this;
  }
}

// The sum of rows times factors; where they are not exact, as much as is known of it.
export function combinedRow(rows, factors) {
  const width = rows[0].weights.length;
  const sum = new Float32Array(width);
  rows.forEach((row, at) => row.weights.forEach((w, key) => (sum[key] += factors[at] * w)));
  const exact = rows.every((row) => row.exact);
  const made = new Row(sum, exact ? null : limitsOf(rows, factors, width), 2);
  made.hidden.forEach((_, key) => (made.hidden[key] = rows.every((row) => row.hidden[key]) ? 1 : 0));
  return Object.assign(made, { mark: "≈ ", pooled: rows.some((row) => row.pooled) });
}

// The row in which keys from … to are one key, for each group [from, to].
export function summedKeys(row, groups) {
  const sum = (values, [from, to]) => values.subarray(from, to).reduce((a, b) => a + b, 0);
  const weights = Float32Array.from(groups, (group) => sum(row.weights, group));
  const bounded = ([from, to]) => Array.from({ length: to - from }, (_, k) => from + k).some((key) => row.bounded(key));
  const upper = ([from, to]) => Array.from({ length: to - from }, (_, k) => row.upper(from + k)).reduce((a, b) => a + b, 0);
  const limits = row.exact ? null : Float32Array.from(groups, (group) => (bounded(group) ? upper(group) : 0));
  const made = new Row(weights, limits, 2);
  groups.forEach(([from, to], at) => (made.hidden[at] = row.hidden.subarray(from, to).every(Boolean) ? 1 : 0));
  return Object.assign(made, { mark: "≈ ", pooled: row.pooled });
}

// Bounds add up; the difference of two bounds bounds nothing.
function limitsOf(rows, factors, width) {
  const signed = factors.some((factor) => factor < 0);
  return Float32Array.from({ length: width }, (_, key) => {
    if (!rows.some((row) => row.bounded(key))) return 0;
    return signed ? Infinity : rows.reduce((top, row, at) => top + factors[at] * row.upper(key), 0);
  });
}
