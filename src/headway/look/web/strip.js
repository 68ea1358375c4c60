// A film strip: one image per query, with its weights.

import { cellAt, framed, heat, pictureForm } from "./heat.js";
import { font, tint, word } from "./label.js";
import { outline } from "./matrix.js";

const GAP = 12;
const CAPTION = 24;
const SMALL = 96;
const LARGE = 220;

export const stripView = {
  name: "strip",
  title: "Film strip",
  scrolls: true,
  follows: true,
  fits: (rows, columns) => columns.kind === "grid" && rows.linear,
  first: () => true,
  roots: true,
  legend: () => ({ most: "brightest: the largest of each query; lines hold half of the weight" }),
  steps: (state, down, right, app, scene) => ({ row: state.row + right + down * (scene.plan?.across ?? 1) }),

  draw(scene) {
    const { app, width, height } = scene;
    const [count] = app.field.shape;
    const form = pictureForm(app);
    const size = panelSize(count, width, height, form);
    const across = Math.max(1, Math.floor((width - GAP) / (size + GAP)));
    const tall = size * form + CAPTION + GAP;
    const line = Math.floor(app.state.row / across);
    scene.reveal(line * tall, (line + 1) * tall + GAP, height);
    const from = scene.scrolled(Math.ceil(count / across) * tall + GAP, height);
    scene.plan = { size, high: size * form, across, tall, from };
    for (let row = 0; row < count; row++) panel(scene, row);
  },

  over(scene) {
    const { app, glass, plan } = scene;
    const [x, y] = corner(plan, app.state.row);
    const colour = app.state.pinned ? app.inks.orange : app.inks.accent;
    outline(glass, x - 2, y - 2, plan.size + 4, plan.high + 4, colour, 2.5);
  },

  at(scene, x, y) {
    const { app, plan } = scene;
    const column = Math.floor((x - GAP / 2) / (plan.size + GAP));
    const row = Math.floor((y + plan.from - GAP / 2) / plan.tall) * plan.across + column;
    if (column < 0 || column >= plan.across || row < 0 || row >= app.field.shape[0]) return null;
    const box = framed(app, app.columns, ...corner(plan, row), plan.size, plan.high);
    const key = cellAt(app.columns, box, x, y);
    return key === null ? { row } : { row, column: key };
  },
};

// The largest pictures of which all fit, between small and large.
function panelSize(count, width, height, form) {
  for (let size = LARGE; size > SMALL; size -= 4) {
    const across = Math.floor((width - GAP) / (size + GAP));
    if (across > 0 && Math.ceil(count / across) * (size * form + CAPTION + GAP) + GAP <= height) return size;
  }
  return SMALL;
}

function corner(plan, row) {
  const x = GAP + (row % plan.across) * (plan.size + GAP);
  return [x, GAP + Math.floor(row / plan.across) * plan.tall - plan.from];
}

function panel(scene, row) {
  const { app, pen, plan } = scene;
  const [x, y] = corner(plan, row);
  if (y + plan.tall < 0 || y > scene.height) return;
  const found = app.field.row(row);
  if (found === undefined) return;
  heat(scene, app.columns, found, framed(app, app.columns, x, y, plan.size, plan.high));
  pen.font = font(13, row === app.state.row ? 600 : 400);
  pen.fillStyle = tint(app.inks, app.rows, row, app.state.row);
  word(pen, app.rows.label(row), x + plan.size / 2, y + plan.high + CAPTION / 2 + 2, plan.size, "center");
}
