// The page's one model: the bundle, what is chosen of it, and the values that belong to the choice.
//
// Parts never call one another.  They change the state; each is told once per frame what has changed.

import { Axis } from "./axis.js";
import { Scale } from "./colour.js";
import { unlikeness } from "./compare.js";
import { DifferenceField, HeadField, MeanField, strongest } from "./field.js";
import { WordField, joinable, wordsOf } from "./words.js";
import { Library } from "./library.js";
import { Shelf } from "./shelf.js";
import { MEAN, NONE, START, clamp, fromHash, toHash } from "./state.js";
import { dressed } from "./theme.js";

const PATIENT = 120; // milliseconds
const LONGEST_INPUT = 4000; // letters of a text that a link carries
const DRAWER = 860; // pixels of a window in which the way to a weight has room

export class App {
  constructor(bundle, source, views) {
    Object.assign(this, { source, views, parts: [], changed: new Set(), drawn: [] });
    Object.assign(this, { frame: 0, busy: 0, due: 0, seeking: false, printing: false });
    this.state = { ...START, drawer: window.innerHeight >= DRAWER };
    this.open(bundle, fromHash(location.hash));
  }

  // Another bundle: at the start, and whenever the server has read something else.
  open(bundle, told) {
    this.bundle = bundle;
    this.fields = new Map();
    this.axes = new Map();
    this.edited = new Map(); // runs with edits, as a server made them, in place of those of the bundle
    const arrived = () => this.arrived();
    this.bitmaps = new Shelf(240, arrived);
    this.library = new Library(this.source, bundle, arrived, () => (this.touch("detail"), this.arrived()));
    const focus = { ...bundle.focus, step: firstStep(bundle.runs[bundle.focus?.run ?? 0].outcome) };
    this.state = this.valid({ ...START, theme: this.state.theme, drawer: this.state.drawer, ...focus, ...told });
    // two inputs whose tokens differ may still have the same words
    if (this.state.compare !== NONE && this.other === null && told.words === undefined) this.state = this.valid({ ...this.state, words: true });
    if (told.row === undefined) this.seek(this.state);
    this.touch("all");
  }

  // In place of a run of the bundle one with edits: its maps; null: the bundle's own.
  show(run, edited) {
    if (edited === null) this.edited.delete(run);
    else this.edited.set(run, { ...this.bundle.runs[run], id: edited.id, edited: true, sites: withEffects(edited.sites, this.bundle.runs[run].sites) });
    this.touch("run");
    this.touch("data");
  }

  // ------------------------------------------------------------------------------------------ what is chosen

  get run() {
    return this.runAt(this.state.run);
  }

  runAt(run) {
    return this.edited.get(run) ?? this.bundle.runs[run];
  }

  get site() {
    return this.siteOf(this.state.run, this.state.site);
  }

  siteOf(run, name) {
    return this.runAt(run)?.sites.find((site) => site.name === name) ?? null;
  }

  get rows() {
    return this.axis(this.state.run, this.site.rows);
  }

  get columns() {
    return this.axis(this.state.run, this.site.columns);
  }

  // Tokens, or the words that they are joined to.
  axis(run, name, words = this.state.words) {
    const key = `${run}/${name}`;
    if (!this.axes.has(key)) {
      const tokens = new Axis(name, this.bundle.runs[run].axes[name]);
      this.axes.set(key, { tokens, words: joinable(tokens) ? wordsOf(tokens) : tokens });
    }
    return this.axes.get(key)[words ? "words" : "tokens"];
  }

  // The rows and the columns of a site.
  axesOf(run, site, words = this.state.words) {
    return [this.axis(run, site.rows, words), this.axis(run, site.columns, words)];
  }

  // Whether pieces of the chosen map are joined to words now.
  get joined() {
    return this.rows.groups !== null || this.columns.groups !== null;
  }

  get view() {
    return this.views.find((view) => view.name === this.state.view);
  }

  // The views that say something about this site.
  fitting(state = this.state) {
    const site = this.siteOf(state.run, state.site);
    const [rows, columns] = this.axesOf(state.run, site, state.words);
    return this.views.filter((view) => view.fits(rows, columns, this.bundle.runs[state.run], this.bundle, site));
  }

  // Heads of the site that are drawn besides the chosen one.
  get alsoShown() {
    const told = this.state.also.split(".").filter(Boolean).map(Number);
    return told.filter((head) => head < this.site.heads && head !== this.state.head);
  }

  isEdited(site, head) {
    return this.state.edits.some((one) => one.site === site && one.head === head && one.how !== "token");
  }

  // The same site of the run to compare with, if its map has the same form; else null.
  get other() {
    return this.otherOf(this.site, this.state.head);
  }

  otherOf(site, head) {
    const { compare } = this.state;
    const other = compare === NONE ? null : this.siteOf(compare, site.name);
    return unlikeness(this.formOf(this.state.run, site), this.formOf(compare, other), head) === "" ? other : null;
  }

  // A site with the shape that its map has now.
  formOf(run, site) {
    return site && { ...site, shape: this.axesOf(run, site).map((axis) => axis.count) };
  }

  get field() {
    return this.fieldFor(this.site, this.state.head);
  }

  // The weights of a head, or their difference where two runs are compared.
  fieldFor(site, head) {
    const ours = this.fieldOf(this.state.run, site, head);
    const other = this.otherOf(site, head);
    return other === null ? ours : this.difference(ours, this.fieldOf(this.state.compare, other, head));
  }

  difference(ours, theirs) {
    return this.kept(`${ours.key} - ${theirs.key}`, () => new DifferenceField(ours, theirs));
  }

  fieldOf(run, site, head) {
    const from = this.runAt(run);
    const key = `${from.id}/${site.name}/${head}`;
    const made = () => (head === MEAN ? new MeanField(this.library, from, site) : new HeadField(this.library, from, site, head));
    const tokens = this.kept(key, made);
    const [rows, columns] = this.axesOf(run, site);
    return rows.groups || columns.groups ? this.kept(`${key}/words`, () => new WordField(tokens, rows, columns)) : tokens;
  }

  kept(key, made) {
    if (!this.fields.has(key)) this.fields.set(key, made());
    return this.fields.get(key);
  }

  // The chosen query's weights, exact where that can be had; undefined while they are on their way.
  get row() {
    return this.field.exact(this.state.row) ?? this.field.row(this.state.row);
  }

  // What may be said of the weight of a key of the chosen query.
  shown(key) {
    const known = this.row.pooled ? this.field.strongest(this.state.row) : null;
    return known?.key === key ? known.text : this.row.text(key);
  }

  // The strongest keys of a query: [[key, weight, text], …]; of pooled weights, as many as are known.
  strongest(row, found, most) {
    const known = found.pooled ? this.field.strongest(row) : null;
    if (known) return [[known.key, known.weight, known.text]];
    return strongest(found.weights, most).map(([key, weight]) => [key, weight, found.text(key)]);
  }

  get scale() {
    return this.scaleOf(this.field);
  }

  scaleOf(field) {
    const { root } = this.state;
    const key = `scale/${field.key}/${field.peak()}/${root}/${this.colours}`;
    return this.kept(key, () => new Scale(field.peak() ?? 1, field.signed, root, this.stops(field.signed)));
  }

  // The name of the colours that maps are drawn in, and the colours.
  get colours() {
    return this.state.palette === "cividis" ? `cividis ${this.inks.theme}` : this.inks.theme;
  }

  // Colours of probabilities, from 0 to 1.
  get chanceScale() {
    return this.kept(`scale/chance/${this.colours}`, () => new Scale(1, false, false, this.stops(false)));
  }

  stops(signed) {
    const { negative, positive, ...sequential } = this.bundle.colours;
    if (signed) return [...negative, this.inks.rgb, ...positive]; // the page's own paper between them
    return sequential[this.state.palette === "cividis" ? "cividis" : this.inks.theme];
  }

  // ------------------------------------------------------------------------------------------ change

  change(patch) {
    let next = this.valid({ ...this.state, ...patch });
    const elsewhere = next.site !== this.state.site || next.run !== this.state.run || next.words !== this.state.words;
    if (elsewhere) next = this.valid({ ...next, ...this.moved(next, patch) });
    const keys = Object.keys(next).filter((key) => next[key] !== this.state[key]);
    this.state = next;
    keys.forEach((key) => this.touch(key));
    if (keys.includes("words")) this.touch("site"); // other axes
    if (keys.length > 0) this.missing; // asked for now, so that it is there when the frame comes
  }

  // Points at a cell.  A query without a key is shown with its strongest.
  look(found) {
    this.seeking ||= found.row !== undefined && found.column === undefined;
    this.change(found);
  }

  // Elsewhere, the map is seen whole, and another axis begins at the word that was said.
  moved(next, patch) {
    const [old, site] = [this.site, this.siteOf(next.run, next.site)];
    const fresh = { zoom: patch.zoom ?? 1, x: patch.x ?? 0, y: patch.y ?? 0 };
    if (next.words !== this.state.words && patch.row === undefined && old === site) return { ...fresh, ...this.reworded(next) };
    const same = old.rows === site.rows && old.columns === site.columns;
    if (same || patch.row !== undefined) return fresh;
    return { ...fresh, ...this.begin(next) };
  }

  // The same cell, of words or of their first tokens.
  reworded(next) {
    const [rows, columns] = this.axesOf(next.run, this.site, next.words);
    const at = (old, now, index) => (now.groups ? now.at(index) : (old.groups?.[index][0] ?? index));
    return { row: at(this.rows, rows, this.state.row), column: at(this.columns, columns, this.state.column) };
  }

  begin(state) {
    const site = this.siteOf(state.run, state.site);
    const [rows] = this.axesOf(state.run, site, state.words);
    const at = this.bundle.runs[state.run].outcome.steps[state.step]?.at ?? null;
    this.seeking = true;
    return { row: rows.at(at !== null && at < site.shape[0] ? at : (site.opens ?? site.shape[0] - 1)) };
  }

  seek(state) {
    Object.assign(state, this.begin(state));
  }

  valid(state) {
    const runs = this.bundle.runs;
    state.run = clamp(Math.round(state.run), 0, runs.length - 1);
    if (state.compare === state.run || !(state.compare in runs)) state.compare = NONE;
    const { sites, outcome } = this.runAt(state.run);
    const site = sites.find((one) => one.name === state.site) ?? sites.find((one) => !one.derived) ?? sites[0];
    state.site = site.name;
    state.head = site.heads === 1 ? 0 : clamp(Math.round(state.head), MEAN, site.heads - 1);
    const known = ({ site: name, head }) => sites.some((one) => one.name === name && !one.derived && head < one.heads);
    if (!state.edits.every(known)) state.edits = state.edits.filter(known);
    if (!this.source.live && state.edits.length > 1) state.edits = state.edits.slice(0, 1); // a file has one at a time
    const [rows, columns] = this.axesOf(state.run, site, state.words);
    state.row = clamp(Math.round(state.row), 0, rows.count - 1);
    state.column = clamp(Math.round(state.column), 0, columns.count - 1);
    state.step = clamp(Math.round(state.step), 0, Math.max(0, outcome.steps.length - 1));
    const clouds = this.bundle.clouds ?? [];
    if (!(state.cloud in clouds)) state.cloud = NONE;
    if (state.cloud !== NONE) {
      state.layer = clamp(Math.round(state.layer), 0, clouds[state.cloud].layers.length - 1);
      state.point = clamp(Math.round(state.point), 0, clouds[state.cloud].labels.length - 1);
    }
    if (!/^[\d.]*$/.test(state.also)) state.also = START.also;
    if (!["theme", "cividis"].includes(state.palette)) state.palette = START.palette;
    const fitting = this.fitting(state);
    const chosen = fitting.find((view) => view.name === state.view);
    const natural = fitting.find((view) => view.first?.(rows, columns));
    state.view = (chosen ?? natural ?? fitting[0]).name;
    return state;
  }

  // ------------------------------------------------------------------------------------------ frames

  touch(key) {
    this.changed.add(key);
    if (this.frame === 0 && this.parts.length > 0) this.frame = requestAnimationFrame(() => this.draw());
  }

  // What a frame was left out for is drawn at once, not a frame later.
  arrived() {
    this.touch("data");
    if (this.due === 0 || this.missing) return;
    cancelAnimationFrame(this.frame);
    this.draw();
  }

  draw() {
    this.frame = 0;
    if (this.early()) return;
    this.sought();
    const changed = this.changed;
    this.changed = new Set();
    const any = (...keys) => changed.has("all") || keys.some((key) => changed.has(key));
    for (const part of this.parts) this.guarded(() => part.update(any), part);
    this.remember();
    if (this.quiet) this.drawn.splice(0).forEach((resolve) => resolve());
  }

  // One panel that fails does not stop the others: it says so, and the next change tries again.
  guarded(act, { box } = {}) {
    try {
      act();
      box?.removeAttribute("data-failed");
    } catch (error) {
      console.error(error);
      box?.setAttribute("data-failed", `this panel could not be drawn: ${error.message}`);
    }
  }

  sought() {
    const row = this.seeking ? this.row : undefined;
    const known = row?.pooled ? this.field.strongest(this.state.row) : null;
    if (row === undefined || known === undefined) return;
    this.seeking = false;
    let best = known?.key ?? 0;
    if (!known) row.weights.forEach((w, key) => (best = Math.abs(w) > Math.abs(row.weights[best]) ? key : best));
    this.change({ column: best });
  }

  get quiet() {
    return this.frame === 0 && this.changed.size === 0 && this.busy === 0 && !this.library.waiting;
  }

  // Something that the model is asked for; the page is not settled before it is answered.
  async during(answer) {
    this.busy += 1;
    try {
      return await answer;
    } finally {
      this.busy -= 1;
      this.touch("data");
    }
  }

  get missing() {
    const row = this.row; // both are asked for, whichever is missing
    return this.field.tiles() === undefined || row === undefined;
  }

  // Another map is drawn when it is there, and not first without its weights; but nobody waits for it long.
  early() {
    const { missing } = this;
    if (missing && this.due === 0) {
      this.due = performance.now() + PATIENT;
      setTimeout(() => this.touch("data"), PATIENT + 1);
    }
    if (missing && performance.now() < this.due) return true;
    if (!missing) this.due = 0;
    return false;
  }

  // Reads something else: {text, against, prefix}, {name, data} of a file, or {id, step, rank} to branch from a token.
  async read(input, told = null) {
    const before = this.bundle.runs.length;
    const bundle = await this.during(this.source.attend(input));
    const { run, compare, site, head, view, sort, root, theme, step } = this.state;
    const kept = { run, compare, site, head, view, sort, root, theme, ...(input.id === undefined ? {} : { step }) };
    this.open(bundle, told ?? { ...kept, ...(bundle.runs.length > before ? { run: 0, compare: 1, view: "pair" } : {}) });
  }

  // Why no token of a step can be chosen in place of the one that was written; "" where one can.
  branchHindrance(step) {
    const { outcome, written, follows } = this.run;
    if (!this.source.live) return "Needs the model: headway look … --live.";
    if (this.state.run > 0 || follows) return "Choose a token of the first run.";
    return step < outcome.steps.length - (written ?? 0) ? "This token was read, and not written." : "";
  }

  // What a link to a served page has to tell besides the view; a file that was dropped cannot be told.
  get inputs() {
    const [first, second] = this.bundle.runs;
    if (!this.source.live || first.picture || first.sound || first.input.length > LONGEST_INPUT) return {};
    const against = second?.title === first.title ? { against: second.input } : {};
    const prefix = first.prefix?.length > 0 ? { prefix: first.prefix.join(".") } : {};
    return { model: first.title, text: first.input, ...against, ...prefix };
  }

  // When all that is chosen is drawn.
  settled() {
    return this.quiet ? Promise.resolve() : new Promise((resolve) => this.drawn.push(resolve));
  }

  remember() {
    clearTimeout(this.memory);
    this.memory = setTimeout(() => this.address(), 500);
  }

  address() {
    const hash = toHash(this.state, this.inputs);
    try {
      if (hash !== location.hash) history.replaceState(null, "", hash);
    } catch {
      // a page inside another page has no address of its own
    }
    return /^https?:$/.test(location.protocol) ? { link: location.href, hash } : { link: null, hash };
  }

  // Paper is light.
  dress() {
    this.inks = dressed(this.printing ? "light" : this.state.theme);
  }

  print(printing) {
    this.printing = printing;
    this.touch("theme");
    cancelAnimationFrame(this.frame);
    this.draw();
  }
}

// An edited run keeps what is known of the effects of its heads before.
function withEffects(sites, before) {
  return sites.map((site, at) => ({ ...site, stats: { ...site.stats, effect: before[at]?.stats?.effect ?? null } }));
}

// A text that goes on is shown at its end; what was written elsewhere, from its beginning.
function firstStep({ kind, steps }) {
  return kind === "next" ? Math.max(0, steps.length - 1) : 0;
}
