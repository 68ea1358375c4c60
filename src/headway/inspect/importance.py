"""What a head is worth: what is measured with the head changed, one after the other, beside what is measured as it is.

Michel, Levy and Neubig (2019, arXiv:1905.10650) switch heads off in this way; the edits are in `edits.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor, nn

from headway.inspect.edits import How
from headway.nn.attention import Attention
from headway.nn.trace import Edit, Trace, record, sites_of

T = TypeVar("T")


class Changed(NamedTuple, Generic[T]):
    """What was measured with one head changed."""

    site: str
    head: int
    measured: T


def heads_of(model: nn.Module) -> dict[str, int]:
    """How many heads each site of attention has, by the site's name without `.weights`."""
    found = sites_of(model).items()
    return {
        name.removesuffix(".weights"): module.heads
        for name, (module, what) in found
        if what == "weights" and isinstance(module, Attention)
    }


def one_by_one(model: nn.Module, how: How, measure: Callable[[], T]) -> Iterator[Changed[T]]:
    """What `measure` says while each head of a model is changed, in the order of the model's parts."""
    for site, heads in heads_of(model).items():
        for head in range(heads):
            with changed(model, {f"{site}.weights": how(head)}):
                yield Changed(site, head, measure())


@contextmanager
def changed(model: nn.Module, edits: Mapping[str, Edit]) -> Generator[None]:
    """A model whose sites are edited inside this block.  Nothing is kept of them, however much the model reads."""
    traces = list[Trace]()

    def forgetful(edit: Edit) -> Edit:
        def forget(value: Tensor) -> Tensor:
            for trace in traces:  # a trace also records what it edits, call by call
                trace.values.clear()
            return edit(value)

        return forget

    with record(model, *edits, edit={site: forgetful(edit) for site, edit in edits.items()}) as trace:
        traces.append(trace)
        try:
            yield
        finally:
            trace.values.clear()
