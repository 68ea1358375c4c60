// What the rows or the columns of a map are: pieces of a text, cells of a picture, stretches of a sound, items.

const NOUNS = { text: "token", grid: "cell", frames: "frame" };

export class Axis {
  constructor(name, told) {
    this.name = name;
    this.kind = told.kind;
    this.labels = told.labels ?? [];
    this.count = told.count ?? this.labels.length;
    this.special = new Set(told.special ?? []);
    this.first = told.first ?? 0; // tokens before the cells of a grid
    this.grid = told.grid ?? null; // rows, columns of cells
    this.seconds = told.seconds ?? 0; // of each frame
    this.words = told.words ?? []; // the tokens at which words begin, where these are not tokens
    this.groups = null; // of words: which tokens each is
    this.within = null; // of words: in which one a token is
    this.noun = NOUNS[told.kind] ?? "item";
    this.widths = new Map(); // of its widest label, by font
  }

  // The index that stands for a token of the model.
  at(token) {
    return this.within?.get(token) ?? token;
  }

  label(index) {
    if (index < this.labels.length) return this.labels[index];
    if (this.kind === "grid") return this.told(index);
    return this.kind === "frames" ? `${(index * this.seconds).toFixed(2)} s` : String(index);
  }

  told(index) {
    const place = this.place(index);
    return place === null ? `token ${index}` : `row ${place.y}, column ${place.x}`;
  }

  // The cell of the picture that an index stands for; null for a token that is none.
  place(index) {
    const cell = index - this.first;
    if (this.grid === null || cell < 0 || cell >= this.grid[0] * this.grid[1]) return null;
    return { y: Math.floor(cell / this.grid[1]), x: cell % this.grid[1] };
  }

  index(y, x) {
    return this.first + y * this.grid[1] + x;
  }

  // A sequence can be read along; a picture cannot.
  get linear() {
    return this.kind !== "grid";
  }
}
