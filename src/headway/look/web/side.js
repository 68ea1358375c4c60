// The right side: the chosen query, its strongest keys, what comes next, and the contribution of each dimension to a score.

import { detailOf, sumOf } from "./detail.js";
import { fill, foreign, make, point, rove } from "./dom.js";
import { strongest } from "./field.js";
import { NextPart } from "./next.js";
import { ABSENT } from "./source.js";
import { MEAN } from "./state.js";
import { bars } from "./stripes.js";
import { decimal, quoted, signed, visible } from "./text.js";

const KEYS_SHOWN = 8;

export class SidePart {
  constructor(app, box) {
    Object.assign(this, { app, box });
    this.query = make("h2", { class: "query" });
    this.entropy = make("p", { class: "fact", testid: "entropy" });
    this.keys = make("ol", { class: "keys", testid: "side-keys" });
    this.chart = make("canvas", { class: "terms-chart", role: "img" });
    this.told = make("p", { class: "fact" });
    const terms = make("div", { testid: "terms", class: "terms" }, this.chart, this.told);
    const [keys, dimensions] = ["Strongest keys", "Contribution of each dimension"].map((title) => make("h3", {}, title));
    this.next = new NextPart(app);
    fill(box, this.query, this.entropy, keys, this.keys, this.next.box, dimensions, terms);
    rove(this.keys, "button");
  }

  update(any) {
    if (any("row", "column", "site", "head", "run", "compare", "theme", "data")) this.asked();
    if (any("run", "step")) this.next.tell();
    if (any("row", "column", "site", "head", "run", "theme", "detail", "size")) this.terms();
  }

  asked() {
    const { app } = this;
    const { row } = app.state;
    const where = app.rows.kind === "text" ? ` ${app.rows.noun} ${row}` : "";
    fill(this.query, make("small", {}, `query${where}`), foreign(quotedLabel(app.rows, row)));
    this.listed(app.row);
  }

  listed(found) {
    const { app, keys, entropy } = this;
    if (found === undefined) return;
    entropy.textContent = [spreadOf(app, found), poolingOf(app, found)].filter(Boolean).join("; ");
    const held = keys.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const best = app.strongest(app.state.row, found, KEYS_SHOWN);
    const top = best.length > 0 ? Math.abs(best[0][1]) : 1;
    fill(keys, ...best.map((one, at) => this.entry(one, top, at === 0)));
    if (held !== null) this.hold(held);
  }

  // Whoever goes through the list stays at the key where they were.
  hold(key) {
    const node = this.keys.querySelector(`[data-key="${key}"]`) ?? this.keys.querySelector("button");
    point(this.keys, "button", node);
    node?.focus();
  }

  entry([key, weight, text], top, first) {
    const { app } = this;
    const chosen = key === app.state.column;
    const bar = make("span", { class: "bar" });
    bar.style.width = `${(Math.abs(weight) / top) * 100}%`;
    if (app.field.signed) bar.style.background = weight < 0 ? app.inks.blue : app.inks.orange;
    const kind = app.columns.special.has(key) ? "name special" : "name";
    const name = foreign(shownLabel(app.columns, key), { class: kind });
    const number = make("span", { class: "number" }, text);
    const tell = { tabindex: first ? 0 : -1, "aria-current": chosen ? "true" : null, "data-key": key };
    const title = visible(app.columns.label(key), 200);
    const choose = () => app.change({ column: key });
    return make("li", {}, make("button", { ...tell, title, onclick: choose }, name, number, bar));
  }

  terms() {
    const { app } = this;
    const { head, row, column } = app.state;
    const detail = detailOf(app);
    this.chart.hidden = !detail;
    if (!detail) {
      this.told.textContent = reason(app, detail);
      return;
    }
    const terms = detail.terms(head, row, column);
    bars(this.chart, terms, app.inks, 64);
    const first = strongest(terms, 3).map(([d, value]) => `${d}: ${signed(value, 2)}`);
    const sum = `${terms.length} dimensions sum to ${signed(sumOf(terms), 3)}`;
    this.told.textContent = `${sum}; largest: ${first.join(", ")}`;
    this.chart.setAttribute("aria-label", this.told.textContent);
  }
}

// The entropy was computed from exact weights, whatever the file holds of them.
function spreadOf(app, found) {
  if (app.field.signed) return "difference of two runs";
  const entropy = app.field.entropy(app.state.row);
  const seen = found.hidden.reduce((count, one) => count - one, app.columns.count);
  return entropy === null || entropy === undefined
    ? ""
    : `entropy ${decimal(entropy, 2)} of at most ${decimal(Math.log(Math.max(1, seen)), 2)} nats`;
}

// What is known where the file holds only maxima of blocks.
function poolingOf(app, { pooled }) {
  if (!pooled) return "";
  if (app.field.signed) return "of two block maxima, which may be in different cells";
  return app.field.strongest(app.state.row) ? `weights but the strongest are ${ABSENT}` : `bounds only: the weights are ${ABSENT}`;
}

// Why there are no numbers behind a weight.
export function reason(app, detail) {
  if (detail === undefined) return "…";
  if (app.site.derived) return "This map is computed from other maps; it has no queries and keys of its own.";
  if (app.run.edited) return "These maps are of the run with edits; reset them to see the numbers behind a weight.";
  if (app.joined) return "A word of several tokens has no query and key of its own; look at tokens for the numbers behind a weight.";
  if (app.state.head === MEAN) return "Choose one head: a mean has no queries and keys of its own.";
  return `The queries and keys of this site are ${ABSENT}.`;
}

function quotedLabel(axis, index) {
  return axis.kind === "text" ? quoted(axis.label(index), 48) : visible(axis.label(index), 48);
}

function shownLabel(axis, index) {
  const text = visible(axis.label(index), 40);
  return text.trim() === "" ? "␣" : text;
}
