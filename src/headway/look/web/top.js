// The top: which model, compared with which, and what belongs to the page as a whole.

import { runName } from "./compare.js";
import { chooser, fill, foreign, labelled, make } from "./dom.js";
import { saveView } from "./export.js";
import { NONE } from "./state.js";
import { counted, visible } from "./text.js";

// By its model, and where that is not enough by its input.
function choiceName(app, run) {
  const name = runName(app, run).textContent;
  return visible(name === run.title ? `${name} · ${run.input}` : name, 64);
}

const THEMES = { auto: "light", light: "dark", dark: "auto" };

export class TopPart {
  constructor(app, box, help, tour, centre) {
    Object.assign(this, { app, box, centre });
    this.title = make("h1", { testid: "title", dir: "auto" });
    this.facts = make("p", { class: "fact" });
    this.runs = make("span", { class: "row" });
    this.theme = make("button", { testid: "theme", onclick: () => app.change({ theme: THEMES[app.state.theme] }) });
    const other = () => (app.state.palette === "cividis" ? "theme" : "cividis");
    const tip = "cividis reads the same with and without colour blindness";
    this.palette = make("button", { testid: "palette", title: tip, onclick: () => app.change({ palette: other() }) }, "cividis");
    this.share = make("button", { testid: "share", onclick: () => this.shared() }, "share");
    this.said = make("output", { class: "said", "aria-live": "polite" });
    const ask = make("button", { testid: "help", onclick: () => help.open(), "aria-keyshortcuts": "?" }, "help");
    const kinds = [["", "save as …"], ["png", "picture (PNG)"], ["svg", "drawing (SVG)"], ["csv", "numbers (CSV)"]];
    const save = chooser({ testid: "save", "aria-label": "Save the view", onchange: (event) => this.saved(event) }, kinds, "");
    const lead = make("button", { testid: "tour", onclick: () => tour.open() }, "tour");
    const tools = make("div", { class: "row tools" }, this.runs, this.said, this.palette, this.theme, this.share, save, lead, ask);
    fill(box, make("div", { class: "model" }, this.title, this.facts), tools);
  }

  update(any) {
    const { app } = this;
    if (any("run")) {
      this.title.textContent = visible(app.run.title, 120);
      document.title = `${visible(app.run.title, 60)} · headway`;
      const size = ` · ${counted(app.run.parameters ?? 0)} parameters`;
      fill(this.facts, foreign(visible(app.run.architecture ?? "", 60)), size);
    }
    if (any("run", "compare")) this.choices();
    this.palette.setAttribute("aria-pressed", String(app.state.palette === "cividis"));
    if (any("theme")) this.theme.textContent = app.state.theme === "auto" ? "theme: auto" : `theme: ${app.state.theme}`;
  }

  choices() {
    const { app } = this;
    const names = app.bundle.runs.map((run, at) => [String(at), choiceName(app, run)]);
    const pick = (key) => (event) => app.change({ [key]: Number(event.target.value) });
    const others = [[String(NONE), "nothing"], ...names.filter(([at]) => Number(at) !== app.state.run)];
    const tell = { testid: "compare", onchange: pick("compare") };
    const compare = labelled("compare with", chooser(tell, others, String(app.state.compare)));
    const runs = chooser({ testid: "run", onchange: pick("run") }, names, String(app.state.run));
    const run = names.length > 1 ? labelled("run", runs) : null;
    const held = this.runs.contains(document.activeElement) ? document.activeElement.dataset.testid : null;
    fill(this.runs, run, names.length > 1 ? compare : null);
    if (held !== null) this.runs.querySelector(`[data-testid=${held}]`)?.focus();
  }

  // A served page has a link.  A file has none that works elsewhere: it is sent itself, with the end of its address.
  async shared() {
    const { link, hash } = this.app.address();
    const copied = link === null ? "copied the view: send this file, and put the copied text behind its address" : "link copied";
    try {
      await navigator.clipboard.writeText(link ?? hash);
      this.said.textContent = copied;
    } catch {
      const name = link === null ? "The view, to put behind the address of this file" : "Link to this view";
      const field = make("input", { readonly: true, value: link ?? hash, "aria-label": name, title: name });
      fill(this.said, link === null ? "send this file, and behind its address: " : null, field);
      field.select();
    }
    setTimeout(() => fill(this.said), 9000);
  }

  async saved(event) {
    const kind = event.target.value;
    event.target.value = "";
    await saveView(this.app, this.centre, kind);
  }
}
