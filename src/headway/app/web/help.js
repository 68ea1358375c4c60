// What the page shows and which keys it knows.

import { fill, make } from "./dom.js";

const KEYS_KNOWN = [
  ["← ↑ → ↓", "another cell; with Shift ten at a time"],
  ["Home, End", "first or last key of the query"],
  ["[ and ]", "head before, head after"],
  [", and .", "layer before, layer after"],
  ["v", "next view (Shift + v: view before)"],
  ["m", "mean over heads, and back"],
  ["p or Enter", "pin the cell; Esc lets it go"],
  ["+ − 0", "nearer, farther, whole map"],
  ["c", "colours by the weight or by its root"],
  ["Space", "play or pause a sound"],
  ["?", "this page"],
];

const TOLD = [
  `Each cell is one weight: how much the query of its row takes from the key of its column.  The weights of a row add
  up to one.  Point at a cell to see its number, the query's strongest keys, and below how the weight comes about.  A
  click pins the cell.`,
  `Layers have the names that people give them and, beside these, the names that Python knows.  Heads count from 0, as
  there.  Thumbnails show the largest weight of the cells they stand for.  Rollout multiplies the maps of the layers
  up to there.`,
  `Colours are cividis, from no weight to the largest of this head.  Differences of two runs are blue where the other
  run is larger, and orange where this one is.  Of two models that write, the second reads what the first wrote, so that
  both have the same rows; its probabilities are of these words, and what it would write itself is told beside them.`,
  `Off takes a head's weights away, uniform lets it look alike at all that it may see, only this head switches the
  others of its layer off.  Δ log p says how much less likely the model then finds what it said before.`,
];

export class Help {
  constructor() {
    const name = (key) => make("th", { scope: "row" }, make("kbd", {}, key));
    const rows = KEYS_KNOWN.map(([key, does]) => make("tr", {}, name(key), make("td", {}, does)));
    const close = make("button", { testid: "help-close", onclick: () => this.node.close() }, "close");
    this.node = make("dialog", { class: "help", "aria-label": "Help" });
    const texts = TOLD.map((text) => make("p", {}, text));
    const table = make("table", {}, make("tbody", {}, ...rows));
    fill(this.node, make("h2", {}, "Reading this page"), ...texts, table, close);
    document.body.append(this.node);
  }

  open() {
    if (!this.node.open) this.node.showModal();
  }
}
