"""Slips of the lectures, put right by numbers: a function for each erratum of `learn/lectures/errata.toml`.

Axes:  T tokens, queries   S keys   C width   N positions
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from headway.learn.explain_attention import EMBEDDINGS, attended, tensor
from headway.learn.explain_gru import run, unrolled
from headway.learn.explain_layers import drawn, parameters, whole_model
from headway.learn.explain_memory import CASES, by_blocks, known_cases
from headway.learn.explanation import ExplanationStep, Formula, Matrix, Quantity, ValueTable
from headway.learn.lessons.linear_scores import LinearScore, disagreement, weights_of
from headway.nn.attention import SelfAttention
from headway.nn.ffn import FFN
from headway.nn.learned_score import AdditiveScore
from headway.nn.recurrent import GRUCell
from headway.ops.attend import DOT, Dot, softmax_over
from headway.ops.pattern import Causal, Positions
from headway.ops.rotary import sinusoid
from headway.zoo import vit
from headway.zoo.build import build, config_of, on_meta

WORDS = list(EMBEDDINGS)


def softmax_sign() -> ExplanationStep:
    """Softmax does not see a constant added to all scores, so differences of the slide's scores suffice."""
    x = torch.tensor([0.0, 17.8, 6.8, 13.07], dtype=torch.float64)
    both = torch.stack((softmax_over(-x, None), softmax_over(x, None)))
    largest = [f"entry {int(row.argmax()) + 1}" for row in both]
    return ExplanationStep(
        "softmax(−x) prefers the smallest score.",
        [
            "The scores are known up to a constant, which softmax ignores; they are shown with the smallest as 0. The "
            f"code as printed gives {largest[0]} the largest weight, softmax gives it to {largest[1]}."
        ],
        [
            Matrix("scores x", [x.tolist()], ["x"], digits=2),
            ValueTable(
                "weights by both",
                ["", *(f"x{at + 1}" for at in range(len(x)))],
                [["softmax(−x), as printed", *both[0].tolist()], ["softmax(x)", *both[1].tolist()]],
                ".4g",
            ),
        ],
    )


def unrolled_gru() -> ExplanationStep:
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        cell = GRUCell(4, 4).double()
        step = unrolled(run(cell, drawn(0, 5, 4)))
    return replace(step, title="The recurrence, written out.", sentences=step.sentences[1:], values=step.values[1:])


def two_layer_norms() -> ExplanationStep:
    return replace(whole_model(), title="The same weights under both definitions of LayerNorm.")


def norm_arrangement() -> ExplanationStep:
    """Counted and compared on the same weights, those of the final norms being 1 and 0."""
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        pre, post = (build("transformer-nano", norms=norms).eval() for norms in ("pre", "post"))
        post.load_state_dict(pre.state_dict(), strict=False)
        tokens = torch.randint(0, 1000, (2, 2, 16))
        apart = float((pre(*tokens) - post(*tokens)).abs().max())
    counts = {norms: on_meta(config_of("transformer-base", norms=norms)) for norms in ("post", "pre")}
    rows = [
        [f"{norms}-norm", sum(isinstance(part, nn.LayerNorm) for part in model.modules()), parameters(model)]
        for norms, model in counts.items()
    ]
    return ExplanationStep(
        "Post-norm and pre-norm are two models.",
        [
            "Pre-norm code needs one more norm at the end of each stack. The same weights give other outputs; headway "
            "has both as --model.norms post and pre."
        ],
        [
            ValueTable("transformer-base, both ways", ["arrangement", "norms", "parameters"], rows),
            Quantity("largest difference of the logits of transformer-nano with the same weights", apart, form=".3f"),
        ],
        Formula(
            "post: LayerNorm(x + f(x))      pre: x + f(LayerNorm(x))",
            r"\text{post: } \operatorname{LayerNorm}(x + f(x)) \qquad \text{pre: } x + f(\operatorname{LayerNorm}(x))",
        ),
    )


def linear_score() -> ExplanationStep:
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        q, k = torch.randn(8, 16), torch.randn(8, 16)
        spread = {
            name: disagreement(weights_of(score, q, k))
            for name, score in (("linear", LinearScore(16)), ("MLP", AdditiveScore(16)), ("scaled dot product", DOT))
        }
    return ExplanationStep(
        "A linear score adds the same number to all keys of a query, and softmax ignores it.",
        ["8 random queries and keys of width 16; how much the weight of a key differs between two queries at most:"],
        [
            ValueTable(
                "largest difference between queries", ["score", "difference"], list(map(list, spread.items())), ".2g"
            )
        ],
        Formula("w · [q ; k] = w_q · q + w_k · k", r"w \cdot [q ; k] = w_q \cdot q + w_k \cdot k"),
    )


def indices() -> ExplanationStep:
    """Three slips on the slides of one lecture, on the numbers of the exercise."""
    x = tensor(list(EMBEDDINGS.values()))
    q, k, v = x.split(2, 1)
    right = attended(q, k, v, DOT)
    same = softmax_over((q * k).sum(-1, keepdim=True).expand(-1, len(x)), None)
    rms = [float(x[0].square().sum().div(count).sqrt()) for count in (x.shape[1], len(x))]
    return ExplanationStep(
        "Values, the other index, and the width.",
        [
            "Y = A X mixes inputs and leaves W_V unused; Y = A V is meant. A score E_ij of Q_i and K_i does not depend "
            "on j, so all weights of a row are equal; Q_i and K_j are meant. The mean square of a vector is over its "
            f"width D = {x.shape[1]}, not over the number of vectors N = {len(x)}."
        ],
        [
            Matrix("A V", right.output.tolist(), WORDS, digits=4),
            Matrix("A X", (right.weights[0] @ x).tolist(), WORDS, digits=4),
            Matrix("weights of Q_i · K_j", right.weights[0].tolist(), WORDS, digits=4),
            Matrix("weights of Q_i · K_i", same.tolist(), WORDS, digits=4),
            ValueTable(
                "root mean square of the first vector", ["over", "value"], [["D, its width", rms[0]], ["N", rms[1]]]
            ),
        ],
    )


def transpose() -> ExplanationStep:
    x = tensor(list(EMBEDDINGS.values()))
    q, k, v = x.split(2, 1)
    right = attended(q, k, v, DOT)
    printed = (v.T @ right.weights[0]).T  # tokens are columns on the slide
    rows = [
        ["V Aᵀ", *right.weights[0].sum(1).tolist()],
        ["V A, as printed", *right.weights[0].sum(0).tolist()],
    ]
    return ExplanationStep(
        "With tokens as columns, the outputs are V Aᵀ.",
        ["Row i of A = softmax(Qᵀ K / √D) belongs to query i. V A mixes by its columns, which do not sum to 1."],
        [
            Matrix("outputs V Aᵀ", right.output.tolist(), WORDS, digits=4),
            Matrix("outputs V A, as printed", printed.tolist(), WORDS, digits=4),
            ValueTable("sum of the weights of an output", ["", *WORDS], rows, ".4f"),
        ],
        Formula(
            "Y = V softmax(Qᵀ K / √D)ᵀ",
            r"Y = V \operatorname{softmax}\left(Q^\top K / \sqrt{D}\right)^\top",
        ),
    )


def causal_mask() -> ExplanationStep:
    length, at = 4, Positions.run(0, 4)
    keep = Causal().keep(at.at, at.at)[0]
    scores = torch.zeros(length, length, dtype=torch.float64).masked_fill(~keep, float("-inf"))
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        layer = SelfAttention(8, 2, pattern=Causal())
        x = torch.randn(1, length, 8)
        changed = torch.cat((x[:, :-1], x[:, -1:] + 1), 1)
        moved = (layer(changed) - layer(x)).abs().amax(-1)[0]
    names = [f"i = {at + 1}" for at in range(length)]
    return ExplanationStep(
        "A query sees no later key: the score is −∞ where j > i.",
        [f"The last of {length} random tokens is changed; outputs before it must not move:"],
        [
            Matrix("what is added to the scores", scores.tolist(), names, [f"j = {at + 1}" for at in range(length)]),
            Matrix("largest change of each output", [moved.tolist()], columns=names, digits=4),
        ],
        Formula("r_ij = −∞ for j > i", r"r_{ij} = -\infty \text{ for } j > i"),
    )


def hidden_layer() -> ExplanationStep:
    model = on_meta(config_of("bert-large"))
    ffn = next(part for part in model.modules() if isinstance(part, FFN))
    rows = [
        ["into the feed-forward layer", ffn.up.in_features],
        ["its hidden layer", ffn.up.out_features],
        ["out of it: the representation of a token", ffn.down.out_features],
    ]
    return ExplanationStep(
        "The wide vector stands inside the feed-forward layer.",
        ["Widths of a block of bert-large, read off its modules. What leaves the block is as wide as what came in."],
        [ValueTable("widths of a block of bert-large", ["where", "width"], rows)],
    )


def patch_grids() -> ExplanationStep:
    rows = list[list[str | int]]()
    for preset in ("vit-b16", "vit-l16", "vit-h14"):
        config = config_of(preset)
        assert isinstance(config, vit.Config)
        side = config.image // config.patch
        rows.append([preset, config.image, config.patch, f"{side}×{side}", side**2])
    return ExplanationStep(
        "The grid of patches follows from the size of the image and of a patch.",
        values=[ValueTable("grids of ViT", ["preset", "image", "patch", "grid", "patches"], rows)],
        formula=Formula("grid = image / patch", r"\text{grid} = \text{image} / \text{patch}"),
    )


def value_shape() -> ExplanationStep:
    words, width, out = 5, 6, 3
    x, w = drawn(0, words, width), drawn(1, width, out)
    rows = [
        ["X", "N_w × N_e", f"{words}×{width}"],
        ["W_v", "N_e × N_o", f"{width}×{out}"],
        ["V = X W_v", "N_w × N_o", "×".join(map(str, (x @ w).shape))],
    ]
    return ExplanationStep(
        "A projection has as many rows as an embedding has numbers.",
        [
            f"N_w words, N_e numbers of an embedding, N_o of a value; here {words}, {width} and {out}. A matrix of "
            "N_w rows does not fit, and would fix the length of the text."
        ],
        [ValueTable("shapes", ["", "shape", "here"], rows)],
    )


def first_position() -> ExplanationStep:
    length, dim = 50, 512
    zero, one = (sinusoid(torch.arange(start, start + length), dim).double() for start in (0, 1))
    rows = [
        ["a vector of position", float((zero - one).abs().max())],
        ["a product of two of them", float((zero @ zero.T - one @ one.T).abs().max())],
    ]
    return ExplanationStep(
        "Counting from 0 or from 1 gives other vectors, and the same products of any two.",
        [
            f"{length} positions of width {dim}. Weights trained with one count do not fit the other exactly; "
            "which one is chosen does not matter. headway counts from 0."
        ],
        [ValueTable("counted from 0 against from 1, largest difference", ["of", "difference"], rows, ".1e")],
    )


def units() -> ExplanationStep:
    return replace(known_cases(), title="Binary units with decimal names.")


def memory_of_attention() -> ExplanationStep:
    return replace(by_blocks(CASES["text"][0]), title="Both are true: stored, and computed block by block.")


def scaled_or_not() -> ExplanationStep:
    x = tensor(list(EMBEDDINGS.values()))
    q, k, v = x.split(2, 1)
    found = {"q · k": attended(q, k, v, Dot(1.0)), "q · k / √2": attended(q, k, v, DOT)}
    rows = [[name, *one.weights[0][0].tolist(), *one.output[0].tolist()] for name, one in found.items()]
    header = ["score", *(f"weight of {word}" for word in WORDS), "output 1", "output 2"]
    return ExplanationStep(
        "The exercise by both formulas: the first word attends, and the results differ.",
        values=[ValueTable("flying, scaled and not", header, rows, ".6f")],
    )
