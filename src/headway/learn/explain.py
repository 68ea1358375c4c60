"""Formulas worked through step by step, with numbers that the library itself computes: the table of topics.

A topic is a line of `TOPICS`: what it says in a sentence, the function that computes its steps, the inputs it takes,
and the code behind it.  Functions and code are named and imported when they are asked for, so that the list of topics
needs no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from headway.errors import UserError, counted, listed, nearest
from headway.learn.explanation import Explanation, ExplanationStep, Formula
from headway.learn.topic_inputs import TopicInputs, check_names, check_options


@dataclass(frozen=True)
class Topic:
    summary: str  # one sentence
    steps: str  # module:function, TopicInputs and as many presets as `presets` → steps
    code: tuple[str, ...]  # module:name of each piece of code behind the topic, below headway
    options: tuple[str, ...] = ()  # fields of TopicInputs
    formula: Formula | None = None
    presets: int = 0


def explain(topic: str, *presets: str, **options: object) -> Explanation:
    """The steps of a topic, computed for these options, as in explain("attention", x="0 1; 1 0", heads=2)."""
    chosen = find(topic)
    check_names(options)
    inputs = TopicInputs(**options)  # pyright: ignore[reportArgumentType]
    check_options(topic, inputs.given(), chosen.options)
    check_presets(topic, chosen, presets)
    steps: Callable[..., Iterator[ExplanationStep]] = resolve(chosen.steps, "headway.learn.")
    found = list(steps(inputs, *presets))
    given = {**inputs.given(), **({"presets": list(presets)} if presets else {})}
    return Explanation(topic, chosen.summary, found, chosen.formula, given)


def find(topic: str) -> Topic:
    if topic not in TOPICS:
        do = "headway explain lists them"
        raise UserError(
            f"no topic {topic!r} to explain", allowed=listed(TOPICS, 20), do=do, meant=nearest(topic, TOPICS)
        )
    return TOPICS[topic]


def check_presets(topic: str, chosen: Topic, presets: tuple[str, ...]) -> None:
    """Refuses too few and too many names behind a topic, and those that name no model."""
    if len(presets) > chosen.presets:
        do = f"give {counted(chosen.presets, 'preset')}" if chosen.presets else "this topic takes no preset"
        raise UserError(f"{topic} has no use for {presets[chosen.presets]!r}", do=do)
    if len(presets) < chosen.presets:
        example = " ".join(("gpt2", "bert-base")[: chosen.presets])
        raise UserError(
            f"{topic} needs {counted(chosen.presets, 'preset')}",
            do=f"as in headway explain {topic} {example}; headway list shows them",
        )
    if presets:
        from headway.zoo.presets import PRESETS, preset

        architectures = {one.architecture for one in PRESETS.values()}
        for name in presets:
            if name not in architectures:
                preset(name)


def list_topics() -> dict[str, str]:
    """Each topic and its sentence."""
    return {name: topic.summary for name, topic in TOPICS.items()}


@dataclass(frozen=True)
class Source:
    name: str
    place: str  # file:line


def sources(topic: str) -> list[Source]:
    """Where each piece of code of a topic is; files relative to the working directory where they lie below it."""
    return [Source(where.partition(":")[2], place_of(resolve(where, "headway."))) for where in find(topic).code]


def place_of(code: Any) -> str:
    file, here = Path(inspect.getsourcefile(code) or "").resolve(), Path.cwd()
    short = file.relative_to(here) if file.is_relative_to(here) else file
    return f"{short}:{inspect.getsourcelines(code)[1]}"


def resolve(where: str, package: str) -> Any:
    module, _, name = where.partition(":")
    found: Any = import_module(package + module)
    for word in name.split("."):
        found = getattr(found, word)
    return found


ATTENTION = Formula(
    "attention(Q, K, V) = softmax(Q Kᵀ / √d) V",
    r"\operatorname{attention}(Q, K, V) = \operatorname{softmax}\left(Q K^\top / \sqrt{d}\right) V",
)

TOPICS: dict[str, Topic] = {
    "attention": Topic(
        "Attention in numbers, then built up from one query to many heads.",
        "explain_attention:steps",
        ("ops.attend:attend", "ops.attend:Dot", "ops.attend:softmax_over", "nn.attention:SelfAttention"),
        ("x", "wq", "wk", "wv", "heads", "scaled", "unscaled", "mask"),
        ATTENTION,
    ),
    "scaling": Topic(
        "Why scores are divided by √D: without it softmax saturates and its gradient vanishes.",
        "explain_scaling:steps",
        ("ops.attend:Dot", "ops.attend:softmax_over"),
        ("n", "dim", "seed"),
        Formula("e = q · k / √D", r"e = q \cdot k / \sqrt{D}"),
    ),
    "positions": Topic(
        "Sinusoids, their distances and relative property, 2-D and rotary positions, the four terms of a score.",
        "explain_positions:position_steps",
        ("ops.rotary:sinusoid", "ops.rotary:sinusoid_2d", "ops.rotary:Rotary", "ops.attend:Bilinear"),
        ("n", "dim", "seed"),
    ),
    "equivariance": Topic(
        "Self-attention on permuted inputs gives permuted outputs, until positions are added.",
        "explain_positions:equivariance_steps",
        ("nn.attention:SelfAttention", "nn.embed:SinusoidalPosition"),
        ("x", "n", "dim", "heads", "seed"),
        Formula("F(σX) = σF(X)", r"F(\sigma X) = \sigma F(X)"),
    ),
    "heads": Topic(
        "Narrow and full-width heads, their weights, and why one head blurs what two keep apart.",
        "explain_heads:steps",
        ("nn.attention:Attention", "nn.attention:split", "nn.attention:merge"),
        ("dim", "heads"),
    ),
    "norms": Topic(
        "LayerNorm in two definitions that differ, and RMSNorm, on the same numbers.",
        "explain_layers:norm_steps",
        ("nn.norm:UnbiasedLayerNorm",),
        ("x", "eps"),
    ),
    "ffn": Topic(
        "The MLP of width 4C and SwiGLU of width 8C/3: as many weights, 8C².",
        "explain_layers:ffn_steps",
        ("nn.ffn:FFN", "nn.ffn:GatedFFN"),
        ("x", "dim", "seed"),
    ),
    "moe": Topic(
        "Mixture of experts: routing in numbers, weights × E, compute × A, and the balance loss.",
        "explain_layers:moe_steps",
        ("nn.moe:MoE", "nn.moe:MoE.show", "nn.ffn:GatedFFN"),
        ("experts", "active", "n", "dim", "seed"),
    ),
    "gru": Topic(
        "From a gated recurrent unit to attention, in five rungs that run.",
        "explain_gru:steps",
        (
            "nn.recurrent:GRUCell",
            "learn.explain_gru:unrolled_weights",
            "ops.attend:attend",
            "nn.attention:SelfAttention",
        ),
        ("x", "n", "dim", "heads", "seed"),
    ),
    "memory": Topic(
        "What the weights of attention take in bytes, KiB, MiB and GiB, for any number of tokens, heads and layers.",
        "explain_memory:steps",
        ("learn.explain_memory:AttentionWeights", "zoo.cost:add_maps", "ops.attention_map:AttentionMap"),
        ("n", "heads", "layers", "bits", "window"),
    ),
    "shapes": Topic(
        "The output shape of every part of a model, from a forward pass.",
        "explain_models:shape_steps",
        ("learn.module_tree:part_shapes", "zoo.cost:dummy_inputs"),
        ("n",),
        presets=1,
    ),
    "block": Topic(
        "A drawing of a model from its modules, and what a decoder reads of its encoder.",
        "explain_models:block_steps",
        ("nn.block:Residual", "nn.trunk:EncoderDecoder", "learn.explain_models:drawn"),
        presets=1,
    ),
    "diff": Topic(
        "What differs between two architectures, from their module trees and configs.",
        "explain_models:diff_steps",
        ("learn.module_tree:module_tree", "learn.module_tree:describe"),
        presets=2,
    ),
}
