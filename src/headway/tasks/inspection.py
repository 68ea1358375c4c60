"""Rows and inputs by which `headway.inspect` looks into a model, as its task makes them of data.

Axes:  B rows   T tokens
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context

if TYPE_CHECKING:
    from headway.data.records import Record

UNKNOWN_TOKENS = 64  # about, of a sample whose tokens are not counted
ENCODED_TOGETHER = 256  # records that are encoded before the next are read


class DataRow(NamedTuple):
    """A row of about `size` tokens; rows with the same `key` are equally long.  `name` is for people.

    `sample` is the number of the sample that it belongs to: a long sound has several rows.
    """

    key: tuple[int, ...]
    size: int
    row: Any
    name: str
    sample: int = 0


class EncoderInput(NamedTuple):
    """What an encoder is called with; where only some tokens are averaged, `real` masks them and `counts` (B) them."""

    inputs: Tensor
    context: Context = EMPTY
    real: Context | None = None
    counts: Tensor | None = None


class InspectedTask:
    """How a task reads data for inspection: by default, as texts without a loss."""

    does: ClassVar[str]
    encoder_batch: ClassVar[int] = 32  # rows that are encoded together

    @property
    def noun(self) -> str:
        """What models of it read: texts, images, sounds or numbers."""
        return "texts"

    def locate(self, given: str) -> str:
        """An input as a person names it, as `encoder_rows` takes it."""
        return given

    def encoder_rows(self, model: nn.Module, inputs: Sequence[str]) -> Iterator[DataRow]:
        """Inputs as rows for the encoder alone: each has a key of its own, so that none is padded."""
        for at, one in enumerate(inputs):
            yield DataRow((at,), UNKNOWN_TOKENS, one, one, at)

    def encoder_input(self, model: nn.Module, rows: Sequence[DataRow]) -> EncoderInput:
        """Rows as the encoder reads them."""
        raise UserError(f"a model that {self.does} has no encoder to look into")

    def has_loss(self, model: nn.Module, described: bool) -> bool:
        """Whether data has a loss; `described` says whether there are texts about its images or sounds."""
        return False

    def loss_rows(self, model: nn.Module, records: Iterable[Record]) -> Iterator[DataRow]:
        """Records as rows with a loss."""
        raise UserError(f"a model that {self.does} has no loss on records")

    def unlabelled_rows(self, inputs: Sequence[str]) -> Iterator[DataRow] | None:
        """Inputs as rows with a loss, where a task needs nothing but these."""
        return None


def first_texts(records: Iterable[Record]) -> Iterator[Record]:
    """Of several records about one file, the first."""
    known = set[str]()
    for record in records:
        if record.handed[0] not in known:
            known.add(record.handed[0])
            yield record
