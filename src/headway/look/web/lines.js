// Queries on the left, keys on the right, and a line for each weight that can be seen.

import { strongest } from "./field.js";
import { font, tint, word } from "./label.js";
import { clamp } from "./state.js";
import { weightText } from "./text.js";

const THREADS = 14; // lines of a query
const LOWEST = 17; // height of a word, at least and at most
const HIGHEST = 44;
const FEW = 40; // tokens whose lines can be told apart

export const linesView = {
  name: "lines",
  title: "Lines",
  scrolls: true,
  follows: true,
  roots: true,
  heads: true,
  legend: ({ field }) => ({ most: `wider is stronger, up to ${weightText(field.peak())}` }),
  fits: (rows, columns) => rows.linear && columns.linear,
  first: (rows, columns) => rows === columns && rows.kind !== "frames" && rows.count < FEW,

  draw(scene) {
    const { app, pen, height } = scene;
    const [rows, columns] = app.field.shape;
    const line = clamp((height - 16) / Math.max(rows, columns), LOWEST, HIGHEST);
    const length = line * Math.max(rows, columns) + 16;
    scene.reveal(app.state.row * line, app.state.row * line + line + 16, height);
    const from = scene.scrolled(length, height) - 8;
    const gap = Math.min(scene.width * 0.46, 420);
    const middle = scene.width / 2;
    const plan = { line, from, left: middle - gap / 2, right: middle + gap / 2, room: middle - gap / 2 - 24 };
    scene.plan = plan;
    threads(scene, plan);
    pen.font = font(wordSize(line));
    pillar(scene, app.rows, plan, plan.left - 10, "right");
    pillar(scene, app.columns, plan, plan.right + 10, "left");
  },

  over(scene) {
    const { app, glass, plan } = scene;
    const { row, column } = app.state;
    glass.font = font(wordSize(plan.line), 600);
    glass.fillStyle = app.inks.accent;
    for (const [axis, index, x, side] of [[app.rows, row, plan.left, -1], [app.columns, column, plan.right, 1]]) {
      const y = index * plan.line + plan.line / 2 - plan.from;
      glass.beginPath();
      glass.arc(x + side * 3, y, 3, 0, 7);
      glass.fill();
    }
  },

  at(scene, x, y) {
    const { app, plan } = scene;
    const [rows, columns] = app.field.shape;
    const index = Math.floor((y + plan.from) / plan.line);
    if (x < scene.width / 2) return index >= 0 && index < rows ? { row: index } : null;
    return index >= 0 && index < columns ? { column: index } : null;
  },
};

function threads(scene, plan) {
  const { app, height } = scene;
  const [rows] = app.field.shape;
  const [first, last] = [Math.floor(plan.from / plan.line), Math.ceil((plan.from + height) / plan.line)];
  const heads = [app.state.head, ...app.alsoShown];
  const drawn = heads.map((head) => ({ field: app.fieldFor(app.site, head), hue: heads.length > 1 ? hueOf(head) : null }));
  for (let row = Math.max(0, first); row < Math.min(rows, last); row++) {
    if (row !== app.state.row) drawn.forEach((one) => fan(scene, plan, one, row, 0.22));
  }
  drawn.forEach((one) => fan(scene, plan, one, app.state.row, 1));
}

// Of several heads each has its own colour (Okabe and Ito 2008).
const HEAD_HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a5cc9", "#a0522d"];

export function hueOf(head) {
  return HEAD_HUES[(head + HEAD_HUES.length) % HEAD_HUES.length];
}

// All lines of one query.
function fan(scene, plan, { field, hue }, row, full) {
  const { app, pen } = scene;
  const scale = app.scaleOf(field);
  const weights = field.row(row)?.weights;
  if (weights === undefined) return;
  const y = (index) => index * plan.line + plan.line / 2 - plan.from;
  for (const [key, weight] of strongest(weights, THREADS)) {
    const strength = scale.strength(weight);
    if (strength < 0.04) continue;
    pen.globalAlpha = full * clamp(strength, 0.06, 1);
    pen.strokeStyle = hue ?? (field.signed ? scale.css(weight) : full === 1 ? app.inks.accent : app.inks.soft);
    pen.lineWidth = 0.6 + strength * (full === 1 ? 5 : 3.2);
    const bend = (plan.right - plan.left) * 0.42;
    pen.beginPath();
    pen.moveTo(plan.left, y(row));
    pen.bezierCurveTo(plan.left + bend, y(row), plan.right - bend, y(key), plan.right, y(key));
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function wordSize(line) {
  return Math.min(14 + Math.max(0, line - 34) / 5, line * 0.72);
}

function pillar(scene, axis, plan, x, align) {
  const { app, pen, height } = scene;
  const chosen = align === "right" ? app.state.row : app.state.column;
  const first = Math.max(0, Math.floor(plan.from / plan.line));
  const last = Math.min(axis.count, Math.ceil((plan.from + height) / plan.line));
  for (let index = first; index < last; index++) {
    pen.fillStyle = tint(app.inks, axis, index, chosen);
    word(pen, axis.label(index), x, index * plan.line + plan.line / 2 - plan.from, plan.room, align);
  }
}
