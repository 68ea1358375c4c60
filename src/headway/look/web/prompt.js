// The input, and the output token by token: each written token is underlined as far as it was likely.  On a live page,
// another input can be typed or dropped here.

import { runName, writer } from "./compare.js";
import { fill, foreign, make } from "./dom.js";
import { largest } from "./field.js";
import { direction, percent, quoted, short, signed, visible } from "./text.js";

const TOKENS = 220; // tokens of the input that are shown at once
const PACE = 420; // milliseconds for a token, while the text is played
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
    Object.assign(this, { app, box, chips: [], playing: 0 });
    this.input = make("div", { testid: "input", class: "tokens" });
    this.output = make("p", { testid: "output", class: "said-text", dir: "auto" });
    this.written = make("div", { testid: "written", class: "tokens written", dir: "auto" });
    this.play = make("button", { testid: "play-text", class: "quiet", "aria-label": "write the text token by token",
      title: "write the text token by token", onclick: () => this.toggle() }, "▶");
    this.slider = make("input", { type: "range", min: 0, step: 1, testid: "step", "aria-label": "Step",
      oninput: () => this.stepped(Number(this.slider.value)) });
    this.follows = make("p", { class: "fact follows", testid: "follows", hidden: true });
    this.step = make("p", { class: "fact", "aria-live": "polite" });
    this.kind = make("h2", {});
    this.which = make("h2", {}, "reads");
    this.left = make("div", { class: "input-side" }, this.which, this.input);
    const unbranch = () => app.read({ id: app.bundle.runs[0].id, prefix: [] }).catch((error) => fill(this.step, error.message));
    this.back = make("button", { testid: "unbranch", class: "quiet", title: "let the model choose all tokens again", onclick: unbranch }, "↩");
    const line = make("div", { class: "row" }, this.back, this.play, this.slider, this.step);
    fill(box, this.left, make("div", { class: "output-side" }, this.kind, this.output, this.written, this.follows, line));
  }

  update(any) {
    if (any("run", "site", "column", "row", "words")) this.read(any("run", "site", "words"));
    if (any("row", "head", "site", "run", "compare", "data", "theme", "root", "words")) this.weigh();
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
    const most = largest(found.weights) || 1;
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
    const { app } = this;
    const { run } = app;
    const { outcome, follows } = run;
    this.pause();
    this.kind.textContent = (follows ? OWN[outcome.kind] : KINDS[outcome.kind]) ?? "outputs";
    const by = follows ? ["reads what ", writer(this.app, follows), " wrote: "] : [];
    fill(this.follows, ...by, follows ? foreign(quoted(follows.text, 300)) : null);
    this.follows.hidden = !follows;
    this.output.textContent = visible(outcome.text, 2000);
    const steps = outcome.steps.length;
    this.first = Math.max(steps - (run.written ?? 0), steps - TOKENS); // the steps before are read, and not written
    this.back.hidden = !(app.source.live && run.prefix?.length > 0);
    this.words = outcome.steps.slice(this.first).map((step, at) => this.word(step, this.first + at));
    fill(this.written, ...this.words);
    const shown = this.words.length > 0 && !follows;
    this.output.hidden = shown;
    this.written.hidden = !shown;
    this.play.hidden = this.words.length < 2;
    this.slider.max = String(Math.max(0, steps - 1));
    this.slider.hidden = steps < 2;
    this.slider.parentElement.hidden = steps === 0;
  }

  // A written token; its underline is as long as its probability.
  word(step, at) {
    const p = step.logprob === null ? 0 : Math.exp(step.logprob);
    const { prefix, written } = this.app.run;
    const branched = prefix?.length > 0 && at === this.app.run.outcome.steps.length - written + prefix.length - 1;
    const told = `${visible(step.said, 100)}: ${percent(p)}${branched ? ", chosen by hand" : ""}`;
    const tell = { class: branched ? "token branched" : "token", title: told, onclick: () => this.stepped(at) };
    const node = foreign(short(step.said, 40), tell);
    node.style.setProperty("--p", `${Math.round(p * 100)}%`);
    return node;
  }

  // A step is also a query: the place at which the model stood when it said this.
  stepped(step, pinned = true) {
    const at = this.app.run.outcome.steps[step].at;
    const row = at !== null && at < this.app.site.shape[0] ? { row: this.app.rows.at(at), pinned } : {};
    this.app.look({ step, ...row });
  }

  toggle() {
    if (this.playing !== 0) return this.pause();
    const last = this.app.run.outcome.steps.length - 1;
    this.stepped(this.app.state.step < last ? Math.max(this.app.state.step, this.first) : this.first, false);
    this.play.textContent = "❚❚";
    this.playing = setInterval(() => {
      if (this.app.state.step >= last) this.pause();
      else this.stepped(this.app.state.step + 1, false);
    }, PACE);
  }

  pause() {
    clearInterval(this.playing);
    this.playing = 0;
    this.play.textContent = "▶";
  }

  tell() {
    const { outcome } = this.app.run;
    const step = outcome.steps[this.app.state.step];
    this.slider.value = String(this.app.state.step);
    this.words.forEach((node, at) => {
      node.classList.toggle("chosen", this.first + at === this.app.state.step);
      node.classList.toggle("ahead", this.playing !== 0 && this.first + at > this.app.state.step);
    });
    if (step === undefined) return fill(this.step);
    const place = outcome.steps.length > 1 ? `${this.app.state.step + 1} of ${outcome.steps.length}: ` : "";
    fill(this.step, place, foreign(short(step.said, 40)), ` · log p ${signed(step.logprob, 2)}`, ...this.beside(step));
  }

  // How likely the run to compare with finds the same word.
  beside(step) {
    const run = this.app.runAt(this.app.state.compare);
    const theirs = run?.outcome.steps[this.app.state.step];
    if (theirs?.said !== step.said || theirs.at !== step.at) return [];
    return [" · ", runName(this.app, run), ` ${signed(theirs.logprob, 2)}`];
  }
}
