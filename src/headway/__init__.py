"""headway: every attention and transformer model out of one set of parts.

    model = headway.train("pairs.tsv", minutes=20)          # what `headway train` does, with the same settings
    model = headway.load("folder")                          # headway's or Hugging Face's
    model.predict("…"), model.evaluate("test.tsv"), model.attend("…"), model.save("folder")
    for batch in headway.batches("pairs.tsv"): …            # a training loop of your own

This module is a façade.  Its names are imported when they are first used, so that `import headway` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headway.errors import UserError

if TYPE_CHECKING:
    from headway import inspect, lecture
    from headway.data.records import Record
    from headway.evaluation import evaluate
    from headway.loading import load
    from headway.look.recording import Recording
    from headway.look.recording import Recording as Attended
    from headway.model import Model
    from headway.nn.context import Context, PackedLengths
    from headway.nn.context import PackedLengths as Rows
    from headway.nn.state import FixedState, State
    from headway.nn.trace import Trace, record
    from headway.ops.attend import attend
    from headway.ops.attention_map import AttentionMap
    from headway.tasks.base import Task
    from headway.training.api import batches, train
    from headway.training.comparison import compare
    from headway.zoo.build import build

__version__ = "0.1.0"
__all__ = [
    "Attended",
    "AttentionMap",
    "Context",
    "FixedState",
    "Model",
    "PackedLengths",
    "Record",
    "Recording",
    "Rows",
    "State",
    "Task",
    "Trace",
    "UserError",
    "attend",
    "batches",
    "build",
    "compare",
    "evaluate",
    "inspect",
    "lecture",
    "load",
    "record",
    "train",
]

LATE = {
    "Attended": "headway.look.recording",
    "AttentionMap": "headway.ops.attention_map",
    "Context": "headway.nn.context",
    "FixedState": "headway.nn.state",
    "Model": "headway.model",
    "PackedLengths": "headway.nn.context",
    "Record": "headway.data.records",
    "Recording": "headway.look.recording",
    "Rows": "headway.nn.context",
    "State": "headway.nn.state",
    "Task": "headway.tasks.base",
    "Trace": "headway.nn.trace",
    "attend": "headway.ops.attend",
    "batches": "headway.training.api",
    "build": "headway.zoo.build",
    "compare": "headway.training.comparison",
    "evaluate": "headway.evaluation",
    "load": "headway.loading",
    "record": "headway.nn.trace",
    "train": "headway.training.api",
}

ALIASES = {"Attended": "Recording", "Rows": "PackedLengths"}  # names of the version before
PACKAGES = ("inspect", "lecture")


def __getattr__(name: str) -> object:
    if name in PACKAGES:
        return import_module(f"headway.{name}")
    if name not in LATE:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    return getattr(import_module(LATE[name]), ALIASES.get(name, name))


def __dir__() -> list[str]:
    return sorted([*globals(), *LATE, *PACKAGES])
