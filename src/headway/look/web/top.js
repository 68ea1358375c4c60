// The top: which model, compared with which, and what belongs to the page as a whole.

import { chooser, fill, foreign, labelled, make } from "./dom.js";
import { NONE } from "./state.js";
import { counted, visible } from "./text.js";

const THEMES = { auto: "light", light: "dark", dark: "auto" };

export class TopPart {
  constructor(app, box, help, tour) {
    Object.assign(this, { app, box });
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
    const lead = make("button", { testid: "tour", onclick: () => tour.open() }, "tour");
    const tools = make("div", { class: "row tools" }, this.runs, this.said, this.palette, this.theme, this.share, lead, ask);
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
    const names = app.bundle.runs.map((run, at) => [String(at), visible(`${run.title} · ${run.input}`, 48)]);
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

  // The address holds what is chosen; where it cannot be copied it can be selected.
  async shared() {
    const address = this.app.address();
    try {
      await navigator.clipboard.writeText(address);
      this.said.textContent = "link copied";
    } catch {
      const field = make("input", { readonly: true, value: address, "aria-label": "Link to this view" });
      fill(this.said, field);
      field.select();
    }
    setTimeout(() => fill(this.said), 6000);
  }
}
