"""What a run leaves for people: `report.html`, which needs nothing but itself, and `README.md`, the model's card."""

from __future__ import annotations

from torch import nn

from headway.app.report.card import card
from headway.app.report.final import measured
from headway.app.report.outcome import told
from headway.app.report.page import report_page
from headway.app.training.assemble import some
from headway.app.training.measure import Examiner
from headway.app.training.plan import Plan
from headway.files import write_text
from headway.train.journal import Journal
from headway.train.loop import End

REPORT, CARD = "report.html", "README.md"


def finish_folder(made: Plan, end: End, journal: Journal, model: nn.Module, examiner: Examiner | None) -> None:
    """Measures the model once more, on more than each evaluation did, and tells the run to people."""
    folder = some(made.recipe.out)
    outcome = told(made, end, journal, model, measured(made, end, model))
    write_text(folder / REPORT, report_page(outcome))
    write_text(folder / CARD, card(outcome))
