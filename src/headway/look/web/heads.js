// All heads of a layer, or of all layers, at a size one can read.

import { pictureForm } from "./heat.js";
import { font, word } from "./label.js";
import { CAPTION_HEIGHT, mapPanel, panelLegend, pointed, ringedCell } from "./panels.js";
import { habitOf } from "./sentence.js";

const GUTTER = 14;
const LEAST_PANEL = 150;
const MOST_PANEL = 460;
const LAYER_TITLE = 26;

export const headsView = {
  name: "heads",
  title: "All heads",
  scrolls: true,
  follows: true,
  roots: true,
  layers: true, // it can show all of them
  fits: (rows, columns, run) => run.sites.some((site) => site.heads > 1) || run.sites.length > 1,
  legend: (app) => panelLegend(app, "the largest weight of each head"),

  draw(scene) {
    const { app, width, height } = scene;
    const sites = sitesShown(app);
    const plan = laidOut(sites, width, height, app.columns.kind === "grid" ? pictureForm(app) : 1);
    const here = plan.places.find(({ site, head }) => site === app.site && head === app.state.head);
    const { high } = plan;
    if (here) scene.reveal(here.y - LAYER_TITLE, here.y + high + GUTTER, height);
    const from = scene.scrolled(plan.length, height);
    scene.plan = { panels: [] };
    for (const { site, y } of plan.titles) titled(scene, site, y - from);
    for (const place of plan.places) {
      const y = place.y - from;
      if (y > height || y + high < 0) continue;
      scene.plan.panels.push(mapPanel(scene, headPanel(app, place.site, place.head), [place.x, y, plan.size, high]));
    }
  },

  over(scene) {
    for (const one of scene.plan.panels) ringedCell(scene, one);
  },

  // Under the pointer; another head is chosen by a click.
  at(scene, x, y) {
    const found = this.press(scene, x, y);
    if (found === null || found.site !== scene.app.state.site) return null;
    const { row, column } = found;
    return { ...(row === undefined ? {} : { row }), ...(column === undefined ? {} : { column }) };
  },

  press(scene, x, y) {
    for (const one of scene.plan.panels) {
      const found = pointed(one, x, y);
      if (found !== null) return { site: one.told.site.name, head: one.told.head, ...found };
    }
    return null;
  },
};

function sitesShown({ state, run, site }) {
  return state.layers ? run.sites.filter((one) => !one.derived) : [site];
}

// All heads that the view shows, as panels.
export function headPanels(app) {
  return sitesShown(app).flatMap((site) => Array.from({ length: site.heads }, (_, head) => headPanel(app, site, head)));
}

function headPanel(app, site, head) {
  const [rows, columns] = app.axesOf(app.state.run, site);
  const habit = habitOf(site, head);
  const title = `head ${head}${habit === null ? "" : ` · ${habit[1]}`}${app.isEdited(site.name, head) ? " · edited" : ""}`;
  return { site, head, rows, columns, field: app.fieldFor(site, head), title, chosen: site === app.site && head === app.state.head };
}

function titled(scene, site, y) {
  const { app, pen } = scene;
  pen.font = font(13, 650);
  pen.fillStyle = app.inks.ink;
  word(pen, site.label ?? site.name, 8, y + LAYER_TITLE / 2, scene.width - 16, "left");
}

// The largest panels of which all heads of one layer fit; several layers scroll.
function laidOut(sites, width, height, form) {
  const most = Math.max(...sites.map((site) => site.heads));
  let size = sites.length > 1 ? Math.min(MOST_PANEL, 230) : MOST_PANEL;
  const across = (one) => Math.max(1, Math.floor((width - GUTTER) / (one + GUTTER)));
  const tall = (one) => Math.ceil(most / across(one)) * (Math.round(one * form) + CAPTION_HEIGHT + GUTTER) + LAYER_TITLE;
  while (size > LEAST_PANEL && (sites.length > 1 ? across(size) < Math.min(most, 4) : tall(size) > height)) size -= 4;
  size = Math.min(size, width - 2 * GUTTER);
  const high = CAPTION_HEIGHT + Math.round(size * form);
  const [places, titles] = [[], []];
  let y = 0;
  for (const site of sites) {
    titles.push({ site, y });
    y += LAYER_TITLE;
    const count = Math.min(across(size), site.heads);
    for (let head = 0; head < site.heads; head++) {
      const line = Math.floor(head / count);
      places.push({ site, head, x: GUTTER + (head % count) * (size + GUTTER), y: y + line * (high + GUTTER) });
    }
    y += Math.ceil(site.heads / count) * (high + GUTTER);
  }
  return { size, high, places, titles, length: y };
}
