// Entry point: reads the bundle, creates the parts and draws the page.

import { alignmentView } from "./alignment.js";
import { App } from "./app.js";
import { CentrePart } from "./centre.js";
import { EditsPart } from "./edits.js";
import { embeddingView } from "./embedding.js";
import { pngOfView, svgOfView, tableOfView } from "./export.js";
import { flowView } from "./flow.js";
import { FootPart } from "./foot.js";
import { headsView } from "./heads.js";
import { Help } from "./help.js";
import { listenKeys } from "./keys.js";
import { lensView } from "./lens.js";
import { linesView } from "./lines.js";
import { LivePart } from "./live.js";
import { matrixView } from "./matrix.js";
import { OverviewPart } from "./overview.js";
import { pairView } from "./pair.js";
import { pictureView } from "./picture.js";
import { PromptPart } from "./prompt.js";
import { receivedView } from "./received.js";
import { rowView } from "./row.js";
import { seriesView } from "./series.js";
import { SidePart } from "./side.js";
import { soundView } from "./sound.js";
import { openSource } from "./source.js";
import { stripView } from "./strip.js";
import { tableView } from "./table.js";
import { TopPart } from "./top.js";
import { Tour } from "./tour.js";

const VIEWS = [
  matrixView, seriesView, linesView, rowView, alignmentView, pictureView, stripView, soundView, pairView, headsView, receivedView, embeddingView, lensView, flowView, tableView,
];

async function start() {
  const bundle = JSON.parse(document.getElementById("bundle").textContent);
  const link = location.hash; // before drawing tells the address anew
  const app = new App(bundle, openSource(bundle), VIEWS);
  const place = (id) => document.getElementById(id);
  app.dress();
  const help = new Help();
  const tour = new Tour(app);
  const centre = new CentrePart(app, place("centre"));
  const prompt = new PromptPart(app, place("prompt"));
  const live = new LivePart(app, prompt.left);
  app.parts = [
    { update: (any) => any("theme") && app.dress() },
    new TopPart(app, place("top"), help, tour, centre),
    prompt,
    live,
    new SidePart(app, place("side")),
    new EditsPart(app, place("edits")),
    new FootPart(app, place("foot")),
    centre, // it measures, and the overview scrolls: last, as for both everything must be in its place
    new OverviewPart(app, place("overview")),
    tour,
  ];
  listenKeys(app, centre.scene, help);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => app.touch("theme"));
  addEventListener("beforeprint", () => app.print(true));
  addEventListener("afterprint", () => app.print(false));
  addEventListener("hashchange", () => live.follow(location.hash));
  window.headway = exposed(app, centre);
  app.draw();
  if (app.source.live) await live.follow(link);
  await app.settled();
  window.headway.ready = true;
  performance.mark("headway-ready");
}

// An interface for tests and for the console.
function exposed(app, centre) {
  const { scene } = centre;
  return {
    ready: false,
    get bundle() {
      return app.bundle;
    },
    get state() {
      return { ...app.state };
    },
    table: () => tableOfView(app),
    svg: () => svgOfView(app, centre),
    png: () => pngOfView(app, centre).toDataURL(),
    get plan() {
      return scene.plan;
    },
    views: () => app.fitting().map((view) => view.name),
    change: (patch) => app.change(patch),
    settled: () => app.settled(),
    // What is known of a query's weights: as the map has them, or `exact`; null where they are pooled or not there.
    async row(site, head, row, exact = false) {
      const { run } = app.state;
      const field = app.fieldOf(run, app.siteOf(run, site), head);
      const get = () => [exact ? field.exact(row) : field.row(row), field.entropy(row)];
      for (let tries = 0; get().includes(undefined) && tries < 100; tries++) await app.library.arrival();
      const [found, entropy] = get();
      if (!found || found.pooled) return null;
      const { weights, texts, hidden } = found;
      return { weights: [...weights], texts, hidden: [...hidden], entropy };
    },
    async weight(site, head, row, column) {
      return (await this.row(site, head, row))?.weights[column] ?? null;
    },
    // Draws the view as in a window of another size; what went wrong, or "".
    drawAt(width, height) {
      scene.take(width, height);
      scene.draw();
      return scene.box.dataset.failed ?? "";
    },
  };
}

start();
