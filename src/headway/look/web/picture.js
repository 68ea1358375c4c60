// The picture with the weights of the chosen query.  Over a cell the pointer makes it the query; a click keeps the
// query, and the pointer then reads the weights of the other cells.

import { cellAt, cellBox, framed, heat, strongestCell } from "./heat.js";
import { font, tint, word } from "./label.js";
import { outline } from "./matrix.js";
import { clamp } from "./state.js";

const CHIP = 24; // height of a line of words

export const pictureView = {
  name: "picture",
  title: "Spotlight",
  follows: true,
  fits: (rows, columns) => columns.kind === "grid",
  first: (rows) => rows.kind === "grid",
  roots: true,
  legend: ({ row, columns }) => ({ most: row ? `brightest: ${largestText(row, columns)}; the line holds half of the weight` : "" }),

  draw(scene) {
    const { app, width, height } = scene;
    const { rows, columns } = app;
    const words = rows.kind === "grid" ? rows.first : rows.count;
    const bottom = words > 0 ? (rows.kind === "grid" ? CHIP + 8 : 3 * CHIP + 8) : 0;
    const box = framed(app, columns, 8, 8, width - 16, height - bottom - 16);
    scene.plan = { box, chips: [] };
    const row = app.row;
    if (row !== undefined) heat(scene, columns, row, box);
    if (words > 0) chips(scene, words, height - bottom);
  },

  over(scene) {
    const { app, glass, plan } = scene;
    const { row, column, pinned } = app.state;
    const key = cellBox(app.columns, column, plan.box);
    const query = app.rows.kind === "grid" ? cellBox(app.rows, row, plan.box) : null;
    if (key !== null) ringed(glass, key, "#ffffff", 1.5);
    if (query !== null) ringed(glass, query, pinned ? app.inks.orange : "#ff4fa3", 2.5);
  },

  at(scene, x, y) {
    const { app, plan } = scene;
    const chip = plan.chips.find(({ box }) => x >= box[0] && x < box[0] + box[2] && y >= box[1] && y < box[1] + box[3]);
    if (chip !== undefined) return { row: chip.row };
    if (app.rows.kind !== "grid") return this.reads(scene, x, y);
    const row = cellAt(app.rows, plan.box, x, y);
    return row === null ? null : { row };
  },

  reads(scene, x, y) {
    const column = cellAt(scene.app.columns, scene.plan.box, x, y);
    return column === null ? null : { column };
  },

  // Arrows go over the picture: the query's cell where queries are cells, else the key's cell.
  steps(state, down, right, app) {
    const cells = app.rows.kind === "grid" && !state.pinned;
    const [axis, name] = cells ? [app.rows, "row"] : [app.columns, "column"];
    const place = axis.place(state[name]);
    if (place === null) return { [name]: axis.first };
    const y = clamp(place.y + down, 0, axis.grid[0] - 1);
    const x = clamp(place.x + right, 0, axis.grid[1] - 1);
    return { [name]: axis.index(y, x) };
  },
};

function largestText(row, columns) {
  const most = strongestCell(columns, row);
  return row.text(row.weights.findIndex((w, key) => columns.place(key) !== null && Math.abs(w) === most));
}

// A line that can be seen on any picture.
function ringed(pen, box, colour, line) {
  outline(pen, ...box, "#000000", line * 2);
  outline(pen, ...box, colour, line);
}

// Queries that are words, below the picture; many words: those around the chosen one.
function chips(scene, words, top) {
  const { app, pen, width, plan } = scene;
  pen.font = font(13);
  const lines = app.rows.kind === "grid" ? 1 : 3;
  let [x, y] = [8, top];
  for (let row = Math.max(0, Math.min(app.state.row, words - 1) - 30); row < words; row++) {
    const wide = Math.min(140, pen.measureText(app.rows.label(row).slice(0, 24)).width) + 14;
    if (x + wide > width - 8) [x, y] = [8, y + CHIP];
    if (y >= top + lines * CHIP) break;
    const box = [x, y, wide, CHIP - 3];
    const chosen = row === app.state.row;
    pen.fillStyle = chosen ? app.inks.accent : app.inks.card;
    pen.beginPath();
    pen.roundRect(...box, 5);
    pen.fill();
    pen.fillStyle = chosen ? app.inks.paper : tint(app.inks, app.rows, row, -1);
    word(pen, app.rows.label(row), x + wide / 2, y + CHIP / 2 - 1, wide - 8, "center");
    plan.chips.push({ row, box });
    x += wide + 5;
  }
}
