// Numbers as colours: those of figures.py, which the page is given.

const STEPS = 256;

// Which weight gets which colour: by its share of `most`, or by the root of that share, which shows small weights.
export class Scale {
  constructor(most, signed, root, stops) {
    this.most = most > 0 ? most : 1;
    this.signed = signed;
    this.root = root;
    this.table = tableOf(stops);
    this.words = new Uint32Array(this.table.buffer); // one word per colour, as ImageData holds it
  }

  // 0 … 1 along the colours
  share(value) {
    const size = Math.min(1, Math.abs(value) / this.most);
    const part = this.root ? Math.sqrt(size) : size;
    return this.signed ? 0.5 + (value < 0 ? -part : part) / 2 : part;
  }

  // How strong a weight looks: 0 … 1, without its sign.
  strength(value) {
    return this.signed ? Math.abs(this.share(value) - 0.5) * 2 : this.share(value);
  }

  css(value, alpha = 1) {
    const at = Math.round(this.share(value) * (STEPS - 1)) * 4;
    return `rgba(${this.table[at]}, ${this.table[at + 1]}, ${this.table[at + 2]}, ${alpha})`;
  }

  // Black or white, whichever can be read on that colour.
  ink(value) {
    const at = Math.round(this.share(value) * (STEPS - 1)) * 4;
    const light = 0.299 * this.table[at] + 0.587 * this.table[at + 1] + 0.114 * this.table[at + 2];
    return light > 140 ? "#10131a" : "#ffffff";
  }

  // The middle of the colours at `share`, for a legend.
  at(share) {
    const from = Math.round(share * (STEPS - 1)) * 4;
    return `rgb(${this.table[from]}, ${this.table[from + 1]}, ${this.table[from + 2]})`;
  }

  // A canvas with one pixel for each value; what is hidden has none of the colours.
  picture(values, rows, columns) {
    const node = document.createElement("canvas");
    [node.width, node.height] = [columns, rows];
    const pen = node.getContext("2d");
    const image = pen.createImageData(columns, rows);
    const words = new Uint32Array(image.data.buffer);
    const last = STEPS - 1;
    const whole = this.signed || !this.root ? null : last / Math.sqrt(this.most); // the usual case, quickly
    for (let at = 0; at < values.length; at++) {
      const step = whole === null ? this.share(values[at]) * last : Math.min(last, Math.sqrt(values[at]) * whole);
      words[at] = step === step ? this.words[Math.round(step)] : 0;
    }
    pen.putImageData(image, 0, 0);
    return node;
  }
}

// Colours at equal distances, filled in between: STEPS × RGBA.
function tableOf(stops) {
  const table = new Uint8ClampedArray(STEPS * 4);
  for (let step = 0; step < STEPS; step++) {
    const at = (step / (STEPS - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    const part = at - low;
    for (let band = 0; band < 3; band++) {
      table[step * 4 + band] = stops[low][band] * (1 - part) + stops[low + 1][band] * part;
    }
    table[step * 4 + 3] = 255;
  }
  return table;
}
