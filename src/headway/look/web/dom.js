// Elements made by hand.  A text is always a text node: nothing that a token says can become markup.

// make("button", { class: "tab", testid: "view-row", onclick: … }, "Row")
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) attribute(node, name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function attribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (name === "testid") node.dataset.testid = value;
  else node.setAttribute(name, value === true ? "" : value);
}

export function fill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

// A text of unknown language and direction, which leaves the text around it alone.
export function foreign(text, attributes = {}) {
  return make("bdi", { dir: "auto", ...attributes }, text);
}

// A choice of one among many: [[value, text], …]
export function chooser(attributes, options, chosen) {
  const list = options.map(([value, text]) => make("option", { value, selected: value === chosen, dir: "auto" }, text));
  return make("select", attributes, ...list);
}

// A control with its name before it.
export function labelled(name, control, attributes = {}) {
  return make("label", { class: "labelled", ...attributes }, make("span", {}, name), control);
}

// The pen of a canvas of width × height CSS pixels at the screen's own density, which it leaves empty.
export function sized(node, width, height) {
  const density = window.devicePixelRatio || 1;
  const size = [Math.max(1, Math.round(width * density)), Math.max(1, Math.round(height * density))];
  const pen = node.getContext("2d");
  if (node.width !== size[0] || node.height !== size[1]) {
    [node.width, node.height] = size;
    node.style.width = `${width}px`;
    node.style.height = `${height}px`;
  }
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.globalAlpha = 1;
  pen.clearRect(0, 0, width, height);
  return pen;
}

// One tab stop for many controls: arrows go from one to the next, Home and End to the ends.
export function rove(box, selector) {
  box.addEventListener("keydown", (event) => {
    const all = [...box.querySelectorAll(selector)].filter((node) => !node.disabled);
    const here = all.indexOf(document.activeElement);
    const goal = here < 0 ? null : roved(event.key, all, here);
    if (goal === null) return;
    event.preventDefault();
    event.stopPropagation();
    point(box, selector, goal);
    goal.focus();
  });
}

// Which of `all` is the tab stop.
export function point(box, selector, goal) {
  for (const node of box.querySelectorAll(selector)) {
    const index = node === goal ? 0 : -1;
    if (node.tabIndex !== index) node.tabIndex = index;
  }
}

function roved(key, all, here) {
  if (key === "Home") return all[0];
  if (key === "End") return all[all.length - 1];
  if (key === "ArrowRight") return all[here + 1] ?? null;
  if (key === "ArrowLeft") return all[here - 1] ?? null;
  if (key === "ArrowDown" || key === "ArrowUp") return below(all, here, key === "ArrowDown" ? 1 : -1);
  return null;
}

// The nearest control on the next line above or below, by where they stand on the page.
function below(all, here, way) {
  const from = all[here].getBoundingClientRect();
  let best = null;
  let least = Infinity;
  for (const node of all) {
    const box = node.getBoundingClientRect();
    const down = (box.top - from.top) * way;
    const cost = down * 4 + Math.abs(box.left - from.left);
    if (down > 4 && cost < least) [best, least] = [node, cost];
  }
  return best;
}
