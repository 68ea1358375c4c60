// The middle: the living sentence, the views of one site and what belongs to them, and the number under the pointer.

import { comparison } from "./compare.js";
import { cloudOf, layerTitle } from "./cloud.js";
import { editName } from "./edits.js";
import { chooser, fill, foreign, make, point, rove, sized } from "./dom.js";
import { hueOf } from "./lines.js";
import { FlowPart } from "./flow.js";
import { LensPart } from "./lens.js";
import { MOVE, still } from "./motion.js";
import { Scene } from "./scene.js";
import { sentence } from "./sentence.js";
import { play } from "./sound.js";
import { ABSENT } from "./source.js";
import { MEAN, NONE } from "./state.js";
import { TablePart } from "./table.js";
import { decimal, short } from "./text.js";

// Colours of a difference have the same meaning in every view.
function differenceLegend(field) {
  const most = field.peak();
  const size = most === undefined ? "" : decimal(most, 2);
  return { bar: true, least: `≈ −${size}`, most: `${size}, the largest difference of this head` };
}

// Whether what is shown is the run with edits.
function shownEdits(app) {
  const { edits, view, compare } = app.state;
  if (edits.length === 0) return [];
  const told = edits.map((one) => editName(app, one)).join(", ");
  const after = compare === NONE ? "" : "  ";
  if (app.run.edited && view !== "lens" && view !== "flow") return [`${after}with edits: ${told}`];
  return [`${after}shown without the edits${app.source.live ? "" : "; headway look … --live shows the maps with them"}`];
}

// What changes the whole drawing, and not only what is pointed at.
const REDRAWN = ["run", "compare", "site", "head", "view", "data", "theme", "palette", "root", "heat", "zoom", "x", "y", "pinned", "words", "layers", "also", "edits", "cloud", "layer", "point", "search", "glide"];
const MOST_CHIPS = 16; // heads that can be drawn together by a click

export class CentrePart {
  constructor(app, box) {
    Object.assign(this, { app, box, scene: new Scene(app), pages: { table: new TablePart(app), lens: new LensPart(app), flow: new FlowPart(app) } });
    this.where = make("h2", { class: "where" });
    this.compared = make("p", { class: "fact", testid: "compared", "aria-live": "polite", hidden: true });
    this.tabs = make("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
    rove(this.tabs, "button");
    this.weight = make("output", { testid: "hover-weight", class: "weight" });
    this.pair = make("span", { class: "pair" });
    this.announced = make("div", { class: "unseen", "aria-live": "polite", testid: "announced" });
    this.story = make("p", { class: "story", testid: "story" });
    const reading = make("div", { class: "reading" }, make("span", { class: "read" }, this.pair, " ", this.weight), this.story);
    const head = make("div", { class: "row centre-head" }, this.tabs, this.where, this.tools());
    fill(box, head, reading, this.compared, this.scene.box, ...Object.values(this.pages).map((page) => page.box), this.announced);
  }

  // The part of the page that a view is, where it is not drawn on the canvas.
  get page() {
    return this.pages[this.app.state.view] ?? null;
  }

  tools() {
    const { app, scene } = this;
    const sign = (text, title, onclick) =>
      make("button", { class: "quiet", "aria-label": title, title, onclick }, text);
    this.near = make(
      "span",
      { class: "row group" },
      sign("+", "zoom in", () => scene.zoom(1.5)),
      sign("−", "zoom out", () => scene.zoom(1 / 1.5)),
      sign("fit", "fit the whole map", () => app.change({ zoom: 1, x: 0, y: 0 })),
    );
    const covered = () => app.change({ heat: Number(this.cover.value) });
    const range = { type: "range", min: 0, max: 1, step: 0.05, value: app.state.heat, testid: "heat" };
    this.cover = make("input", { ...range, "aria-label": "Contrast of the picture", oninput: covered });
    this.heat = make("label", { class: "labelled" }, "contrast", this.cover);
    const played = () => play(app, () => scene.over());
    this.play = make("button", { testid: "play", title: "Space", onclick: played }, "▶ play or pause");
    const words = () => app.change({ words: !app.state.words });
    this.words = sign("words", "join pieces to words: a word looks as its pieces do on average, and gets the weights of all of them", words);
    this.words.className = "switch";
    this.words.dataset.testid = "words";
    this.layers = sign("all layers", "the heads of all layers", () => app.change({ layers: !app.state.layers }));
    this.layers.className = "switch";
    this.layers.dataset.testid = "layers";
    this.also = make("span", { class: "row also", role: "group", "aria-label": "Heads in this view", testid: "also" });
    this.cloud = make("span", { class: "row", role: "group", "aria-label": "Points of the map" });
    const typed = () => app.change({ search: this.search.value });
    this.search = make("input", { type: "search", testid: "search", placeholder: "search", "aria-label": "Search the points", oninput: typed });
    this.root = sign("√", "colour by the square root of the weight", () => app.change({ root: !app.state.root }));
    this.root.dataset.testid = "scale";
    this.legend = make("canvas", { "aria-hidden": "true" });
    this.most = make("span", { class: "fact", testid: "peak" });
    this.least = make("span", { class: "fact" });
    const legend = make("span", { class: "row legend" }, this.root, this.least, this.legend, this.most);
    legend.dataset.testid = "legend";
    return make("div", { class: "row centre-tools" }, this.near, this.also, this.cloud, this.search, this.layers, this.words, this.heat, this.play, legend);
  }

  // Switches of what is drawn.
  switches() {
    const { app } = this;
    const { site, head, words, layers } = app.state;
    this.words.hidden = !app.axesOf(app.state.run, app.site, true).some((axis) => axis.groups !== null);
    this.words.setAttribute("aria-pressed", String(words));
    this.layers.hidden = !app.view.layers;
    this.layers.setAttribute("aria-pressed", String(layers));
    this.search.hidden = this.cloud.hidden = !app.view.searches;
    if (this.search.value !== app.state.search) this.search.value = app.state.search;
    if (!this.cloud.hidden) fill(this.cloud, ...this.clouds());
    const { heads } = app.site;
    this.also.hidden = !app.view.heads || heads < 2 || heads > MOST_CHIPS || head === MEAN;
    if (this.also.hidden) return;
    const shown = [head, ...app.alsoShown];
    const chip = (one) => {
      const on = shown.includes(one);
      const turned = on ? app.alsoShown.filter((each) => each !== one) : [...app.alsoShown, one];
      const choose = () => one !== head && app.change({ also: turned.sort((a, b) => a - b).join(".") });
      const node = make("button", { class: "chip", testid: `also-${one}`, "aria-pressed": String(on), title: one === head ? "the chosen head" : `${on ? "leave out" : "also draw"} head ${one}`, onclick: choose }, String(one));
      if (on && shown.length > 1) node.style.background = node.style.borderColor = hueOf(one);
      return node;
    };
    fill(this.also, make("span", { class: "fact" }, "heads"), ...Array.from({ length: heads }, (_, one) => chip(one)));
  }

  // What the points of the embedding map are, and after which layer.
  clouds() {
    const { app } = this;
    const { clouds = [] } = app.bundle;
    if (clouds.length === 0) return [];
    const pick = (key) => (event) => app.change({ [key]: Number(event.target.value) });
    const tokens = app.site.plane ? [[String(NONE), `${app.rows.noun}s of this input`]] : [];
    const kinds = [...tokens, ...clouds.map((one, at) => [String(at), short(one.title, 48)])];
    const which = chooser({ testid: "cloud", "aria-label": "Points", onchange: pick("cloud") }, kinds, String(clouds.indexOf(cloudOf(app))));
    const layers = cloudOf(app)?.layers ?? [];
    const names = layers.map((layer, at) => [String(at), layerTitle(cloudOf(app), layer)]);
    const layer = layers.length > 1 ? chooser({ testid: "layer", "aria-label": "Layer", onchange: pick("layer") }, names, String(app.state.layer)) : null;
    return [which, layer];
  }

  update(any) {
    const { app } = this;
    if (any("site", "head", "run", "view") && !any("all")) this.appears();
    if (any("site", "head", "run")) this.named();
    if (any("site", "head", "run", "compare", "edits", "view", "words")) this.beside();
    if (any("site", "run", "view")) this.offered();
    if (any("site", "run", "view", "head", "also", "words", "layers", "cloud", "layer", "search")) this.switches();
    if (any("theme", "palette", "data", "site", "head", "run", "compare", "root", "view", "row", "cloud", "layer", "words")) this.key();
    const redrawn = any(...REDRAWN, "scroll");
    const whole = redrawn || (any("row") && app.view.follows) || (any("column") && app.view.turned) || (any("column") && app.view.name === "row");
    const page = this.pages[app.view.name];
    if (page) (redrawn || any("step")) && page.update();
    else if (whole) this.scene.draw();
    else if (any("row", "column")) this.scene.over();
    if (any("row", "column", "site", "head", "run", "compare", "data", "pinned", "view", "cloud", "layer", "point")) this.read();
  }

  // Another map or view comes into sight within a moment.
  appears() {
    if (!still()) [this.scene.base, ...Object.values(this.pages).map((page) => page.box)].forEach((node) => node.animate({ opacity: [0.3, 1] }, MOVE));
  }

  named() {
    const { site, state } = this.app;
    const head = site.heads === 1 ? "" : state.head === MEAN ? "mean over heads" : `head ${state.head}`;
    const name = site.label && site.label !== site.name ? make("code", {}, site.name) : null;
    fill(this.where, foreign(site.label ?? site.name), make("small", {}, head), name);
  }

  // What is compared with what, or that nothing is.
  beside() {
    const told = [...comparison(this.app), ...shownEdits(this.app)];
    fill(this.compared, ...told);
    this.compared.hidden = told.length === 0;
    this.compared.classList.toggle("warn", this.app.state.compare !== NONE && this.app.other === null);
  }

  offered() {
    const { app } = this;
    const focus = this.tabs.contains(document.activeElement);
    const tab = (view) => {
      const chosen = view.name === app.state.view;
      const tell = { role: "tab", testid: `view-${view.name}`, "aria-selected": String(chosen) };
      const choose = () => app.change({ view: view.name });
      return make("button", { ...tell, tabindex: chosen ? 0 : -1, onclick: choose }, view.title);
    };
    fill(this.tabs, ...app.fitting().map(tab));
    const chosen = this.tabs.querySelector('[aria-selected="true"]');
    point(this.tabs, "button", chosen);
    if (focus) chosen.focus();
    this.scene.box.hidden = app.state.view in this.pages;
    for (const [name, page] of Object.entries(this.pages)) page.box.hidden = name !== app.state.view;
    this.near.hidden = !app.view.zooms;
    this.heat.hidden = !["picture", "strip"].includes(app.state.view);
    this.play.hidden = !(app.view.plays && app.run.sound);
    this.scene.scroll = 0;
  }

  key() {
    const { app } = this;
    const { field, scale, view } = app;
    const told = field.signed && view.legend ? differenceLegend(field) : view.legend?.(app);
    this.root.hidden = !view.roots;
    this.root.setAttribute("aria-pressed", String(app.state.root));
    [this.legend, this.least].forEach((node) => (node.hidden = !told?.bar));
    this.least.textContent = told?.least ?? "0";
    this.most.textContent = told?.most ?? "";
    if (!told?.bar || scale === this.told) return;
    this.told = scale;
    const pen = sized(this.legend, 64, 8);
    for (let x = 0; x < 64; x++) (pen.fillStyle = scale.at(x / 63)), pen.fillRect(x, 0, 1.5, 8);
  }

  // The chosen cell in words and as a number; screen readers hear it after a pause.
  read() {
    const { app } = this;
    const { row, column, pinned } = app.state;
    const found = app.row;
    if (found === undefined) return;
    const [query, key] = [short(app.rows.label(row), 28), short(app.columns.label(column), 28)];
    fill(this.pair, foreign(query), " → ", foreign(key), pinned ? make("small", {}, " pinned") : null);
    this.weight.textContent = app.shown(column);
    this.weight.title = /^[≤≈c]/.test(this.weight.textContent) ? `the exact weight is ${ABSENT}` : "";
    this.scene.base.setAttribute("aria-label", `query ${query}, key ${key}, weight ${this.weight.textContent}`);
    this.pair.parentElement.hidden = (app.view.tells?.(app) ?? null) !== null;
    fill(this.story, ...sentence(app));
    clearTimeout(this.pause);
    const told = `${query} to ${key}: ${this.weight.textContent}. ${this.story.textContent.replace("←", "looks at")}`;
    this.pause = setTimeout(() => (this.announced.textContent = told), 400);
  }
}
