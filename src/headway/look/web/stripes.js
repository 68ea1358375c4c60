// A vector as a row of stripes: blue below zero, orange above, strong where it is large.

import { sized } from "./dom.js";
import { largest } from "./field.js";

let rooms = new WeakMap(); // asking the page for a width while it is being changed makes it lay out everything anew
addEventListener("resize", () => (rooms = new WeakMap()));

function roomOf(node) {
  if (!rooms.has(node)) {
    const width = node.parentElement.clientWidth;
    if (width === 0) return 120; // not shown yet
    rooms.set(node, width);
  }
  return rooms.get(node);
}

export function stripes(node, values, inks, height = 12) {
  const width = roomOf(node);
  const pen = sized(node, width, height);
  const most = largest(values) || 1;
  const step = width / values.length;
  values.forEach((value, at) => {
    pen.globalAlpha = 0.08 + 0.92 * Math.min(1, Math.abs(value) / most);
    pen.fillStyle = value < 0 ? inks.blue : inks.orange;
    pen.fillRect(at * step, 0, Math.max(0.75, step - (step > 4 ? 1 : 0)), height);
  });
}

// The same as bars around a line, so that their sizes can be compared; in a colour of their own if there is a `hue`, and
// with the `chosen` one in full ink.
export function bars(node, values, inks, height, hue = null, chosen = -1) {
  const width = roomOf(node);
  const pen = sized(node, width, height);
  const finite = values.filter(Number.isFinite);
  const most = largest(finite) || 1;
  const line = finite.some((value) => value < 0) ? height / 2 : height - 1;
  const step = width / values.length;
  values.forEach((value, at) => {
    if (!Number.isFinite(value)) return; // masked
    const tall = (Math.abs(value) / most) * (line === height / 2 ? height / 2 - 1 : height - 2);
    pen.fillStyle = hue ?? (value < 0 ? inks.blue : inks.orange);
    pen.globalAlpha = hue !== null && chosen >= 0 && at !== chosen ? 0.45 : 1;
    const top = value < 0 ? line : line - tall;
    pen.fillRect(at * step, top, Math.max(0.75, step - (step > 3 ? 1 : 0)), tall);
  });
  pen.globalAlpha = 1;
  pen.fillStyle = inks.rule;
  pen.fillRect(0, line - 0.5, width, 1);
}
