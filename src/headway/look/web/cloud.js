// Vectors as points of a plane: the tokens that a site reads, samples of data after each layer, or the features of a
// dictionary.  What is drawn is told the same way for each:
//   count, label(at), points: [x, y, …] in units of the farthest, shares of the variance along both axes
//   group(at), groups: [[name, colour], …]      what the colours mean; group −1: none
//   chosen, marked: a set, links: [[at, strength], …] from the chosen one, noun
//   named            those that have a label, where not all have
//   place(at)        0 … 1 along a sequence, where points are coloured by it
//   axis             whose cells of the picture are drawn in place of points

import { strongest } from "./field.js";
import { hueOf } from "./lines.js";
import { clamp, NONE } from "./state.js";
import { short } from "./text.js";

const UNITS = 9999;
const LINKS = 5;

// The cloud that is chosen; null: the tokens of this input, which a map that is computed from others has none of.
export function cloudOf({ bundle, state, site }) {
  return bundle.clouds?.[state.cloud] ?? (site.plane ? null : (bundle.clouds?.[0] ?? null));
}

export function toldCloud(app) {
  const cloud = cloudOf(app);
  const told = cloud === null ? toldTokens(app) : toldThings(app, cloud);
  return { ...told, marked: found(told, app.state.search) };
}

function found({ count, label }, search) {
  const wanted = search.trim().toLowerCase();
  const hits = wanted === "" ? [] : Array.from({ length: count }, (_, at) => at).filter((at) => label(at).toLowerCase().includes(wanted));
  return new Set(hits);
}

function toldTokens(app) {
  const { site, rows, columns, run, inks } = app;
  const points = rows.groups ? meansOf(site.plane.points, rows.groups) : site.plane.points;
  const same = rows === columns && app.row !== undefined && !app.row.pooled;
  const links = same ? strongest(app.row.weights, LINKS).filter(([key]) => key !== app.state.row) : [];
  const most = Math.max(...links.map(([, weight]) => Math.abs(weight)), 1e-9);
  return {
    count: rows.count,
    label: (at) => rows.label(at),
    points: points.map((one) => one / UNITS),
    shares: site.plane.shares,
    ...groupsOf(rows, run, inks),
    chosen: app.state.row,
    links: links.map(([key, weight]) => [key, Math.abs(weight) / most]),
    axis: rows.kind === "grid" && run.picture ? rows : null,
    noun: `${rows.count} ${rows.noun}s as ${site.label ?? site.name} reads them`,
  };
}

// A word stands in the middle of its pieces: means and projections go together.
function meansOf(points, groups) {
  return groups.flatMap(([from, to]) => [0, 1].map((way) => {
    let sum = 0;
    for (let at = from; at < to; at++) sum += points[2 * at + way];
    return sum / (to - from);
  }));
}

function toldThings(app, cloud) {
  const { state, inks } = app;
  const layer = cloud.layers[clamp(state.layer, 0, cloud.layers.length - 1)];
  const names = [...new Set(cloud.classes)].sort();
  const active = cloud.active.length > 0 && cloud.axis === app.rows.name ? activeOf(app, cloud) : null;
  const groups = active === null ? names.map((name, at) => [name, hueAt(at, names.length)]) : [["active for the chosen token", inks.orange], ["active for another token", inks.accent]];
  const ever = new Set(cloud.active.flatMap((token) => token.map(([at]) => at)));
  const group = (at) => (active === null ? names.indexOf(cloud.classes[at]) : active.has(at) ? 0 : ever.has(at) ? 1 : NONE);
  return {
    count: cloud.labels.length,
    label: (at) => cloud.labels[at],
    points: layer.points.map((one) => one / UNITS),
    shares: layer.shares,
    group,
    groups,
    chosen: clamp(state.point, 0, cloud.labels.length - 1),
    links: [],
    axis: null,
    noun: `${cloud.title}, ${layerTitle(cloud, layer)}`,
    named: active === null ? (cloud.labels.length > 100 && names.length > 0 ? [] : null) : [...active.keys()],
    says: (at) => [cloud.classes[at], active?.has(at) ? `${active.get(at).toPrecision(3)} for the chosen token` : null].filter(Boolean),
  };
}

export function layerTitle({ noun }, { name }) {
  return noun === "features" ? `directions at ${name}` : `after ${name}`;
}

// Features of the chosen token and how strongly it activates each; of a word, those of all its pieces.
function activeOf(app, cloud) {
  const [from, to] = app.rows.groups?.[app.state.row] ?? [app.state.row, app.state.row + 1];
  const found = new Map();
  for (const [at, code] of cloud.active.slice(from, to).flat()) found.set(at, Math.max(code, found.get(at) ?? 0));
  return found;
}

function hueAt(at, count) {
  return count <= 8 ? hueOf(at) : `hsl(${Math.round((360 * at) / count)} 65% 45%)`;
}

// What a token is: what it was tagged as, else a kind of token; stretches and rows by their place.
function groupsOf(rows, run, inks) {
  const { kind, steps } = run.outcome;
  const said = new Map(kind === "tags" ? steps.map((step) => [rows.at(step.at), step.said]) : []);
  if (said.size > 0 && rows.kind === "text") {
    const names = [...new Set(said.values())].sort();
    return { groups: names.map((name, at) => [name, hueAt(at, names.length)]), group: (at) => names.indexOf(said.get(at)) };
  }
  if (rows.kind !== "text") return { groups: [], group: () => NONE, place: (at) => at / Math.max(1, rows.count - 1) };
  const begins = new Set(rows.words);
  const kinds = [["special", inks.special], ["word", inks.accent], ["piece of a word", inks.green], ["number", inks.orange], ["sign", inks.red]];
  const group = (at) => {
    const label = rows.label(at);
    if (rows.special.has(at)) return 0;
    if (/\d/u.test(label)) return 3;
    if (!/[\p{L}\p{M}]/u.test(label)) return 4;
    return begins.size > 0 && !begins.has(at) ? 2 : 1;
  };
  const used = new Set(Array.from({ length: rows.count }, (_, at) => group(at)));
  const kept = kinds.map((one, at) => [one, at]).filter(([, at]) => used.has(at));
  return { groups: kept.map(([one]) => one), group: (at) => kept.findIndex(([, number]) => number === group(at)) };
}

// The chosen point in words.
export function cloudSentence(app) {
  const told = toldCloud(app);
  const more = told.says?.(told.chosen) ?? [];
  return [short(told.label(told.chosen), 120), ...more.map((one) => ` · ${one}`)];
}
