// A vector as a row of stripes: blue below zero, orange above, strong where it is large.

import { sized } from "./dom.js";

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
  const most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9);
  const step = width / values.length;
  values.forEach((value, at) => {
    pen.globalAlpha = 0.08 + 0.92 * Math.min(1, Math.abs(value) / most);
    pen.fillStyle = value < 0 ? inks.blue : inks.orange;
    pen.fillRect(at * step, 0, Math.max(0.75, step - (step > 4 ? 1 : 0)), height);
  });
}

// The same as bars around a line, so that their sizes can be compared.
export function bars(node, values, inks, height) {
  const width = roomOf(node);
  const pen = sized(node, width, height);
  const most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9);
  const step = width / values.length;
  values.forEach((value, at) => {
    const tall = (Math.abs(value) / most) * (height / 2 - 1);
    pen.fillStyle = value < 0 ? inks.blue : inks.orange;
    const top = value < 0 ? height / 2 : height / 2 - tall;
    pen.fillRect(at * step, top, Math.max(0.75, step - (step > 3 ? 1 : 0)), tall);
  });
  pen.fillStyle = inks.rule;
  pen.fillRect(0, height / 2 - 0.5, width, 1);
}
