// The input and the output, step by step.  On a live page, another input can be typed or dropped here.

import { fill, foreign, make } from "./dom.js";
import { direction, percent, quoted, short, signed, visible } from "./text.js";

const TOKENS = 220; // tokens of the input that are shown at once
const OWN = { next: "would continue with", written: "would write" }; // where it reads the output of another model
const KINDS = {
  next: "continues with",
  fill: "fills in",
  written: "writes",
  classes: "classifies as",
  tags: "tags as",
  heard: "transcribes",
  foreseen: "forecasts",
  vector: "embeds as",
};

export class PromptPart {
  constructor(app, box) {
    Object.assign(this, { app, box, chips: [] });
    this.input = make("div", { testid: "input", class: "tokens" });
    this.output = make("p", { testid: "output", class: "said-text", dir: "auto" });
    this.slider = make("input", { type: "range", min: 0, step: 1, testid: "step", "aria-label": "Step",
      oninput: () => this.stepped(Number(this.slider.value)) });
    this.follows = make("p", { class: "fact follows", testid: "follows", hidden: true });
    this.step = make("p", { class: "fact", "aria-live": "polite" });
    this.top = make("ul", { class: "probable", testid: "probable" });
    this.kind = make("h2", {});
    this.which = make("h2", {}, "reads");
    this.left = make("div", { class: "input-side" }, this.which, this.input);
    const line = make("div", { class: "row" }, this.slider, this.step);
    fill(box, this.left, make("div", { class: "output-side" }, this.kind, this.output, this.follows, line, this.top));
  }

  update(any) {
    if (any("run", "site", "column", "row")) this.read(any("run", "site"));
    if (any("row", "head", "site", "run", "compare", "data", "theme", "root")) this.weigh();
    if (any("run")) this.said();
    if (any("run", "step", "compare")) this.tell();
  }

  // The pieces of the input, or what picture or sound it was.
  read(fresh) {
    const { app } = this;
    const { columns } = app;
    if (columns.kind !== "text") return fresh ? this.observed() : undefined;
    const focus = app.rows === columns ? app.state.row : app.state.column;
    const seen = columns.count <= TOKENS ? 0 : Math.max(0, Math.min(columns.count - TOKENS, focus - TOKENS / 2));
    const kept = this.chips.length > 0 && focus >= this.seen && focus < this.seen + TOKENS;
    if (this.axis === columns && (kept || seen === this.seen)) return;
    Object.assign(this, { axis: columns, seen, chips: [], shares: [] });
    const several = Object.values(app.run.axes).filter((axis) => axis.kind === "text").length > 1;
    this.which.textContent = several ? `reads · ${visible(columns.name, 40)}` : "reads";
    for (let at = seen; at < Math.min(columns.count, seen + TOKENS); at++) this.chips.push(this.chip(at));
    const more = (count) => (count > 0 ? make("span", { class: "fact" }, `… ${count} more …`) : null);
    this.input.dir = direction(columns.labels.slice(0, 50).join(" "));
    fill(this.input, more(seen), ...this.chips, more(columns.count - seen - this.chips.length));
  }

  chip(at) {
    const { columns } = this.app;
    const text = columns.label(at);
    const choose = () => this.app.look(this.app.rows === this.app.columns ? { row: at, pinned: true } : { column: at });
    const kind = columns.special.has(at) ? "token special" : "token";
    return foreign(short(text, 40), { class: kind, title: visible(text, 200), onclick: choose });
  }

  observed() {
    const { run } = this.app;
    Object.assign(this, { axis: null, chips: [] });
    this.which.textContent = "reads";
    const seen = run.picture && { src: run.picture.src, alt: "the image as the model read it", class: "seen" };
    const image = seen ? make("img", seen) : null;
    const sound = run.sound ? make("audio", { src: run.sound.src, controls: true, preload: "metadata" }) : null;
    this.input.dir = "auto";
    fill(this.input, image, sound, foreign(visible(run.input, 120)));
  }

  // Each piece in a colour as strong as the weight that the chosen query gives it.
  weigh() {
    const { app } = this;
    const found = this.chips.length > 0 ? app.row : undefined;
    if (found === undefined) return;
    const most = found.weights.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9);
    this.chips.forEach((chip, at) => {
      const weight = found.weights[this.seen + at] ?? 0;
      const share = Math.round((Math.abs(weight) / most) * 60);
      if (share !== this.shares[at]) chip.style.setProperty("--share", `${share}%`);
      this.shares[at] = share;
      chip.classList.toggle("strong", share > 30);
      chip.classList.toggle("less", weight < 0);
      chip.classList.toggle("more", weight > 0 && app.field.signed);
      chip.classList.toggle("chosen", app.rows === app.columns && this.seen + at === app.state.row);
    });
  }

  said() {
    const { outcome, follows } = this.app.run;
    this.kind.textContent = (follows ? OWN[outcome.kind] : KINDS[outcome.kind]) ?? "outputs";
    const by = follows ? ["reads what ", foreign(visible(follows.by, 60)), " wrote: "] : [];
    fill(this.follows, ...by, follows ? foreign(quoted(follows.text, 300)) : null);
    this.follows.hidden = !follows;
    this.output.textContent = visible(outcome.text, 2000);
    this.slider.max = String(Math.max(0, outcome.steps.length - 1));
    this.slider.hidden = outcome.steps.length < 2;
    this.slider.parentElement.hidden = outcome.steps.length === 0;
  }

  // A step is also a query: the place at which the model stood when it said this.
  stepped(step) {
    const at = this.app.run.outcome.steps[step].at;
    this.app.look(at === null ? { step } : { step, row: at, pinned: true });
  }

  tell() {
    const { outcome } = this.app.run;
    const step = outcome.steps[this.app.state.step];
    this.slider.value = String(this.app.state.step);
    fill(this.top);
    if (step === undefined) return fill(this.step);
    const place = outcome.steps.length > 1 ? `${this.app.state.step + 1} of ${outcome.steps.length}: ` : "";
    fill(this.step, place, foreign(short(step.said, 40)), ` · log p ${signed(step.logprob, 2)}`, ...this.beside(step));
    fill(this.top, ...step.top.slice(0, 6).map(([label, p]) => probable(label, p, label === step.said)));
  }

  // How likely the run to compare with finds the same word.
  beside(step) {
    const run = this.app.bundle.runs[this.app.state.compare];
    const theirs = run?.outcome.steps[this.app.state.step];
    if (theirs?.said !== step.said || theirs.at !== step.at) return [];
    return [" · ", foreign(visible(run.title, 40)), ` ${signed(theirs.logprob, 2)}`];
  }
}

function probable(label, p, chosen) {
  const bar = make("span", { class: "bar" });
  bar.style.width = `${Math.max(1, p * 100)}%`;
  const name = foreign(short(label, 24), { class: "name", title: visible(label, 200) });
  return make("li", { class: chosen ? "chosen" : "" }, name, make("span", { class: "number" }, percent(p)), bar);
}
