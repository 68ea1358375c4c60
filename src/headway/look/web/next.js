// What was likely at the chosen step, also at another temperature and among the likeliest tokens alone.  The
// probabilities are exact: the file has, for each temperature, the sum over the whole vocabulary.  A click on another
// token lets the model go on from there.

import { fill, foreign, make, rove } from "./dom.js";
import { percent, quoted, short, visible } from "./text.js";

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
    rove(this.list, "button");
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
    this.sliders.hidden = !able;
    const kept = able ? resampled(step, temperatures, this) : { top: step.top, note: "" };
    this.title.textContent = WRITES.includes(outcome.kind) ? "What comes next here" : "How likely";
    const why = app.branchHindrance(app.state.step);
    const branch = (rank) => ({ why, act: () => this.branch(app.state.step, rank) });
    const writes = WRITES.includes(outcome.kind);
    fill(this.list, ...kept.top.slice(0, SHOWN).map(([label, p], rank) => probable(label, p, label === step.said, writes ? branch(rank) : null, rank === 0)));
    this.note.textContent = kept.note || (writes && why === "" ? "click another token, and the model goes on from there" : "");
    this.note.hidden = this.note.textContent === "";
    if (!able) return;
    this.heat.range.value = String(this.temperature);
    this.heat.value.textContent = String(temperatures[this.temperature]);
    this.most.value.textContent = this.k === 0 ? "all" : String(this.k);
    this.mass.value.textContent = this.p.toFixed(2);
  }

  async branch(step, rank) {
    this.note.textContent = "running …";
    try {
      await this.app.read({ id: this.app.bundle.runs[0].id, step, rank });
    } catch (error) {
      this.note.textContent = error.message;
    }
  }
}

// First the temperature, then top-k, then top-p, each on what the one before has left, as a sampler does it.
function resampled(step, temperatures, { temperature, k, p }) {
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

// A token with its probability; `branch` is what a click on it does, or why it does nothing.
function probable(label, p, chosen, branch, first) {
  const bar = make("span", { class: "bar" });
  bar.style.width = `${Math.max(1, p * 100)}%`;
  const name = foreign(short(label, 24), { class: "name", title: visible(label, 200) });
  const shown = [name, make("span", { class: "number" }, percent(p)), bar];
  const kind = chosen ? "chosen" : "";
  if (branch === null) return make("li", { class: kind }, ...shown);
  const able = branch.why === "" && !chosen;
  const title = able ? `go on with ${quoted(label, 40)} here` : chosen ? "this token was written" : branch.why;
  return make("li", { class: kind }, make("button", { class: "rival", tabindex: first ? 0 : -1, title, "aria-disabled": able ? null : "true", onclick: able ? branch.act : null }, ...shown));
}
