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
  also: "", // heads of the site that are drawn besides the chosen one, as in 1.4
  layers: false, // whether all heads are those of all layers
  words: false, // whether pieces are joined to words
  sort: "layer",
  root: true, // colours by the root of the weight
  theme: "auto",
  palette: "theme", // colours of weights: those of the theme, or cividis
  drawer: true, // whether the way to a weight is shown
  heat: 0.75, // how much of the picture the colours cover
  zoom: 1,
  x: 0,
  y: 0,
  cloud: NONE, // what the embedding map shows: the tokens of the site, or one of the page's clouds
  layer: 0, // of a cloud
  point: 0,
  search: "", // points whose labels hold it are marked
  edits: [], // [{site, head, how}, …], of a cut with its row and column
};

const PRIVATE = ["pinned", "heat", "edits", "drawer"];
const EDIT = /^(.+?):(\d+):(off|uniform|only|patch|cut|token)(?::(\d+):(\d+))?$/; // edits are told apart from the rest
const CELL = ["run", "compare", "site", "head", "row", "column", "step", "words"]; // a page opens with others than START's
const SHARED = Object.keys(START).filter((key) => !PRIVATE.includes(key));

// `inputs` are what a served page has read: {model, text, against, prefix}.
export function toHash(state, inputs = {}) {
  const told = SHARED.filter((key) => CELL.includes(key) || state[key] !== START[key]).map((key) => [key, written(state[key])]);
  const edits = state.edits.map(({ site, head, how, row, column }) => ["edit", [site, head, how, ...(row === undefined ? [] : [row, column])].join(":")]);
  return `#${new URLSearchParams([...Object.entries(inputs), ...told, ...edits])}`;
}

// What a served page shall read, as an address tells it.
export function inputsOf(hash) {
  const told = new URLSearchParams(hash.replace(/^#/, ""));
  return Object.fromEntries(["model", "text", "against", "prefix"].filter((key) => told.get(key)).map((key) => [key, told.get(key)]));
}

// The part of a state that an address tells; what it tells wrongly is left out.
export function fromHash(hash) {
  const told = {};
  for (const [key, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    const edit = key === "edit" ? EDIT.exec(text) : null;
    if (edit) (told.edits ??= []).push(edited(edit));
    if (!SHARED.includes(key)) continue;
    const value = read(START[key], text);
    if (value !== null) told[key] = value;
  }
  return told;
}

function edited([, site, head, how, row, column]) {
  const place = row === undefined ? {} : { row: Number(row), column: Number(column) };
  return { site, head: Number(head), how, ...place };
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
