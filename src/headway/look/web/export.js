// The view as a picture, and its numbers as a table for other programs.

import { toldCloud } from "./cloud.js";
import { make } from "./dom.js";
import { headPanels } from "./heads.js";
import { panelsOf } from "./pair.js";
import { drawPart, sizeOfPart } from "./paper.js";
import { SvgPen } from "./svg.js";

// Saves what is shown as "png", "svg" or "csv".
export async function saveView(app, centre, kind) {
  const name = `${app.run.title}-${app.state.site}-${app.state.view}`.replace(/[^\w.-]+/g, "_").slice(0, 80);
  if (kind === "csv") return handed(`${name}.csv`, new Blob(["\ufeff", await tableOfView(app)], { type: "text/csv;charset=utf-8" }));
  if (kind === "svg") return handed(`${name}.svg`, new Blob([svgOfView(app, centre)], { type: "image/svg+xml" }));
  const node = pngOfView(app, centre);
  return handed(`${name}.png`, await new Promise((resolve) => node.toBlob(resolve, "image/png")));
}

// What is drawn on the canvas is drawn again by a pen that writes; a table is drawn from the page.
export function svgOfView(app, { scene, page }) {
  const [width, height] = page === null ? [scene.width, scene.height] : sizeOfPart(page.box);
  const pen = new SvgPen(width, height);
  pen.fillStyle = app.inks.paper;
  pen.fillRect(0, 0, width, height);
  if (page === null) scene.drawBy(pen);
  else drawPart(pen, page.box);
  return String(pen);
}

const MOST_PIXELS = 16_000; // of a side: browsers have no larger canvas

export function pngOfView(app, { scene, page }) {
  if (page === null) return pictureOfCanvas(app, scene);
  const [width, height] = sizeOfPart(page.box);
  const density = Math.min(window.devicePixelRatio || 1, MOST_PIXELS / Math.max(width, height));
  const node = make("canvas", { width: Math.round(width * density), height: Math.round(height * density) });
  const pen = node.getContext("2d");
  pen.scale(density, density);
  pen.fillStyle = app.inks.paper;
  pen.fillRect(0, 0, width, height);
  drawPart(pen, page.box);
  return node;
}

function pictureOfCanvas(app, { base, front }) {
  const node = make("canvas", { width: base.width, height: base.height });
  const pen = node.getContext("2d");
  pen.fillStyle = app.inks.paper;
  pen.fillRect(0, 0, node.width, node.height);
  pen.drawImage(base, 0, 0);
  pen.drawImage(front, 0, 0);
  return node;
}

function handed(name, blob) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// Comma-separated values: what the view has as a table, or the map with its weights as they may be shown.
export async function tableOfView(app) {
  const lines = await (TABLES[app.state.view] ?? chosenLines)(app);
  return lines.map((line) => line.map(cellText).join(",")).join("\r\n");
}

const TABLES = {
  lens: lensLines,
  flow: ({ run }) => [...flowLines(run.flow)],
  map: pointLines,
  pair: (app) => mapLines(app, panelsOf(app)),
  heads: (app) => mapLines(app, headPanels(app)),
};

function chosenLines(app) {
  return mapLines(app, [{ title: "", rows: app.rows, columns: app.columns, field: app.field }]);
}

// Maps below one another, each with its title where there are several.
async function mapLines(app, maps) {
  const lines = [];
  for (const { site, title, rows, columns, field } of maps) {
    if (maps.length > 1) lines.push([site ? `${site.name} ${title}` : title]);
    lines.push(["query \\ key", ...Array.from({ length: columns.count }, (_, key) => columns.label(key))]);
    for (let r = 0; r < rows.count; r++) {
      const get = () => field.exact(r) ?? field.row(r);
      for (let tries = 0; get() === undefined && tries < 1000; tries++) await app.library.arrival();
      lines.push([rows.label(r), ...(get()?.texts ?? [])]);
    }
  }
  return lines;
}

function pointLines(app) {
  const told = toldCloud(app);
  const line = (at) => [told.label(at), told.groups[told.group(at)]?.[0] ?? "", told.points[2 * at], told.points[2 * at + 1]];
  return [["point", "group", "first component", "second component"], ...Array.from({ length: told.count }, (_, at) => line(at))];
}

function lensLines({ run }) {
  const { lens, outcome } = run;
  const lines = [["step", "said", "layer", "likeliest", "probability", "probability of said", "rank of said"]];
  lens.steps.forEach((step, at) =>
    step.forEach(([top, said, rank], layer) =>
      lines.push([lens.first + at, outcome.steps[lens.first + at].said, lens.layers[layer], top[0][0], top[0][1], said, rank + 1])));
  return lines;
}

function* flowLines(node, first = true) {
  if (first) yield ["module", "kind", "parameters", "came in", "added", "output"];
  yield [node.path, node.kind, node.parameters, node.before ?? "", node.added ?? "", node.size ?? ""];
  for (const child of node.children ?? []) yield* flowLines(child, false);
}

function cellText(value) {
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
