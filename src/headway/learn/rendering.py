"""An explanation as text of 80 columns, as one self-contained HTML file, and as a LaTeX document: once for all topics.

The HTML has no scripts and loads nothing; its figures are SVG in the colours of the page.  The LaTeX is ASCII, so that
every compiler of it reads it; figures are left out of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from textwrap import fill, indent

from headway.console import WIDTH, side_by_side
from headway.figures import THEME, Plot, inline_svg
from headway.learn.explanation import Diagram, Explanation, ExplanationStep, Matrix, Quantity, Value, ValueTable

INDENT = "   "


def to_text(found: Explanation) -> str:
    head = [found.summary, *([] if found.formula is None else [found.formula.text])]
    steps = (text_of_step(number, step) for number, step in enumerate(found.steps, 1))
    return "\n\n".join([*(wrapped(line) for line in head), *steps])


def in_page(number: int, plot: Plot) -> str:
    """What a text says in place of a figure."""
    return f"(figure, with --html FILE: {plot.title})"


def text_of_step(number: int, step: ExplanationStep, figure_note: Callable[[int, Plot], str] = in_page) -> str:
    """The step with its number, its conclusion as a paragraph of its own."""
    title = fill(f"{number}. {step.title}", WIDTH, subsequent_indent=INDENT)
    body = "".join(f"\n{part}" for part in text_parts(step))
    if step.figure is not None:
        body += f"\n{wrapped(f'{INDENT}{figure_note(number, step.figure)}')}"
    return title + body + (f"\n\n{wrapped(step.conclusion)}" if step.conclusion else "")


def text_parts(step: ExplanationStep) -> Iterator[str]:
    if step.formula is not None:
        yield indent(step.formula.text, INDENT * 2)
    for sentence in step.sentences:
        yield fill(sentence, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False)
    for value in step.values:
        yield indent(text_of_value(value, named=not names(step, value)), INDENT)


def text_of_value(value: Value, named: bool) -> str:
    if isinstance(value, Quantity):
        return value.line()
    if isinstance(value, Diagram):
        body = "\n".join(value.lines)
    else:
        body = "\n\n".join(side_by_side(value.cells(), fixed=1, width=WIDTH - len(INDENT)))
    return f"{value.name}:\n{body}" if named else body


def names(step: ExplanationStep, value: Value) -> bool:
    """Whether the title of a step names a value: weights = …, X: …"""
    return step.title.startswith((f"{value.name}:", f"{value.name} ="))


def wrapped(text: str) -> str:
    return "\n".join(fill(line, WIDTH, break_on_hyphens=False) for line in text.splitlines())


# ---- HTML

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --soft: #57606a; --rule: #d0d7de; --good: #1a7f37;
  --a: #1f5fbf; --b: #b35900; --c: #2a7f4f }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --ink: #e6e8ea; --soft: #9da5ad; --rule: #3a4047;
  --good: #4cc26b; --a: #7fb0ff; --b: #f0a35e; --c: #6fcf97 } }
body { background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; max-width: 56rem;
  margin: 2rem auto; padding: 0 1rem }
h2 { font-size: 1.05rem; margin: 2rem 0 .4rem } h3 { font-size: .95rem; margin: .8rem 0 .2rem; color: var(--soft) }
p { margin: .3rem 0 } .formula { font: 1.05rem/1.6 Cambria, "STIX Two Math", serif; white-space: pre-wrap;
  margin: .5rem 0 .5rem 1.5rem } .scroll { overflow-x: auto } svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } td, th { padding: .1rem .7rem;
  text-align: right; font-weight: normal } th { color: var(--soft) } tr > :first-child { text-align: left }
tbody th { min-width: 3rem } thead th { border-bottom: 1px solid var(--rule) }
pre { line-height: 1.3 } .conclusion { font-weight: 600 }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def to_html(found: Explanation, command: str = "headway explain") -> str:
    """One document that loads nothing."""
    formula = "" if found.formula is None else html_formula(found.formula.text)
    steps = "\n".join(html_step(number, step) for number, step in enumerate(found.steps, 1))
    body = f"<h1>{escape(found.topic)}</h1>\n<p>{escape(found.summary)}</p>\n{formula}\n{steps}"
    return html_document(f"{found.topic} – {command}", body)


def html_document(title: str, body: str, style: str = "") -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def html_step(number: int, step: ExplanationStep) -> str:
    return f"<section>\n<h2>{number}. {escape(step.title)}</h2>\n{html_parts(step)}\n</section>"


def html_parts(step: ExplanationStep) -> str:
    """All of a step but its title."""
    parts = list[str]()
    if step.formula is not None:
        parts.append(html_formula(step.formula.text))
    parts += [f"<p>{escape(sentence)}</p>" for sentence in step.sentences]
    parts += [html_value(value, named=not names(step, value)) for value in step.values]
    if step.figure is not None:
        parts.append(html_figure(step.figure))
    if step.conclusion:
        parts.append(f'<p class="conclusion">{escape(step.conclusion)}</p>')
    return "\n".join(parts)


def html_formula(text: str) -> str:
    return f'<div class="formula">{html_indices(text)}</div>'


def html_indices(text: str) -> str:
    """With x_i and x_(i−1) as subscripts, x^(2i) as superscripts."""
    text = re.sub(r"_(?:\(([^()]*)\)|(\w+))", r"<sub>\1\2</sub>", escape(text))
    return re.sub(r"\^\(([^()]*)\)", r"<sup>\1</sup>", text)


def html_value(value: Value, named: bool) -> str:
    if isinstance(value, Quantity):
        return f"<p>{escape(value.line())}</p>"
    if isinstance(value, Diagram):
        body = f"<pre>{escape(chr(10).join(value.lines))}</pre>"
    else:
        head, rows = split_header(value)
        header = "" if head is None else f"<thead>{html_row(head, 'th')}</thead>"
        body = f"<table>{header}<tbody>{''.join(html_row(row, 'td') for row in rows)}</tbody></table>"
    name = f"<h3>{escape(value.name)}</h3>" if named else ""
    return f'{name}<div class="scroll">{body}</div>'


def html_row(cells: list[str], kind: str) -> str:
    first, *rest = cells
    return f"<tr><th>{escape(first.strip())}</th>{''.join(f'<{kind}>{escape(x.strip())}</{kind}>' for x in rest)}</tr>"


def html_figure(plot: Plot) -> str:
    drawn = inline_svg(plot)
    assert set(THEME.values()) <= set(re.findall(r"--(\w+):", STYLE))
    size = f'width="{drawn.width:.0f}" height="{drawn.height:.0f}"'
    box = f'viewBox="0 0 {drawn.width:.1f} {drawn.height:.1f}"'
    return f'<svg {size} {box} role="img" aria-label="{escape(plot.title)}">{drawn.elements}</svg>'


def split_header(value: Matrix | ValueTable) -> tuple[list[str] | None, list[list[str]]]:
    cells = value.cells()
    return (cells[0], cells[1:]) if isinstance(value, ValueTable) or value.columns else (None, cells)


# ---- LaTeX


def to_latex(found: Explanation) -> str:
    """A document for any LaTeX with amsmath, geometry and longtable, whose tables go on over pages."""
    formula = "" if found.formula is None else latex_formula(found.formula.latex)
    steps = "\n".join(latex_step(step) for step in found.steps)
    return (
        "\\documentclass{article}\n\\usepackage{amsmath,amssymb,longtable}\n\\usepackage[margin=2cm]{geometry}\n"
        "\\setlength{\\LTleft}{\\leftmargini}\n\\begin{document}\n"
        f"\\section*{{{latex_text(found.topic)}}}\n{latex_text(found.summary)}\n{formula}\n"
        f"\\begin{{enumerate}}\n{steps}\n\\end{{enumerate}}\n\\end{{document}}\n"
    )


def latex_step(step: ExplanationStep) -> str:
    parts = [f"\\item {latex_text(step.title)}"]
    if step.formula is not None:
        parts.append(latex_formula(step.formula.latex))
    parts += [latex_text(sentence) for sentence in step.sentences]
    parts += [latex_value(value, named=not names(step, value)) for value in step.values]
    if step.figure is not None:
        parts.append(f"% figure, with --html: {latex_text(step.figure.title)}")
    if step.conclusion:
        parts.append(f"\n{latex_text(step.conclusion)}")
    return "\n".join(parts)


def latex_formula(latex: str) -> str:
    return f"\\[\n{latex}\n\\]"


def latex_value(value: Value, named: bool) -> str:
    if isinstance(value, Quantity):
        return f"\\par {latex_text(value.line())}"
    if isinstance(value, Diagram):
        lines = (latex_text(line).replace(" ", "~") for line in value.lines)
        body = "\\texttt{" + "\\\\\n".join(f"\\mbox{{{line}}}" for line in lines) + "}"
    else:
        head, rows = split_header(value)
        lines = [*([] if head is None else [latex_row(head) + " \\hline"]), *map(latex_row, rows)]
        columns = "l" + "r" * (max(map(len, value.cells())) - 1)
        body = f"\\begin{{longtable}}{{{columns}}}\n" + "\n".join(lines) + "\n\\end{longtable}"
    return f"\\par {latex_text(value.name)}:\n\n{body}" if named else f"\\par {body}"


def latex_row(cells: list[str]) -> str:
    return " & ".join(latex_text(cell.strip()) for cell in cells) + " \\\\"


SIGNS = {  # special characters of LaTeX, and those of the texts of topics
    **{sign: f"\\{sign}" for sign in "#$%&_{}"},
    **{"\\": "\\textbackslash{}", "^": "\\^{}", "~": "\\~{}", "<": "$<$", ">": "$>$", "|": "$|$"},
    **{"√": "$\\surd$", "ᵀ": "$^\\top$", "·": "$\\cdot$", "×": "$\\times$", "→": "$\\to$", "−": "$-$", "²": "$^2$"},
    **{"∂": "$\\partial$", "∞": "$\\infty$", "≤": "$\\leq$", "⊕": "$\\oplus$", "–": "--", "…": "\\ldots{}"},
    **{"Σ": "$\\Sigma$", "Π": "$\\Pi$", "σ": "$\\sigma$", "α": "$\\alpha$", "ε": "$\\varepsilon$"},
    **{"─": "-", "│": "$|$", "┌": "+", "└": "+", "◀": "$<$"},  # of diagrams
}
COMBINED = {"h̃": "$\\tilde{h}$"}


def latex_text(text: str) -> str:
    """Plain text as LaTeX, in ASCII."""
    for sign, latex in COMBINED.items():
        text = text.replace(sign, f"\0{latex}\0")
    parts = text.split("\0")
    return "".join(
        part if at % 2 else "".join(SIGNS.get(character, character) for character in part)
        for at, part in enumerate(parts)
    )
