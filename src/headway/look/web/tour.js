// Six steps through the model on this very input, with its own numbers; each names a lesson that goes deeper.

import { detailOf, lengthOf } from "./detail.js";
import { fill, foreign, make } from "./dom.js";
import { sentence } from "./sentence.js";
import { decimal, percent, quoted, visible, weightText } from "./text.js";

export class Tour {
  constructor(app) {
    Object.assign(this, { app, at: -1 });
    this.title = make("h2", {});
    this.text = make("p", { testid: "tour-text", "aria-live": "polite" });
    this.lesson = make("p", { class: "fact" });
    this.back = make("button", { testid: "tour-back", onclick: () => this.go(this.at - 1) }, "back");
    this.next = make("button", { testid: "tour-next", onclick: () => this.go(this.at + 1) }, "next");
    const skip = make("button", { class: "quiet", testid: "tour-skip", onclick: () => this.go(-1) }, "end the tour");
    const buttons = make("div", { class: "row" }, this.back, this.next, skip);
    this.box = make("section", { class: "tour", "aria-label": "Tour", hidden: true }, this.title, this.text, this.lesson, buttons);
    this.box.addEventListener("keydown", (event) => event.key === "Escape" && this.go(-1));
    document.body.append(this.box);
  }

  open() {
    this.go(0);
    this.next.focus();
  }

  go(at) {
    this.at = at < STATIONS.length ? at : -1;
    const step = STATIONS[this.at];
    this.box.hidden = step === undefined;
    if (step === undefined) return this.tell();
    this.app.change(step.state?.(this.app) ?? {});
    this.tell();
  }

  update(any) {
    if (this.at >= 0 && any("row", "column", "site", "head", "run", "step", "detail", "data", "drawer")) this.tell();
  }

  tell() {
    const step = STATIONS[this.at];
    document.querySelectorAll(".toured").forEach((node) => node.classList.remove("toured"));
    if (step === undefined) return;
    document.querySelector(step.place)?.classList.add("toured");
    fill(this.title, `${this.at + 1} of ${STATIONS.length} · ${step.title}`);
    fill(this.text, ...step.text(this.app));
    fill(this.lesson, "deeper: ", make("code", {}, `headway lesson run ${step.lesson}`));
    this.back.disabled = this.at === 0;
    this.next.textContent = this.at === STATIONS.length - 1 ? "done" : "next";
  }
}

const MISSING = "This file does not hold these numbers for this head; choose another one, or ask headway look … --live.";

// What the chosen head computed in the chosen cell.
function inside(app) {
  const detail = detailOf(app);
  if (!detail) return null;
  const { head, row, column } = app.state;
  const way = detail.scored(head, row);
  const used = app.site.hard ? app.row?.weights ?? way.weights : way.weights;
  return { detail, way, row, column, ...detail.followed(head, used) };
}

function pair(app) {
  const { row, column } = app.state;
  return [foreign(quoted(app.rows.label(row), 24)), foreign(quoted(app.columns.label(column), 24))];
}

const STATIONS = [
  {
    title: "Pieces of the input",
    lesson: "word-vectors",
    place: "#prompt",
    text: ({ run, rows, columns }) => [
      rows === columns
        ? `The model reads ${rows.count} ${rows.noun}s.`
        : `The model reads ${columns.count} ${columns.noun}s, and looks at them from ${rows.count} ${rows.noun}s.`,
      run.outcome.steps.length > 0 ? ` It decides ${run.outcome.steps.length} time${run.outcome.steps.length === 1 ? "" : "s"}; a line under a token that it wrote is as long as the token was likely.` : "",
    ],
  },
  {
    title: "Vectors and positions",
    lesson: "position-kinds",
    place: "#overview",
    text(app) {
      const shape = detailOf(app)?.told.layout.x;
      const width = shape ? `Each piece is a vector of ${shape[1]} numbers here.` : "Each piece becomes a vector of numbers.";
      const heads = app.run.sites.filter((site) => !site.derived).reduce((sum, site) => sum + site.heads, 0);
      return [`${width} Positions are added to it, or turn the queries and keys. ${heads} heads then let the vectors look at each other; each picture is the map of one.`];
    },
  },
  {
    title: "Queries, keys and values",
    lesson: "retrieval-as-attention",
    place: "#foot",
    state: () => ({ drawer: true }),
    text(app) {
      const found = inside(app);
      const [query, key] = pair(app);
      if (found === null) return [MISSING];
      const size = found.detail.told.layout.q[2];
      return [query, ` asks with a query q of ${size} numbers (blue), `, key, " answers with a key k (red), and has a value v (green) to give."];
    },
  },
  {
    title: "Scores, mask and softmax",
    lesson: "why-scale",
    place: "#centre",
    state: () => ({ drawer: true }),
    text(app) {
      const found = inside(app);
      if (found === null) return [MISSING];
      const { way, column } = found;
      const hidden = way.bias?.[column] === -Infinity;
      const total = way.scores.length - (way.bias === null ? 0 : way.bias.filter((one) => one === -Infinity).length);
      const score = `The score of the pair is ${decimal(way.scores[column])}; `;
      return [score, hidden ? "it is masked, so its weight is 0. " : `among the ${total} keys that may be seen, a softmax makes of it the weight ${weightText(way.weights[column])}. `, ...sentence(app).slice(0, 5)];
    },
  },
  {
    title: "Mixing the values",
    lesson: "heads-at-equal-size",
    place: "#foot",
    state: () => ({ drawer: true }),
    text(app) {
      const found = inside(app);
      if (found === null) return [MISSING];
      const { z, given } = found;
      if (z === null || given === null) return ["The weights mix the values; W_O brings the mixture of each head back into the stream.  The values of this site are not in this file."];
      return [`The weights mix the values: z = Σ w v has length ${decimal(lengthOf(z), 2)}. W_O turns it into what this head adds to the stream: a vector of length ${decimal(lengthOf(given), 2)}.`];
    },
  },
  {
    title: "MLP, residual stream, and the outcome",
    lesson: "pre-and-post-norm",
    place: "#centre",
    state: (app) => ({ view: app.run.flow ? "flow" : app.state.view }),
    text(app) {
      const step = app.run.outcome.steps[app.state.step];
      const added = "Each sublayer, attention or MLP, adds its output to the stream that runs through the model; the numbers here are their sizes.";
      if (step === undefined) return [`${added} At the end stands the outcome: ${visible(app.run.outcome.text, 60)}.`];
      const p = step.logprob === null ? "" : `, to which the model gave ${percent(Math.exp(step.logprob))}`;
      return [`${added} At the end stands `, foreign(quoted(step.said, 30)), `${p}.`];
    },
  },
];
