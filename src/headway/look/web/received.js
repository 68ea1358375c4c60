// Who looks here: the weight that each query gives to the chosen key.  These do not sum to one.

import { barAt, drawBars, ringBar } from "./barchart.js";
import { cellAt, cellBox, framed, heat } from "./heat.js";
import { font, word } from "./label.js";
import { outline } from "./matrix.js";
import { decimal } from "./text.js";

const MOST_QUERIES = 1024;
const MOST_COMPUTED = 2 ** 17; // weights that are computed again from queries and keys, to be exact
const LINE = 22; // height of what is said above a picture

export const receivedView = {
  name: "received",
  title: "Who looks here",
  scrolls: true,
  follows: true,
  turned: true, // it is about a key
  fits: (rows) => rows.count <= MOST_QUERIES,
  steps: (state, down, right) => ({ row: state.row + down, column: state.column + right }),
  legend: () => ({ most: "the weight that each query gives to the chosen key" }),

  draw(scene) {
    const { app } = scene;
    const { rows, columns, state } = app;
    const found = receivedOf(app, state.column);
    const title = columns.label(state.column);
    if (rows.kind === "grid") return receivedPicture(scene, found, title);
    const text = (row) => found.text(row);
    drawBars(scene, found && { title, note: noteOf(app, found), axis: rows, weights: found.weights, text }, rows, state.row);
  },

  over(scene) {
    const { app, glass, plan } = scene;
    if (!plan.picture) return ringBar(scene, app.state.row);
    const query = cellBox(app.rows, app.state.row, plan.picture);
    const key = app.columns.kind === "grid" ? cellBox(app.columns, app.state.column, plan.picture) : null;
    if (query !== null) outline(glass, ...query, "#ffffff", 1.5);
    if (key !== null) outline(glass, ...key, "#ff4fa3", 2.5);
  },

  // Over a picture the pointer chooses the key, where keys are cells, else the query.
  at(scene, x, y) {
    const { app, plan } = scene;
    if (!plan.picture) return chosen("row", barAt(scene, x, y));
    return app.columns.kind === "grid" ? chosen("column", cellAt(app.columns, plan.picture, x, y)) : chosen("row", cellAt(app.rows, plan.picture, x, y));
  },
};

function chosen(name, index) {
  return index === null ? null : { [name]: index };
}

// {weights, hidden, text, total} of all queries; undefined while some are on their way.
export function receivedOf(app, key) {
  const { field } = app;
  const few = app.rows.count * app.columns.count <= MOST_COMPUTED && !app.source.live; // a server is asked row by row
  const rows = Array.from({ length: app.rows.count }, (_, row) => (few ? field.exact(row) : null) ?? field.row(row));
  if (rows.includes(undefined)) return undefined;
  const weights = Float32Array.from(rows, (row) => row.weights[key]);
  const hidden = Uint8Array.from(rows, (row) => row.hidden[key]);
  return { weights, hidden, text: (row) => rows[row].text(key), total: weights.reduce((a, b) => a + b, 0) };
}

function noteOf(app, found) {
  const seeing = found.hidden.reduce((count, one) => count - one, app.rows.count);
  const sum = app.field.signed ? "" : `, together ≈ ${decimal(found.total, 2)}`;
  return `${seeing} of ${app.rows.count} ${app.rows.noun}s may look at ${app.columns.noun} ${app.state.column}${sum}`;
}

function receivedPicture(scene, found, title) {
  const { app, pen, width, height } = scene;
  const picture = framed(app, app.rows, 8, LINE, width - 16, height - LINE - 8);
  scene.plan = { picture };
  if (found === undefined) return;
  heat(scene, app.rows, found, picture);
  pen.font = font(12);
  pen.fillStyle = app.inks.soft;
  word(pen, `${title}: ${noteOf(app, found)}`, 8, LINE / 2, width - 16, "left", 200);
}
