// Edits of heads (off, uniform, only this head), of one edge, of one token, and patches from another run: the output with
// them, and the change in the log-probability of the original output.

import { otherRun, runName } from "./compare.js";
import { fill, foreign, make } from "./dom.js";
import { ABSENT } from "./source.js";
import { MEAN } from "./state.js";
import { percent, quoted, short, signed, visible } from "./text.js";

const DELTAS = { vector: "Δ cosine", foreseen: "Δ row" }; // of what is not chosen by its probability
const UNTRIED = "Not tried: so many runs of this model take too long.  headway look … --effects tries them, --live on demand.";
const LIVE = "Needs the model: headway look … --live.";
const WAYS = [["off", "off"], ["uniform", "uniform"], ["only", "only this head"], ["cut", "cut edge"], ["token", "cut token"], ["patch", "patch"]];
const OF_HEADS = ["off", "uniform", "only"]; // one of them at a time
const PLACED = ["cut", "token"];

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

  // The edit of what is chosen now.
  edit(how) {
    const { site, head, row, column } = this.app.state;
    return { site, head, how, ...(PLACED.includes(how) ? { row: how === "token" ? 0 : row, column } : {}) };
  }

  // In the file there is one change at a time; the server computes any number of them together.
  toggle(how) {
    const mine = this.edit(how);
    const instead = (one) => same(one, mine) || (OF_HEADS.includes(how) && OF_HEADS.includes(one.how) && one.site === mine.site && one.head === mine.head);
    const others = this.app.source.live ? this.app.state.edits.filter((one) => !instead(one)) : [];
    this.app.change({ edits: this.pressed(how) ? others : [...others, mine] });
  }

  pressed(how) {
    const mine = this.edit(how);
    return this.app.state.edits.some((one) => same(one, mine));
  }

  // Why an edit cannot be tried; "" where it can.
  hindrance(how, known) {
    const { app } = this;
    if (app.state.head === MEAN || app.site.derived) return " ";
    if (OF_HEADS.includes(how)) return app.source.live || known.has(how) ? "" : UNTRIED;
    if (!app.source.live) return LIVE;
    if (PLACED.includes(how) && app.joined) return "Look at tokens: a word may be several.";
    if (how === "cut" && app.row?.hidden[app.state.column]) return "This key is masked already.";
    return how === "patch" && otherRun(app) === null ? "Needs a second input to patch from." : "";
  }

  update(any) {
    if (!any("site", "head", "run", "row", "column", "words", "edits", "step", "answer", "compare", "data")) return;
    const { app } = this;
    const { head, edits, run } = app.state;
    const known = new Set((app.run.effects ?? []).map((one) => one.how));
    fill(this.name, head === MEAN ? "A head" : `Head ${head}`);
    this.buttons.forEach((button, at) => {
      const [how] = WAYS[at];
      const why = this.hindrance(how, known);
      button.disabled = why !== "" && !this.pressed(how);
      button.title = why.trim() || this.meaning(how);
      button.setAttribute("aria-pressed", String(this.pressed(how)));
    });
    this.reset.disabled = edits.length === 0;
    const key = JSON.stringify([app.bundle.runs[run].id, app.state.compare, edits]);
    if (key !== this.asked) this.ask(key);
    else if (any("step", "answer", "site", "head")) this.show();
  }

  meaning(how) {
    const { app } = this;
    const [query, key] = [short(app.rows.label(app.state.row), 24), short(app.columns.label(app.state.column), 24)];
    if (how === "cut") return `${query} no longer sees ${key} in this head`;
    if (how === "token") return `nobody but itself sees ${key}, in no layer`;
    const other = otherRun(app);
    return how === "patch" && other ? `this head gives what it gave for ${runName(app, other).textContent}` : "";
  }

  async ask(key) {
    const { app } = this;
    Object.assign(this, { asked: key, outcome: null, failure: "" });
    const { run } = app.state;
    if (app.edited.size > 0) app.show(run, null);
    if (app.state.edits.length === 0) return this.show();
    this.output.textContent = "…";
    try {
      const other = app.state.edits.some((one) => one.how === "patch") ? otherRun(app) : null;
      const outcome = await app.during(app.source.edit(app.bundle.runs[run], app.state.edits, other));
      const failure = outcome === null ? `This edit is ${ABSENT}.` : "";
      if (key !== this.asked) return;
      Object.assign(this, { outcome, failure });
      if (outcome?.run) app.show(run, outcome.run);
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
    if (edits.length === 1 && !away && OF_HEADS.includes(edits[0].how)) return null;
    return make("span", { class: "changes" }, `${edits.map((one) => editName(this.app, one)).join(", ")}: `);
  }

  hint() {
    if (this.app.site.derived) return "This map is computed from other maps; it has no head to edit.";
    if (this.app.state.head === MEAN) return "Choose one head to edit it.";
    if (!this.app.source.live && !this.app.run.effects) return UNTRIED;
    return "Edit this head to see its effect on the output.";
  }
}

function same(one, other) {
  return ["site", "head", "how", "row", "column"].every((key) => one[key] === other[key]);
}

// An edit in words.
export function editName(app, { site, head, how, row, column }) {
  const told = app.siteOf(app.state.run, site);
  if (!PLACED.includes(how) || told === null) return `${site} head ${head} ${how === "patch" ? "patched" : how}`;
  const [query, key] = app.axesOf(app.state.run, told, false).map((axis, at) => short(axis.label([row, column][at]), 20));
  return how === "cut" ? `${site} head ${head} ${query} → ${key} cut` : `${key} cut`;
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
