// The help dialog: how to read the page, and its keyboard shortcuts.

import { fill, make } from "./dom.js";

const SHORTCUTS = [
  ["← ↑ → ↓", "move to another cell; with Shift, ten at a time"],
  ["Home, End", "first or last key of the query"],
  ["[ and ]", "previous or next head"],
  [", and .", "previous or next layer"],
  ["v", "next view (Shift + v: previous view)"],
  ["m", "toggle the mean over heads"],
  ["p or Enter", "pin the cell; Esc unpins it"],
  ["+ − 0", "zoom in, zoom out, fit the whole map"],
  ["c", "colour by the weight or by its square root"],
  ["Space", "play or pause a sound"],
  ["?", "show this help"],
];

const PARAGRAPHS = [
  `Each cell is one attention weight, from the query of its row to the key of its column.  The weights of a row sum to
  one.  Point at a cell to see its weight, the query's strongest keys and, below, how the weight is computed.  Click to
  pin the cell.`,
  `Layers, heads, tokens and cells are counted from 0, as in the site's name in Python.  A cell of a thumbnail shows the
  largest weight that it covers.  Rollout multiplies the maps of all layers up to that one.`,
  `Every digit shown is right: weights are exact where the file holds queries and keys, or a server is asked; elsewhere
  the strongest weights of each query are rounded, and ≤ marks an upper bound of the others.  ≈ marks a mean or a
  difference of rounded weights.`,
  `Colours go from the paper's to indigo, in the dark theme from near-black to ivory, from zero to what the legend says;
  “cividis” reads the same with and without colour blindness.  Masked keys are blank.  An image is bright where the query
  looks, and a line goes around the cells that hold half of the weight.  Differences of two runs are blue where the
  other run is larger, and orange where this run is larger.  When two generating models are compared, the second reads
  the output of the first, so both have the same rows; its probabilities are those of these tokens, and its own output is
  shown beside them.`,
  `Heads with a badge give at least 40 % of their weight, on average, to what the badge stands for.  The logit lens reads
  each layer with the model's last norm and output matrix.  Temperature, top-k and top-p work on the exact probabilities of
  the whole vocabulary, in this order.`,
  `“Off” sets a head's weights to zero, “uniform” spreads them evenly over all visible keys, and “only this head” switches
  off the other heads of its layer.  Δ log p is the change in the log-probability of the original output.  On a live page, a
  click on another token below “What comes next here” lets the model go on from there.`,
];

export class Help {
  constructor() {
    const name = (key) => make("th", { scope: "row" }, make("kbd", {}, key));
    const rows = SHORTCUTS.map(([key, does]) => make("tr", {}, name(key), make("td", {}, does)));
    const close = make("button", { testid: "help-close", onclick: () => this.node.close() }, "close");
    this.node = make("dialog", { class: "help", "aria-label": "Help" });
    const texts = PARAGRAPHS.map((text) => make("p", {}, text));
    const table = make("table", {}, make("tbody", {}, ...rows));
    fill(this.node, make("h2", {}, "How to read this page"), ...texts, table, close);
    document.body.append(this.node);
  }

  open() {
    if (!this.node.open) this.node.showModal();
  }
}
