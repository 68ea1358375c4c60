// The canvas of the centre: the drawing, an overlay for what follows the pointer, and the pointer events.
//
// A view is {name, title, fits, draw, over, at} and perhaps
//   first           of sites with such rows it is the one that is shown before another is chosen
//   follows         it is drawn anew when the query changes, not only its glass
//   scrolls, zooms  what the wheel does; a view that zooms has `zoom` and `pull`
//   press           what a click chooses, where that is more than what the pointer does
//   layers          whether it can show all layers
//   reads           what a pointer changes while the query is pinned
//   legend          what its colours or sizes mean: {most, bar}, most in words, with a bar of the colours or without
//   roots           whether it can show roots of weights
//   steps           what an arrow key changes
// The scene is what they draw on:
//   pen, glass      2-d contexts of the drawing and of the glass
//   width, height   in CSS pixels
//   app             the model; scene.plan is where a view keeps its layout from `draw` to `over` and `at`
//   say(text)       what is to be known of the drawing

import { make, sized } from "./dom.js";
import { clamp } from "./state.js";

export class Scene {
  constructor(app) {
    Object.assign(this, { app, width: 1, height: 1, scroll: 0, limit: 0, plan: null, drag: null, hovering: false });
    this.base = make("canvas", { class: "drawing", testid: "canvas", tabindex: 0, role: "application" });
    this.front = make("canvas", { class: "glass", "aria-hidden": "true" });
    this.notice = make("p", { class: "notice", testid: "notice", hidden: true });
    this.box = make("div", { class: "stage" }, this.base, this.front, this.notice);
    this.base.setAttribute("aria-roledescription", "attention map");
    new ResizeObserver(() => this.measured() && this.resized()).observe(this.box);
    this.listen();
  }

  // Takes the size of its box; whether that is another one.
  measured() {
    const { clientWidth, clientHeight } = this.box;
    if (clientWidth === 0 || (clientWidth === this.width && clientHeight === this.height)) return false;
    this.take(clientWidth, clientHeight);
    return true;
  }

  take(width, height) {
    Object.assign(this, { width, height });
    this.pen = sized(this.base, width, height);
    this.glass = sized(this.front, width, height);
  }

  // At once: another size has emptied the canvas, and the frame that shows it is on its way.
  resized() {
    this.draw();
    this.app.touch("size");
  }

  draw() {
    if (this.pen === undefined) this.measured();
    if (this.pen === undefined || this.app.view.draw === undefined) return;
    this.pen.clearRect(0, 0, this.width, this.height);
    this.say("");
    this.app.guarded(() => this.app.view.draw(this), this);
    this.over();
  }

  say(text) {
    if (this.notice.textContent !== text) this.notice.textContent = text;
    this.notice.hidden = text === "";
  }

  over() {
    if (this.glass === undefined || this.app.view.draw === undefined) return;
    this.glass.clearRect(0, 0, this.width, this.height);
    if (this.plan !== null) this.app.guarded(() => this.app.view.over(this));
  }

  // The same by another pen.
  drawBy(pen) {
    const { pen: own, glass } = this;
    Object.assign(this, { pen, glass: pen });
    try {
      this.app.view.draw(this);
      this.app.view.over(this);
    } finally {
      Object.assign(this, { pen: own, glass });
    }
  }

  // How far a view may be scrolled is known once it is drawn: `length` of which `room` is seen.
  scrolled(length, room) {
    this.limit = Math.max(0, length - room);
    this.scroll = clamp(this.scroll, 0, this.limit);
    return this.scroll;
  }

  // Brings from … to into the part of a scrolling view that is seen.
  reveal(from, to, room) {
    if (this.hovering) return;
    if (from < this.scroll) this.scroll = from;
    else if (to > this.scroll + room) this.scroll = to - room;
  }

  listen() {
    const spot = (event) => [event.offsetX, event.offsetY];
    this.base.addEventListener("pointermove", (event) => this.moved(...spot(event), event));
    this.base.addEventListener("pointerdown", (event) => this.held(...spot(event)));
    this.base.addEventListener("pointerup", (event) => this.released(...spot(event)));
    this.base.addEventListener("pointerleave", () => ((this.drag = null), (this.hovering = false)));
    this.base.addEventListener("dblclick", () => this.app.change({ zoom: 1, x: 0, y: 0 }));
    this.base.addEventListener("wheel", (event) => this.turned(event), { passive: false });
  }

  held(x, y) {
    this.drag = { from: [x, y], last: [x, y], far: false };
  }

  moved(x, y, event) {
    if (this.drag !== null && event.buttons > 0 && this.pulled(x, y)) return;
    if (event.pointerType !== "touch") this.point(x, y);
  }

  point(x, y) {
    const { app } = this;
    const found = this.spotted(x, y);
    this.hovering = true;
    this.base.style.cursor = found === null ? "default" : "crosshair";
    if (found === null) return;
    if (!app.state.pinned) app.look(found);
    else if (app.view.reads !== undefined) app.change(app.view.reads(this, x, y) ?? {});
  }

  spotted(x, y) {
    return this.plan === null || this.app.view.at === undefined ? null : this.app.view.at(this, x, y);
  }

  released(x, y) {
    const dragged = this.drag?.far ?? false;
    this.drag = null;
    const { view } = this.app;
    const found = dragged ? null : view.press && this.plan !== null ? view.press(this, x, y) : this.spotted(x, y);
    if (found === null) return;
    if (found.head !== undefined && (found.head !== this.app.state.head || found.site !== this.app.state.site)) return this.app.look(found);
    const { state } = this.app;
    const same = (found.row ?? state.row) === state.row && (found.column ?? state.column) === state.column;
    this.app.look({ ...found, pinned: !(state.pinned && same) });
  }

  pulled(x, y) {
    const { from, last } = this.drag;
    this.drag.far ||= Math.hypot(x - from[0], y - from[1]) > 5;
    if (this.drag.far && this.app.view.zooms) this.app.view.pull(this, x - last[0], y - last[1]);
    else if (this.drag.far && this.app.view.scrolls) this.roll(last[1] - y);
    this.drag.last = [x, y];
    return this.drag.far;
  }

  turned(event) {
    const { view } = this.app;
    const step = event.deltaMode === 1 ? 30 : 1;
    const alone = document.scrollingElement.scrollHeight <= window.innerHeight + 4; // else the wheel is the page's
    if (view.zooms && (alone || event.ctrlKey)) {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * step * 0.002), event.offsetX, event.offsetY);
    } else if (view.scrolls && this.roll(event.deltaY * step)) event.preventDefault();
  }

  // Scrolls; false where the end is reached, so that the page goes on.
  roll(distance) {
    const before = this.scroll;
    this.scroll = clamp(this.scroll + distance, 0, this.limit);
    this.hovering = true;
    if (this.scroll === before) return false;
    this.app.touch("scroll");
    return true;
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    if (this.app.view.zooms && this.plan !== null) this.app.view.zoom(this, factor, x, y);
  }
}
