// Words on a canvas: cut to the room there is, in their own direction, upright where their script stands.

import { direction, short, stands } from "./text.js";

const FAMILY = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif';
const LETTERS = 4; // letters of a label, however little room there is
const fitted = new Map();

export function font(size = 12, weight = 400) {
  return `${weight} ${size}px ${FAMILY}`;
}

// The text cut so that it is at most `room` wide in the pen's font.
function cut(pen, text, room, most = 40) {
  const key = `${pen.font}|${Math.floor(room)}|${most}|${text}`;
  if (!fitted.has(key)) {
    if (fitted.size > 20000) fitted.clear();
    fitted.set(key, cutNow(pen, short(text, most), room));
  }
  return fitted.get(key);
}

function cutNow(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  const signs = [...text];
  let [low, high] = [Math.min(LETTERS, signs.length), signs.length];
  if (low === high) return text;
  while (low < high) {
    const half = Math.ceil((low + high) / 2);
    if (pen.measureText(`${signs.slice(0, half).join("")}…`).width <= room) low = half;
    else high = half - 1;
  }
  return `${signs.slice(0, low).join("")}…`;
}

// A word beside (x, y): align is "left", "right" or "center".
export function word(pen, text, x, y, room, align = "left", most = 40) {
  const said = cut(pen, text, room, most);
  pen.direction = direction(said);
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillText(said, x, y);
  pen.direction = "ltr";
}

// A word that begins at the foot (x, y) and goes up: at an angle where there is room, on its side, or letter above letter.
export function rising(pen, text, x, y, room, angle = Math.PI / 2) {
  if (stands(text.trim())) return stack(pen, text.trim(), x, y, room);
  pen.save();
  pen.translate(x, y);
  pen.rotate(-angle);
  word(pen, text, 0, 0, room, "left");
  pen.restore();
}

function stack(pen, text, x, y, room) {
  const size = Number.parseFloat(/(\d+(?:\.\d+)?)px/.exec(pen.font)[1]) + 1;
  const signs = [...text].slice(0, Math.max(1, Math.floor(room / size)));
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  signs.forEach((sign, at) => pen.fillText(sign, x, y - (signs.length - at - 0.5) * size));
}

// How wide the widest of an axis' labels is, looking at no more than 400 of them; measured once.
export function widest(pen, axis, most) {
  const key = `${pen.font}/${most}`;
  if (!axis.widths.has(key)) axis.widths.set(key, Math.min(most, Math.ceil(measuredWidth(pen, axis, most))));
  return axis.widths.get(key);
}

function measuredWidth(pen, axis, most) {
  const seen = Math.min(axis.count, 400);
  let width = 0;
  for (let at = 0; at < seen && width < most; at++) {
    width = Math.max(width, pen.measureText(short(axis.label(at), 40)).width);
  }
  return width;
}

// The colour of a label: the chosen one, special tokens, and the rest.
export function tint(inks, axis, index, chosen) {
  if (index === chosen) return inks.ink;
  return axis.special.has(index) ? inks.special : inks.soft;
}
