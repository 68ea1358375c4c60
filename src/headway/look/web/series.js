// A series of numbers: each column as a curve over its rows, and behind all of them the weights of the chosen query.
// Over a row the pointer makes it the query; a click keeps the query, and the pointer then reads the other weights.

import { largest } from "./field.js";
import { font, tint, widest, word } from "./label.js";
import { clamp } from "./state.js";
import { short } from "./text.js";

const NAME_ROOM = 118; // room of the columns' names
const VALUES = 66; // room of their smallest and largest value
const WEIGHTS = 92; // height of the chart of weights
const TIMES = 24;
const LEAST_CURVE = 44;
const MOST_CURVE = 150;

export const seriesView = {
  name: "series",
  title: "Chart",
  scrolls: true,
  follows: true,
  fits: (rows, columns, run) => run.series?.rows.length === columns.count && columns.kind === "items",
  first: () => true,
  legend: () => ({ most: "bars and shades: the weights of the chosen query" }),
  steps: (state, down, right, app) => (app.rows === app.columns && !state.pinned ? { row: state.row + down + right } : { row: state.row + down, column: state.column + right }),

  draw(scene) {
    const { app, pen, width, height } = scene;
    const { rows, columns } = app.run.series;
    const top = WEIGHTS + TIMES;
    const tall = clamp((height - top - 6) / columns.length, LEAST_CURVE, MOST_CURVE);
    const from = scene.scrolled(tall * columns.length, height - top - 6);
    const wide = Math.max(1, width - NAME_ROOM - VALUES);
    scene.plan = { top, tall, from, wide, step: wide / rows.length, count: rows.length };
    weightBars(scene);
    rowNames(scene);
    pen.save();
    pen.beginPath();
    pen.rect(0, top, width, Math.max(0, height - top));
    pen.clip();
    shades(scene);
    columns.forEach((name, at) => curve(scene, name, rows.map((row) => row[at]), top + at * tall - from));
    pen.restore();
  },

  over(scene) {
    const { app, glass, plan, height } = scene;
    const bottom = Math.min(height, plan.top + plan.tall * app.run.series.columns.length);
    const line = (index, colour) => {
      glass.fillStyle = colour;
      glass.fillRect(NAME_ROOM + (index + 0.5) * plan.step - 0.75, 14, 1.5, bottom - 14);
    };
    if (app.rows === app.columns) line(app.state.row, app.state.pinned ? app.inks.orange : app.inks.ink);
    line(app.state.column, app.inks.accent);
  },

  at(scene, x) {
    const index = placeAt(scene, x);
    if (index === null) return null;
    return scene.app.rows === scene.app.columns ? { row: index } : { column: index };
  },

  reads(scene, x) {
    const index = placeAt(scene, x);
    return index === null ? null : { column: index };
  },
};

function placeAt({ plan }, x) {
  const index = Math.floor((x - NAME_ROOM) / plan.step);
  return index >= 0 && index < plan.count ? index : null;
}

function weightBars(scene) {
  const { app, pen, plan } = scene;
  const { row, rows, state, inks } = app;
  pen.font = font(12, 600);
  pen.fillStyle = inks.ink;
  word(pen, "attention of", 8, 24, NAME_ROOM - 16, "left");
  pen.font = font(11);
  word(pen, rows.label(state.row), 8, 42, NAME_ROOM - 16, "left");
  if (row === undefined) return;
  const most = largest(row.weights) || 1;
  row.weights.forEach((weight, at) => {
    const high = (Math.abs(weight) / most) * (WEIGHTS - 26);
    pen.fillStyle = app.field.signed ? app.scale.css(weight) : inks.accent;
    pen.fillRect(NAME_ROOM + at * plan.step, WEIGHTS - 4 - high, Math.max(1, plan.step - (plan.step > 4 ? 1 : 0)), high);
  });
  pen.fillStyle = inks.soft;
  word(pen, row.text(row.weights.findIndex((weight) => Math.abs(weight) === most)), NAME_ROOM + plan.wide + 6, 26, VALUES - 8, "left");
  pen.fillStyle = inks.rule;
  pen.fillRect(NAME_ROOM, WEIGHTS - 4, plan.wide, 1);
}

// What the rows are called, as often as there is room.
function rowNames(scene) {
  const { app, pen, plan } = scene;
  pen.font = font(11);
  const wide = widest(pen, app.columns, 150) + 12;
  const every = Math.max(1, Math.ceil(wide / plan.step));
  for (let at = 0; at < plan.count; at += every) {
    pen.fillStyle = tint(app.inks, app.columns, at, app.state.column);
    const x = NAME_ROOM + (at + 0.5) * plan.step;
    pen.fillRect(x - 0.5, WEIGHTS - 4, 1, 5);
    if (at === 0 || x + wide < scene.width) word(pen, app.columns.label(at), x, WEIGHTS + 8, wide, "left");
  }
}

function shades({ app, pen, plan, height }) {
  const { row } = app;
  if (row === undefined) return;
  const bottom = Math.min(height, plan.top + plan.tall * app.run.series.columns.length);
  const most = largest(row.weights) || 1;
  pen.fillStyle = app.inks.accent;
  row.weights.forEach((weight, at) => {
    pen.globalAlpha = 0.3 * (Math.abs(weight) / most);
    pen.fillRect(NAME_ROOM + at * plan.step, plan.top, plan.step, bottom - plan.top);
  });
  pen.globalAlpha = 1;
}

function curve({ app, pen, plan }, name, values, top) {
  const { inks } = app;
  const known = values.filter((value) => value !== null);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const y = (value) => top + 8 + (plan.tall - 16) * (most > least ? 1 - (value - least) / (most - least) : 0.5);
  pen.fillStyle = inks.rule;
  pen.fillRect(NAME_ROOM, top, plan.wide, 1);
  pen.font = font(12, 600);
  pen.fillStyle = inks.ink;
  word(pen, short(name, 40), 8, top + plan.tall / 2, NAME_ROOM - 16, "left");
  pen.font = font(11);
  pen.fillStyle = inks.soft;
  word(pen, numberText(most), NAME_ROOM + plan.wide + 6, top + 11, VALUES - 8, "left");
  word(pen, numberText(least), NAME_ROOM + plan.wide + 6, top + plan.tall - 11, VALUES - 8, "left");
  pen.strokeStyle = inks.orange;
  pen.lineWidth = 1.8;
  pen.beginPath();
  let begun = false;
  values.forEach((value, at) => {
    if (value === null) return (begun = false);
    const x = NAME_ROOM + (at + 0.5) * plan.step;
    if (begun) pen.lineTo(x, y(value));
    else pen.moveTo(x, y(value));
    begun = true;
  });
  pen.stroke();
}

function numberText(value) {
  return String(Number(value.toPrecision(4))).replace("-", "−");
}
