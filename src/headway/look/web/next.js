// What was likely at the chosen step, also at another temperature and among the likeliest tokens alone.  The
// probabilities are exact: the file has, for each temperature, the sum over the whole vocabulary.

import { fill, foreign, make } from "./dom.js";
import { percent, short, visible } from "./text.js";

const SHOWN = 6;
const WRITES = ["next", "written"];

export class NextPart {
  constructor(app) {
    Object.assign(this, { app, temperature: -1, k: 0, p: 1 });
    this.title = make("h3", {});
    this.list = make("ul", { class: "probable", testid: "probable" });
    this.note = make("p", { class: "fact", testid: "sampling-note" });
    const slider = (testid, name, attributes, act) => {
      const value = make("output", { class: "number" });
      const range = make("input", { type: "range", testid, "aria-label": name, ...attributes });
      range.addEventListener("input", () => (act(Number(range.value)), this.tell()));
      return { range, value, row: make("label", { class: "labelled sampling" }, make("span", {}, name), range, value) };
    };
    const { temperatures } = app.bundle.codes;
    const last = Math.max(0, (temperatures?.length ?? 1) - 1);
    this.heat = slider("temperature", "temperature", { min: 0, max: last, step: 1 }, (at) => (this.temperature = at));
    this.most = slider("top-k", "top-k", { min: 1, max: 11, step: 1, value: 11 }, (at) => (this.k = at > 10 ? 0 : at));
    this.mass = slider("top-p", "top-p", { min: 0.05, max: 1, step: 0.05, value: 1 }, (at) => (this.p = at));
    this.sliders = make("div", { class: "sliders" }, this.heat.row, this.most.row, this.mass.row);
    this.box = make("section", { class: "next", "aria-label": "What was likely here" }, this.title, this.list, this.sliders, this.note);
  }

  tell() {
    const { app } = this;
    const { outcome } = app.run;
    const step = outcome.steps[app.state.step];
    this.box.hidden = step === undefined;
    if (step === undefined) return;
    const { temperatures } = app.bundle.codes;
    const able = Boolean(step.partitions) && WRITES.includes(outcome.kind);
    if (able && this.temperature < 0) this.temperature = temperatures.indexOf(1);
    this.sliders.hidden = this.note.hidden = !able;
    const kept = able ? resampled(step, temperatures, this) : { top: step.top, note: "" };
    this.title.textContent = WRITES.includes(outcome.kind) ? "What comes next here" : "How likely";
    fill(this.list, ...kept.top.slice(0, SHOWN).map(([label, p]) => probable(label, p, label === step.said)));
    this.note.textContent = kept.note;
    if (!able) return;
    this.heat.range.value = String(this.temperature);
    this.heat.value.textContent = String(temperatures[this.temperature]);
    this.most.value.textContent = this.k === 0 ? "all" : String(this.k);
    this.mass.value.textContent = this.p.toFixed(2);
  }
}

// First the temperature, then top-k, then top-p, each on what the one before has left, as a sampler does it.
export function resampled(step, temperatures, { temperature, k, p }) {
  const logs = step.top.map(([, chance]) => Math.log(chance) / temperatures[temperature]);
  let chances = logs.map((log) => Math.exp(log - step.partitions[temperature]));
  if (k > 0) chances = shares(chances.slice(0, k));
  let note = "";
  if (p < 1) {
    let mass = 0;
    const count = chances.findIndex((chance) => (mass += chance) >= p) + 1;
    if (count > 0) chances = shares(chances.slice(0, count));
    else note = `top-p ${p.toFixed(2)} keeps more than the ${chances.length} tokens that are in this file: shown as without it`;
  }
  return { top: chances.map((chance, at) => [step.top[at][0], chance]), note };
}

function shares(chances) {
  const whole = chances.reduce((a, b) => a + b, 0);
  return chances.map((chance) => chance / whole);
}

function probable(label, p, chosen) {
  const bar = make("span", { class: "bar" });
  bar.style.width = `${Math.max(1, p * 100)}%`;
  const name = foreign(short(label, 24), { class: "name", title: visible(label, 200) });
  return make("li", { class: chosen ? "chosen" : "" }, name, make("span", { class: "number" }, percent(p)), bar);
}
