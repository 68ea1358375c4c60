"""A user's script, checked strictly against the library's types by `make check` and run by the tests."""

from __future__ import annotations

import torch
from torch import Tensor

import headway
from headway import Context, FixedState, Rows, State, Trace, UserError
from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.ops.attention_map import Readable
from headway.ops.pattern import Causal


def quiet_head(weights: Tensor) -> Tensor:
    return weights * torch.tensor([0.0, 1.0, 1.0, 1.0])[:, None, None]


def main() -> dict[str, Tensor]:
    model = Stack([Block(attn=Residual(SelfAttention(16, 4, pattern=Causal()))) for _ in range(2)])
    x = torch.randn(2, 5, 16)
    with headway.record(model, "*.attn.weights", edit={"0.attn.weights": quiet_head}) as trace:
        y: Tensor = model(x)
    amap = trace["1.attn"]
    entropy = amap.entropy() if isinstance(amap, Readable) else x
    states: list[State] = [State(), FixedState(capacity=8)]
    steps = torch.stack([model(x, Context(state=state)) for state in states])
    rows = Rows.of([5, 3])
    packed: Tensor = model(rows.pack(x), Context(rows=rows, trace=Trace(model, "*.out")))
    direct = headway.attend(x[:, None], x[:, None], x[:, None], causal=True)
    try:
        SelfAttention(10, 3)
    except UserError as error:
        print(error)
    return {"y": y, "entropy": entropy, "steps": steps, "packed": packed, "direct": direct}
