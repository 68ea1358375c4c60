// The whole model as it ran on this input: its modules in the order of their calls, with the size of what each gave.
// A residual connection shows what came in, what was added, and what went on.

import { fill, make } from "./dom.js";
import { counted, decimal } from "./text.js";

const DEPTH = 2; // levels that are open at first

export const flowView = {
  name: "flow",
  title: "Whole model",
  fits: (rows, columns, run) => Boolean(run.flow),
};

export class FlowPart {
  constructor(app) {
    Object.assign(this, { app, run: null, turned: new Set() });
    this.legend = make("p", { class: "fact" }, LEGEND);
    this.towers = make("div", { class: "towers", testid: "flow" });
    this.box = make("div", { class: "table-view", hidden: true, tabindex: 0, role: "region", "aria-label": "Whole model" }, this.legend, this.towers);
  }

  update() {
    const { run } = this.app;
    if (!run.flow) return;
    if (this.run !== run) Object.assign(this, { run, turned: new Set() });
    this.most = largestSize(run.flow);
    const held = this.towers.contains(document.activeElement) ? document.activeElement.dataset.path : null;
    const top = run.flow.children ?? [];
    // an encoder and a decoder, or the towers of two kinds of input, stand side by side
    const apart = top.filter((one) => (one.children ?? []).length > 2 && !/^\d+$/.test(one.name) && one.before === undefined);
    const columns = apart.length > 1 ? top.map((one) => [one]) : [top];
    fill(this.towers, ...columns.map((nodes) => make("div", { class: "tower" }, ...nodes.map((node) => this.node(node, 0)))));
    if (held !== null) this.towers.querySelector(`[data-path="${CSS.escape(held)}"]`)?.focus();
  }

  open(node, depth) {
    const few = depth < DEPTH && !/^\d+$/.test(node.name) && node.before === undefined && !LEAVES.has(node.name);
    return few !== this.turned.has(node.path);
  }

  node(node, depth) {
    const inner = node.children ?? [];
    const open = inner.length > 0 && this.open(node, depth);
    const chosen = node.site !== undefined && node.site === this.app.state.site;
    const toggle = () => (this.turned.has(node.path) ? this.turned.delete(node.path) : this.turned.add(node.path), this.update());
    const tell = { class: "module-name", "data-path": node.path, disabled: inner.length === 0, "aria-expanded": inner.length > 0 ? String(open) : null, onclick: toggle };
    const shape = node.shape ? node.shape.join(" × ") : "";
    const times = node.calls > 1 ? `, called ${node.calls} times` : "";
    const facts = `${node.kind}${node.parameters > 0 ? ` · ${counted(node.parameters)} parameters` : ""}${shape ? ` · ${shape}` : ""}${times}`;
    const name = make("button", tell, inner.length > 0 ? (open ? "▾ " : "▸ ") : "", moduleName(node));
    const head = make("div", { class: "module-head" }, name, make("span", { class: "fact kind" }, facts), this.sizes(node), this.link(node));
    const below = open ? inner : inner.filter((one) => /^\d+$/.test(node.name) && one.before !== undefined);
    return make("div", { class: `module${node.before === undefined ? "" : " residual"}${chosen ? " chosen" : ""}` }, head,
      below.length > 0 ? make("div", { class: "module-body" }, ...below.map((one) => this.node(one, depth + 1))) : null);
  }

  // The size of the output; of a residual connection, in + added → out.
  sizes(node) {
    if (node.size === undefined) return null;
    const bar = (value, kind) => {
      const one = make("span", { class: `size ${kind}` });
      one.style.width = `${Math.max(1, (value / this.most) * 90)}px`;
      return one;
    };
    const number = (value) => make("span", { class: "number" }, decimal(value, 2));
    if (node.before === undefined) return make("span", { class: "sizes" }, bar(node.size, "whole"), number(node.size));
    return make("span", { class: "sizes" }, number(node.before), " + ", bar(node.added, "added"), number(node.added), " → ", bar(node.size, "whole"), number(node.size));
  }

  // Into the attention of a module.
  link(node) {
    if (node.site === undefined || !this.run.sites.some((site) => site.name === node.site)) return null;
    const go = () => this.app.change({ site: node.site, view: "" });
    return make("button", { class: "quiet", testid: `flow-${node.site}`, onclick: go }, "heads");
  }
}

const LEAVES = new Set(["embed", "head", "norm"]);
const LEGEND = "Modules in the order of their calls.  Bars: root mean square of the output; of a residual connection, what came in + what was added → what went on.";

function moduleName(node) {
  if (node.name === "") return node.kind;
  return /^\d+$/.test(node.name) ? `layer ${node.name}` : node.name;
}

function largestSize(node) {
  return Math.max(node.size ?? 0, node.added ?? 0, 1e-9, ...(node.children ?? []).map(largestSize));
}
