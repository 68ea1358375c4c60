// Comparison of two runs: what the difference is of, or why there is none.

import { foreign } from "./dom.js";
import { MEAN, NONE } from "./state.js";
import { visible } from "./text.js";

// Why the map of one site cannot be taken from that of another; "" where it can.
export function unlikeness(ours, theirs, head) {
  if (theirs === null) return "has no such site";
  const [here, there] = [ours, theirs].map(({ shape }) => shape.join(" × "));
  if (here !== there) return `has a map of ${there} here, and not of ${here}`;
  if (ours.rows !== theirs.rows || ours.columns !== theirs.columns) return "has different rows or columns here";
  if (ours.heads === theirs.heads || head === MEAN) return "";
  const means = ours.heads > 1 ? ": only the means over heads can be compared" : "";
  return `has ${amount(theirs.heads, "head")} here, and not ${ours.heads}${means}`;
}

// What is compared, in words; nothing where one run is looked at alone.
export function comparison(app) {
  const { compare, site, head } = app.state;
  if (compare === NONE) return [];
  const [ours, theirs] = [app.run, app.runAt(compare)];
  if (app.other === null) {
    const why = unlikeness(app.formOf(app.state.run, app.site), app.formOf(compare, app.siteOf(compare, site)), head);
    return ["nothing to compare with: ", runName(app, theirs), ` ${why}.  These are the weights of `, runName(app, ours)];
  }
  return ["difference: ", runName(app, ours), " − ", runName(app, theirs), ...[ours, theirs].flatMap((run) => follower(app, run))];
}

// The run to compare with, or else the other one; null where there is none.
export function otherRun(app) {
  const { run, compare } = app.state;
  return app.bundle.runs[compare] ?? app.bundle.runs.find((_, at) => at !== run) ?? null;
}

// Whose words a run has read, where these are not its own.
function follower(app, run) {
  return run.follows ? ["; ", runName(app, run), " reads what ", writer(app, run.follows), " wrote"] : [];
}

// Who wrote what a run has read.
export function writer(app, follows) {
  const run = app.bundle.runs.find((one) => one.title === follows.by && !one.follows);
  return run ? runName(app, run) : foreign(visible(follows.by, 60));
}

// A run by its model; by its input, where one model has read several.
export function runName(app, { title, input }) {
  const others = app.bundle.runs.filter((run) => run.title === title && run.input !== input);
  return foreign(others.length === 0 ? visible(title, 60) : `“${apart(input, others[0].input)}”`);
}

// The part of a text that another does not share, from whole words on.
function apart(text, other) {
  const [ours, theirs] = [text, other].map((one) => visible(one, 4000).split(/(?<=\s)/));
  let [from, to] = [0, 0];
  while (from < ours.length - 1 && ours[from] === theirs[from]) from += 1;
  while (to < ours.length - from - 1 && ours[ours.length - 1 - to] === theirs[theirs.length - 1 - to]) to += 1;
  const middle = ours.slice(from, ours.length - to).join("").trim();
  return `${from > 0 ? "… " : ""}${visible(middle, 40)}${to > 0 ? " …" : ""}`;
}

function amount(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}
