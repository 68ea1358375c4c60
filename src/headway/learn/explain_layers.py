"""The topics `norms`, `ffn` and `moe`: the parts of a block beside attention.

Axes:  T tokens   C width   F hidden width   E experts   K experts of a token
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.learn.explanation import ExplanationStep, Formula, Matrix, Quantity, Question, ValueTable
from headway.learn.topic_inputs import TopicInputs
from headway.nn.ffn import FFN, GatedFFN
from headway.nn.moe import MoE
from headway.nn.norm import UnbiasedLayerNorm
from headway.nn.trace import record
from headway.ops.attend import softmax_over
from headway.zoo.build import build
from headway.zoo.cost import tally_layers

MODEL = "transformer-nano"


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parameters(part: nn.Module) -> int:
    return sum(one.numel() for one in part.parameters())


# ---- norms


def norm_steps(inputs: TopicInputs) -> Iterator[ExplanationStep]:
    given = inputs.matrix("x") or [[1.0, 2.0, 3.0, 6.0]]
    eps = 1e-6 if inputs.eps is None else inputs.eps
    if eps < 0:
        raise UserError(f"eps={eps}", allowed="0 or more")
    if len(given[0]) < 2:
        raise UserError("x= has one column", allowed="two columns or more: a norm compares the entries of a row")
    x = torch.tensor(given, dtype=torch.float64)
    width = x.shape[1]
    layer = nn.LayerNorm(width, eps).double().requires_grad_(False)
    unbiased, rms = other_definition(layer), nn.RMSNorm(width, eps).double().requires_grad_(False)
    names = [f"x{at + 1}" for at in range(len(x))]
    yield ExplanationStep(
        "LayerNorm with the biased variance, ε inside the root: what torch and most papers compute.",
        ["Each row by itself: its mean is subtracted, and it is divided by its standard deviation."],
        [
            Matrix("input x", x.tolist(), names, digits=4),
            Matrix(
                "mean and variance",
                torch.stack((x.mean(1), x.var(1, correction=0)), 1).tolist(),
                names,
                ["mean", "variance"],
                4,
            ),
            Matrix("LayerNorm(x)", layer(x).tolist(), names),
        ],
        Formula(
            "y = γ (x − μ) / √(v + ε) + β,  v = Σ (x − μ)² / C",
            r"y = \gamma \frac{x - \mu}{\sqrt{v + \varepsilon}} + \beta,\quad v = \frac{1}{C}\sum (x - \mu)^2",
        ),
        question=Question("What is the mean of each row of the result?", 0.0),
    )
    ratio = float(torch.linalg.vector_norm(layer(x)) / torch.linalg.vector_norm(unbiased(x)))
    yield ExplanationStep(
        "LayerNorm with the unbiased deviation, ε outside: what some teaching code computes.",
        [
            f"The sum of squares is divided by C − 1, not C, so each result is smaller by the factor √((C − 1)/C); ε "
            f"is added to the deviation. For C = {width} the two differ by a factor of {ratio:.6f}.",
            "Weights that were trained with one definition do not fit the other.",
        ],
        [
            Matrix("unbiased LayerNorm(x)", unbiased(x).tolist(), names),
            Matrix("difference", (layer(x) - unbiased(x)).tolist(), names),
        ],
        Formula(
            "y = γ (x − μ) / (s + ε) + β,  s² = Σ (x − μ)² / (C − 1)",
            r"y = \gamma \frac{x - \mu}{s + \varepsilon} + \beta,\quad s^2 = \frac{1}{C - 1}\sum (x - \mu)^2",
        ),
    )
    yield by_width(eps)
    yield whole_model()
    yield ExplanationStep(
        "RMSNorm: no mean is taken off, and there is no bias.",
        ["A row is divided by the root of its mean square over its C entries. Rows of mean 0 are the same in both."],
        [
            Matrix("RMSNorm(x)", rms(x).tolist(), names),
            ValueTable(
                "weights of a norm",
                ["norm", "weights"],
                [["LayerNorm", parameters(layer)], ["RMSNorm", parameters(rms)]],
            ),
        ],
        Formula("y = γ x / √(Σ x² / C + ε)", r"y = \gamma \frac{x}{\sqrt{\frac{1}{C}\sum x^2 + \varepsilon}}"),
        question=Question(
            "Which number of a row does RMSNorm not subtract?", "its mean", ("its mean", "its largest entry", "1")
        ),
    )


def other_definition(layer: nn.LayerNorm) -> UnbiasedLayerNorm:
    """The unbiased LayerNorm with the same weights."""
    other = UnbiasedLayerNorm(list(layer.normalized_shape), layer.eps)
    other.weight, other.bias = layer.weight, layer.bias
    return other


def by_width(eps: float) -> ExplanationStep:
    rows: list[list[int | float]] = []
    for width in (4, 16, 64, 512):
        layer = nn.LayerNorm(width, eps).double().requires_grad_(False)
        x = drawn(0, 64, width)
        rows.append([width, float((layer(x) - other_definition(layer)(x)).abs().max())])
    return ExplanationStep(
        "The two definitions come together as the width grows.",
        ["The largest difference over 64 rows of random numbers of variance 1."],
        [ValueTable("difference of the two LayerNorms by width", ["C", "largest difference"], rows, ".6f")],
    )


def whole_model() -> ExplanationStep:
    """The same weights under both definitions, in an encoder–decoder."""
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        model = build(MODEL).eval()
        tokens = torch.randint(0, 1000, (2, 2, 16))
        first = model(*tokens)
        replaced = 0
        for part in list(model.modules()):
            for name, child in part.named_children():
                if isinstance(child, nn.LayerNorm):
                    setattr(part, name, other_definition(child))
                    replaced += 1
        apart = float((model(*tokens) - first).abs().max())
    return ExplanationStep(
        "In a whole model the difference adds up.",
        [f"{MODEL} with random weights, {replaced} norms replaced by the other definition, all weights kept:"],
        [
            Quantity("largest difference of the logits", apart, form=".4f"),
            Quantity("largest logit", float(first.abs().max()), form=".4f"),
        ],
    )


# ---- feed-forward layers


def ffn_steps(inputs: TopicInputs) -> Iterator[ExplanationStep]:
    dim, seed = inputs.count("dim", 3, 1, 1 << 14), inputs.count("seed", 0, 0)
    given = inputs.matrix("x")
    if given is not None and len(given[0]) != dim:
        if inputs.dim is not None:
            raise UserError(f"x= has {len(given[0])} columns", allowed=f"{dim}, as dim= says")
        dim = len(given[0])
    hidden = round(8 * dim / 3)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        mlp = FFN(dim, act=F.relu, bias=False).double().requires_grad_(False)
        swiglu = GatedFFN(dim, hidden, bias=False).double().requires_grad_(False)
    x = drawn(seed, 2, dim) if given is None else torch.tensor(given, dtype=torch.float64)
    names, few = [f"x{at + 1}" for at in range(len(x))], 12
    yield ExplanationStep(
        f"MLP: from C = {dim} to 4C = {4 * dim}, an activation, and back.",
        [f"Random weights; {few} hidden numbers at most are shown. Each token is transformed by itself."],
        [
            Matrix("tokens x", x.tolist(), names, digits=4),
            Matrix("max(0, x W1)", mlp.first(x)[:, :few].tolist(), names, digits=4),
            Matrix("MLP(x)", mlp(x)[:, :few].tolist(), names, digits=4),
        ],
        Formula("y = max(0, x W1) W2", r"y = \max(0, x W_1) W_2"),
        question=Question(f"How many weights has the MLP, without biases, at C = {dim}?", float(parameters(mlp))),
    )
    yield ExplanationStep(
        f"SwiGLU: two products of width 8C/3 = {hidden}{' (rounded)' if 8 * dim % 3 else ''}, one gates the other.",
        ["The gate passes through swish, z σ(z); the other product is multiplied by it."],
        [
            Matrix("swish(x W1)", swiglu.act(swiglu.gate(x))[:, :few].tolist(), names, digits=4),
            Matrix("x W2", swiglu.up(x)[:, :few].tolist(), names, digits=4),
            Matrix("SwiGLU(x)", swiglu(x)[:, :few].tolist(), names, digits=4),
        ],
        Formula(
            "y = (swish(x W1) ⊙ x W2) W3",
            r"y = \left(\operatorname{swish}(x W_1) \odot x W_2\right) W_3",
        ),
    )
    rows = [weight_row(width) for width in sorted({3, 96, 768, 1536, 4096, dim})]
    yield ExplanationStep(
        "Equal sizes: 2 matrices of 4C² numbers, or 3 of 8C²/3, are 8C² both.",
        ["Where 3 does not divide 8C, F is rounded, and the sizes differ a little. Biases are left out."],
        [ValueTable("weights of both", ["C", "8C²", "4C", "MLP", "8C/3", "SwiGLU"], rows)],
        Formula("2 · C · 4C = 8C² = 3 · C · 8C/3", r"2 \cdot C \cdot 4C = 8C^2 = 3 \cdot C \cdot \tfrac{8C}{3}"),
        question=Question("Which hidden width gives SwiGLU the size of an MLP of 4C?", "8C/3", ("4C", "8C/3", "2C")),
    )


def weight_row(width: int) -> list[int]:
    hidden = round(8 * width / 3)
    with torch.device("meta"):
        mlp, swiglu = FFN(width, bias=False), GatedFFN(width, hidden, bias=False)
    return [width, 8 * width**2, mlp.up.out_features, parameters(mlp), hidden, parameters(swiglu)]


# ---- mixture of experts


def moe_steps(inputs: TopicInputs) -> Iterator[ExplanationStep]:
    experts, active = inputs.count("experts", 4, 1, 256), inputs.count("active", 2, 1)
    tokens, dim, seed = inputs.count("n", 6, 1, 64), inputs.count("dim", 3, 1, 1024), inputs.count("seed", 0, 0)
    if active > experts:
        raise UserError(f"active={active} of experts={experts}", allowed=f"active from 1 to {experts}")
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        layer = mixture(dim, experts, active).double().requires_grad_(False)
    x = drawn(seed, 1, tokens, dim)
    logits = layer.router(x)[0]
    picks = logits.topk(active, -1).indices
    gates = softmax_over(logits, torch.zeros_like(logits).scatter(1, picks, 1.0).bool())
    names, heads = [f"token {at + 1}" for at in range(tokens)], [f"E{at + 1}" for at in range(experts)]
    yield ExplanationStep(
        f"Routing: a matrix gives each token a score for each of {experts} experts.",
        values=[Matrix("router scores", logits.tolist(), names, heads, 4)],
        formula=Formula("e = x W_R", r"e = x W_R"),
    )
    yield ExplanationStep(
        f"Gates: the {active} best experts of a token share it, by the softmax over their scores.",
        ["All other experts have the gate 0 and are not computed."],
        [Matrix("gates", gates.tolist(), names, heads, 4)],
        Formula("g = softmax(e over the K best)", r"g = \operatorname{softmax}(e_{\text{top } K})"),
        question=Question("What is the sum of the gates of each token?", 1.0),
    )
    with record(layer, "balance", "probs") as trace:
        output = layer(x)[0]
    by_hand = sum((gates[:, at, None] * one(x[0]) for at, one in enumerate(layer.experts)), torch.zeros_like(output))
    yield ExplanationStep(
        "Output: the experts of a token, weighed by their gates.",
        values=[
            Matrix("output of the layer", output.tolist(), names, digits=4),
            Quantity("largest difference from Σ g_i expert_i(x)", float((output - by_hand).abs().max()), form=".1e"),
        ],
        formula=Formula("y = Σ_i g_i expert_i(x)", r"y = \sum_i g_i \operatorname{expert}_i(x)"),
    )
    yield expert_costs(dim, active, experts)
    yield balance(layer, trace["balance"], x, active)


def mixture(dim: int, experts: int, active: int) -> MoE:
    return MoE(partial(GatedFFN, dim, max(1, round(8 * dim / 3)), bias=False), dim, experts, top=active)


def expert_costs(dim: int, active: int, experts: int) -> ExplanationStep:
    rows: list[list[int | float]] = []
    for count in sorted({n for n in (1, 2, 4, 8, 16, 64) if n >= active} | {experts}):
        with torch.device("meta"):
            layer, x = mixture(dim, count, active), torch.empty(1, 1, dim)
            one = GatedFFN(dim, max(1, round(8 * dim / 3)), bias=False)
        flops = sum(tally.flops for tally in tally_layers(layer, (x,)).values()) - 2 * dim * count  # without the router
        weights = parameters(layer) - parameters(layer.router)
        own = 2 * parameters(one)
        rows.append([count, weights, weights / parameters(one), flops, flops / own])
    return ExplanationStep(
        f"Weights × E, compute × A: with {active} active, more experts cost no more FLOPs.",
        ["Weights of all experts, and FLOPs of one token (2 for a multiplication with its addition). No router."],
        [
            ValueTable(
                "experts, weights and compute", ["E", "weights", "× one expert", "FLOPs/token", "× one expert's"], rows
            )
        ],
        Formula(
            "weights = E · 8C²,  compute = A · 16C²",
            r"\text{weights} = E \cdot 8C^2,\quad \text{compute} = A \cdot 16 C^2",
        ),
        question=Question(
            "Twice as many experts, as many active: how much more compute has a token?",
            "none",
            ("none", "twice as much", "four times as much"),
        ),
    )


def balance(layer: MoE, own: object, x: Tensor, active: int) -> ExplanationStep:
    """The loss of the layer's own router, of one that prefers none, and of one that prefers the same for all tokens."""
    none, few = torch.zeros_like(layer.router.weight), torch.zeros_like(layer.router.weight)
    few[:active] = 100.0
    losses = {"these tokens": own}
    for name, weight in (("a router that prefers no expert", none), (f"tokens that all pick the same {active}", few)):
        layer.router.weight.copy_(weight)
        with record(layer, "balance") as trace:
            layer(x.abs())
        losses[name] = trace["balance"]
    experts = len(layer.experts)
    return ExplanationStep(
        "Balance loss: without it, experts that are picked learn more and are picked more.",
        [
            "The share of tokens that an expert gets, times its mean probability, summed over the experts, times "
            f"E. It is {active} when all experts are used evenly, and {experts} when all tokens go to the same "
            f"{active}. Training adds it to the loss.",
        ],
        [Quantity(f"balance loss of {name}", float(loss)) for name, loss in losses.items() if isinstance(loss, Tensor)],
        Formula("L = E Σ_i f_i p_i", r"L = E \sum_i f_i p_i"),
    )
