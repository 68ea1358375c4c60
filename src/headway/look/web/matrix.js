// The map itself: a row for each query, a column for each key.  Wheel and + − zoom, dragging moves.

import { font, rising, tint, widest, word } from "./label.js";
import { clamp } from "./state.js";
import { weightText } from "./text.js";
import { paint } from "./tiles.js";

const LARGEST = 46; // of a cell, in pixels
const LEGIBLE = 11; // smallest cell that has a label of its own
const PAD = 10;
const WIDE = 17; // cells above which labels stand at 45°
const TITLES = 18; // room of the axis' titles

export const matrixView = {
  name: "matrix",
  title: "Matrix",
  zooms: true,
  roots: true,
  legend: headLegend,
  fits: () => true,

  draw(scene) {
    const { app, width, height } = scene;
    const { rows, columns } = app;
    const { zoom, x, y } = app.state;
    scene.plan = planned(scene.pen, { rows, columns, zoom, from: [x, y], box: [0, 0, width, height], titles: TITLES });
    scene.say(drawMap(scene, app.field, scene.plan));
    titles(scene, scene.plan);
  },

  over(scene) {
    const { app, glass, plan } = scene;
    const { row, column, pinned } = app.state;
    const [x, y] = [plan.left + column * plan.w, plan.top + row * plan.h];
    const [left, top, wide, tall] = plan.frame;
    glass.save();
    glass.beginPath();
    glass.rect(left - 2, top - 2, wide + 4, tall + 4);
    glass.clip();
    outline(glass, left, y, wide, plan.h, "rgba(255,255,255,.55)", 1);
    outline(glass, x, top, plan.w, tall, "rgba(255,255,255,.55)", 1);
    outline(glass, x, y, plan.w, plan.h, "#000000", 4);
    outline(glass, x, y, plan.w, plan.h, pinned ? app.inks.orange : "#ffffff", 2);
    glass.restore();
    called(scene, plan, x, y);
  },

  at(scene, x, y) {
    const { plan } = scene;
    const [column, row] = [Math.floor((x - plan.left) / plan.w), Math.floor((y - plan.top) / plan.h)];
    const [left, top, wide, tall] = plan.frame;
    const inside = x >= left && x < left + wide && y >= top && y < top + tall;
    return inside ? { row, column } : null;
  },

  zoom(scene, factor, x, y) {
    const { app, plan } = scene;
    const most = Math.max(1, (LARGEST * app.state.zoom) / Math.min(plan.w, plan.h));
    const zoom = clamp(app.state.zoom * factor, 1, most);
    const grown = zoom / app.state.zoom;
    const [column, row] = [(x - plan.left) / plan.w, (y - plan.top) / plan.h];
    const [ahead, above] = [(x - plan.start) / (plan.w * grown), (y - plan.head) / (plan.h * grown)];
    app.change({ zoom, x: Math.max(0, column - ahead), y: Math.max(0, row - above) });
  },

  // Brings the chosen cell into a map that is seen in part.
  reveal(scene) {
    const { app, plan } = scene;
    const { row, column } = app.state;
    const [, , wide, tall] = plan.frame;
    const [across, down] = [wide / plan.w, tall / plan.h];
    const seen = (at, from, length) => at >= from && at + 1 <= from + length + 1e-6;
    if (!seen(column, plan.x, across)) app.change({ x: Math.max(0, column - across / 2) });
    if (!seen(row, plan.y, down)) app.change({ y: Math.max(0, row - down / 2) });
  },

  pull(scene, dx, dy) {
    const { app, plan } = scene;
    app.change({ x: Math.max(0, plan.x - dx / plan.w), y: Math.max(0, plan.y - dy / plan.h) });
  },
};

// A map with its labels, and the weights in large cells; what is to be known of it.
export function drawMap(scene, field, plan) {
  const { app, pen } = scene;
  const scale = app.scaleOf(field);
  const said = paint(scene, field, scale, plan);
  const least = Math.min(plan.w, plan.h);
  if (least >= 9) gaps(pen, plan, app.inks.paper);
  if (least >= 3) stairs(scene, field, plan);
  if (least >= 34) figures(scene, field, plan, scale);
  if (!plan.unlabelled) names(scene, plan);
  return said;
}

// Where everything stands in a box: cells are w × h, cell (0, 0) at (left, top), cells y0 … y1 and x0 … x1 are seen.
// `from` is the first cell that is seen, where the map is larger than the box.  A `bare` map has labels only where words fit.
export function planned(pen, { rows: down, columns: along, zoom = 1, from = [0, 0], box, titles: TITLES = 0, bare = false }) {
  const [ahead, above, width, height] = box;
  const [rows, columns] = [down.count, along.count];
  pen.font = font(12, 600); // the chosen label is bold
  const long = widest(pen, along, 96);
  const room = { side: widest(pen, down, 116) + 12 + TITLES, head: long + 12 + TITLES };
  const alike = down === along;
  let size = cells(alike, width - room.side - PAD, height - room.head - PAD, rows, columns);
  const words = { down: size.h * zoom >= LEGIBLE, along: size.w * zoom >= LEGIBLE }; // numbers where words do not fit
  const unlabelled = bare && !(words.down && words.along);
  if (unlabelled) Object.assign(words, { down: false, along: false });
  if (!words.down) room.side = clamp(room.side, 44 + TITLES, 62 + TITLES);
  if (!words.along) room.head = 26 + TITLES;
  const angle = words.along && size.w * zoom >= WIDE ? Math.PI / 4 : Math.PI / 2;
  if (unlabelled) Object.assign(room, { side: -PAD, head: 2 });
  if (words.along && angle < 1) room.head = Math.ceil(long * Math.SQRT1_2) + 20 + TITLES;
  const pad = angle < 1 ? Math.max(PAD, Math.ceil(long * Math.SQRT1_2) - 8) : PAD; // labels lean over the last column
  size = cells(alike, width - room.side - pad, height - room.head - PAD, rows, columns);
  const [w, h] = [size.w * zoom, size.h * zoom];
  const [wide, tall] = [Math.min(w * columns, width - room.side - pad), Math.min(h * rows, height - room.head - PAD)];
  const start = ahead + room.side + Math.max(0, (width - room.side - pad - wide) / 2);
  const head = above + room.head;
  const most = [columns - wide / w, rows - tall / h].map((last) => Math.max(0, last)); // rounding may go below 0
  const [x, y] = [clamp(from[0], 0, most[0]), clamp(from[1], 0, most[1])];
  const plan = { w, h, x, y, start, head, left: start - x * w, top: head - y * h, side: room.side, titles: TITLES };
  return Object.assign(plan, {
    rows: down,
    columns: along,
    unlabelled,
    words,
    angle,
    long: words.along ? (room.head - TITLES - 10) / Math.sin(angle) : 60,
    frame: [start, head, wide, tall],
    y0: Math.floor(y), y1: Math.min(rows, Math.ceil(y + tall / h - 1e-6)),
    x0: Math.floor(x), x1: Math.min(columns, Math.ceil(x + wide / w - 1e-6)),
  });
}

// The colours of a map go up to the largest weight of its head.
export function headLegend({ field }) {
  return { bar: true, most: `${weightText(field.peak())}, largest of this head` };
}

// A hairline around what is masked.
function stairs(scene, field, plan) {
  const { app, pen } = scene;
  pen.fillStyle = app.inks.soft;
  let above = null;
  for (let y = plan.y0; y < plan.y1; y++) {
    const hidden = field.row(y)?.hidden ?? null;
    for (let x = plan.x0; hidden !== null && x < plan.x1; x++) {
      const [left, top] = [plan.left + x * plan.w, plan.top + y * plan.h];
      if (x > 0 && hidden[x] !== hidden[x - 1]) pen.fillRect(left - 0.5, top, 1, plan.h);
      if (above !== null && hidden[x] !== above[x]) pen.fillRect(left, top - 0.5, plan.w, 1);
    }
    above = hidden;
  }
}

// Cells are squares where rows and columns are alike, and not longer than four times their width elsewhere.
function cells(alike, width, height, rows, columns) {
  const [w, h] = [Math.min(width / columns, LARGEST), Math.min(height / rows, LARGEST)];
  const longest = alike ? 1 : 4;
  return { w: Math.min(w, h * longest), h: Math.min(h, w * longest) };
}

function gaps(pen, plan, paper) {
  const [left, top, wide, tall] = plan.frame;
  pen.fillStyle = paper;
  for (let x = plan.x0; x <= plan.x1; x++) pen.fillRect(plan.left + x * plan.w - 0.5, top, 1, tall);
  for (let y = plan.y0; y <= plan.y1; y++) pen.fillRect(left, plan.top + y * plan.h - 0.5, wide, 1);
}

// In large cells the weights themselves.
function figures(scene, field, plan, scale) {
  const { pen } = scene;
  pen.font = font(11);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (let y = plan.y0; y < plan.y1; y++) {
    const row = field.row(y);
    for (let x = plan.x0; row && x < plan.x1; x++) {
      if (Math.abs(row.weights[x]) < 0.005 || row.bounded(x)) continue;
      pen.fillStyle = scale.ink(row.weights[x]);
      const said = row.text(x).replace("0.", ".").replace(" ", "");
      pen.fillText(said, plan.left + (x + 0.5) * plan.w, plan.top + (y + 0.5) * plan.h);
    }
  }
}

// Labels of rows and columns; numbers of every k-th where there is no room for words.
function names(scene, plan) {
  const { app, pen } = scene;
  const [down, along] = [stride(plan.h, plan.words.down), stride(plan.w, plan.words.along)];
  pen.font = font(lettering(plan.h));
  for (let y = first(plan.y0, down); y < plan.y1; y += down) {
    pen.fillStyle = tint(app.inks, plan.rows, y, -1);
    word(pen, axisName(plan.rows, y, down), plan.start - 6, plan.top + (y + 0.5) * plan.h, plan.side - 10 - plan.titles, "right");
  }
  pen.font = font(lettering(plan.w));
  for (let x = first(plan.x0, along); x < plan.x1; x += along) {
    pen.fillStyle = tint(app.inks, plan.columns, x, -1);
    const [middle, base] = [plan.left + (x + 0.5) * plan.w, plan.head - 6];
    if (along === 1) rising(pen, axisName(plan.columns, x, along), middle, base, plan.long, plan.angle);
    else word(pen, axisName(plan.columns, x, along), middle, base - 4, 60, "center");
  }
}

// Letters are a little smaller than narrow cells, so that labels do not touch.
function lettering(size) {
  return size >= LEGIBLE ? clamp(size - 1, 10, 12) : 12;
}

function stride(size, words) {
  if (words) return 1;
  const steps = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
  return steps.find((step) => step * size >= 40) ?? 20000;
}

function first(from, step) {
  return Math.ceil(from / step) * step;
}

function axisName(axis, index, step) {
  return step === 1 || axis.kind === "frames" ? axis.label(index) : String(index);
}

// The labels of the chosen row and column, on the glass, in full ink.
function called(scene, plan, x, y) {
  const { app, glass } = scene;
  const { row, column } = app.state;
  glass.font = font(lettering(plan.h), 600);
  if (row >= plan.y0 && row < plan.y1) {
    glass.fillStyle = app.inks.paper;
    const tall = plan.h >= LEGIBLE ? Math.min(16, plan.h) : 16;
    glass.fillRect(plan.start - plan.side + TITLES, y + (plan.h - tall) / 2, plan.side - 3 - TITLES, tall);
    glass.fillStyle = app.inks.ink;
    word(glass, app.rows.label(row), plan.start - 6, y + plan.h / 2, plan.side - 10 - TITLES, "right");
  }
  if (column < plan.x0 || column >= plan.x1) return;
  const middle = x + plan.w / 2;
  const lying = plan.words.along;
  glass.font = font(lettering(plan.w), 600);
  glass.fillStyle = app.inks.paper;
  if (lying && plan.angle < 1) shade(glass, app, column, middle, plan);
  else if (lying) glass.fillRect(middle - Math.min(16, plan.w) / 2, TITLES, Math.min(16, plan.w), plan.head - 3 - TITLES);
  else glass.fillRect(middle - 42, TITLES, 84, plan.head - 3 - TITLES);
  glass.fillStyle = app.inks.ink;
  if (lying) rising(glass, app.columns.label(column), middle, plan.head - 6, plan.long, plan.angle);
  else word(glass, app.columns.label(column), middle, plan.head - 10, 84, "center");
}

// Paper under a label at an angle, so that the one below does not show through.
function shade(glass, app, column, middle, plan) {
  const wide = Math.min(plan.long, glass.measureText(app.columns.label(column)).width);
  glass.save();
  glass.translate(middle, plan.head - 6);
  glass.rotate(-plan.angle);
  glass.fillRect(-1, -7, wide + 4, 14);
  glass.restore();
}

// What the rows and the columns are.
function titles(scene, plan) {
  const { app, pen } = scene;
  pen.font = font(11);
  pen.fillStyle = app.inks.soft;
  const same = app.rows === app.columns;
  const [left, top, wide, tall] = plan.frame;
  word(pen, same ? "keys: looked at →" : `keys: ${app.columns.name} →`, left, 8, Math.max(90, wide), "left");
  pen.save();
  pen.translate(left - plan.side + 8, top + tall);
  pen.rotate(-Math.PI / 2);
  word(pen, same ? "← queries: who looks" : `← queries: ${app.rows.name}`, 0, 0, Math.max(90, tall), "left");
  pen.restore();
}

export function outline(pen, x, y, width, height, colour, line) {
  pen.strokeStyle = colour;
  pen.lineWidth = line;
  pen.strokeRect(x, y, width, height);
}
