"""Recordings made by hand: maps, labels and outcomes as a test needs them, without a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headway.look.grid_map import Detail
from headway.look.head_edits import HeadEdit
from headway.look.recording import RecordedSite, Recording
from headway.ops.attention_map import Weights
from headway.tasks.tracing import Axes, Axis, ForcedText, Outcome, OutcomeStep, TokenAxis, TracedRun, Vector


class Drawn(Recording):
    """A recording whose numbers behind the weights are drawn, and in which each edit costs a bit."""

    width = 4

    def details(self, *sites: str) -> dict[str, Detail]:
        return {name: self.drawn(self.sites[name]) for name in sites}

    def drawn(self, site: RecordedSite) -> Detail:
        torch.manual_seed(sum(map(ord, site.name)))
        _, heads, rows, columns = site.map.shape
        q, k, v = (torch.randn(heads, count, self.width) for count in (rows, columns, columns))
        hidden = torch.zeros(1, rows, columns).masked_fill(torch.ones(rows, columns).triu(1) > 0, -torch.inf)
        out = torch.randn(heads * self.width, heads * self.width)
        return Detail("dot", 0.5, q, k, v, torch.randn(rows, heads * self.width), out, hidden, None)

    def edited(self, *changes: HeadEdit) -> Outcome:
        step = OutcomeStep(0, "</script>", -1.5, (("a", 0.5), ("b", 0.25), ("c", 0.125), ("d", 0.0625)))
        return Outcome("next", "other", (step,), self.outcome.total - sum(1 + change.head for change in changes))


def drawn(*sites: RecordedSite, title: str = "drawn", outcome: Outcome | None = None, **more: Any) -> Drawn:
    step = OutcomeStep(0, "b", -0.5, (("b", 0.6), ("c", 0.1)))
    said = outcome or Outcome("next", "a b", (step,), -0.5)
    given: dict[str, Any] = {"picture": None, "sound": None, "run": traced(), "sources": {}, "input": "a b", **more}
    return Drawn(
        title=title,
        architecture="gpt2",
        parameters=1000,
        sites={site.name: site for site in sites},
        outcome=said,
        **given,
    )


def traced(forced: ForcedText | None = None) -> TracedRun:
    """A run that does nothing; `forced` is the output that it reads."""
    return TracedRun(nn.Identity(), lambda: torch.zeros(1), Vector(), Axes(), forced_text=forced)


def site(name: str, labels: tuple[str, ...], heads: int = 2, seed: int = 0) -> RecordedSite:
    axis = TokenAxis("text", labels)
    return RecordedSite(name, axis, axis, Weights(weights(heads, len(labels), len(labels), seed)))


def across(name: str, rows: Axis, columns: Axis, heads: int = 2) -> RecordedSite:
    return RecordedSite(name, rows, columns, Weights(weights(heads, len(rows), len(columns), 1)))


def weights(heads: int, rows: int, columns: int, seed: int = 0, sharpness: float = 3.0) -> Tensor:
    """Rows that sum to 1, some of them sharp, 1 H T S."""
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, heads, rows, columns, generator=draw) * sharpness
    return logits.exp() / logits.exp().sum(-1, keepdim=True)


def numbered(count: int) -> tuple[str, ...]:
    return tuple(f"w{at}" for at in range(count))
