// What each layer would already say, step by step, and what each head adds to the logit of the chosen token.

import { fill, foreign, make } from "./dom.js";
import { largest } from "./field.js";
import { percent, quoted, short, signed, visible } from "./text.js";

const LISTED = 8; // parts of a logit that are named

export const lensView = {
  name: "lens",
  title: "Logit lens",
  fits: (rows, columns, run) => Boolean(run.lens),
};

export class LensPart {
  constructor(app) {
    Object.assign(this, { app });
    this.story = make("p", { testid: "lens-story" });
    const legend = "What the model would say if it stopped after a layer: the likeliest token, the more coloured the likelier; underlined where it is the one that was said.";
    this.legend = make("p", { class: "fact" }, legend);
    this.grid = make("table", { class: "lens-grid", testid: "lens" });
    this.parts = make("div", { class: "lens-parts", testid: "logit-parts" });
    const scroll = make("div", { class: "lens-scroll", tabindex: 0, role: "region", "aria-label": "Logit lens" }, this.grid);
    this.box = make("div", { class: "table-view", hidden: true }, this.story, this.legend, scroll, this.parts);
  }

  update() {
    const { app } = this;
    const { lens, outcome } = app.run;
    if (!lens) return;
    const at = app.state.step - lens.first;
    const chosen = lens.steps[at];
    const layers = lens.layers.map((name, index) => [name, index]).reverse();
    const word = (step) => outcome.steps[lens.first + step];
    const head = lens.steps.map((_, step) => make("th", { scope: "col", class: step === at ? "chosen" : "" }, foreign(short(word(step).said, 12))));
    const line = ([name, index]) =>
      make("tr", {}, make("th", { scope: "row" }, layerName(name)), ...lens.steps.map((step, which) => this.cell(step[index], which, at)));
    fill(this.grid, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "after"), ...head)), make("tbody", {}, ...layers.map(line)));
    this.grid.querySelector("th.chosen")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    fill(this.story, ...(chosen ? told(word(at).said, lens.layers, chosen) : ["This step is not in the lens: it holds the last steps."]));
    fill(this.parts, ...(lens.parts === null ? [make("p", { class: "fact" }, NO_SUM)] : chosen ? this.summed(at) : []));
  }

  cell([top, said, rank], step, at) {
    const { app } = this;
    const [label, p] = top[0];
    const scale = app.chanceScale;
    const title = `${top.map(([one, chance]) => `${visible(one, 30)} ${percent(chance)}`).join(", ")}; the one that was said: ${percent(said)}, rank ${rank + 1}`;
    const choose = () => app.change({ step: step + app.run.lens.first });
    const node = make("td", { class: step === at ? "chosen" : "", title, onclick: choose }, foreign(short(label, 10)));
    node.style.background = scale.css(p);
    node.style.color = scale.ink(p);
    if (rank === 0) node.classList.add("right");
    return node;
  }

  // The parts of the logit, and the heads as a map.
  summed(at) {
    const { app } = this;
    const { parts, first } = app.run.lens;
    const values = parts.values[at];
    const said = app.run.outcome.steps[first + at].said;
    const most = largest(values) || 1;
    const order = values.map((value, index) => [value, index]).sort((a, b) => Math.abs(b[0]) - Math.abs(a[0]));
    const title = make("h3", {}, "Added to the logit of ", foreign(quoted(said, 30)), `: ${signed(parts.total[at], 2)} above the mean of all tokens`);
    const list = make("ul", { class: "probable" }, ...order.slice(0, LISTED).map(([value, index]) => this.part(parts.names[index], value, most)));
    return [title, make("div", { class: "lens-sums" }, this.map(parts.names, values, most), list)];
  }

  part([name, head], value, most) {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${(Math.abs(value) / most) * 100}%`;
    bar.style.background = value < 0 ? this.app.inks.blue : this.app.inks.orange;
    const text = head === null ? name : `${name} · head ${head}`;
    return make("li", {}, make("span", { class: "name" }, text), make("span", { class: "number" }, signed(value, 2)), bar);
  }

  // Sites × heads, each cell as strong as what the head adds.
  map(names, values, most) {
    const { app } = this;
    const sites = [...new Set(names.filter(([, head]) => head !== null).map(([site]) => site))];
    const cell = (site, index) => {
      const [, head] = names[index];
      const tell = { class: "sum", title: `${site} head ${head}: ${signed(values[index], 3)}`, "aria-label": `${site} head ${head}: ${signed(values[index], 3)}` };
      const node = make("button", { ...tell, onclick: () => app.change({ site, head }) }, signed(values[index], 1));
      const share = Math.min(1, Math.abs(values[index]) / most);
      node.style.background = `color-mix(in srgb, ${values[index] < 0 ? app.inks.blue : app.inks.orange} ${Math.round(share * 70)}%, ${app.inks.card})`;
      if (site === app.state.site && head === app.state.head) node.setAttribute("aria-current", "true");
      return node;
    };
    const line = (site) => {
      const mine = names.map((_, index) => index).filter((index) => names[index][0] === site && names[index][1] !== null);
      return make("div", { class: "sum-row" }, make("span", { class: "fact" }, site), ...mine.map((index) => cell(site, index)));
    };
    return make("div", { class: "sum-map" }, ...sites.map(line));
  }
}

const NO_SUM = "This model has norms inside its residual stream, or a head of several layers: its logits are no sum over heads.";

function layerName(name) {
  return name === "embedding" ? name : `layer ${name}`;
}

// How likely the token was, layer by layer.
function told(said, layers, chosen) {
  const first = chosen.findIndex((_, at) => chosen.slice(at).every(([, , rank]) => rank === 0));
  const begin = [foreign(quoted(said, 30)), `: ${percent(chosen[0][1])} after the embedding, ${percent(chosen[chosen.length - 1][1])} at the end`];
  const end = first < 0 ? "; another token is likelier" : `; the likeliest from ${layerName(layers[first])} on`;
  return [...begin, end];
}
