"""What cannot be gets one sentence: what was given, what is allowed, the nearest right name, what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import headway
from headway import Context, FixedState, Rows, State, Trace, UserError, attend
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import StochasticDepth
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.frames import FrameEmbed
from headway.nn.image import LearnedGridPosition, PatchDropout, PatchEmbed
from headway.nn.moe import MoE
from headway.ops.attention_map import Weights
from headway.ops.pattern import Causal, Chunked, Global, Prefix, Window

X = torch.zeros(2, 3, 16)
Q = torch.zeros(2, 4, 3, 8)
TOKENS = torch.zeros(1, 5, dtype=torch.long)


def small_model() -> SelfAttention:
    return SelfAttention(16, 4)


def no_recording() -> None:
    with headway.record(small_model(), "weights") as trace:
        pass
    trace["weights"]


def two_recordings() -> None:
    model = small_model()
    with headway.record(model, "weights") as trace:
        model(X)
        model(X)
    trace["weights"]


def overfull() -> None:
    state = FixedState(4)
    model = SelfAttention(16, 4, pattern=Causal())
    model(X, Context(state=state))
    model(X, Context(state=state))


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: SelfAttention(500, 12),
        "heads=12 does not divide dim=500; try heads=10 or dim=504; "
        "allowed: heads of 1, 2, 4, 5, 10, 20, 25, 50, 100, 125, 250, 500",
    ),
    (lambda: SelfAttention(16, 0), "heads=0 does not divide dim=16"),
    (
        lambda: SelfAttention(16, 4, kv_heads=3),
        "kv_heads=3 does not divide heads=4; allowed: kv_heads of 1, 2, 4; try kv_heads=2",
    ),
    (
        lambda: Causal(window=0),
        "Causal(window=0) would let a query see nothing; allowed: window of 1 or more; to see everything give Full()",
    ),
    (lambda: Window(0), "Window(radius=0) would let a query see nothing"),
    (lambda: Chunked(0), "Chunked(size=0) would let a query see nothing"),
    (lambda: Prefix(0), "Prefix(length=0) would let a query see nothing"),
    (lambda: Global(-1), "Global(tokens=-1) would let a query see nothing"),
    (
        lambda: CrossAttention(16, 4)(X),
        "cross-attention was given no memory; pass Context(memory=encoder(source))",
    ),
    (
        lambda: CrossAttention(16, 4)(X, Context(memory=torch.zeros(2, 5, 8))),
        "the memory is 2×5×8; allowed: B S 16, the width this part was made for; make the part with kv_dim=8",
    ),
    (
        lambda: CrossAttention(16, 4)(X, Context(memory=torch.zeros(3, 5, 16))),
        "the memory has 3 rows and the input 2; allowed: one row of memory for each row of input",
    ),
    (
        lambda: small_model()(X, Context(keep=torch.ones(2, 3, dtype=torch.bool))),
        "keep is torch.bool 2×3; allowed: torch.bool, B T S = (2, 3, 3), an axis may be 1",
    ),
    (
        lambda: small_model()(X, Context(keep=torch.ones(2, 1, 3))),
        "keep is torch.float32 2×1×3; allowed: torch.bool, B T S = (2, 3, 3), an axis may be 1; True means that a key "
        "may be seen",
    ),
    (lambda: small_model()(X, Context(keep=torch.ones(2, 1, 2).bool())), "keep is torch.bool 2×1×2"),
    (
        lambda: attend(Q, Q, Q, bias=torch.ones(2, 4, 3, 3).bool()),
        "bias is torch.bool 2×4×3×3; a bool mask goes to keep=; "
        "allowed: a float tensor, B H T S = (2, 4, 3, 3), an axis may be 1",
    ),
    (lambda: attend(Q, Q, Q, bias=torch.ones(3, 3)), "bias is torch.float32 3×3"),
    (lambda: attend(Q[0], Q[0], Q[0]), "attend was given q 4×3×8, k 4×3×8, v 4×3×8; allowed: four axes each"),
    (lambda: attend(Q, Q[:, :, :2], Q), "q 2×4×3×8, k 2×4×2×8 and v 2×4×3×8 do not belong together"),
    (lambda: attend(Q, Q[:, :3], Q[:, :3]), "3 kv-heads do not divide 4 heads; allowed: kv-heads of 1, 2, 4"),
    (
        lambda: TokenEmbed(9, 16, position=LearnedPosition(4, 16))(TOKENS),
        "position 4 lies beyond the 4 positions of a learned table; allowed: 0 to 3; shorten the input, or build with "
        "context=5",
    ),
    (
        lambda: LearnedPosition(6, 16, first=2)(X, Context(positions=torch.tensor([[2, 3, 4]]))),
        "position 4 lies beyond the 4 positions of a learned table",
    ),
    (
        lambda: Trace(small_model(), "*.wieghts"),
        "'*.wieghts' matches no site; allowed: heads, input, values, weights; did you mean '*.weights'?",
    ),
    (lambda: Trace(small_model(), edit={"wights": torch.zeros_like}), "'wights' matches no site"),
    (lambda: Trace(torch.nn.Linear(2, 2), "*"), "'*' matches no site: this model shows nothing"),
    (no_recording, "nothing was recorded at 'weights'; call the model inside the block, and not compiled"),
    (two_recordings, "'weights' was recorded 2 times; take one of trace.all(name), or trace.joined(name)"),
    (overfull, "6 tokens do not fit a state with room for 4; make it FixedState(6) or larger"),
    (lambda: FixedState(0), "FixedState(capacity=0) has room for nothing; allowed: a capacity of 1 or more"),
    (lambda: Rows.of([3, 0]), "rows of lengths [3, 0]; allowed: one or more lengths of 1 or more"),
    (
        lambda: small_model()(X, Context(rows=Rows.of([2, 1]))),
        "an input of 2×3 tokens for 2 packed rows; allowed: 1×3, the tokens of all rows one after the other",
    ),
    (
        lambda: small_model()(X[:1], Context(rows=Rows.of([2, 1]), state=State())),
        "packed rows cannot be appended to a decoding state; pad them, and pass keep",
    ),
    (
        lambda: MoE(lambda: FFN(16, 8), 16, 4, top=5),
        "MoE(top=5) with 4 experts; allowed: top from 1 to 4; give top as many as there are, or fewer",
    ),
    (lambda: FFN(16, 8, layers=4), "FFN(layers=4); allowed: 2 or 3 layers; stack several FFNs to go deeper"),
    (lambda: StochasticDepth(1.0), "StochasticDepth(1.0); allowed: a probability from 0 up to, but not, 1"),
    (lambda: PatchDropout(-0.1), "PatchDropout(-0.1); allowed: a probability from 0 up to, but not, 1"),
    (
        lambda: PatchEmbed(3, 16, 4)(torch.zeros(1, 3, 10, 8)),
        "an image of 10×8 does not divide into patches of 4; allowed: sides that are multiples of 4; resize it to 8×8",
    ),
    (
        lambda: LearnedGridPosition(2, 2, 16)(torch.zeros(1, 3, 2, 16)),
        "a grid of 3×2 cells for learned positions of 2×2; resize the image to 2×2",
    ),
    (lambda: FrameEmbed(8, 16, factor=0), "FrameEmbed(factor=0); allowed: 1 frame or more to a token"),
    (lambda: Weights(torch.zeros(1, 1, 3, 3)).rows(1, 9), "rows(1, 9) of a map with 3 queries; allowed: 0 to 3"),
]


@pytest.mark.parametrize(("mistake", "told"), MISTAKES, ids=[told[:40] for _, told in MISTAKES])
def test_a_mistake_is_told(mistake: Callable[[], object], told: str) -> None:
    with pytest.raises(UserError) as caught:
        mistake()
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


def test_an_edit_of_another_shape_is_told() -> None:
    model = small_model()
    with pytest.raises(
        UserError, match=r"the edit of 'weights' returned \(2, 4, 3\); allowed: the shape \(2, 4, 3, 3\)"
    ):
        model(X, Context(trace=Trace(model, edit={"weights": lambda weights: weights[..., 0]})))
