// The view as a picture, and its numbers as a table for other programs.

import { make } from "./dom.js";

// Saves what is shown as "png" or "csv"; false where a view has no picture of its own.
export async function saveView(app, scene, kind) {
  const name = `${app.run.title}-${app.state.site}-${app.state.view}`.replace(/[^\w.-]+/g, "_").slice(0, 80);
  if (kind === "csv") return handed(`${name}.csv`, new Blob(["\ufeff", await tableOfView(app)], { type: "text/csv;charset=utf-8" }));
  if (app.view.draw === undefined) return false;
  return handed(`${name}.png`, await pictureOfView(app, scene));
}

function pictureOfView(app, scene) {
  const { base, front } = scene;
  const node = make("canvas", { width: base.width, height: base.height });
  const pen = node.getContext("2d");
  pen.fillStyle = app.inks.paper;
  pen.fillRect(0, 0, node.width, node.height);
  pen.drawImage(base, 0, 0);
  pen.drawImage(front, 0, 0);
  return new Promise((resolve) => node.toBlob(resolve, "image/png"));
}

function handed(name, blob) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
  return true;
}

// Comma-separated values: of the lens, of the modules, or of the map with its weights as they may be shown.
export async function tableOfView(app) {
  const lines = app.state.view === "lens" ? lensLines(app) : app.state.view === "flow" ? [...flowLines(app.run.flow)] : await mapLines(app);
  return lines.map((line) => line.map(cellText).join(",")).join("\r\n");
}

async function mapLines(app) {
  const { field, rows, columns } = app;
  const lines = [["query \\ key", ...Array.from({ length: columns.count }, (_, key) => columns.label(key))]];
  for (let r = 0; r < rows.count; r++) {
    const get = () => field.exact(r) ?? field.row(r);
    for (let tries = 0; get() === undefined && tries < 1000; tries++) await app.library.arrival();
    lines.push([rows.label(r), ...(get()?.texts ?? [])]);
  }
  return lines;
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
