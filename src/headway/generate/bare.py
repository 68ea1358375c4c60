"""A model without what torch asks at each call: whether there are hooks, and which of three tables holds an attribute.

A step of decoding makes some hundred calls and five hundred look-ups, into memory that the weights have just pushed out
of the cache: 1.9 of 38 ms for GPT-2.  A bare part is the same text over the same tensors (its class is a subclass with
`__call__` = `forward`), and stands for its original wherever that is a key: in states and in recordings.
"""

from __future__ import annotations

from functools import cache

from torch import nn
from torch.nn.modules.module import _has_any_global_hook  # pyright: ignore[reportPrivateUsage]

from headway.nn.joined import hooked
from headway.nn.model import Trunk


def bare(model: Trunk) -> Trunk:
    """The same model to be called without hooks; parts that have any, or an own way to be called, are left as they are.

    It holds the model's own parameters, so what is written into them is seen; parts that are put in place of others
    later are not.
    """
    found = model if _has_any_global_hook() else stripped(model, {})
    assert isinstance(found, Trunk)
    return found


def stripped(part: nn.Module, known: dict[nn.Module, nn.Module]) -> nn.Module:
    if part not in known:
        known[part] = part if hooked(part) or not is_plain(type(part)) else copied(part, known)
    return known[part]


def copied(part: nn.Module, known: dict[nn.Module, nn.Module]) -> nn.Module:
    kind = bare_kind(type(part))
    children = {name: stripped(child, known) for name, child in part.named_children()}
    tensors = {**dict(part.named_parameters(recurse=False)), **dict(part.named_buffers(recurse=False))}
    found = kind.__new__(kind)
    found.__dict__.update(part.__dict__, **tensors, **children)
    found.__dict__.update(_modules=children, origin=part)
    return found


def is_plain(kind: type[nn.Module]) -> bool:
    """Whether parts of this class are called and looked into as torch does it."""
    return kind.__call__ is nn.Module.__call__ and kind.__getattr__ is nn.Module.__getattr__


@cache
def bare_kind(kind: type[nn.Module]) -> type[nn.Module]:
    def same(self: nn.Module, other: object) -> bool:
        return self is other or self.origin is other

    def hashed(self: nn.Module) -> int:
        return hash(self.origin)

    return type(kind.__name__, (kind,), {"__call__": kind.forward, "__eq__": same, "__hash__": hashed})
