// Weights of one query, or of one key: a skyline along the whole axis, and below it each item with its bar and its number.

import { largest } from "./field.js";
import { font, tint, word } from "./label.js";
import { clamp } from "./state.js";

const SKYLINE = 84; // height of the upper chart
const LOW = 19; // height of an item, at least and at most
const HIGH = 28;
const LANE = 215; // least width of a lane of items

// `told` is {title, note, axis, weights, text}, undefined while it is on its way.
export function drawBars(scene, told, axis, chosen) {
  const { pen, width, height } = scene;
  const { count } = axis;
  const top = SKYLINE + 34;
  const room = height - top - 8;
  const lanes = clamp(Math.ceil((count * LOW) / room), 1, Math.max(1, Math.floor((width - 16) / LANE)));
  const each = Math.ceil(count / lanes);
  const tall = clamp(room / each, LOW, HIGH);
  const at = (chosen % each) * tall;
  scene.reveal(at, at + tall, room);
  const from = scene.scrolled(each * tall, room);
  scene.plan = { each, top, from, tall, lane: Math.min(520, (width - 16) / lanes), left: 8, count };
  if (told === undefined) return;
  heading(scene, told);
  skyline(scene, told.weights);
  pen.save();
  pen.beginPath();
  pen.rect(0, top - 2, width, height - top + 2);
  pen.clip();
  for (let index = 0; index < count; index++) item(scene, told, index, index === chosen);
  pen.restore();
}

export function ringBar(scene, chosen) {
  const { app, glass, plan } = scene;
  const [x, y] = spot(plan, chosen);
  if (y > plan.top - plan.tall) {
    glass.strokeStyle = app.inks.accent;
    glass.lineWidth = 1.5;
    glass.strokeRect(x + 0.5, y + 0.5, plan.lane - 9, plan.tall - 2);
  }
  const step = (scene.width - 16) / plan.count;
  glass.fillStyle = app.inks.accent;
  glass.fillRect(8 + chosen * step + step / 2 - 1, 22 + SKYLINE, 2, 6);
}

// The item at a point, or null.
export function barAt({ plan, width }, x, y) {
  const share = (x - 8) / (width - 16);
  if (y < plan.top - 4) return clamp(Math.floor(share * plan.count), 0, plan.count - 1);
  const line = Math.floor((y - plan.top + plan.from) / plan.tall);
  const index = Math.floor((x - plan.left) / plan.lane) * plan.each + line;
  return line < plan.each && x >= plan.left && index >= 0 && index < plan.count ? index : null;
}

function spot(plan, index) {
  const lane = Math.floor(index / plan.each);
  return [plan.left + lane * plan.lane, plan.top + (index % plan.each) * plan.tall - plan.from];
}

function heading(scene, { title, note }) {
  const { app, pen } = scene;
  pen.font = font(12, 600);
  pen.fillStyle = app.inks.ink;
  word(pen, title, 8, 11, 240, "left");
  pen.font = font(11);
  pen.fillStyle = app.inks.soft;
  word(pen, note, scene.width - 8, 11, scene.width - 260, "right", 200);
}

// The weights along the axis; of many that share a pixel, the strongest.
function skyline(scene, weights) {
  const { app, pen, width } = scene;
  const scale = app.scale;
  const room = width - 16;
  const bars = Math.min(weights.length, Math.floor(room));
  const most = largest(weights) || 1;
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

function item(scene, { axis, weights, text }, index, chosen) {
  const { app, pen, plan } = scene;
  const [x, y] = spot(plan, index);
  if (y < plan.top - plan.tall || y > scene.height) return;
  const weight = weights[index];
  const middle = y + plan.tall / 2;
  const name = Math.min(110, plan.lane * 0.42);
  pen.font = font(12, chosen ? 600 : 400);
  pen.fillStyle = tint(app.inks, axis, index, chosen ? index : -1);
  word(pen, axis.label(index), x + 4, middle, name - 6, "left");
  const room = plan.lane - name - 62;
  pen.fillStyle = app.inks.rule;
  pen.fillRect(x + name, middle - 0.5, room, 1);
  pen.fillStyle = app.field.signed ? app.scale.css(weight) : app.inks.accent;
  pen.fillRect(x + name, middle - 4.5, room * Math.min(1, Math.abs(weight)), 9);
  pen.fillStyle = Math.abs(weight) < 0.0005 ? app.inks.rule : app.inks.soft;
  pen.textAlign = "right";
  pen.fillText(text(index), x + plan.lane - 14, middle);
}
