// A pen that writes SVG: the part of a canvas' 2-d context that views draw with.

const STATE = ["fillStyle", "strokeStyle", "lineWidth", "globalAlpha", "font", "textAlign", "textBaseline", "direction", "imageSmoothingEnabled", "turn", "mask"];
const FAMILY_OF_FONT = /^(?:(italic) )?(?:(\d+|bold|normal) )?([\d.]+)px(?:\/\S+)? (.+)$/;
const MISSHAPEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g; // XML has no sign for these

export class SvgPen {
  constructor(width, height) {
    Object.assign(this, { width, height, parts: [], masks: [], saved: [], path: "" });
    Object.assign(this, { fillStyle: "#000000", strokeStyle: "#000000", lineWidth: 1, globalAlpha: 1, imageSmoothingEnabled: true });
    Object.assign(this, { font: "12px sans-serif", textAlign: "left", textBaseline: "alphabetic", direction: "ltr", turn: "", mask: null });
    this.ruler = document.createElement("canvas").getContext("2d");
  }

  toString() {
    const size = `width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size}><defs>${this.masks.join("")}</defs>${this.parts.join("\n")}</svg>\n`;
  }

  save() {
    this.saved.push(Object.fromEntries(STATE.map((name) => [name, this[name]])));
  }

  restore() {
    Object.assign(this, this.saved.pop());
  }

  translate(x, y) {
    this.turn += `translate(${number(x)} ${number(y)}) `;
  }

  rotate(angle) {
    this.turn += `rotate(${number((angle * 180) / Math.PI)}) `;
  }

  clearRect() {} // the paper is empty

  // --------------------------------------------------------------------------------------------- paths

  beginPath() {
    this.path = "";
  }

  moveTo(x, y) {
    this.path += `M${number(x)} ${number(y)}`;
  }

  lineTo(x, y) {
    this.path += `L${number(x)} ${number(y)}`;
  }

  bezierCurveTo(...at) {
    this.path += `C${at.map(number).join(" ")}`;
  }

  // Whole circles alone.
  arc(x, y, radius) {
    const half = `a${number(radius)} ${number(radius)} 0 1 0`;
    this.path += `M${number(x - radius)} ${number(y)}${half} ${number(2 * radius)} 0${half} ${number(-2 * radius)} 0`;
  }

  rect(x, y, width, height) {
    this.path += `M${number(x)} ${number(y)}h${number(width)}v${number(height)}h${number(-width)}z`;
  }

  roundRect(x, y, width, height, radius) {
    const r = Math.max(0, Math.min(radius, width / 2, height / 2));
    const corner = (across, down) => `a${number(r)} ${number(r)} 0 0 1 ${number(across * r)} ${number(down * r)}`;
    const sides = [`M${number(x + r)} ${number(y)}h${number(width - 2 * r)}`, corner(1, 1), `v${number(height - 2 * r)}`, corner(-1, 1)];
    this.path += [...sides, `h${number(2 * r - width)}`, corner(-1, -1), `v${number(2 * r - height)}`, corner(1, -1), "z"].join("");
  }

  fill() {
    this.put(`<path d="${this.path}" ${inkOf("fill", this.fillStyle, this.globalAlpha)}`);
  }

  stroke() {
    this.put(`<path d="${this.path}" fill="none" stroke-width="${number(this.lineWidth)}" ${inkOf("stroke", this.strokeStyle, this.globalAlpha)}`);
  }

  clip() {
    const within = this.mask === null ? "" : ` clip-path="url(#${this.mask})"`;
    this.mask = `clip${this.masks.length}`;
    const turned = this.turn ? ` transform="${this.turn.trim()}"` : "";
    this.masks.push(`<clipPath id="${this.mask}"${within}><path d="${this.path}"${turned}/></clipPath>`);
  }

  fillRect(x, y, width, height) {
    if (width > 0 && height > 0) this.put(`<rect ${placed(x, y, width, height)} ${inkOf("fill", this.fillStyle, this.globalAlpha)}`);
  }

  strokeRect(x, y, width, height) {
    const line = `fill="none" stroke-width="${number(this.lineWidth)}" ${inkOf("stroke", this.strokeStyle, this.globalAlpha)}`;
    this.put(`<rect ${placed(x, y, Math.max(0, width), Math.max(0, height))} ${line}`);
  }

  // --------------------------------------------------------------------------------------------- pictures and words

  drawImage(image, x, y, width, height) {
    const address = image instanceof HTMLCanvasElement ? image.toDataURL() : image.src;
    const sharp = this.imageSmoothingEnabled ? "" : ' image-rendering="pixelated"';
    this.put(`<image href="${address}" ${placed(x, y, width, height)} preserveAspectRatio="none"${sharp}${faded(this.globalAlpha)}`);
  }

  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  fillText(text, x, y) {
    const [, italic, weight, size, family] = FAMILY_OF_FONT.exec(this.font);
    const around = { left: "start", center: "middle", right: "end" }[this.textAlign];
    const rtl = this.direction === "rtl";
    const anchor = rtl && around !== "middle" ? (around === "start" ? "end" : "start") : around;
    const face = `font-family="${escaped(family)}" font-size="${size}"${weight ? ` font-weight="${weight}"` : ""}${italic ? ' font-style="italic"' : ""}`;
    const way = rtl ? ' direction="rtl"' : "";
    const place = `x="${number(x)}" y="${number(y + this.baseline(text))}" text-anchor="${anchor}"${way}`;
    this.put(`<text ${place} ${face} ${inkOf("fill", this.fillStyle, this.globalAlpha)} xml:space="preserve"`, `${escaped(text)}</text>`);
  }

  // How far below its place the letters of a text stand.
  baseline(text) {
    if (this.textBaseline === "alphabetic") return 0;
    this.ruler.font = this.font;
    const above = (baseline) => ((this.ruler.textBaseline = baseline), this.ruler.measureText(text).fontBoundingBoxAscent);
    const found = above("alphabetic") - above(this.textBaseline);
    this.ruler.textBaseline = "alphabetic";
    return found;
  }

  put(begun, inner = null) {
    const turned = this.turn ? ` transform="${this.turn.trim()}"` : "";
    const part = `${begun}${turned}${inner === null ? "/>" : `>${inner}`}`;
    this.parts.push(this.mask === null ? part : `<g clip-path="url(#${this.mask})">${part}</g>`);
  }
}

function placed(x, y, width, height) {
  return `x="${number(x)}" y="${number(y)}" width="${number(width)}" height="${number(height)}"`;
}

function number(value) {
  return String(Number(value.toFixed(3)));
}

// rgba(1, 2, 3, .5) and color(srgb …) are colours of style sheets: other programs know #rrggbb and an opacity.
function inkOf(kind, colour, alpha) {
  const { hex, opacity } = plainColour(colour);
  return `${kind}="${hex}"${faded(opacity * alpha, `${kind}-opacity`)}`;
}

export function plainColour(colour) {
  const found = /^(rgba?|color)\((?:srgb )?([^)]+)\)$/.exec(colour);
  if (found === null) return { hex: colour, opacity: 1 };
  const [red, green, blue, opacity = 1] = found[2].split(/[\s,/]+/).map(Number);
  const scale = found[1] === "color" ? 255 : 1;
  const digits = [red, green, blue].map((one) => Math.round(one * scale).toString(16).padStart(2, "0"));
  return { hex: `#${digits.join("")}`, opacity };
}

function faded(opacity, name = "opacity") {
  return opacity < 1 ? ` ${name}="${number(opacity)}"` : "";
}

function escaped(text) {
  return text.replace(MISSHAPEN, "\ufffd").toWellFormed().replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
