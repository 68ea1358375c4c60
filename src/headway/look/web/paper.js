// A part of the page drawn by a pen, as it stands there: boxes, borders and words, so that tables can be saved as
// pictures too.

import { plainColour } from "./svg.js";

// The size of all of it, also of what is scrolled out of sight, once nothing in it moves any more.
export function sizeOfPart(part) {
  part.getAnimations({ subtree: true }).forEach((one) => one.finish());
  const from = part.getBoundingClientRect();
  let [width, height] = [part.scrollWidth, part.scrollHeight];
  for (const node of part.querySelectorAll("*")) {
    const box = node.getBoundingClientRect();
    if (box.width > 0) width = Math.max(width, box.right - from.left + part.scrollLeft);
  }
  return [Math.ceil(width) + MARGIN, Math.ceil(height) + MARGIN];
}

const MARGIN = 8;

export function drawPart(pen, part) {
  const { left, top } = part.getBoundingClientRect();
  drawNode(pen, part, [left - part.scrollLeft - MARGIN / 2, top - part.scrollTop - MARGIN / 2], 1);
}

function drawNode(pen, node, origin, opacity) {
  const style = getComputedStyle(node);
  if (style.display === "none" || style.visibility === "hidden") return;
  const seen = opacity * Number(style.opacity);
  const box = node.getBoundingClientRect();
  pen.globalAlpha = seen;
  if (box.width > 0 && box.height > 0) framedBox(pen, style, [box.left - origin[0], box.top - origin[1], box.width, box.height]);
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) words(pen, child, style, origin, seen);
    else if (child.nodeType === Node.ELEMENT_NODE) drawNode(pen, child, origin, seen);
  }
}

function framedBox(pen, style, [x, y, width, height]) {
  const radius = Number.parseFloat(style.borderTopLeftRadius) || 0;
  if (plainColour(style.backgroundColor).opacity > 0) {
    pen.fillStyle = style.backgroundColor;
    pen.beginPath();
    pen.roundRect(x, y, width, height, Math.min(radius, width / 2, height / 2));
    pen.fill();
  }
  const line = (side) => (style[`border${side}Style`] === "none" ? 0 : Number.parseFloat(style[`border${side}Width`]));
  const sides = [["Top", x, y, width, line("Top")], ["Bottom", x, y + height - line("Bottom"), width, line("Bottom")]];
  for (const [side, left, top, wide, tall] of sides) ruled(pen, style[`border${side}Color`], left, top, wide, tall);
  for (const [side, left] of [["Left", x], ["Right", x + width - line("Right")]]) ruled(pen, style[`border${side}Color`], left, y, line(side), height);
  if (style.outlineStyle === "none") return;
  pen.strokeStyle = style.outlineColor;
  pen.lineWidth = Number.parseFloat(style.outlineWidth);
  pen.strokeRect(x, y, width, height);
}

function ruled(pen, colour, x, y, width, height) {
  if (width <= 0 || height <= 0 || plainColour(colour).opacity === 0) return;
  pen.fillStyle = colour;
  pen.fillRect(x, y, width, height);
}

// Each word where the page has put it.
function words(pen, node, style, origin, opacity) {
  const text = node.data;
  const range = document.createRange();
  pen.globalAlpha = opacity;
  pen.font = `${style.fontStyle === "italic" ? "italic " : ""}${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  pen.fillStyle = style.color;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  pen.direction = style.direction;
  for (const { 0: word, index } of text.matchAll(/\S+/gu)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = range.getBoundingClientRect();
    if (box.width > 0) pen.fillText(word, box.left - origin[0], box.top - origin[1] + box.height / 2);
  }
  pen.direction = "ltr";
}
