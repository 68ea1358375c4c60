"""A recording that renders itself: as a page in a file, and as the same page in a notebook.

Head ablation: the outcome with one head switched off, made uniform, or left as the only one of its site.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from headway.look.recording import Recording, check_has_attention, head_effects, is_fast, record_run
from headway.system import write_text
from headway.tasks.base import Task
from headway.tasks.tracing import TraceOptions

if TYPE_CHECKING:
    from headway.look.bundle import PageLimits


class RecordingView(Recording):
    """A recording that displays its page as the value of a notebook cell."""

    def page(self) -> str:
        """One self-contained HTML document."""
        from headway.look.bundle import FILE_LIMITS

        return self.page_within(FILE_LIMITS)

    def save(self, path: str | Path) -> None:
        write_text(Path(path), self.page())

    def _repr_html_(self) -> str:
        from headway.look.bundle import NOTEBOOK_LIMITS
        from headway.look.html_page import iframe

        return iframe(self.page_within(NOTEBOOK_LIMITS))

    def page_within(self, limits: PageLimits) -> str:
        """The page, with the effects of all heads if these take only a few seconds."""
        from headway.look.bundle import pack_bundle  # late: reading maps does not need it
        from headway.look.html_page import render_page

        known = {0: list(head_effects(self))} if is_fast(self) else {}
        return render_page(pack_bundle([self], effects=known, limits=limits))


@torch.no_grad()
def record_input(
    task: Task, model: nn.Module, given: str, options: TraceOptions, *, title: str, architecture: str
) -> RecordingView:
    """One input, as a model of a task answers it."""
    check_has_attention(model, architecture)
    run = task.trace(model, given, options)
    return RecordingView(**vars(record_run(run, title=title, input=given, architecture=architecture)))
