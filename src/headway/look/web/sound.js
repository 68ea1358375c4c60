// The spectrogram of the input and, on the same time axis, the weights of each query.  The playhead runs over both;
// where queries are frames too, the query follows it.

import { largest } from "./field.js";
import { imageOf } from "./heat.js";
import { font, tint, word } from "./label.js";
import { headLegend } from "./matrix.js";
import { clamp } from "./state.js";
import { paint } from "./tiles.js";

const AXIS = 20; // height of the line of seconds
const BAND = 34; // height of the chosen query's own band

export const soundView = {
  name: "sound",
  title: "Sound",
  follows: true,
  plays: true,
  roots: true,
  legend: headLegend,
  fits: (rows, columns) => columns.kind === "frames",
  first: () => true,

  draw(scene) {
    const { app, pen, width, height } = scene;
    const [rows, columns] = app.field.shape;
    const side = app.rows.kind === "frames" ? 58 : 104;
    const wide = width - side - 24;
    const seconds = app.run.sound?.seconds ?? columns * app.columns.seconds;
    const sight = Math.round(clamp(height * 0.34, 60, 260));
    const top = 8 + sight + AXIS + BAND + 10;
    const w = (wide * app.columns.seconds) / seconds;
    const h = Math.min(40, (height - top - 8) / rows);
    const plan = { left: side, wide, seconds, sight, top, w, h, y0: 0, y1: rows, x0: 0, x1: columns };
    scene.plan = Object.assign(plan, { frame: [side, top, wide, h * rows] });
    heard(scene);
    times(scene);
    band(scene);
    scene.say(paint(scene, app.field, app.scale, plan));
    pen.font = font(12);
    const every = Math.max(1, Math.ceil(14 / h));
    for (let row = 0; row < rows; row += every) {
      pen.fillStyle = tint(app.inks, app.rows, row, app.state.row);
      word(pen, app.rows.label(row), side - 6, top + (row + 0.5) * h, side - 10, "right");
    }
  },

  over(scene) {
    const { app, glass, plan } = scene;
    const { row, column } = app.state;
    glass.strokeStyle = "#ffffff";
    glass.lineWidth = 1;
    glass.strokeRect(plan.left, plan.top + row * plan.h, plan.wide, Math.max(1, plan.h));
    glass.fillStyle = app.inks.accent;
    glass.fillRect(plan.left + column * plan.w, 8 + plan.sight, Math.max(2, plan.w), 3);
    const now = app.player?.currentTime ?? 0;
    if (!app.player || (app.player.paused && now === 0)) return;
    glass.fillStyle = app.inks.orange;
    glass.fillRect(plan.left + (now / plan.seconds) * plan.wide - 1, 8, 2, plan.top + plan.h * app.field.shape[0] - 8);
  },

  at(scene, x, y) {
    const { app, plan } = scene;
    const [rows, columns] = app.field.shape;
    const column = Math.floor((x - plan.left) / plan.w);
    const row = Math.floor((y - plan.top) / plan.h);
    if (row >= rows) return null;
    if (column < 0 || column >= columns) return row >= 0 && x < plan.left ? { row } : null;
    return row >= 0 ? { row, column } : { column };
  },
};

function heard(scene) {
  const { app, pen, plan } = scene;
  const image = app.run.sound?.spectrogram ? imageOf(app, app.run.sound.spectrogram) : null;
  pen.fillStyle = app.inks.card;
  pen.fillRect(plan.left, 8, plan.wide, plan.sight);
  pen.imageSmoothingEnabled = true;
  if (image) pen.drawImage(image, plan.left, 8, plan.wide, plan.sight);
}

function times(scene) {
  const { app, pen, plan } = scene;
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60];
  const step = steps.find((one) => (one / plan.seconds) * plan.wide > 56) ?? 60;
  pen.font = font(11);
  pen.fillStyle = app.inks.soft;
  for (let at = 0; at <= plan.seconds + 1e-6; at += step) {
    const x = plan.left + (at / plan.seconds) * plan.wide;
    pen.fillRect(x, 8 + plan.sight, 1, 4);
    word(pen, `${Number(at.toFixed(1))} s`, x, 8 + plan.sight + 13, 50, "center");
  }
}

// The chosen query's weights as a curve over time.
function band(scene) {
  const { app, pen, plan } = scene;
  const weights = app.row?.weights;
  if (!weights) return;
  const base = plan.top - 8;
  const most = largest(weights) || 1;
  pen.fillStyle = app.inks.accent;
  weights.forEach((weight, x) => {
    const tall = (Math.abs(weight) / most) * BAND;
    const room = plan.wide - x * plan.w; // the last frame may go beyond the end of the sound
    if (room > 0) pen.fillRect(plan.left + x * plan.w, base - tall, Math.min(room, Math.max(1, plan.w - 0.5)), tall);
  });
  pen.fillStyle = app.inks.rule;
  pen.fillRect(plan.left, base, plan.wide, 1);
}

// Plays from the chosen frame, or pauses.
export function play(app, redraw) {
  const sound = app.run.sound;
  if (!sound) return;
  if (app.player === undefined || app.player.src !== sound.src) app.player = new Audio(sound.src);
  const { player } = app;
  if (!player.paused) return player.pause();
  if (app.state.pinned && app.columns.kind === "frames") player.currentTime = app.state.column * app.columns.seconds;
  const tick = () => {
    if (app.rows.kind === "frames") app.change({ row: Math.floor(player.currentTime / app.rows.seconds) });
    redraw();
    if (!player.paused && !player.ended) requestAnimationFrame(tick);
  };
  player.play().then(tick, () => {});
}
