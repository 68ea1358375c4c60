// All heads of all layers as thumbnails.  Each shows the largest weight of the cells it stands for, so that thin
// diagonals survive; each button shows its piece of the site's one picture.

import { chooser, fill, foreign, labelled, make, point, rove } from "./dom.js";
import { HABITS, habitOf } from "./sentence.js";
import { MEAN } from "./state.js";
import { decimal, signed } from "./text.js";
import { atlas } from "./thumbs.js";

const SORTS = [
  ["layer", "layer order", null, 0],
  ["entropy", "entropy, sharpest first", "entropy", 1],
  ["distance", "distance, farthest first", "distance", -1],
  ["effect", "effect, strongest first", "effect", -1],
];
const HEADS = "button.thumb, button.ranked";
const EDGE_ROOM = 8; // pixels above and below a head that is scrolled to

export class OverviewPart {
  constructor(app, box) {
    Object.assign(this, { app, box, bare: [] });
    this.bar = make("div", { class: "row overview-bar" });
    const name = "Heads; arrow keys go from one to the next";
    this.list = make("div", { class: "heads", role: "group", "aria-label": name });
    fill(box, this.bar, this.list);
    rove(this.list, HEADS);
  }

  update(any) {
    if (any("run", "sort", "theme", "palette")) this.build();
    if (any("run", "sort", "data", "theme", "palette")) this.bare = this.bare.filter((thumb) => !this.paint(thumb));
    if (any("run", "sort", "site", "head", "theme", "palette", "edits")) this.mark(any("sort", "run"));
  }

  build() {
    const { app } = this;
    const known = (stat) => stat === null || app.run.sites.some((site) => site.stats?.[stat]);
    const options = SORTS.filter(([, , stat]) => known(stat)).map(([name, text]) => [name, text]);
    const chosen = (event) => app.change({ sort: event.target.value });
    const pick = chooser({ testid: "sort", onchange: chosen }, options, app.state.sort);
    fill(this.bar, labelled("Heads by", pick));
    this.bare = [];
    const sort = SORTS.find(([name, , stat]) => name === app.state.sort && known(stat)) ?? SORTS[0];
    const heads = sort[2] === null ? app.run.sites.map((site) => this.layer(site)) : this.ranking(sort);
    fill(this.list, ...heads, this.badges());
  }

  // What the badges of heads mean.
  badges() {
    const sites = this.app.run.sites.filter((site) => !site.derived);
    const found = (name) => sites.some((site) => (site.stats?.[name] ?? []).some((_, head) => habitOf(site, head)?.[0] === name));
    const told = HABITS.filter(([name]) => found(name));
    const line = ([name, badge, words]) => make("li", {}, make("span", { class: `badge ${name}` }, badge), ` ${words}`);
    return told.length > 0 ? make("ul", { class: "badges fact" }, ...told.map(line)) : null;
  }

  // A site: its name, the mean over its heads, and each head.
  layer(site) {
    const { app } = this;
    const choose = () => app.change({ site: site.name });
    const tell = { class: "site", testid: `site-${site.name}`, onclick: choose, tabindex: -1 };
    const name = make("button", tell, foreign(site.label ?? site.name));
    const heads = Array.from({ length: site.heads }, (_, head) => this.thumb(site, head));
    if (site.heads > 1) heads.unshift(this.thumb(site, MEAN));
    const row = make("div", { class: "thumbs" }, ...heads);
    row.style.setProperty("--across", String(Math.min(heads.length, 13)));
    return make("section", { class: site.derived ? "layer derived" : "layer" }, name, row);
  }

  thumb(site, head) {
    const name = head === MEAN ? "mean over heads" : `head ${head}`;
    const said = `${site.label ?? site.name}, ${name}${tellStats(site, head)}`;
    const choose = () => this.app.change({ site: site.name, head });
    const tell = { class: "thumb", "aria-label": said, title: said, tabindex: -1, onclick: choose };
    const node = make("button", { ...tell, testid: `head-${site.name}-${head === MEAN ? "mean" : head}` });
    const habit = habitOf(site, head);
    if (head === MEAN) node.classList.add("mean");
    else if (site.heads > 1) node.append(make("span", { class: "no", "aria-hidden": "true" }, String(head)));
    if (habit !== null) node.append(make("span", { class: `badge ${habit[0]}`, "aria-hidden": "true" }, habit[1]));
    this.bare.push({ node, site, head, face: node });
    return node;
  }

  // All heads of all sites, by one number.
  ranking([, , stat, way]) {
    const heads = (site) => (site.stats?.[stat] ?? []).map((value, head) => ({ site, head, value }));
    const all = this.app.run.sites.flatMap(heads);
    const rank = ({ value }) => (value === null ? Infinity : way * (stat === "effect" ? Math.abs(value) : value));
    all.sort((a, b) => rank(a) - rank(b));
    const note = all.length > RANKED ? make("p", { class: "fact" }, `the first ${RANKED} of ${all.length}`) : null;
    return [...all.slice(0, RANKED).map((one) => this.ranked(one, stat)), note];
  }

  ranked({ site, head, value }, stat) {
    const face = make("span", { class: "face" });
    const number = stat === "effect" ? signed(value) : decimal(value, 2);
    const name = make("span", { class: "name" }, foreign(site.label ?? site.name), ` · head ${head}`);
    const choose = () => this.app.change({ site: site.name, head });
    const tell = { class: "ranked", tabindex: -1, onclick: choose, testid: `head-${site.name}-${head}` };
    const node = make("button", tell, face, name, make("span", { class: "number" }, number));
    this.bare.push({ node, site, head, face });
    return node;
  }

  // Puts a head's picture on its button, once the site's thumbnails are there.
  paint({ site, head, face }) {
    const address = atlas(this.app, this.app.run, site);
    if (!address) return address === null;
    const at = head === MEAN ? site.heads : head;
    face.style.backgroundImage = `url(${address})`;
    face.style.backgroundSize = `${(site.heads + 1) * 100}% 100%`;
    face.style.backgroundPosition = `${(at / site.heads) * 100}% 0`;
    return true;
  }

  // Scrolls the list, and never the page, to a head.
  show(goal) {
    const [box, list] = [goal.getBoundingClientRect(), this.list.getBoundingClientRect()];
    if (box.top < list.top + EDGE_ROOM) this.list.scrollTop -= list.top + EDGE_ROOM - box.top;
    else if (box.bottom > list.bottom - EDGE_ROOM) this.list.scrollTop += box.bottom - list.bottom + EDGE_ROOM;
  }

  mark(fresh) {
    const { site, head } = this.app.state;
    const mean = head === MEAN ? "mean" : head;
    const goal = this.list.querySelector(`[data-testid=${CSS.escape(`head-${site}-${mean}`)}]`);
    for (const node of this.list.querySelectorAll("[aria-current]")) node.removeAttribute("aria-current");
    goal?.setAttribute("aria-current", "true");
    const touched = ({ site: where, head: which, how }) => how !== "token" && `head-${where}-${which}`;
    const edited = this.app.state.edits.map(touched);
    for (const node of this.list.querySelectorAll(HEADS)) node.classList.toggle("edited", edited.includes(node.dataset.testid));
    for (const node of this.list.querySelectorAll(".site")) {
      if (node.dataset.testid === `site-${site}`) node.setAttribute("aria-current", "true");
    }
    point(this.list, HEADS, goal ?? this.list.querySelector(HEADS));
    if (fresh && this.app.state.sort !== "layer") this.list.scrollTop = 0;
    else if (goal && !this.list.contains(document.activeElement)) this.show(goal);
  }
}

const RANKED = 400; // as many heads as a ranking shows

function tellStats(site, head) {
  const told = ["entropy", "distance", "special", "previous", "duplicate", "induction", "effect"].filter((stat) => head !== MEAN && typeof site.stats?.[stat]?.[head] === "number");
  const number = (stat) => (stat === "effect" ? signed : decimal)(site.stats[stat][head], 2);
  return told.map((stat) => `, ${stat} ${number(stat)}`).join("");
}
