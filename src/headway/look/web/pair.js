// Two runs beside each other, two inputs or two models: the map of the chosen head on each, and the difference where the
// maps have the same form.

import { otherRun, runName } from "./compare.js";
import { CAPTION_HEIGHT, mapPanel, panelLegend, pointed, ringedCell } from "./panels.js";

const BETWEEN = 16;
const LEAST_SIDE = 200; // pixels of a panel; smaller ones stand below each other, and scroll

export const pairView = {
  name: "pair",
  title: "Side by side",
  follows: true,
  roots: true,
  scrolls: true,
  fits: (rows, columns, run, bundle) => bundle.runs.length > 1,
  legend: (app) => panelLegend(app, "the largest weight of each map; blue: larger on the right, orange: on the left"),

  draw(scene) {
    const { app, width, height } = scene;
    const maps = panelsOf(app);
    const { across, wide, tall } = panelRoom(maps.length, width, height);
    const from = scene.scrolled(Math.ceil(maps.length / across) * (tall + BETWEEN) + 8, height);
    const place = (at) => [BETWEEN + (at % across) * (wide + BETWEEN), 4 + Math.floor(at / across) * (tall + BETWEEN) - from, wide, tall];
    scene.plan = { panels: maps.map((told, at) => mapPanel(scene, told, place(at))) };
  },

  over(scene) {
    for (const one of scene.plan.panels) ringedCell(scene, one);
  },

  at(scene, x, y) {
    for (const one of scene.plan.panels) {
      const found = pointed(one, x, y);
      if (found === null || found.row >= scene.app.rows.count || found.column >= scene.app.columns.count) continue;
      return "row" in found || "column" in found ? found : null;
    }
    return null;
  },
};

// As many beside each other as makes them largest.
function panelRoom(count, width, height) {
  const choices = Array.from({ length: count }, (_, at) => {
    const [across, down] = [at + 1, Math.ceil(count / (at + 1))];
    const [wide, tall] = [(width - BETWEEN * (across + 1)) / across, (height - 8 - BETWEEN * (down - 1)) / down];
    return { across, wide, tall, size: Math.min(wide, tall - CAPTION_HEIGHT) };
  });
  const best = choices.reduce((a, b) => (b.size > a.size ? b : a));
  const wide = width - 2 * BETWEEN;
  return best.size >= LEAST_SIDE ? best : { across: 1, wide, tall: Math.min(Math.max(height - 8, LEAST_SIDE), wide + CAPTION_HEIGHT) };
}

// Ours, theirs, and the difference.
export function panelsOf(app) {
  const { run, head } = app.state;
  const beside = app.bundle.runs.indexOf(otherRun(app));
  const one = (which) => {
    const site = app.siteOf(which, app.site.name);
    if (site === null || head >= site.heads) return null;
    const [rows, columns] = app.axesOf(which, site);
    return { site, rows, columns, field: app.fieldOf(which, site, head), title: runName(app, app.runAt(which)).textContent };
  };
  const [ours, theirs] = [one(run), one(beside)];
  const maps = [ours, theirs].filter(Boolean);
  const same = theirs !== null && ours.rows.count === theirs.rows.count && ours.columns.count === theirs.columns.count;
  if (same) maps.push({ ...ours, field: app.difference(ours.field, theirs.field), title: "difference" });
  return maps;
}
