// A map in a box, small: all heads beside one another, or two inputs.  Maps of cells are pictures, lit where the chosen
// query looks.

import { cellAt, cellBox, framed, heat } from "./heat.js";
import { font, word } from "./label.js";
import { drawMap, outline, planned } from "./matrix.js";
import { clamp } from "./state.js";

export const CAPTION_HEIGHT = 20;

// Draws a panel {field, rows, columns, title, chosen, hue} and gives its layout for `pointed` and `ringedCell`.
export function mapPanel(scene, told, [x, y, wide, tall]) {
  const { app, pen } = scene;
  const { field, rows, columns } = told;
  pen.font = font(12, told.chosen ? 650 : 400);
  pen.fillStyle = told.chosen ? app.inks.ink : app.inks.soft;
  word(pen, told.title, x + 2, y + CAPTION_HEIGHT / 2, wide - 4, "left", 200);
  if (told.chosen) outline(pen, x - 4, y - 1, wide + 8, tall + 4, app.inks.orange, 1.5);
  const inner = [x, y + CAPTION_HEIGHT, wide, tall - CAPTION_HEIGHT];
  if (columns.kind === "grid") return pictured(scene, told, inner);
  const plan = planned(pen, { rows, columns, box: inner, bare: true });
  drawMap(scene, field, plan);
  return { told, plan, box: [x, y, wide, tall] };
}

function pictured(scene, told, inner) {
  const { app } = scene;
  const { field, rows, columns } = told;
  const row = queryOf(app, told);
  const found = field.exact(row) ?? field.row(row);
  const picture = framed(app, columns, ...inner);
  if (found) heat(scene, columns, found, picture, field);
  const query = rows.kind === "grid" ? cellBox(rows, row, picture) : null;
  if (query !== null) outline(scene.pen, ...query, "#ff4fa3", 1.5);
  return { told, picture, box: inner };
}

// What the colours of panels mean; pictures are lit instead.
export function panelLegend({ columns }, most) {
  return columns.kind === "grid" ? { most: "brightest: the largest of each; lines hold half" } : { bar: true, most };
}

// The chosen query; of a panel with other rows, one of its own.
function queryOf(app, { rows, site }) {
  return rows.name === app.rows.name ? app.state.row : clamp(rows.at(site.opens ?? rows.count - 1), 0, rows.count - 1);
}

// The cell of a panel at a point: {row, column}, {} beside the cells, null outside of the panel.
export function pointed({ told, plan, picture, box }, x, y) {
  const [left, top, wide, tall] = box;
  if (x < left || y < top || x >= left + wide || y >= top + tall) return null;
  if (picture) {
    const key = told.rows.kind === "grid" ? null : cellAt(told.columns, picture, x, y);
    const row = told.rows.kind === "grid" ? cellAt(told.rows, picture, x, y) : null;
    return row !== null ? { row } : key !== null ? { column: key } : {};
  }
  const [column, row] = [Math.floor((x - plan.left) / plan.w), Math.floor((y - plan.top) / plan.h)];
  const inside = column >= 0 && row >= 0 && column < told.columns.count && row < told.rows.count;
  return inside ? { row, column } : {};
}

// A ring around the chosen cell, where the panel has it.
export function ringedCell(scene, { told, plan }) {
  const { app, glass } = scene;
  const { row, column } = app.state;
  if (!plan || told.rows.name !== app.rows.name || told.columns.name !== app.columns.name) return;
  if (row >= told.rows.count || column >= told.columns.count) return;
  const [x, y] = [plan.left + column * plan.w, plan.top + row * plan.h];
  const size = Math.max(plan.w, 4);
  outline(glass, x, y, size, Math.max(plan.h, 4), "#000000", 3);
  outline(glass, x, y, size, Math.max(plan.h, 4), "#ffffff", 1.5);
}
