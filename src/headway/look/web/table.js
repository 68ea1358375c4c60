// The map as a table, also for screen readers: each query and its strongest keys.

import { fill, foreign, make } from "./dom.js";
import { decimal, visible } from "./text.js";

const PAGE = 60; // queries at a time: a page of thousands of rows helps nobody
const RANKS = ["strongest", "second", "third", "fourth", "fifth"];

export const tableView = {
  name: "table",
  title: "Table",
  fits: () => true,
};

export class TablePart {
  constructor(app) {
    Object.assign(this, { app, first: 0 });
    const name = "Table of weights";
    this.box = make("div", { class: "table-view", hidden: true, tabindex: 0, role: "region", "aria-label": name });
  }

  update() {
    const { app } = this;
    const count = app.field.shape[0];
    this.first = this.first < count ? this.first : 0;
    const last = Math.min(count, this.first + PAGE);
    const rows = [];
    for (let row = this.first; row < last; row++) rows.push(tableRow(app, row));
    const keys = RANKS.map((rank) => make("th", { scope: "col", colspan: 2 }, rank));
    const titles = ["query", "entropy"].map((title) => make("th", { scope: "col" }, title));
    const head = make("tr", {}, ...titles, ...keys);
    const said = `Queries ${this.first} to ${last - 1} of ${count}, each with its ${RANKS.length} strongest keys.`;
    const table = make("table", {}, make("caption", {}, said), make("thead", {}, head), make("tbody", {}, ...rows));
    fill(this.box, table, count > PAGE ? this.pager(count) : null);
  }

  pager(count) {
    const turn = (by) => () => {
      this.first = Math.min(Math.max(0, this.first + by), count - 1);
      this.update();
      this.box.scrollTop = 0;
    };
    const before = make("button", { onclick: turn(-PAGE), disabled: this.first === 0 }, "previous");
    const after = make("button", { onclick: turn(PAGE), disabled: this.first + PAGE >= count }, "next");
    return make("p", { class: "pager" }, before, " ", after);
  }
}

function tableRow(app, row) {
  const found = app.field.row(row);
  const name = make("th", { scope: "row" }, `${row} `, foreign(visible(app.rows.label(row), 40)));
  if (found === undefined) return make("tr", {}, name, make("td", { colspan: 2 * RANKS.length + 1 }, "…"));
  const entropy = app.field.entropy(row);
  const cells = app.strongest(row, found, RANKS.length).flatMap(([key, , text]) => [
    make("td", {}, `${key} `, foreign(visible(app.columns.label(key), 40))),
    make("td", { class: "number" }, text),
  ]);
  return make("tr", {}, name, make("td", { class: "number" }, entropy ? decimal(entropy, 2) : ""), ...cells);
}
