"""The topic `gru`: from a gated recurrent unit to attention, in five rungs that all run.

Axes:  T steps   C width of inputs and of hidden states
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError
from headway.learn.explain_attention import attended, read_mask
from headway.learn.explanation import ExplanationStep, Formula, Matrix, Quantity, Question, ValueTable
from headway.learn.topic_inputs import TopicInputs
from headway.nn.attention import UNBIASED, SelfAttention
from headway.nn.recurrent import GRUCell
from headway.nn.trace import record
from headway.ops.attend import DOT
from headway.ops.attention_map import AttentionMap
from headway.ops.pattern import Causal


class GatedRun(NamedTuple):
    """A GRU's steps, T C each: hidden states, update gates and candidates."""

    h: Tensor
    u: Tensor
    candidates: Tensor


def steps(inputs: TopicInputs) -> Iterator[ExplanationStep]:
    given, seed = inputs.matrix("x"), inputs.count("seed", 0, 0)
    if given is not None and (inputs.n is not None or inputs.dim is not None):
        raise UserError("x= says how many steps there are and how wide they are", do="leave out n= and dim=")
    length, dim = inputs.count("n", 5, 2, 64), inputs.count("dim", 4, 2, 64)
    random = torch.Generator().manual_seed(seed)
    x = (
        torch.randn(length, dim, generator=random, dtype=torch.float64)
        if given is None
        else torch.tensor(given).double()
    )
    heads = inputs.count("heads", 2)
    if x.shape[1] % heads:
        raise UserError(
            f"heads={heads} for vectors of {x.shape[1]} numbers", allowed="a number that divides their width"
        )
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(seed)
        cell = GRUCell(x.shape[1], x.shape[1]).double()
        layers = [SelfAttention(x.shape[1], n, bias=UNBIASED, pattern=Causal()).double() for n in (1, heads)]
        found = run(cell, x)
        yield recurrent(found)
        yield unrolled(found)
        yield from freed(cell, found, x)
        yield from transformer_rungs(layers, x, found)


def run(cell: GRUCell, x: Tensor) -> GatedRun:
    """The recurrence, step by step from h = 0."""
    h, kept = x.new_zeros(1, cell.hidden), list[tuple[Tensor, Tensor, Tensor]]()
    for gates in cell.inputs(x).split(1):
        u, candidate = cell.gate_and_candidate(gates, h)
        (h,) = cell.step(gates, (h,))
        kept.append((h, u, candidate))
    return GatedRun(*(torch.cat(parts) for parts in zip(*kept, strict=True)))


def unrolled_weights(u: Tensor) -> Tensor:
    """Π_{j>i} u_j · (1 − u_i) for every step i, as seen from the last, T C."""
    later = torch.cat((u.flip(0).cumprod(0).flip(0)[1:], torch.ones_like(u[:1])))
    return later * (1 - u)


def misprinted_weights(u: Tensor) -> Tensor:
    """Π_{j=i}^{t−i+1} u_j · Π_{k<i} (1 − u_k), counted from 1: a mistake that is easily made."""
    length, rows = len(u), list[Tensor]()
    for i in range(1, length + 1):
        rows.append(u[i - 1 : max(length - i + 1, i - 1)].prod(0) * (1 - u[: i - 1]).prod(0))
    return torch.stack(rows)


def recurrent(found: GatedRun) -> ExplanationStep:
    names = [f"step {at + 1}" for at in range(len(found.h))]
    return ExplanationStep(
        "The GRU: each hidden state mixes the one before with a candidate.",
        ["u is the update gate, h̃ the candidate; both are computed from the input and the hidden state before."],
        [
            Matrix("update gates u", found.u.tolist(), names, digits=4),
            Matrix("candidates h̃", found.candidates.tolist(), names, digits=4),
            Matrix("hidden states h", found.h.tolist(), names, digits=4),
        ],
        Formula("h_t = u_t ⊙ h_(t−1) + (1 − u_t) ⊙ h̃_t", r"h_t = u_t \odot h_{t-1} + (1 - u_t) \odot \tilde h_t"),
    )


def unrolled(found: GatedRun) -> ExplanationStep:
    right, wrong = unrolled_weights(found.u), misprinted_weights(found.u)
    names = [f"step {at + 1}" for at in range(len(right))]
    errors = [float(((w * found.candidates).sum(0) - found.h[-1]).abs().max()) for w in (right, wrong)]
    return ExplanationStep(
        "Rung 1, unrolled: the last hidden state is a weighted sum of all candidates.",
        [
            "Written out, with h_0 = 0: a candidate counts as much as its own gate let in and all later gates kept. "
            "The weights of a dimension sum to 1, but for what the gates kept of h_0.",
            "A formula with Π_(j=i..t−i+1) u_j and Π_(k<i) (1 − u_k) is easily written, and is not this sum:",
        ],
        [
            Matrix("weights of the candidates", right.tolist(), names, digits=4),
            ValueTable(
                "difference from the recurrence",
                ["formula", "largest difference"],
                [["Π_(j>i) u_j · (1 − u_i)", errors[0]], ["Π_(j=i..t−i+1) u_j · Π_(k<i) (1 − u_k)", errors[1]]],
                ".2e",
            ),
        ],
        Formula(
            "h_t = Σ_i (Π_(j>i) u_j) ⊙ (1 − u_i) ⊙ h̃_i",
            r"h_t = \sum_i \Big(\prod_{j>i} u_j\Big) \odot (1 - u_i) \odot \tilde h_i",
        ),
        question=Question(
            "Which gates multiply the candidate of step i, beside its own 1 − u_i?",
            "those of all later steps",
            ("those of all later steps", "those of all earlier steps", "all gates"),
        ),
    )


def freed(cell: GRUCell, found: GatedRun, x: Tensor) -> Iterator[ExplanationStep]:
    """Rungs 2 and 3: weights by a softmax over candidates, and candidates without recurrence."""
    names = [f"step {at + 1}" for at in range(len(x))]
    weights, output = looked_up(x, found.candidates, found.candidates)
    yield ExplanationStep(
        "Rung 2, free the weights: a softmax of scores takes the place of products of gates.",
        [
            "The score compares the input of the step with each candidate so far; weights need not fade with distance. "
            f"Candidates still need the hidden state before them: {len(x)} steps, one after the other.",
        ],
        [
            Matrix("weights of the last step, rung 2", [weights[-1].tolist()], ["α"], names, 4),
            Matrix("output of the last step, rung 2", [output[-1].tolist()], digits=4),
        ],
        Formula(
            "h_t = Σ_(i≤t) α_i h̃_i,  α_i ∝ exp ATT(h̃_i, x_t)",
            r"h_t = \sum_{i \le t} \alpha_i \tilde h_i,\quad \alpha_i \propto \exp \operatorname{ATT}(\tilde h_i, x_t)",
        ),
    )
    free = cell.gate_and_candidate(cell.inputs(x), torch.zeros_like(x))[1]
    alone = torch.cat([cell.gate_and_candidate(cell.inputs(one), torch.zeros_like(one))[1] for one in x.split(1)])
    weights, output = looked_up(x, free, free)
    yield ExplanationStep(
        "Rung 3, free the candidates: each depends on its own input alone.",
        [
            "f(x_i) is the candidate of a GRU whose hidden state before is 0. All of them are computed at once: one "
            "step in place of a chain, and the result is the same one by one.",
        ],
        [
            Matrix("weights of the last step, rung 3", [weights[-1].tolist()], ["α"], names, 4),
            Matrix("output of the last step, rung 3", [output[-1].tolist()], digits=4),
            Quantity("largest difference of all at once and one by one", float((free - alone).abs().max()), form=".1e"),
        ],
        Formula(
            "h_t = Σ_(i≤t) α_i f(x_i),  α_i ∝ exp ATT(f(x_i), x_t)",
            r"h_t = \sum_{i \le t} \alpha_i f(x_i),\quad \alpha_i \propto \exp \operatorname{ATT}(f(x_i), x_t)",
        ),
        question=Question("How many steps must follow one another where candidates do not need the hidden state?", 1.0),
    )


def looked_up(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention of one head, T C each: weights T T, and what comes out."""
    found = attended(q, k, v, DOT, keep=read_mask("causal", len(q)))
    return found.weights[0], found.output


def transformer_rungs(layers: list[SelfAttention], x: Tensor, found: GatedRun) -> Iterator[ExplanationStep]:
    """Rungs 4 and 5: causal self-attention with one head and with several."""
    names = [f"step {at + 1}" for at in range(len(x))]
    heads = [f"head {at + 1}" for at in range(layers[1].heads)]
    (one, one_out), (many, many_out) = (traced(layer, x) for layer in layers)
    yield ExplanationStep(
        "Rung 4, separate keys and values: what an input is found by is not what it gives.",
        ["Queries, keys and values are three projections of the inputs. This is masked self-attention with one head."],
        [
            Matrix("weights of the last step, rung 4", one[:, -1].tolist(), ["α"], names, 4),
            Matrix("output of the last step, rung 4", [one_out[-1].tolist()], digits=4),
        ],
        Formula(
            "h_t = Σ_(i≤t) α_i V(x_i),  α_i ∝ exp ATT(K(x_i), Q(x_t))",
            r"h_t = \sum_{i \le t} \alpha_i V(x_i),\quad \alpha_i \propto \exp \operatorname{ATT}(K(x_i), Q(x_t))",
        ),
    )
    rows = [
        ["1 GRU, unrolled", "products of gates", "hidden state before", len(x)],
        ["2 free weights", "softmax", "hidden state before", len(x)],
        ["3 free candidates", "softmax", "own input", 1],
        ["4 keys and values", "softmax", "own input", 1],
        ["5 many heads", "softmax in each head", "own input", 1],
    ]
    yield ExplanationStep(
        "Rung 5, many heads: several sets of weights, and the attention of a Transformer.",
        ["Each head has projections of its own; the results stand side by side and are projected once more."],
        [
            Matrix("weights of the last step, rung 5", many[:, -1].tolist(), heads, names, 4),
            Matrix("output of the last step, rung 5", [many_out[-1].tolist()], digits=4),
            ValueTable("the five rungs", ["rung", "weights by", "candidates need", "steps in a row"], rows),
            ValueTable(
                "names of the same things",
                ["recurrent", "attention"],
                [
                    ["decoder state s", "query q"],
                    ["encoder states h_i, compared", "keys k_i"],
                    ["encoder states h_i, summed", "values v_i"],
                    ["context c", "output o"],
                ],
            ),
        ],
        Formula(
            "h_t = [head_1 … head_H] W_O",
            r"h_t = [\text{head}_1 \cdots \text{head}_H]\, W_O",
        ),
    )


def traced(layer: SelfAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """H T T weights and T C output of a layer."""
    with record(layer, "weights") as trace:
        y = layer(x[None])[0]
    weights = trace["weights"]
    assert isinstance(weights, AttentionMap)
    return weights.full()[0], y
