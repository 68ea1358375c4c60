// Light and dark theme: the colours of the page, also for canvases, which have no style sheets.

const INKS = ["ink", "soft", "rule", "paper", "card", "accent", "blue", "orange", "red", "green", "special"];

// Puts on a theme ("auto": the system's) and tells its colours by name; `rgb` is the paper's.
export function dressed(wanted) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = wanted === "light" || wanted === "dark" ? wanted : dark ? "dark" : "light";
  document.documentElement.dataset.theme = theme;
  const style = getComputedStyle(document.documentElement);
  const inks = Object.fromEntries(INKS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  const rgb = [1, 3, 5].map((at) => Number.parseInt(inks.paper.slice(at, at + 2), 16));
  return { ...inks, rgb, theme };
}
