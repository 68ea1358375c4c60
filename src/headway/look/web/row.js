// One query: its weights along the whole input, and below them each key with its bar and its number.

import { font, tint, word } from "./label.js";
import { clamp } from "./state.js";

const SKYLINE = 84; // height of the upper chart
const LOW = 19; // height of a key, at least and at most
const HIGH = 28;
const LANE = 215; // least width of a lane of keys

export const rowView = {
  name: "row",
  title: "One row",
  scrolls: true,
  follows: true,
  fits: () => true,
  steps: (state, down, right) => ({ row: state.row + right, column: state.column + down }),
  legend: () => ({ most: "bars below: full width is 1; above: relative to the largest" }),

  draw(scene) {
    const { app, pen, width, height } = scene;
    const row = app.row;
    const columns = app.field.shape[1];
    const top = SKYLINE + 34;
    const room = height - top - 8;
    const lanes = clamp(Math.ceil((columns * LOW) / room), 1, Math.max(1, Math.floor((width - 16) / LANE)));
    const each = Math.ceil(columns / lanes);
    const tall = clamp(room / each, LOW, HIGH);
    const at = (app.state.column % each) * tall;
    scene.reveal(at, at + tall, room);
    const from = scene.scrolled(each * tall, room);
    scene.plan = { each, top, from, tall, lane: Math.min(520, (width - 16) / lanes), left: 8 };
    if (row === undefined) return;
    heading(scene);
    skyline(scene, row.weights);
    pen.save();
    pen.beginPath();
    pen.rect(0, top - 2, width, height - top + 2);
    pen.clip();
    const scale = app.scale;
    for (let key = 0; key < columns; key++) item(scene, scale, key, row);
    pen.restore();
  },

  over(scene) {
    const { app, glass, plan } = scene;
    const { column } = app.state;
    const [x, y] = spot(plan, column);
    if (y > plan.top - plan.tall) {
      glass.strokeStyle = app.inks.accent;
      glass.lineWidth = 1.5;
      glass.strokeRect(x + 0.5, y + 0.5, plan.lane - 9, plan.tall - 2);
    }
    const step = (scene.width - 16) / app.field.shape[1];
    glass.fillStyle = app.inks.accent;
    glass.fillRect(8 + column * step + step / 2 - 1, 22 + SKYLINE, 2, 6);
  },

  at(scene, x, y) {
    const { app, plan } = scene;
    const columns = app.field.shape[1];
    const share = (x - 8) / (scene.width - 16);
    if (y < plan.top - 4) return { column: clamp(Math.floor(share * columns), 0, columns - 1) };
    const line = Math.floor((y - plan.top + plan.from) / plan.tall);
    const column = Math.floor((x - plan.left) / plan.lane) * plan.each + line;
    return line < plan.each && x >= plan.left && column >= 0 && column < columns ? { column } : null;
  },
};

function spot(plan, key) {
  const lane = Math.floor(key / plan.each);
  return [plan.left + lane * plan.lane, plan.top + (key % plan.each) * plan.tall - plan.from];
}

function heading(scene) {
  const { app, pen } = scene;
  pen.font = font(12, 600);
  pen.fillStyle = app.inks.ink;
  word(pen, app.rows.label(app.state.row), 8, 11, 240, "left");
  pen.font = font(11);
  pen.fillStyle = app.inks.soft;
  pen.textAlign = "right";
  const seen = app.row.hidden.reduce((count, one) => count - one, app.field.shape[1]);
  const said = `${app.rows.noun} ${app.state.row} sees ${seen} of ${app.field.shape[1]} ${app.columns.noun}s`;
  pen.fillText(said, scene.width - 8, 11);
}

// The weights along the input; of many keys that share a pixel, the strongest.
function skyline(scene, weights) {
  const { app, pen, width } = scene;
  const scale = app.scale;
  const room = width - 16;
  const bars = Math.min(weights.length, Math.floor(room));
  const most = weights.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9);
  for (let bar = 0; bar < bars; bar++) {
    let best = 0;
    const [from, to] = [Math.floor((bar * weights.length) / bars), Math.floor(((bar + 1) * weights.length) / bars)];
    for (let key = from; key < to; key++) if (Math.abs(weights[key]) > Math.abs(best)) best = weights[key];
    const tall = (Math.abs(best) / most) * SKYLINE;
    pen.fillStyle = app.field.signed ? scale.css(best) : app.inks.accent;
    pen.fillRect(8 + (bar * room) / bars, 22 + SKYLINE - tall, Math.max(1, room / bars - 1), tall);
  }
  pen.fillStyle = app.inks.rule;
  pen.fillRect(8, 22 + SKYLINE, room, 1);
}

function item(scene, scale, key, row) {
  const { app, pen, plan } = scene;
  const [x, y] = spot(plan, key);
  if (y < plan.top - plan.tall || y > scene.height) return;
  const weight = row.weights[key];
  const middle = y + plan.tall / 2;
  const name = Math.min(110, plan.lane * 0.42);
  pen.font = font(12, key === app.state.column ? 600 : 400);
  pen.fillStyle = tint(app.inks, app.columns, key, app.state.column);
  word(pen, app.columns.label(key), x + 4, middle, name - 6, "left");
  const room = plan.lane - name - 62;
  pen.fillStyle = app.inks.rule;
  pen.fillRect(x + name, middle - 0.5, room, 1);
  pen.fillStyle = app.field.signed ? scale.css(weight) : app.inks.accent;
  pen.fillRect(x + name, middle - 4.5, room * Math.min(1, Math.abs(weight)), 9);
  pen.fillStyle = Math.abs(weight) < 0.0005 ? app.inks.rule : app.inks.soft;
  pen.textAlign = "right";
  pen.fillText(app.shown(key), x + plan.lane - 14, middle);
}
