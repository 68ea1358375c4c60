"""headway: every attention and transformer model out of one set of parts.

This module is a façade.  Its names are imported when they are first used, so that `import headway` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headway.errors import UserError

if TYPE_CHECKING:
    from headway.checkpoint import load
    from headway.look.attended import Attended
    from headway.nn.context import Context
    from headway.nn.rows import Rows
    from headway.nn.state import FixedState, State
    from headway.nn.trace import Trace, record
    from headway.ops.attend import attend
    from headway.ops.map import AttentionMap
    from headway.zoo.build import build

__version__ = "0.1.0"
__all__ = [
    "Attended",
    "AttentionMap",
    "Context",
    "FixedState",
    "Rows",
    "State",
    "Trace",
    "UserError",
    "attend",
    "build",
    "load",
    "record",
]

LATE = {
    "Attended": "headway.look.attended",
    "AttentionMap": "headway.ops.map",
    "Context": "headway.nn.context",
    "FixedState": "headway.nn.state",
    "Rows": "headway.nn.rows",
    "State": "headway.nn.state",
    "Trace": "headway.nn.trace",
    "attend": "headway.ops.attend",
    "build": "headway.zoo.build",
    "load": "headway.checkpoint",
    "record": "headway.nn.trace",
}


def __getattr__(name: str) -> object:
    if name not in LATE:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    return getattr(import_module(LATE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *LATE])
