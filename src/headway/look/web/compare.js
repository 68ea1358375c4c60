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
  const [ours, theirs] = [app.run, app.bundle.runs[compare]];
  if (app.other === null) {
    const why = unlikeness(app.site, app.siteOf(compare, site), head);
    return ["nothing to compare with: ", titled(theirs), ` ${why}.  These are the weights of `, titled(ours)];
  }
  return ["difference: ", titled(ours), " − ", titled(theirs), ...[ours, theirs].flatMap(follower)];
}

// Whose words a run has read, where these are not its own.
function follower(run) {
  return run.follows ? ["; ", titled(run), " reads what ", foreign(visible(run.follows.by, 60)), " wrote"] : [];
}

function titled({ title }) {
  return foreign(visible(title, 60));
}

function amount(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}
