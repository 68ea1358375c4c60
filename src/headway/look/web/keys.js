// Keyboard shortcuts.  Keys pressed in text fields, selects and dialogs are not handled.

import { play } from "./sound.js";
import { MEAN } from "./state.js";

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export function listenKeys(app, scene, help) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.matches?.("input, select, textarea, dialog *")) return;
    const acted = event.key in ARROWS ? arrow(app, scene, event) : command(app, scene, help, event);
    if (acted) event.preventDefault();
  });
}

function arrow(app, scene, event) {
  const free = event.target === document.body || event.target === scene.base;
  if (!free || app.view.draw === undefined) return false;
  const [down, right] = ARROWS[event.key].map((step) => step * (event.shiftKey ? 10 : 1));
  const usual = (state) => ({ row: state.row + down, column: state.column + right });
  scene.hovering = false;
  app.look(app.view.steps ? app.view.steps(app.state, down, right, app, scene) : usual(app.state));
  app.view.reveal?.(scene);
  return true;
}

function command(app, scene, help, event) {
  const onCanvas = event.target === document.body || event.target === scene.base;
  const acts = {
    "[": () => turnHead(app, -1),
    "]": () => turnHead(app, 1),
    ",": () => turnSite(app, -1),
    ".": () => turnSite(app, 1),
    v: () => turnView(app, 1),
    V: () => turnView(app, -1),
    m: () => app.change({ head: app.state.head === MEAN ? 0 : MEAN }),
    p: () => app.change({ pinned: !app.state.pinned }),
    Escape: () => app.change({ pinned: false }),
    "+": () => scene.zoom(1.5),
    "=": () => scene.zoom(1.5),
    "-": () => scene.zoom(1 / 1.5),
    0: () => app.change({ zoom: 1, x: 0, y: 0 }),
    c: () => app.change({ root: !app.state.root }),
    "?": () => help.open(),
    Home: onCanvas && (() => app.change({ column: 0 })),
    End: onCanvas && (() => app.change({ column: app.field.shape[1] - 1 })),
    Enter: onCanvas && (() => app.change({ pinned: !app.state.pinned })),
    " ": onCanvas && app.view.plays && (() => play(app, () => scene.over())),
  };
  const act = acts[event.key];
  if (!act) return false;
  act();
  return true;
}

function turnHead(app, way) {
  const { heads } = app.site;
  app.change({ head: ((app.state.head < 0 ? (way > 0 ? -1 : 0) : app.state.head) + way + heads) % heads });
}

function turnSite(app, way) {
  const { sites } = app.run;
  const at = sites.indexOf(app.site);
  app.change({ site: sites[(at + way + sites.length) % sites.length].name });
}

function turnView(app, way) {
  const views = app.fitting();
  const at = views.findIndex((view) => view.name === app.state.view);
  app.change({ view: views[(at + way + views.length) % views.length].name });
}
