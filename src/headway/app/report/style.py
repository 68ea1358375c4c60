"""How the report looks: on a phone, on a desk, at night and on paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --card: #f6f8fa;
  --rule: #d0d7de; --a: #1f5fbf; --b: #b35900; --c: #2a7f4f; --good: #1a7f37; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa4af; --paper: #0f1318; --card: #171d24;
  --rule: #323b45; --a: #79b0ff; --b: #f0a35e; --c: #6fcf97; --good: #57c878; --bad: #ff8a7a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem; padding-bottom: .25rem; border-bottom: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .5rem 0; } .soft, caption, figcaption { color: var(--soft); }
.numbers { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; padding: 0; list-style: none; }
.numbers li { flex: 1 1 9rem; padding: .6rem .9rem; border: 1px solid var(--rule); border-radius: .5rem;
  background: var(--card); color: var(--soft); font-size: .85rem; }
.numbers strong { display: block; font-size: 1.5rem; line-height: 1.3; color: var(--ink);
  font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: start; padding: .25rem 0; font-size: .85rem; }
th, td { text-align: start; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; } tbody th { white-space: nowrap; overflow-wrap: normal; }
td.number, th.number { text-align: end; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.text { min-width: 7rem; white-space: pre-wrap; }
.facts th { width: 9rem; color: var(--soft); font-weight: 400; }
.right { color: var(--good); } .wrong { color: var(--bad); }
svg { display: block; width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft);
  unicode-bidi: plaintext; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .line0 { stroke: var(--a); } .line1 { stroke: var(--b); }
.line2 { stroke: var(--c); } .dots0 { fill: var(--a); } .dots1 { fill: var(--b); } .dots2 { fill: var(--c); }
.grid { stroke: var(--rule); stroke-width: .7; } .axis { stroke: var(--soft); }
.kept { stroke: var(--good); stroke-width: 1.5; stroke-dasharray: 4 4; }
.map { print-color-adjust: exact; -webkit-print-color-adjust: exact; } .map rect { shape-rendering: crispEdges; }
.map text { font-size: 13px; fill: var(--ink); }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.25rem; }
figure { margin: .5rem 0; } figcaption { font-size: .85rem; margin-bottom: .35rem; }
.frame { display: inline-block; vertical-align: top; width: min-content; margin: 0 .5rem .5rem 0; }
.frame img { display: block; height: 8rem; image-rendering: pixelated; } .frame span { color: var(--soft);
  font-size: .85rem; }
.ribbon { line-height: 2; } .ribbon span { padding: .15rem .3rem; border-radius: .2rem; print-color-adjust: exact;
  -webkit-print-color-adjust: exact; }
.scale { height: .7rem; width: 9rem; display: inline-block; vertical-align: middle; print-color-adjust: exact;
  -webkit-print-color-adjust: exact; }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: .5rem; padding: .75rem; overflow-x: auto;
  font: .85rem/1.45 ui-monospace, monospace; white-space: pre-wrap; } code { font: .9em ui-monospace, monospace; }
@media print { :root { --ink: #000; --soft: #444; --paper: #fff; --card: #fff; --rule: #bbb; --a: #1f5fbf; --b: #b35900;
  --good: #1a7f37; --bad: #b42318; color-scheme: light; } body { max-width: none; padding: 0; font-size: 10pt; }
  figure, tr, .chart { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""
