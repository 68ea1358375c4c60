// How one weight is computed: X → Q K V → scores → mask → softmax → · V → W_O, with the numbers of the chosen cell.

import { detailOf, lengthOf } from "./detail.js";
import { fill, foreign, make } from "./dom.js";
import { largest } from "./field.js";
import { MOVE, glide } from "./motion.js";
import { reason } from "./side.js";
import { ABSENT } from "./source.js";
import { bars, stripes } from "./stripes.js";
import { decimal, short, weightText } from "./text.js";

export class FootPart {
  constructor(app, box) {
    Object.assign(this, { app, box, cards: {} });
    this.note = make("p", { class: "fact" });
    const turn = () => app.change({ drawer: !app.state.drawer });
    this.handle = make("button", { class: "quiet", testid: "drawer", "aria-controls": "way", onclick: turn });
    const cards = STAGES.map((stage) => this.card(stage));
    this.way = make("ol", { class: "way", id: "way" }, ...cards);
    fill(box, make("header", {}, this.handle, this.note), this.way);
  }

  drawn(detail) {
    const { drawer } = this.app.state;
    this.way.hidden = !drawer || !detail;
    this.handle.setAttribute("aria-expanded", String(drawer));
    this.handle.textContent = `${drawer ? "▾" : "▸"} How this weight is computed`;
  }

  card({ name, title, formula, vectors }) {
    const canvases = Object.fromEntries(vectors.map((one) => [one, make("canvas", { "aria-hidden": "true" })]));
    const line = (one) => make("div", { class: "vector", "data-name": one }, make("var", { class: `hue-${one}` }, one), make("span", {}, canvases[one]));
    const lines = vectors.map(line);
    const number = make("output", { class: "figure", testid: `foot-${name}` });
    const text = make("p", { class: "formula" }, formula);
    this.cards[name] = { canvases, number, lines, text, formula };
    return make("li", { class: "card" }, make("h3", {}, title), text, ...lines, number);
  }

  update(any) {
    if (!any("row", "column", "site", "head", "run", "theme", "detail", "size", "drawer")) return;
    const { app } = this;
    const detail = detailOf(app);
    this.drawn(detail);
    this.box.classList.toggle("empty", !detail);
    const { row, column } = app.state;
    const cell = [foreign(short(app.rows.label(row), 24)), " → ", foreign(short(app.columns.label(column), 24))];
    fill(this.note, ...(detail ? cell : [reason(app, detail)]));
    const values = (this.values = detail ? numbersOf(detail, app) : {});
    for (const [name, { canvases, number, lines, text, formula }] of Object.entries(this.cards)) {
      text.textContent = values[name]?.formula ?? formula;
      number.textContent = values[name]?.text ?? "";
      number.dataset.value = values[name]?.value ?? "";
      Object.values(canvases).forEach((canvas, at) => {
        const vector = values[name]?.vectors?.[at] ?? null;
        lines[at].hidden = vector === null;
        if (vector !== null) drawn(canvas, lines[at].dataset.name, vector, app);
      });
    }
    const { run, head } = app.state;
    const query = [run, app.site.name, head, row].join();
    if (query !== this.query && detail && app.state.drawer) glide(this, MOVE, (share) => this.turning(share));
    this.query = query;
  }

  // Another query: its scores turn into masked scores, and these into weights.
  turning(share) {
    for (const [name, line] of [["mask", "s"], ["softmax", "w"]]) {
      const { vectors, from } = this.values[name] ?? {};
      if (vectors) drawn(this.cards[name].canvases[line], line, mixed(from, vectors[0], share), this.app);
    }
  }
}

const STAGES = [
  { name: "x", title: "X", formula: "the input of the layer", vectors: ["x"] },
  { name: "qkv", title: "Q K V", formula: "W_Q x,  W_K x′,  W_V x′", vectors: ["q", "k", "v"] },
  { name: "score", title: "Score", formula: "s = Σ q k × scale", vectors: ["q", "k", "q·k"] },
  { name: "mask", title: "Mask and bias", formula: "s + b,  masked: −∞", vectors: ["s"] },
  { name: "softmax", title: "Softmax", formula: "w = exp s / Σ exp s′", vectors: ["w"] },
  { name: "value", title: "· V", formula: "z = Σ w v", vectors: ["z"] },
  { name: "out", title: "W_O", formula: "o = W_O z", vectors: ["o"] },
];

// What each stage shows for the chosen cell.
function numbersOf(detail, app) {
  const { head, row, column } = app.state;
  const way = detail.scored(head, row);
  const used = app.site.hard ? app.row.weights : way.weights; // a choice follows where attention is hard
  const { z, given } = detail.followed(head, used);
  const [k, v, x] = [detail.vector("k", head, column), detail.vector("v", head, column), readAt(detail, row)];
  const score = way.scores[column];
  const seen = way.scores.map((s, key) => s + (way.bias === null ? 0 : way.bias[key]));
  const bias = way.bias === null ? null : way.bias[column];
  const { told } = detail;
  const factor = Array.isArray(told.scale) ? told.scale[head] : told.scale;
  const additive = told.score === "additive";
  const sum = additive ? "Σ a tanh(q + k)" : `Σ q k × ${decimal(factor ?? 1, 4)}`;
  const weight = way.weights[column];
  const chosen = used[column] > 0 ? "chosen" : "not chosen";
  return {
    x: { text: x ? norm("x", x) : "", vectors: [x] },
    qkv: { text: "", vectors: [way.q, k, v] },
    score: {
      formula: additive ? "s = Σ a tanh(q + k)" : null,
      text: `${sum} = ${decimal(score)}`,
      value: score,
      vectors: [way.q, k, detail.terms(head, row, column)],
    },
    mask: { text: masked(score, bias), vectors: [seen], from: way.scores },
    softmax: app.site.hard
      ? { formula: "p = exp s / Σ exp s′", text: `p = ${weightText(weight)}, ${chosen}`, value: weight, vectors: [way.weights], from: raised(seen) }
      : { text: bias === -Infinity ? "w = 0, masked" : `w = ${weightText(weight)}`, value: weight, vectors: [way.weights], from: raised(seen) },
    value: { text: v ? `${norm("z", z)}, of it ${norm("w v", v, used[column])}` : ABSENT, vectors: [z] },
    out: { text: given ? norm("W_O z", given) : ABSENT, vectors: [given] },
  };
}

const HUES = { q: "blue", k: "red", v: "green", z: "green" }; // as in lectures
const KEYED = ["s", "w"]; // a bar for each key
const SHOWN_KEYS = 64; // around the chosen one

// Vectors as stripes; queries, keys and values as bars of their colour; scores and weights as a bar for each key.
function drawn(canvas, name, vector, { inks, state }) {
  if (!KEYED.includes(name)) return HUES[name] ? bars(canvas, vector, inks, 16, inks[HUES[name]]) : name === "q·k" ? bars(canvas, vector, inks, 22) : stripes(canvas, vector, inks);
  const first = Math.max(0, Math.min(state.column - SHOWN_KEYS / 2, vector.length - SHOWN_KEYS));
  bars(canvas, vector.slice(first, first + SHOWN_KEYS), inks, 30, inks.accent, state.column - first);
}

// On the way from some bars to others, each by its share of the largest.
function mixed(from, to, share) {
  if (share === 1) return to;
  const [start, end] = [from, to].map((values) => largest(values.filter(Number.isFinite)) || 1);
  return to.map((one, at) => ((1 - share) * (Number.isFinite(from[at]) ? from[at] : 0)) / start + (share * (Number.isFinite(one) ? one : 0)) / end);
}

// Scores from 0 on, as bars of weights are.
function raised(scores) {
  const least = scores.reduce((a, b) => (Number.isFinite(b) ? Math.min(a, b) : a), Infinity);
  return scores.map((one) => (Number.isFinite(one) ? one - least : 0));
}

function norm(name, vector, factor = 1) {
  return `‖${name}‖ = ${decimal(factor * lengthOf(vector), 2)}`;
}

function readAt(detail, row) {
  const shape = detail.told.layout.x;
  return shape && row < shape[0] ? detail.vector("x", row) : null;
}

function masked(score, bias) {
  if (bias === null) return "no mask, no bias";
  if (bias === -Infinity) return "masked: −∞";
  return bias === 0 ? `not masked: s = ${decimal(score)}` : `${decimal(score)} + ${decimal(bias)} = ${decimal(score + bias)}`;
}
