// Typing, and dropping pictures or sounds: only where a server is behind the page.

import { make } from "./dom.js";
import { visible } from "./text.js";

const LARGEST_FILE = 47 * 2 ** 20; // of which base64 makes the 64 MB that the server takes

export class LivePart {
  constructor(app, box) {
    Object.assign(this, { app });
    if (!app.source.live) return;
    const name = "Input for the model";
    this.text = make("textarea", { rows: 2, dir: "auto", testid: "live-text", "aria-label": name });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.send({ text: this.text.value });
    });
    this.said = make("output", { class: "said", testid: "live-said", "aria-live": "polite" });
    const typed = () => this.send({ text: this.text.value });
    const read = make("button", { testid: "live-read", onclick: typed, title: "Ctrl + Enter" }, "run");
    const chosen = () => this.file(pick.files[0]);
    const kind = { type: "file", testid: "live-file", "aria-label": "An image or a sound file" };
    const pick = make("input", { ...kind, onchange: chosen });
    const hint = make("span", { class: "fact" }, "or drop a file anywhere on the page");
    this.typed = [this.text, read];
    this.dropped = [pick, hint];
    box.append(make("div", { class: "live" }, this.text, make("div", { class: "row" }, read, pick, hint, this.said)));
    this.listen();
  }

  listen() {
    const { classList } = document.documentElement;
    addEventListener("dragover", (event) => (event.preventDefault(), classList.add("dropping")));
    addEventListener("dragleave", (event) => event.relatedTarget === null && classList.remove("dropping"));
    addEventListener("drop", (event) => {
      event.preventDefault();
      classList.remove("dropping");
      this.file(event.dataTransfer.files[0]);
    });
  }

  update(any) {
    if (!this.text || !any("run")) return;
    const { picture, sound, input } = this.app.run;
    const sees = Boolean(picture || sound); // a model reads texts or files, never both
    this.typed.forEach((node) => (node.hidden = sees));
    this.dropped.forEach((node) => (node.hidden = !sees));
    if (document.activeElement !== this.text) this.text.value = input;
  }

  async file(file) {
    if (!file) return;
    if (file.size > LARGEST_FILE) {
      this.said.textContent = `${visible(file.name, 60)} is larger than 48 MB`;
      return;
    }
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
    this.send({ name: file.name, data: btoa(text) });
  }

  async send(input) {
    this.said.textContent = "running …";
    try {
      const bundle = await this.app.during(this.app.source.attend(input));
      this.said.textContent = "";
      this.app.open(bundle, lasting(this.app.state));
    } catch (error) {
      this.said.textContent = error.message;
    }
  }
}

// What stays when something else is read.
function lasting({ run, compare, site, head, view, sort, root, theme }) {
  return { run, compare, site, head, view, sort, root, theme };
}
