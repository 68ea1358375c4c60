// The numbers behind one weight: queries, keys and biases of a site, from which its weights are computed again, and in
// half precision its inputs, values and output matrix.
//
// T queries   S keys   D head width   C model width

import { MEAN } from "./state.js";

const EXACT = ["q", "k", "bias", "additive"]; // float32
const ORDER = [...EXACT, "x", "v", "out"];

// The numbers of the chosen site; null where there are none, undefined while they are on their way.
export function detailOf(app) {
  return app.state.head === MEAN || app.joined ? null : app.library.detail(app.site);
}

export class Detail {
  constructor(raw, told) {
    this.told = told;
    this.parts = {};
    let start = raw.byteOffset;
    for (const name of ORDER.filter((one) => told.layout[one])) {
      const length = told.layout[name].reduce((a, b) => a * b, 1);
      const Kind = EXACT.includes(name) ? Float32Array : Uint16Array;
      this.parts[name] = new Kind(raw.buffer, start, length);
      start += this.parts[name].byteLength;
    }
    this.cells = new Map();
  }

  // A vector along the last axis: vector("q", head, row)
  vector(name, ...index) {
    const shape = this.told.layout[name];
    if (!shape) return null;
    const width = shape[shape.length - 1];
    const place = index.reduce((sum, at, axis) => sum * shape[axis] + at, 0);
    const found = this.parts[name].subarray(place * width, (place + 1) * width);
    return EXACT.includes(name) ? found : Float32Array.from(found, unhalved);
  }

  // What each dimension adds to the score of (row, column).
  terms(head, row, column) {
    return this.added(this.vector("q", head, row), this.vector("k", head, column), head);
  }

  added(q, k, head) {
    const { score, scale } = this.told;
    const factor = (Array.isArray(scale) ? scale[head] : scale) ?? 1;
    if (score !== "additive") return q.map((value, d) => value * k[d] * factor);
    const v = this.vector("additive");
    return q.map((value, d) => v[d] * Math.tanh(value + k[d]));
  }

  // What is added to the score before the softmax: a bias, −∞ where the key is hidden, 0 where there is neither.
  biases(head, row) {
    const shape = this.told.layout.bias;
    return shape ? this.vector("bias", shape[0] === 1 ? 0 : head, row) : null;
  }

  // Scores and weights of all keys of a query.
  scored(head, row) {
    const key = `${head}/${row}`;
    if (!this.cells.has(key)) {
      if (this.cells.size > 256) this.cells.clear();
      this.cells.set(key, this.softmaxed(head, row));
    }
    return this.cells.get(key);
  }

  softmaxed(head, row) {
    const keys = this.told.layout.k[1];
    const q = this.vector("q", head, row);
    const bias = this.biases(head, row);
    const scores = new Float32Array(keys);
    for (let column = 0; column < keys; column++) {
      scores[column] = sumOf(this.added(q, this.vector("k", head, column), head));
    }
    const weights = softmaxOf(scores.map((s, column) => s + (bias === null ? 0 : bias[column])));
    return { q, bias, scores, weights };
  }

  // The way from a query's weights: their mean of values, and what the head gives.
  followed(head, weights) {
    const z = this.gatheredValues(head, weights);
    return { z, given: this.projected(head, z) };
  }

  // Σ w v; null where a small file leaves the values out.
  gatheredValues(head, weights) {
    const shape = this.told.layout.v;
    if (!shape) return null;
    const z = new Float32Array(shape[2]);
    weights.forEach((w, column) => w > 0 && this.vector("v", head, column).forEach((v, d) => (z[d] += w * v)));
    return z;
  }

  projected(head, z) {
    const shape = this.told.layout.out;
    if (!shape || z === null) return null;
    return Float32Array.from({ length: shape[0] }, (_, c) => {
      const line = this.vector("out", c);
      return z.reduce((sum, value, d) => sum + value * line[head * z.length + d], 0);
    });
  }
}

export function sumOf(values) {
  return values.reduce((a, b) => a + b, 0);
}

export function lengthOf(values) {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
}

function softmaxOf(scores) {
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  if (most === -Infinity) return scores.map(() => 0);
  const powers = scores.map((s) => Math.exp(s - most));
  const total = sumOf(powers);
  return powers.map((power) => power / total);
}

const HALVES = new Float32Array(65536).fill(Number.NaN);

export function unhalved(bits) {
  const known = HALVES[bits];
  if (known === known) return known;
  const size = sizeOf((bits >> 10) & 31, bits & 1023);
  HALVES[bits] = bits & 32768 ? -size : size;
  return HALVES[bits];
}

function sizeOf(exponent, fraction) {
  if (exponent === 0) return fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? Infinity : Number.NaN;
  return (1 + fraction / 1024) * 2 ** (exponent - 15);
}
