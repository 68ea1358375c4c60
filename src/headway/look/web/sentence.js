// What is seen, in a sentence made of the numbers: who looks at whom, what this head usually does, and what becomes of
// the outcome without it.  It is the caption of the map, and what a screen reader hears.

import { deltaName } from "./edits.js";
import { foreign } from "./dom.js";
import { strongest } from "./field.js";
import { receivedOf } from "./received.js";
import { MEAN } from "./state.js";
import { decimal, quoted, share, signed, visible } from "./text.js";

// What a head does with at least so much of its weight is its habit.
const HABIT = 0.4;
export const HABITS = [
  ["induction", "I", "tokens after an earlier occurrence of the same token"],
  ["duplicate", "D", "earlier occurrences of the same token"],
  ["previous", "P", "the token before"],
  ["special", "S", "special tokens"],
];

// The habit of a head, the most specific first: [name, badge, words, weight], or null.
export function habitOf(site, head) {
  if (head === MEAN || site.derived) return null;
  const found = HABITS.map(([name, badge, words]) => [name, badge, words, site.stats?.[name]?.[head] ?? 0]);
  return found.find(([, , , weight]) => weight >= HABIT) ?? null;
}

// The parts of the sentence: texts, and pieces of the input, which may be of any language.
export function sentence(app) {
  const found = app.row;
  if (found === undefined) return [];
  const own = app.view.tells?.(app) ?? null;
  if (own !== null) return own;
  if (app.view.turned) return receivedSentence(app);
  const { row } = app.state;
  const keys = app.strongest(row, found, 2);
  const looks = keys.flatMap(([key, , text], at) => [at > 0 ? ", " : "", named(app.columns, key), ` ${app.field.signed ? text : share(text)}`]);
  const nothing = app.field.signed ? ["no difference"] : ["no key"];
  return [named(app.rows, row), " ← ", ...(keys.length > 0 ? looks : nothing), ...usually(app), ...without(app)];
}

function named(axis, index) {
  const label = axis.label(index);
  return foreign(axis.kind === "text" ? quoted(label.trim() || label, 24) : visible(label, 24));
}

// Who looks at the chosen key.
function receivedSentence(app) {
  const found = receivedOf(app, app.state.column);
  if (found === undefined) return [];
  const best = strongest(found.weights, 2).map(([row]) => [named(app.rows, row), ` ${app.field.signed ? found.text(row) : share(found.text(row))}`]);
  return [named(app.columns, app.state.column), " is looked at by ", ...(best.length > 0 ? best.flatMap((one, at) => [at > 0 ? ", " : "", ...one]) : ["nobody"]), ...usually(app), ...without(app)];
}

function usually(app) {
  const { site, state, field } = app;
  if (field.signed || site.derived || state.head === MEAN) return [];
  const habit = habitOf(site, state.head);
  if (habit !== null) return [` · this head gives ${habit[2]} ${share(decimal(habit[3]))} of its weight`];
  const [distance, entropy] = ["distance", "entropy"].map((name) => site.stats?.[name]?.[state.head]);
  const unit = { text: "tokens", grid: "cells", frames: "frames" }[app.columns.kind] ?? "items";
  if (typeof distance === "number") return [` · this head looks ${decimal(distance, 1)} ${unit} away on average`];
  return typeof entropy === "number" ? [` · mean entropy of this head ${decimal(entropy, 2)} nats`] : [];
}

function without(app) {
  const effect = app.site.stats?.effect?.[app.state.head];
  if (app.state.head === MEAN || typeof effect !== "number") return [];
  return [` · switched off: ${`${deltaName(app.run.outcome.kind)} ${signed(effect)}`.replaceAll(" ", "\u00a0")}`];
}
