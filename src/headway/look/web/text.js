// Texts and numbers for display.  Tokens may be anything: control characters, parts of characters, very long texts.

const CONTROL = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const NAMES = { "\n": "↵", "\r": "↵", "\t": "⇥", "\u007f": "␡" };
const RTL = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const STRONG = /[A-Za-z\u00c0-\u058f\u0590-\u08ff\u0900-\u1fff\u2c00-\ud7ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const UPRIGHT = /^[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60]+$/;

// A text with a sign for each character that has none of its own, at most `most` characters long.
export function visible(text, most = 400) {
  const cut = text.length > most * 2 ? text.slice(0, most * 2) : text;
  const clean = wellFormed(cut).replace(CONTROL, signFor);
  const signs = [...clean];
  return signs.length > most || cut !== text ? `${signs.slice(0, most - 1).join("")}…` : clean;
}

// A label for a chart: short, and never empty.
export function short(text, most = 18) {
  const trimmed = visible(text.trim() === "" ? text : text.trim(), most);
  return trimmed.trim() === "" ? "␣".repeat(Math.max(1, Math.min(3, text.length))) : trimmed;
}

// A text with its spaces: “ the”.
export function quoted(text, most = 60) {
  return `“${visible(text, most)}”`;
}

// "rtl" or "ltr", by the first letter that has a direction.
export function direction(text) {
  const first = STRONG.exec(text.slice(0, 2000));
  return first !== null && RTL.test(first[0]) ? "rtl" : "ltr";
}

// Chinese, Japanese and Korean letters stand upright where others lie down.
export function stands(text) {
  return UPRIGHT.test(text);
}

export function decimal(value, places = 3) {
  if (value === null || !Number.isFinite(value)) return value < 0 ? "−∞" : value > 0 ? "∞" : "–";
  const text = value.toFixed(places);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

// A weight as a person reads it: 0.412, and 0.0003 where three places would say nothing.
export function weightText(value) {
  const size = Math.abs(value);
  return size > 0 && size < 0.001 ? decimal(value, 5) : decimal(value, 3);
}

// An upper bound with two digits, rounded upward: 0.00352 → 0.0036
export function upward(value) {
  const places = Math.max(2, 1 - Math.floor(Math.log10(value)));
  return decimal(Math.ceil(value * 10 ** places * (1 - 1e-6)) / 10 ** places, places);
}

export function signed(value, places = 3) {
  const text = decimal(value, places);
  return value > 0 && Number(text) !== 0 ? `+${text}` : text;
}

export function percent(value) {
  if (value < 0.0001) return "< 0.01 %";
  return value >= 0.1 ? `${(value * 100).toFixed(0)} %` : `${(value * 100).toPrecision(2)} %`;
}

// A weight as a share, with the digits that it has: 0.594 → 59.4 %, ≤ 0.0036 → ≤ 0.36 %
export function share(text) {
  return text.replace(/(\d)\.(\d{2})(\d*)/, (_, one, two, rest) => {
    const whole = String(Number(one + two));
    return `${whole}${rest === "" ? "" : `.${rest}`} %`;
  });
}

// 124 439 808 → 124 M
export function counted(value) {
  for (const [size, unit] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size) return `${Number((value / size).toPrecision(3))} ${unit}`;
  }
  return String(value);
}

function signFor(sign) {
  const code = sign.charCodeAt(0);
  return NAMES[sign] ?? (code < 32 ? String.fromCharCode(0x2400 + code) : "\ufffd");
}

function wellFormed(text) {
  return text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
}
