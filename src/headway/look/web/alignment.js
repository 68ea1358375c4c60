// Alignment of source and output tokens: discs as large as the weights, and the mean attended position as a line.

import { font, rising, tint, widest, word } from "./label.js";
import { clamp } from "./state.js";

const LEAST = 15; // height of a row
const MOST = 40;

export const alignmentView = {
  name: "alignment",
  title: "Alignment",
  scrolls: true,
  follows: true,
  legend: () => ({ most: "the area of a disc is its weight: full at 1" }),
  fits: (rows, columns) => rows.name !== columns.name && rows.linear && columns.linear,

  first: (rows, columns) => columns.kind !== "frames",

  draw(scene) {
    const { app, pen, width, height } = scene;
    const [rows, columns] = app.field.shape;
    pen.font = font(13, 600); // the chosen label is bold
    const side = widest(pen, app.rows, 130) + 16;
    const w = Math.min((width - side - 14) / columns, MOST);
    const head = w >= 11 ? widest(pen, app.columns, 110) + 16 : 28;
    const h = clamp((height - head - 14) / rows, LEAST, MOST);
    const { row } = app.state;
    scene.reveal(row * h, (row + 1) * h, height - head - 14);
    const from = scene.scrolled(rows * h, height - head - 14);
    const left = side + Math.max(0, (width - side - 14 - w * columns) / 2);
    scene.plan = { w, h, head, from, left, side, top: head - from };
    sources(scene);
    pen.save();
    pen.beginPath();
    pen.rect(0, head - 4, width, height - head + 4);
    pen.clip();
    for (let y = 0; y < rows; y++) writtenRow(scene, y);
    course(scene);
    pen.restore();
  },

  over(scene) {
    const { app, glass, plan, width, height } = scene;
    const { row, column } = app.state;
    const [x, y] = [plan.left + (column + 0.5) * plan.w, plan.top + (row + 0.5) * plan.h];
    glass.strokeStyle = app.inks.accent;
    glass.globalAlpha = 0.45;
    glass.beginPath();
    glass.moveTo(x, plan.head - 2);
    glass.lineTo(x, Math.min(height, plan.top + app.field.shape[0] * plan.h));
    if (y > plan.head) {
      glass.moveTo(plan.left - 4, y);
      glass.lineTo(Math.min(width, plan.left + app.field.shape[1] * plan.w), y);
    }
    glass.stroke();
    glass.globalAlpha = 1;
  },

  at(scene, x, y) {
    const { app, plan } = scene;
    const [row, column] = [Math.floor((y - plan.top) / plan.h), Math.floor((x - plan.left) / plan.w)];
    const [rows, columns] = app.field.shape;
    if (y < plan.head || row < 0 || row >= rows) return null;
    return column >= 0 && column < columns ? { row, column } : x < plan.left ? { row } : null;
  },
};

function sources(scene) {
  const { app, pen, plan } = scene;
  const columns = app.field.shape[1];
  const every = plan.w >= 11 ? 1 : Math.ceil(52 / plan.w);
  pen.font = font(13);
  for (let x = 0; x < columns; x += every) {
    pen.fillStyle = tint(app.inks, app.columns, x, app.state.column);
    const middle = plan.left + (x + 0.5) * plan.w;
    if (every === 1) rising(pen, app.columns.label(x), middle, plan.head - 8, plan.head - 14);
    else word(pen, app.columns.label(x), middle, plan.head - 12, 50, "center");
  }
}

function writtenRow(scene, row) {
  const { app, pen, plan } = scene;
  const y = plan.top + (row + 0.5) * plan.h;
  if (y < plan.head - plan.h || y > scene.height + plan.h) return;
  const chosen = row === app.state.row;
  pen.font = font(13, chosen ? 600 : 400);
  pen.fillStyle = tint(app.inks, app.rows, row, app.state.row);
  word(pen, app.rows.label(row), plan.left - 10, y, plan.side - 16, "right");
  pen.fillStyle = app.inks.rule;
  pen.fillRect(plan.left, plan.top + (row + 1) * plan.h - 0.5, app.field.shape[1] * plan.w, 0.5);
  const weights = app.field.row(row)?.weights;
  if (weights) discs(scene, weights, y, chosen);
}

// The area of a disc is its weight; where columns are thin, bars stand for discs.
function discs(scene, weights, y, chosen) {
  const { app, pen, plan } = scene;
  const scale = app.scale;
  const most = Math.min(plan.w, plan.h) * 0.48;
  weights.forEach((weight, x) => {
    const share = Math.sqrt(Math.min(1, Math.abs(weight) / (app.field.signed ? scale.most : 1)));
    if (share < 0.03) return;
    pen.fillStyle = app.field.signed ? scale.css(weight) : chosen ? app.inks.accent : app.inks.soft;
    pen.globalAlpha = chosen || app.field.signed ? 1 : 0.75;
    const middle = plan.left + (x + 0.5) * plan.w;
    pen.beginPath();
    if (plan.w >= 8) pen.arc(middle, y, Math.max(0.7, share * most), 0, 7);
    else pen.rect(middle - plan.w / 2, y - (share * plan.h) / 2.2, Math.max(1, plan.w), (share * plan.h) / 1.1);
    pen.fill();
  });
  pen.globalAlpha = 1;
}

// The mean attended position of each output token: Σ weight · position.
function course(scene) {
  const { app, pen, plan } = scene;
  if (app.field.signed) return;
  pen.strokeStyle = app.inks.orange;
  pen.lineWidth = 1.5;
  pen.globalAlpha = 0.8;
  pen.beginPath();
  for (let row = 0; row < app.field.shape[0]; row++) {
    const weights = app.field.row(row)?.weights;
    if (!weights) break;
    let [sum, mass] = [0, 0];
    weights.forEach((w, x) => ((sum += w * (x + 0.5)), (mass += w)));
    if (mass > 0) pen.lineTo(plan.left + (sum / mass) * plan.w, plan.top + (row + 0.5) * plan.h);
  }
  pen.stroke();
  pen.globalAlpha = 1;
  pen.font = font(11);
  pen.fillStyle = app.inks.orange;
  word(pen, "line: mean attended position", scene.width - 8, scene.height - 8, 240, "right");
}
