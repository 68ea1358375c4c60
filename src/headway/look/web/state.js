// The state of the page, also encoded in its address, so that it can be shared.

export const MEAN = -1; // the head that is the mean over heads
export const NONE = -1; // no run to compare with

export const START = {
  run: 0,
  compare: NONE,
  site: "",
  head: 0,
  view: "", // unless chosen: the one that says most of the site
  row: 0,
  column: 0,
  pinned: false,
  step: 0,
  sort: "layer",
  root: true, // colours by the root of the weight
  theme: "auto",
  palette: "theme", // colours of weights: those of the theme, or cividis
  drawer: true, // whether the way to a weight is shown
  heat: 0.75, // how much of the picture the colours cover
  zoom: 1,
  x: 0,
  y: 0,
  edits: [], // [{site, head, how}, …]
};

const PRIVATE = ["pinned", "heat", "edits", "drawer"];
const EDIT = /^(.+):(\d+):(off|uniform|only)$/; // edits are told apart from the rest
const SHARED = Object.keys(START).filter((key) => !PRIVATE.includes(key));

export function toHash(state) {
  const told = SHARED.filter((key) => state[key] !== START[key]).map((key) => [key, written(state[key])]);
  const edits = state.edits.map(({ site, head, how }) => ["edit", `${site}:${head}:${how}`]);
  return `#${new URLSearchParams([...told, ...edits])}`;
}

// The part of a state that an address tells; what it tells wrongly is left out.
export function fromHash(hash) {
  const told = {};
  for (const [key, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    const edit = key === "edit" ? EDIT.exec(text) : null;
    if (edit) (told.edits ??= []).push({ site: edit[1], head: Number(edit[2]), how: edit[3] });
    if (!SHARED.includes(key)) continue;
    const value = read(START[key], text);
    if (value !== null) told[key] = value;
  }
  return told;
}

function written(value) {
  if (typeof value === "boolean") return value ? "1" : "0";
  return typeof value === "number" ? String(Number(value.toFixed(3))) : value;
}

function read(like, text) {
  if (typeof like === "boolean") return text === "1";
  if (typeof like !== "number") return text;
  const value = Number(text);
  return text === "" || !Number.isFinite(value) ? null : value;
}

export function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}
