// The embedding map: points of a plane, coloured by what they are; cells of a picture are drawn as themselves.

import { cloudOf, cloudSentence, toldCloud } from "./cloud.js";
import { imageOf } from "./heat.js";
import { font, word } from "./label.js";
import { MOVE, glide } from "./motion.js";
import { SvgPen } from "./svg.js";
import { short } from "./text.js";

const EDGE = 34; // around the points
const FOOT = 26; // below them
const REACH = 28; // pixels from a point at which it is meant
const CROPS = 700; // cells of a picture that are drawn as themselves
const MOST_LABELS = 260;

export const embeddingView = {
  name: "map",
  title: "Embedding",
  follows: true,
  searches: true,
  fits: (rows, columns, run, bundle, site) => Boolean(site.plane) || bundle.clouds?.length > 0,
  legend: (app) => ({ most: sharesText(app) }),
  tells: (app) => (cloudOf(app) === null ? null : cloudSentence(app)),
  steps: (state, down, right, app) => (cloudOf(app) === null ? { row: state.row + down + right } : { point: Math.max(0, state.point + down + right) }),

  draw(scene) {
    const { app, pen, width, height } = scene;
    const told = toldCloud(app);
    scene.plan = null;
    const size = Math.max(1, Math.min(width, height - FOOT) / 2 - EDGE);
    const wide = Math.max(size, Math.min(width / 2 - EDGE - 30, size * 1.7)); // both ways in the same unit, if there is room
    const unit = Math.min(size / furthest(told.points, 1), wide / furthest(told.points, 0));
    const plan = { told, unit, middle: [width / 2, (height - FOOT) / 2] };
    scene.plan = plan;
    plan.at = placesOf(scene, told, plan);
    axes(scene, plan);
    links(scene, plan);
    dots(scene, plan);
    labels(scene, plan);
    groupLegend(pen, app, plan, width, height);
  },

  over(scene) {
    const { app, glass, plan } = scene;
    const { told } = plan;
    if (told.chosen >= told.count) return;
    const [x, y] = plan.at(told.chosen);
    glass.strokeStyle = app.state.pinned ? app.inks.orange : app.inks.ink;
    glass.lineWidth = 2;
    glass.beginPath();
    glass.arc(x, y, plan.radius + 3.5, 0, 7);
    glass.stroke();
    tag(glass, app, told.label(told.chosen), x, y - plan.radius - 14, scene.width);
  },

  at({ app, plan }, x, y) {
    const { told } = plan;
    let [best, near] = [-1, REACH ** 2];
    for (let at = 0; at < told.count; at++) {
      const [px, py] = plan.at(at);
      const far = (px - x) ** 2 + (py - y) ** 2;
      if (far < near) [best, near] = [at, far];
    }
    if (best < 0) return null;
    return cloudOf(app) === null ? { row: best } : { point: best };
  },
};

function furthest(points, way) {
  let most = 1e-3;
  for (let at = way; at < points.length; at += 2) most = Math.max(most, Math.abs(points[at]));
  return most;
}

// Where each point stands; where the same things have other vectors now, they move there.
function placesOf(scene, told, { unit, middle }) {
  const { app } = scene;
  const goal = told.points.map((one, at) => (at % 2 === 0 ? middle[0] + one * unit : middle[1] - one * unit));
  const before = scene.moving;
  const other = before !== undefined && before.noun !== told.noun && before.goal.length === goal.length;
  if (other && !(scene.pen instanceof SvgPen)) {
    const from = before.now();
    const moving = (scene.moving = { noun: told.noun, goal, share: 0, now: () => moving.goal.map((one, at) => from[at] + (one - from[at]) * moving.share) });
    app.during(glide(moving, MOVE, (share) => ((moving.share = share), app.touch("glide"))));
  } else if (before?.noun === told.noun) before.goal = goal;
  else scene.moving = { noun: told.noun, goal, share: 1, now: () => scene.moving.goal };
  const now = scene.moving.now();
  return (at) => [now[2 * at], now[2 * at + 1]];
}

function axes(scene, { middle, told }) {
  const { app, pen, width, height } = scene;
  pen.fillStyle = app.inks.rule;
  pen.fillRect(8, middle[1] - 0.5, width - 16, 1);
  pen.fillRect(middle[0] - 0.5, 8, 1, height - FOOT - 16);
  pen.font = font(11);
  pen.fillStyle = app.inks.soft;
  word(pen, `first component, ${percentOf(told.shares[0])} of the variance →`, width - 10, height - FOOT - 6, width / 2, "right", 60);
  pen.save();
  pen.translate(10, 12);
  pen.rotate(-Math.PI / 2);
  word(pen, `second component, ${percentOf(told.shares[1])} →`, 0, 0, height / 2, "right", 60);
  pen.restore();
}

function percentOf(share) {
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

function sharesText(app) {
  const told = toldCloud(app);
  return `${told.noun}; both components hold ${percentOf(told.shares[0] + told.shares[1])} of their variance`;
}

// From the chosen token to those that it looks at.
function links({ app, pen }, { told, at }) {
  const from = at(told.chosen);
  for (const [key, strength] of told.links) {
    pen.globalAlpha = 0.25 + 0.6 * strength;
    pen.strokeStyle = app.inks.accent;
    pen.lineWidth = 0.8 + 3 * strength;
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(...at(key));
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function colourOf(app, told, at) {
  const group = told.group(at);
  if (group >= 0) return told.groups[group][1];
  return told.place ? `hsl(${Math.round(225 - 195 * told.place(at))} 70% ${app.inks.theme === "dark" ? 62 : 45}%)` : app.inks.soft;
}

function dots(scene, plan) {
  const { app, pen } = scene;
  const { told, at } = plan;
  const image = told.axis && told.count <= CROPS ? imageOf(app, app.run.picture.src) : null;
  const size = image ? Math.max(10, Math.min(34, 420 / Math.sqrt(told.count))) : 0;
  plan.radius = image ? size * 0.6 : told.count > 400 ? 3 : 4.5;
  const faint = told.marked.size > 0;
  for (let one = 0; one < told.count; one++) {
    const [x, y] = at(one);
    pen.globalAlpha = faint && !told.marked.has(one) ? 0.12 : told.group(one) < 0 && !told.place ? 0.35 : 0.9;
    if (image && crop(pen, image, told.axis, one, x, y, size)) continue;
    pen.fillStyle = colourOf(app, told, one);
    pen.beginPath();
    pen.arc(x, y, (image ? 6 : plan.radius) * (told.marked.has(one) ? 1.4 : 1), 0, 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

// A cell of the picture, as large as all others; false for a token that is none.
function crop(pen, image, axis, at, x, y, size) {
  const place = axis.place(at);
  if (place === null) return false;
  const node = cellOf(image, axis, at);
  pen.drawImage(node, x - size / 2, y - size / 2, size, size);
  return true;
}

const cellsOf = new WeakMap();

function cellOf(image, axis, at) {
  if (!cellsOf.has(image)) cellsOf.set(image, new Map());
  const key = `${axis.name}/${at}`;
  const kept = cellsOf.get(image);
  if (!kept.has(key)) {
    const { x, y } = axis.place(at);
    const [wide, tall] = [image.naturalWidth / axis.grid[1], image.naturalHeight / axis.grid[0]];
    const node = document.createElement("canvas");
    [node.width, node.height] = [24, 24];
    node.getContext("2d").drawImage(image, x * wide, y * tall, wide, tall, 0, 0, 24, 24);
    kept.set(key, node);
  }
  return kept.get(key);
}

// Labels where they do not touch one another: the searched ones and those that are linked first.
function labels({ app, pen, width, height }, { told, at, radius }) {
  if (told.axis) return;
  pen.font = font(12);
  const others = told.named ?? Array.from({ length: told.count }, (_, one) => one);
  const order = [...new Set([...told.links.map(([key]) => key), ...told.marked, ...others])].filter((one) => one !== told.chosen).slice(0, MOST_LABELS); // the chosen one has a tag
  const taken = [];
  for (const one of order) {
    const [x, y] = at(one);
    const said = short(told.label(one), 22);
    const wide = pen.measureText(said).width;
    const faint = told.marked.size > 0 && !told.marked.has(one);
    const spots = [[x + radius + 4, y], [x - radius - 4 - wide, y], [x - wide / 2, y - radius - 9], [x - wide / 2, y + radius + 9]];
    const spot = faint ? undefined : spots.find(([left, middle]) => left >= 4 && left + wide <= width - 4 && middle > 8 && middle < height - FOOT - 4 && free(taken, [left, middle - 7, wide, 14]));
    if (spot === undefined) continue;
    taken.push([spot[0], spot[1] - 7, wide, 14]);
    pen.fillStyle = told.marked.has(one) ? app.inks.ink : app.inks.soft;
    word(pen, said, spot[0], spot[1], wide + 4, "left");
  }
}

function free(taken, [x, y, wide, tall]) {
  return taken.every(([left, top, width, height]) => x + wide < left || left + width < x || y + tall < top || top + height < y);
}

// The name of a point on paper of its own.
function tag(pen, app, text, x, y, width) {
  pen.font = font(13, 650);
  const said = short(text, 60);
  const wide = Math.min(width - 8, pen.measureText(said).width + 12);
  const left = Math.max(4, Math.min(width - wide - 4, x - wide / 2));
  pen.fillStyle = app.inks.paper;
  pen.beginPath();
  pen.roundRect(left, y - 10, wide, 20, 5);
  pen.fill();
  pen.strokeStyle = app.inks.rule;
  pen.lineWidth = 1;
  pen.stroke();
  pen.fillStyle = app.inks.ink;
  word(pen, said, left + wide / 2, y, wide - 8, "center", 60);
}

// What the colours mean.
function groupLegend(pen, app, { told }, width, height) {
  pen.font = font(12);
  let x = 10;
  const entries = told.place && !told.axis ? [["first", colourOf(app, told, 0)], ["last", colourOf(app, told, told.count - 1)]] : told.groups;
  for (const [name, colour] of entries) {
    const said = short(name, 24);
    const wide = pen.measureText(said).width;
    if (x + wide + 24 > width) return;
    pen.fillStyle = colour;
    pen.beginPath();
    pen.arc(x + 5, height - FOOT / 2, 4.5, 0, 7);
    pen.fill();
    pen.fillStyle = app.inks.soft;
    word(pen, said, x + 14, height - FOOT / 2, wide + 4, "left");
    x += wide + 34;
  }
}
