"""A decoding step as a program for the library: operations on registers, each B rows wide, one for each new token.

`StepProgram` is written once for a model and a capacity (`headway.generate.lowering`), and then run token after token
on the KV cache of a `FixedState`, which the torch path reads and writes too.  The structures are those of step.c.

Axes:  B rows   C width   S room for tokens   V vocabulary   M selected rows
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.native.int8_linear import Int8Panels
from headway.native.library import NativeLibrary
from headway.nn.context import Context
from headway.nn.state import FixedState
from headway.ops.pattern import Positions


class OpKind(IntEnum):
    EMBED = 0
    LAYER_NORM = 1
    RMS_NORM = 2
    LINEAR = 3
    LINEAR_INT8 = 4
    ROTARY = 5
    APPEND = 6
    ATTEND = 7
    ACTIVATE = 8
    ADD = 9
    SCALE = 10
    SELECT = 11


LANES = 16  # numbers of the widest vector
I32, I64, POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p


class StepOp(ctypes.Structure):
    _fields_ = (
        *((name, I32) for name in ("kind", "source", "target", "second", "inputs", "outputs", "heads", "kv_heads")),
        *((name, I32) for name in ("head_dim", "cache", "window", "style")),
        ("number", ctypes.c_float),
        ("turned", I32),
        *((name, I64) for name in ("row", "column")),
        *((name, POINTER) for name in ("weight", "bias", "scale", "offsets")),
    )


class StepCache(ctypes.Structure):
    _fields_ = (
        *((name, POINTER) for name in ("k", "v")),
        *((name, I64) for name in ("k_row", "k_head", "k_key", "v_row", "v_head", "v_key")),
        *((name, I32) for name in ("keys", "beams")),
        ("keep", POINTER),
        ("keep_row", I64),
        ("origins", POINTER),
        ("origin_row", I64),
    )


class StepCall(ctypes.Structure):
    _fields_ = (
        *((name, POINTER) for name in ("ops", "caches", "registers", "tokens", "positions")),
        *((name, I64) for name in ("rows", "slot")),
        *((name, I32) for name in ("count", "threads", "set", "unused")),
        ("weights", POINTER),
        ("keys", I64),
        *((name, POINTER) for name in ("codes", "steps", "owners", "selected")),
        ("selections", I64),
    )


@dataclass(frozen=True)
class Register:
    """A matrix B × width that operations read and write."""

    index: int
    width: int


class CacheRows(NamedTuple):
    """Where tokens stand that are not one for each row of the KV cache; those of a row follow one another."""

    owners: Tensor  # B  the row of the KV cache of each token
    selected: Tensor  # M  the tokens whose logits are wanted, rising


class StepProgram:
    """Operations on registers, the last of which is `logits`, and the parts whose state they read and move on."""

    def __init__(self, library: NativeLibrary, capacity: int):
        self.library, self.capacity, self.set = library, capacity, library.best
        self.vocab, self.positions = 0, capacity  # how many tokens and positions there are vectors for
        self.ops: list[StepOp] = []
        self.registers: dict[tuple[str, int], Register] = {}
        self.owners: list[nn.Module] = []  # whose place in the state moves on with each token
        self.attentions: list[tuple[nn.Module, bool]] = []  # whose keys are read; True: those of a memory
        self.alive: list[Tensor] = []  # what the operations point at
        self.tables: dict[Hashable, tuple[Tensor, ...]] = {}  # that several of them share
        self.causal = True  # no attention looks ahead: several tokens of a row may be read in one call
        self.frame: StepFrame | None = None

    def register(self, name: str, width: int) -> Register:
        """The register of this name and width, new or used before."""
        return self.registers.setdefault((name, width), Register(len(self.registers), width))

    def add(self, kind: OpKind, source: Register, target: Register, **fields: float | Tensor | None) -> None:
        """Appends an operation; a field of it is a number, or a tensor to point at."""
        op = StepOp(kind, source.index, target.index, -1, source.width, target.width, 1)
        for name, value in fields.items():
            setattr(op, name, self.address(value) if isinstance(value, Tensor) else value)
        self.ops.append(op)

    def address(self, tensor: Tensor) -> int:
        self.alive.append(tensor)
        return tensor.data_ptr()

    def table(self, key: Hashable, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """What `make` gives, made once for all parts with this key."""
        if key not in self.tables:
            self.tables[key] = tuple(x.detach().float().contiguous() for x in make())
        return self.tables[key]

    def embed(self, target: Register, weight: Tensor, positions: Tensor | None, factor: float) -> None:
        """target = factor · the token's row of W + the position's row of a dense table."""
        self.vocab, (row, column) = len(weight), weight.stride()
        fields = {"weight": weight, "scale": positions, "row": row, "column": column, "number": factor}
        self.add(OpKind.EMBED, target, target, **fields)

    def linear(self, source: Register, target: Register, weight: Tensor, bias: Tensor | None) -> None:
        """target = source Wᵀ + b in float32; one axis of W is dense."""
        row, column = weight.stride()
        self.add(OpKind.LINEAR, source, target, weight=weight, bias=bias, row=row, column=column)

    def linear_int8(
        self, source: Register, target: Register, panels: Int8Panels, scale: Tensor, bias: Tensor | None
    ) -> None:
        """target = (q(source) Wᵀ) · scale · s + b with W of int8; see `headway.native.int8_linear`."""
        fields = {"weight": panels.weight, "offsets": panels.offsets, "scale": scale, "bias": bias}
        self.add(OpKind.LINEAR_INT8, source, target, **fields)

    def keys_of(self, owner: nn.Module, *, memory: bool) -> int:
        """The number of the keys and values of a part."""
        self.attentions.append((owner, memory))
        return len(self.attentions) - 1

    @property
    def logits(self) -> Register:
        return list(self.registers.values())[-1]

    def run(
        self, tokens: Tensor, slot: int, positions: Tensor | None, ctx: Context, rows: CacheRows | None = None
    ) -> Tensor | None:
        """The logits after `tokens` (B) at `slot` of the KV cache, B V, or of the selected of them, M V.

        `positions` (B 1) are where the tokens stand; None: at their slot.  No result: that is for the torch path to do.
        """
        state, threads = ctx.state, torch.get_num_threads()
        if not isinstance(state, FixedState) or slot >= self.capacity:
            return None
        if self.frame is None or self.frame.threads != threads or self.frame.room < len(tokens):
            self.frame = StepFrame(self, len(tokens), threads)
        if not self.frame.bind(state, ctx, len(tokens) if rows is None else None):
            return None
        at = torch.full((len(tokens),), slot) if positions is None else positions.expand(len(tokens), 1).contiguous()
        wanted = len(tokens) if rows is None else len(rows.selected)
        logits, tokens = torch.empty(wanted, self.logits.width), tokens.contiguous()
        if not self.frame.call(tokens, at, slot, logits, rows):
            return None
        place = Positions.run(slot, 1, tokens.device) if positions is None else Positions(positions)
        state.extend_each([state.buffers[owner] for owner in self.owners], place)
        return logits


class StepFrame:
    """Memory for a program of up to `room` rows, and the arguments of its call."""

    def __init__(self, program: StepProgram, room: int, threads: int):
        self.program, self.room, self.threads = program, room, threads
        registers = list(program.registers.values())
        codes = [op for op in program.ops if op.kind == OpKind.LINEAR_INT8]
        # logits are written to where the caller wants them
        self.values = [torch.empty(room, register.width) for register in registers if register != program.logits]
        self.codes = torch.empty(room, max((op.inputs + 3 for op in codes), default=0), dtype=torch.uint8)
        self.steps = torch.empty(room)
        self.ops = (StepOp * len(program.ops))(*program.ops)
        self.caches = (StepCache * max(len(program.attentions), 1))()
        self.bound: list[tuple[object, ...]] = [()] * len(program.attentions)
        self.registers = (ctypes.c_void_p * len(registers))(*(x.data_ptr() for x in self.values))
        self.arguments = StepCall(
            ops=ctypes.addressof(self.ops),
            caches=ctypes.addressof(self.caches),
            registers=ctypes.addressof(self.registers),
            count=len(program.ops),
            threads=threads,
            set=program.set,
            codes=self.codes.data_ptr(),
            steps=self.steps.data_ptr(),
        )
        self.make_room(program.capacity)

    def make_room(self, keys: int) -> None:
        """Room for the attention weights of so many keys, in whole vectors."""
        keys = -(-keys // LANES) * LANES
        self.weights = torch.empty(max(self.threads, 1), keys)
        self.arguments.weights, self.arguments.keys = self.weights.data_ptr(), keys

    def bind(self, state: FixedState, ctx: Context, rows: int | None) -> bool:
        """Points at the keys and values of a state, wherever they lie now; False: they are not as they should be.

        There are those of `rows`; None: any.
        """
        for index, (owner, memory) in enumerate(self.program.attentions):
            keep, beams, origins = (ctx.memory_keep, state.beams, None) if memory else (ctx.keep, 1, None)
            if memory:
                found = state.kept.get(owner)
            elif (buffers := state.buffers.get(owner)) is not None:
                found, origins = buffers.stored, buffers.origins
            else:
                found = None
            if found is None:
                return False
            k, v = found
            held = len(k) if origins is None else len(origins)
            if rows not in (None, held * beams):
                return False
            if not is_same(self.bound[index], wanted := (k, v, keep, beams, origins)):
                if not all(map(is_readable, (k, v))) or not is_row_mask(keep, held, k.shape[2]):
                    return False
                self.point(self.caches[index], k, v, keep, beams, k.shape[2] if memory else 0, origins)
                self.bound[index] = wanted
        return True

    def point(
        self,
        cache: StepCache,
        k: Tensor,
        v: Tensor,
        keep: Tensor | None,
        beams: int,
        keys: int,
        origins: Tensor | None,
    ) -> None:
        cache.k, cache.v = k.data_ptr(), v.data_ptr()
        cache.k_row, cache.k_head, cache.k_key = k.stride()[:3]
        cache.v_row, cache.v_head, cache.v_key = v.stride()[:3]
        cache.keys, cache.beams = keys, beams
        cache.keep, cache.keep_row = (None, 0) if keep is None else (keep.data_ptr(), keep.stride(0))
        cache.origins, cache.origin_row = (None, 0) if origins is None else (origins.data_ptr(), origins.stride(0))
        if keys > self.arguments.keys:
            self.make_room(keys)

    def call(self, tokens: Tensor, positions: Tensor, slot: int, logits: Tensor, rows: CacheRows | None = None) -> bool:
        program, given = self.program, self.arguments
        self.registers[program.logits.index] = logits.data_ptr()
        given.rows, given.tokens, given.positions, given.slot = (
            len(tokens),
            tokens.data_ptr(),
            positions.data_ptr(),
            slot,
        )
        owners, selected = (None, None) if rows is None else (rows.owners.contiguous(), rows.selected.contiguous())
        given.owners = None if owners is None else owners.data_ptr()
        given.selected, given.selections = (None, 0) if selected is None else (selected.data_ptr(), len(selected))
        return not program.library.handle.headway_step(ctypes.byref(given), program.vocab, program.positions)


def is_same(bound: tuple[object, ...], wanted: tuple[object, ...]) -> bool:
    return len(bound) == len(wanted) and all(a is b for a, b in zip(bound, wanted, strict=True))


def is_readable(x: Tensor) -> bool:
    """Whether keys or values, B G S D, are as the library reads them."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and x.stride(3) == 1


def is_row_mask(keep: Tensor | None, rows: int, keys: int) -> bool:
    """Whether a mask is B 1 S for these rows and keys, or there is none."""
    return keep is None or (keep.shape[:2] == (rows, 1) and keep.shape[2] >= keys and keep.stride(2) == 1)
