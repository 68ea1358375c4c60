// One query: its weights along the whole input, and below them each key with its bar and its number.

import { barAt, drawBars, ringBar } from "./barchart.js";

export const rowView = {
  name: "row",
  title: "One row",
  scrolls: true,
  follows: true,
  fits: () => true,
  steps: (state, down, right) => ({ row: state.row + right, column: state.column + down }),
  legend: () => ({ most: "bars below: full width is 1; above: relative to the largest" }),

  draw(scene) {
    const { app } = scene;
    const { row, columns, rows } = app;
    const seen = row?.hidden.reduce((count, one) => count - one, columns.count);
    const note = `${rows.noun} ${app.state.row} sees ${seen} of ${columns.count} ${columns.noun}s`;
    const text = (key) => app.shown(key);
    drawBars(scene, row && { title: rows.label(app.state.row), note, axis: columns, weights: row.weights, text }, columns, app.state.column);
  },

  over: (scene) => ringBar(scene, scene.app.state.column),

  at(scene, x, y) {
    const column = barAt(scene, x, y);
    return column === null ? null : { column };
  },
};
