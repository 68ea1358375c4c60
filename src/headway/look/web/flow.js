// The whole model as it ran on this input: its modules in the order of their calls, with the size of what each gave.
// A residual connection shows what came in, what was added, and what went on.

import { fill, make, rove } from "./dom.js";
import { counted, decimal } from "./text.js";

const DEPTH = 2; // levels that are open at first
const STREAM = 64; // height of the chart of the residual stream

export const flowView = {
  name: "flow",
  title: "Flow",
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
    const apart = top.filter((one) => (isUnused(one) || (one.children ?? []).length > 2) && !/^\d+$/.test(one.name) && one.before === undefined);
    this.towers.classList.toggle("apart", apart.length > 1);
    const columns = apart.length > 1 ? top.map((one) => [one]) : [top];
    fill(this.towers, ...columns.map((nodes) => make("div", { class: "tower" }, this.stream(nodes), ...nodes.map((node) => this.node(node, 0)))));
    this.fresh = null;
    if (held !== null) this.towers.querySelector(`[data-path="${CSS.escape(held)}"]`)?.focus();
  }

  open(node, depth) {
    const few = depth < DEPTH && node.before === undefined && !LEAVES.has(node.name) && (!isNumber(node) || isStage(node));
    return few !== this.turned.has(node.path);
  }

  node(node, depth) {
    const inner = node.children ?? [];
    const open = inner.length > 0 && this.open(node, depth);
    const chosen = node.site !== undefined && node.site === this.app.state.site;
    const toggle = () => this.toggle(node.path);
    const tell = { class: "module-name", "data-path": node.path, disabled: inner.length === 0, "aria-expanded": inner.length > 0 ? String(open) : null, onclick: toggle };
    const shape = node.shape ? node.shape.join(" × ") : "";
    const times = node.calls > 1 ? `, called ${node.calls} times` : "";
    const unused = isUnused(node) ? " · not used for this input" : "";
    const size = node.parameters > 0 ? make("span", { class: "params" }, ` · ${counted(node.parameters)} parameters`) : null;
    const facts = [node.kind, size, `${shape ? ` · ${shape}` : ""}${times}${unused}`];
    const name = make("button", tell, inner.length > 0 ? (open ? "▾ " : "▸ ") : "", moduleName(node));
    const head = make("div", { class: "module-head" }, name, make("span", { class: "fact kind" }, ...facts), this.sizes(node), this.link(node));
    const below = open ? inner : inner.filter((one) => isNumber(node) && one.before !== undefined);
    const kinds = ["module", node.before === undefined ? "" : "residual", chosen ? "chosen" : "", unused ? "unused" : ""];
    return make("div", { class: kinds.filter(Boolean).join(" ") }, head,
      below.length > 0 ? make("div", { class: node.path === this.fresh ? "module-body fresh" : "module-body" }, ...below.map((one) => this.node(one, depth + 1))) : null);
  }

  toggle(path) {
    if (!this.turned.delete(path)) this.turned.add(path);
    this.fresh = path;
    this.update();
  }

  // The residual stream from the first module to the last: how large it is behind each, and what each has added.
  stream(nodes) {
    const steps = nodes.flatMap((node) => [...residuals(node)]);
    if (steps.length < 2) return null;
    const most = Math.max(...steps.flatMap((node) => [node.size, node.added]), 1e-9);
    const bar = (value, kind) => {
      const one = make("span", { class: `reach ${kind}` });
      one.style.height = `${Math.max(1, (value / most) * STREAM)}px`;
      return one;
    };
    const step = (node) => {
      const told = `${node.path}: ${decimal(node.before, 2)} + ${decimal(node.added, 2)} → ${decimal(node.size, 2)}`;
      const chosen = node.site !== undefined && node.site === this.app.state.site;
      const show = () => this.towers.querySelector(`[data-path="${CSS.escape(node.path)}"]`)?.closest(".module").scrollIntoView({ block: "center" });
      return make("button", { class: "step", title: told, "aria-label": told, "aria-current": chosen ? "true" : null, tabindex: -1, onclick: show }, bar(node.size, "whole"), bar(node.added, "added"));
    };
    const box = make("div", { class: "stream", role: "group", "aria-label": "The residual stream; arrow keys go from one module to the next" }, ...steps.map(step));
    box.firstChild.tabIndex = 0;
    rove(box, ".step");
    return box;
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
const LEGEND = "Modules in the order of their calls.  Bars are root mean squares: blue, of the output; green, of what a residual connection adds to what came in.";

function moduleName(node) {
  if (node.name === "") return node.kind;
  if (!isNumber(node)) return node.name;
  return `${isStage(node) ? "stage" : node.path.split(".").at(-2) === "experts" ? "expert" : "layer"} ${node.name}`;
}

// Whether this input passes by a part of the model.
function isUnused({ shape, children = [] }) {
  return shape === undefined && children.length === 0;
}

function isNumber({ name }) {
  return /^\d+$/.test(name);
}

// Whether a module that is known by its number holds layers.
function isStage({ children = [] }) {
  return children.some(isNumber);
}

function* residuals(node) {
  if (node.before !== undefined) yield node;
  else for (const child of node.children ?? []) yield* residuals(child);
}

function largestSize(node) {
  return Math.max(node.size ?? 0, node.added ?? 0, 1e-9, ...(node.children ?? []).map(largestSize));
}
