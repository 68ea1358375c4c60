// Typing, and dropping pictures or sounds: only where a server is behind the page.

import { otherRun } from "./compare.js";
import { make } from "./dom.js";
import { fromHash, inputsOf } from "./state.js";
import { visible } from "./text.js";

const LARGEST_FILE = 47 * 2 ** 20; // of which base64 makes the 64 MB that the server takes

export class LivePart {
  constructor(app, box) {
    Object.assign(this, { app });
    if (!app.source.live) return;
    const name = "Input for the model";
    this.text = make("textarea", { rows: 2, dir: "auto", testid: "live-text", "aria-label": name });
    this.said = make("output", { class: "said", testid: "live-said", "aria-live": "polite" });
    const typed = () => this.send({ text: this.text.value, ...(this.second.value ? { against: this.second.value } : {}) });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) typed();
    });
    this.second = make("textarea", { rows: 1, dir: "auto", testid: "live-against", placeholder: "a second input, to compare with", "aria-label": "Second input" });
    const read = make("button", { testid: "live-read", onclick: typed, title: "Ctrl + Enter" }, "run");
    const chosen = () => this.file(pick.files[0]);
    const kind = { type: "file", testid: "live-file", "aria-label": "An image or a sound file" };
    const pick = make("input", { ...kind, onchange: chosen });
    const hint = make("span", { class: "fact" }, "or drop a file anywhere on the page");
    this.typed = [this.text, this.second, read];
    this.dropped = [pick, hint];
    box.append(make("div", { class: "live" }, this.text, this.second, make("div", { class: "row" }, read, pick, hint, this.said)));
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
    const other = otherRun(this.app);
    this.second.hidden = sees || (other !== null && other.title !== this.app.run.title); // two models read one input
    if (document.activeElement !== this.second) this.second.value = other?.title === this.app.run.title ? other.input : "";
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

  // A link tells what to read: then that is read, and the rest of the link is the view of it.
  async follow(hash) {
    const { model, text, against, prefix } = this.app.source.live ? inputsOf(hash) : {};
    const now = this.app.inputs;
    if (model !== undefined && model !== now.model) {
      this.said.textContent = `this link is of ${visible(model, 60)}, and this server has another model`;
    } else if (text !== undefined && (text !== now.text || against !== now.against || prefix !== now.prefix)) {
      const begun = prefix && /^\d+(\.\d+)*$/.test(prefix) ? { prefix: prefix.split(".").map(Number) } : {};
      await this.send({ text, ...(against ? { against } : {}), ...begun }, fromHash(hash));
    } else this.app.change(fromHash(hash));
  }

  async send(input, told = null) {
    this.said.textContent = "running …";
    try {
      await this.app.read(input, told);
      this.said.textContent = "";
    } catch (error) {
      this.said.textContent = error.message;
    }
  }
}
