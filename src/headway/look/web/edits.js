// Edits of heads (off, uniform, only this head): the output with them, and the change in the log-probability of the
// original output.

import { fill, foreign, make } from "./dom.js";
import { ABSENT } from "./source.js";
import { MEAN } from "./state.js";
import { percent, quoted, signed, visible } from "./text.js";

const DELTAS = { vector: "Δ cosine", foreseen: "Δ row" }; // of what is not chosen by its probability
const UNTRIED = "Not tried: so many runs of this model take too long.  headway look … --effects tries them, --live on demand.";
const WAYS = [["off", "off"], ["uniform", "uniform"], ["only", "only this head"]];

// What is said of the change of an outcome's score.
export function deltaName(kind) {
  return DELTAS[kind] ?? "Δ log p";
}

export class EditsPart {
  constructor(app, box) {
    Object.assign(this, { app, box, asked: "" });
    this.name = make("h2", {});
    this.buttons = WAYS.map(([how, text]) =>
      make("button", { testid: `edit-${how}`, "aria-pressed": "false", onclick: () => this.toggle(how) }, text));
    const none = () => app.change({ edits: [] });
    this.reset = make("button", { testid: "edit-reset", class: "quiet", onclick: none }, "reset");
    this.delta = make("output", { testid: "edit-delta", class: "delta" });
    this.output = make("p", { testid: "edit-output", class: "edit-output", "aria-live": "polite" });
    const group = { class: "row", role: "group", "aria-label": "Edit this head" };
    const controls = make("div", group, ...this.buttons, this.reset);
    fill(box, make("div", { class: "row" }, this.name, controls, this.delta), this.output);
  }

  // In the file there is one change at a time; the server computes any number of them together.
  toggle(how) {
    const { site, head, edits } = this.app.state;
    const others = this.app.source.live ? edits.filter((one) => one.site !== site || one.head !== head) : [];
    const pressed = this.pressed(how);
    this.app.change({ edits: pressed ? others : [...others, { site, head, how }] });
  }

  pressed(how) {
    const { site, head, edits } = this.app.state;
    return edits.some((one) => one.site === site && one.head === head && one.how === how);
  }

  update(any) {
    if (!any("site", "head", "run", "edits", "step", "answer")) return;
    const { app } = this;
    const { head, edits, run } = app.state;
    const able = head !== MEAN && !app.site.derived;
    const known = new Set((app.run.effects ?? []).map((one) => one.how));
    fill(this.name, head === MEAN ? "A head" : `Head ${head}`);
    this.buttons.forEach((button, at) => {
      const there = app.source.live || known.has(WAYS[at][0]);
      button.disabled = !able || !there;
      button.title = able && !there ? UNTRIED : "";
      button.setAttribute("aria-pressed", String(this.pressed(WAYS[at][0])));
    });
    this.reset.disabled = edits.length === 0;
    const key = JSON.stringify([run, edits]);
    if (key !== this.asked) this.ask(key);
    else if (any("step", "answer", "site", "head")) this.show();
  }

  async ask(key) {
    const { app } = this;
    Object.assign(this, { asked: key, outcome: null, failure: "" });
    if (app.state.edits.length === 0) return this.show();
    this.output.textContent = "…";
    try {
      const outcome = await app.during(app.source.edit(app.run, app.state.edits));
      const failure = outcome === null ? `This edit is ${ABSENT}.` : "";
      if (key === this.asked) Object.assign(this, { outcome, failure });
    } catch (error) {
      if (key === this.asked) this.failure = error.message;
    }
    app.touch("answer");
  }

  show() {
    const { app, outcome, failure } = this;
    const before = app.run.outcome;
    this.delta.textContent = "";
    delete this.delta.dataset.value;
    if (failure || !outcome) return fill(this.output, failure || this.hint());
    const delta = outcome.total - before.total;
    this.delta.dataset.value = String(delta);
    this.delta.textContent = `${deltaName(before.kind)} ${signed(delta)}`;
    const words = outcome.text === before.text ? sameWords(before) : changedWords(before, outcome);
    fill(this.output, this.changes(), ...words, likely(outcome.steps[app.state.step]));
  }

  // Several changes are named, one alone is what the pressed button says.
  changes() {
    const { edits } = this.app.state;
    const away = edits.some((one) => one.site !== this.app.state.site || one.head !== this.app.state.head);
    if (edits.length === 1 && !away) return null;
    return make("span", { class: "changes" }, `${edits.map((e) => `${e.site} head ${e.head} ${e.how}`).join(", ")}: `);
  }

  hint() {
    if (this.app.site.derived) return "This map is computed from other maps; it has no head to edit.";
    if (this.app.state.head === MEAN) return "Choose one head to edit it.";
    if (!this.app.source.live && !this.app.run.effects) return UNTRIED;
    return "Edit this head to see its effect on the output.";
  }
}

function sameWords(before) {
  return [make("span", {}, "unchanged: "), foreign(quoted(before.text, 200))];
}

function changedWords(before, outcome) {
  const [old, now] = [before, outcome].map(({ text }) => foreign(visible(text, 200)));
  return [make("del", {}, old), " → ", make("ins", {}, now)];
}

function likely(step) {
  if (!step || step.top.length === 0) return null;
  const told = ([label, p], at) => [at ? ", " : " · ", foreign(visible(label, 30)), ` ${percent(p)}`];
  return make("span", { class: "likely" }, ...step.top.slice(0, 4).flatMap(told));
}
