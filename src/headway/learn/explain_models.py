"""The topics `shapes`, `block` and `diff`: real models, read from their module trees and from a forward pass.

Models stand on the meta device, so that no size is too large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from torch import nn

from headway.console import spaced
from headway.errors import counted
from headway.learn.explanation import Diagram, ExplanationStep, Question, ValueTable
from headway.learn.module_tree import (
    MetaModel,
    PartShape,
    TreeNode,
    describe,
    function_name,
    is_empty,
    meta_model,
    module_tree,
    part_shapes,
)
from headway.learn.topic_inputs import TopicInputs
from headway.nn.attention import Attention, CrossAttention
from headway.nn.block import Residual
from headway.nn.context import Context
from headway.nn.ffn import FFN
from headway.nn.moe import MoE
from headway.nn.trunk import EncoderDecoder
from headway.ops.attend import shape_text
from headway.zoo.build import to_plain

COLUMNS = 77  # of a line in a diagram
NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d)


# ---- shapes


def shape_steps(inputs: TopicInputs, preset: str) -> Iterator[ExplanationStep]:
    found = meta_model(preset, None if inputs.n is None else inputs.count("n", 1))
    parts = part_shapes(found.model, found.run)
    yield ExplanationStep(
        f"Input of {preset}: a batch of one.",
        [f"The model has {spaced(found.parameters)} parameters and stands on the meta device: shapes, and no numbers."],
        [ValueTable("inputs", ["input", "shape"], [[kind_of(x), shape_text(x)] for x in found.inputs.tensors])],
    )
    output = next(part for part in parts if part.path == "")
    yield ExplanationStep(
        "Output shape of every part, in the order of the module tree.",
        [
            "Parts that are alike stand together. An encoder sees the whole input before a decoder begins. Parts that "
            "were not called in this pass are left out.",
        ],
        [ValueTable("shapes", ["part", "class", "output"], shape_rows(module_tree(found.model, preset), parts))],
        question=Question(f"What is the last size of the output of {preset}?", float(output.shape[-1]), tolerance=0.5),
    )


def kind_of(x: Any) -> str:
    return {1: "class", 2: "tokens", 3: "frames", 4: "image"}[x.dim()] if x.dtype.is_floating_point else "tokens"


def shape_rows(tree: TreeNode, parts: list[PartShape]) -> list[list[str]]:
    """A row for each node that was called, indented by its depth."""
    found = {part.path: part for part in parts}
    rows: list[list[str]] = []

    def add(node: TreeNode, path: str, depth: int) -> None:
        part = found.get(path)
        times = f" ({len(node.alike)} ×)" if len(node.alike) > 1 else ""
        if is_empty(node.module):
            return
        if part is not None:
            calls = f" ({part.calls} calls)" if part.calls > 1 else ""
            rows.append([f"{'  ' * depth}{node.label}{times}{calls}", part.kind, "×".join(map(str, part.shape))])
        elif any(name.startswith(f"{path}.") for name in found):
            rows.append([f"{'  ' * depth}{node.label}{times}", type(node.module).__name__, ""])
        for child in node.children:
            add(child, f"{path}.{child.name}" if path else child.name, depth + 1)

    add(tree, "", 0)
    return rows


# ---- block


def block_steps(inputs: TopicInputs, preset: str) -> Iterator[ExplanationStep]:
    found = meta_model(preset)
    tree = module_tree(found.model, preset)
    yield ExplanationStep(
        f"{preset}, drawn from its modules.",
        [
            "A frame on the left is a residual connection: what comes out of it is added (⊕) to what went in. A norm "
            "inside the frame is pre-norm, one below it post-norm.",
        ],
        [Diagram("drawing", drawn(tree))],
        question=norm_question(found.model),
    )
    memory = memory_step(found)
    if memory is not None:
        yield memory


def norm_question(model: nn.Module) -> Question | None:
    kinds = arrangements(model)
    if not kinds:
        return None
    return Question(
        "Where do its norms stand?", kinds, sorted({kinds, "pre-norm", "post-norm", "pre-norm and post-norm"})
    )


def drawn(node: TreeNode, width: int = COLUMNS) -> list[str]:
    """The lines of a module: containers show their parts, others are described."""
    lines: list[str] = []
    for child in node.children:
        if is_empty(child.module):
            continue
        if isinstance(child.module, Residual):
            lines += [f"{child.label}:", *residual_lines(child, width)]
        elif isinstance(child.module, nn.ModuleList):
            lines += drawn(child, width)
        else:
            times = f", {len(child.alike)} ×" if len(child.alike) > 1 else ""
            inner = drawn(child, width - 2) if is_container(child) else []
            lines += described(f"{child.label}{times}: ", child.module, width)
            lines += [f"  {line}" for line in inner]
    return lines


def is_container(node: TreeNode) -> bool:
    """Whether the parts of a module are drawn: those of attention and of a feed-forward layer are always the same."""
    return not isinstance(node.module, Attention | FFN) and any(not is_empty(child.module) for child in node.children)


def residual_lines(node: TreeNode, width: int) -> list[str]:
    slots = {child.name: child for child in node.children if not is_empty(child.module)}
    inside: list[str] = []
    for name in ("before", "body", "inside", "drop", "scale"):
        if name not in slots:
            continue
        inside += described("", slots[name].module, width - 5)
        inside += [f"  {line}" for line in drawn(slots[name], width - 7)] if is_container(slots[name]) else []
    skip = described("  └── ⊕ ", slots["skip"].module, width) if "skip" in slots else ["  └── ⊕"]
    after = described("  ", slots["after"].module, width) if "after" in slots else []
    return ["  ┌──", *(f"  │  {line}" for line in inside), *skip, *after]


def described(label: str, module: nn.Module, width: int) -> list[str]:
    text = label + describe(module) + (" ◀── memory" if isinstance(module, CrossAttention) else "")
    return wrap(text, width, subsequent_indent="    ", break_on_hyphens=False)


def memory_step(found: MetaModel) -> ExplanationStep | None:
    """Which tensor the decoder reads as its memory, in a forward pass."""
    if not isinstance(found.model, EncoderDecoder):
        return None
    outputs, memories = list[object](), dict[str, object]()

    def remember(module: nn.Module, inputs: object, output: object) -> None:
        outputs.append(output)

    def note(path: str) -> Any:
        def before(module: nn.Module, inputs: tuple[object, ...]) -> None:
            for one in inputs:
                if isinstance(one, Context) and one.memory is not None:
                    memories[path] = one.memory

        return before

    decoder = found.model.decoder
    handles = [found.model.encoder.register_forward_hook(remember)]
    handles += [part.register_forward_pre_hook(note(path)) for path, part in decoder.named_modules()]
    try:
        found.run()
    finally:
        for handle in handles:
            handle.remove()
    # recurrent decoders call the parts of their attention by themselves: then all parts that were given a memory count
    readers = [path for path in memories if isinstance(decoder.get_submodule(path), CrossAttention)]
    named = counted(len(readers), "cross-attention") if readers else counted(len(memories), "part")
    readers = readers or list(memories)
    last = sum(memories.get(path) is outputs[-1] for path in readers)
    return ExplanationStep(
        "Every layer of the decoder reads the output of the last layer of the encoder.",
        [
            f"In a forward pass, {last} of {named} of the decoder read the very tensor that the whole encoder returns. "
            "No layer of the decoder reads the layer of the encoder with its own number.",
        ],
        question=Question(
            "Which layer of the encoder does the first layer of the decoder read?",
            "the last",
            ("the first", "the last", "all of them"),
        ),
    )


# ---- diff


def diff_steps(inputs: TopicInputs, first: str, second: str) -> Iterator[ExplanationStep]:
    one, other = meta_model(first), meta_model(second)
    header = ["", first, second if second != first else f"{second} (again)"]
    rows = [[name, a, b] for (name, a), b in zip(aspects(one).items(), aspects(other).values(), strict=True)]
    alike = [row[0] for row in rows if row[1] == row[2]]
    yield ExplanationStep(
        "In short: what differs, from the module trees.",
        [f"The same in both: {', '.join(alike)}."] if alike else [],
        [ValueTable("architectures", header, [row for row in rows if row[1] != row[2]])],
    )
    configs = [to_plain(model.config) for model in (one, other)]
    names = list(dict.fromkeys((*configs[0], *configs[1])))
    unequal = [[name, *(config_text(config, name) for config in configs)] for name in names]
    yield ExplanationStep(
        "Configs: fields that differ, or that one of them has.",
        values=[ValueTable("configs", ["field", *header[1:]], [row for row in unequal if row[1] != row[2]])],
    )
    yield ExplanationStep(
        "Parts: the same place in both module trees.",
        ["* stands for the number of a layer; – for a place that is not there or empty."],
        [Diagram("parts that differ", part_differences(one, other, header[1:]))],
    )


def aspects(found: MetaModel) -> dict[str, str]:
    parts = list(found.model.modules())
    attentions = [part for part in parts if isinstance(part, Attention)]
    embeds = [type(part).__name__ for part in parts if type(part).__name__.endswith("Position")]
    inside = [type(part.rotary).__name__ for part in attentions if part.rotary is not None]
    inside += [type(part.logit_bias).__name__ for part in attentions if part.logit_bias is not None]
    return {
        "architecture": type(found.config).__module__.rpartition(".")[2],
        "parameters": spaced(found.parameters),
        "encoder and decoder": "both" if isinstance(found.model, EncoderDecoder) else "one stack",
        "attention layers": tally(type(part).__name__ for part in attentions),
        "attention sees": ", ".join(sorted({type(part.pattern).__name__ for part in attentions})) or "–",
        "positions": ", ".join(dict.fromkeys((*embeds, *inside))) or "–",
        "norms stand": arrangements(found.model) or "–",
        "norms": tally(type(part).__name__ for part in parts if isinstance(part, NORMS)),
        "feed-forward": ", ".join(dict.fromkeys(ffn_text(part) for part in parts if isinstance(part, FFN | MoE)))
        or "–",
        "head": type(getattr(found.model, "head", None) or getattr(found.model, "decoder", found.model)).__name__,
    }


def tally(kinds: Iterator[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in Counter(kinds).items()) or "–"


def ffn_text(part: FFN | MoE) -> str:
    return "MoE" if isinstance(part, MoE) else f"{type(part).__name__}, {function_name(part.act)}"


def arrangements(model: nn.Module) -> str:
    """pre-norm, post-norm or both, by the slots of the residual connections that hold norms."""
    residuals = [part for part in model.modules() if isinstance(part, Residual)]
    kinds = {"pre-norm": "before", "post-norm": "after", "sandwich": "inside"}
    found = [kind for kind, slot in kinds.items() if any(isinstance(getattr(one, slot), NORMS) for one in residuals)]
    return " and ".join(found)


def config_text(config: dict[str, Any], name: str) -> str:
    text = str(config[name]) if name in config else "–"
    return text if len(text) <= 24 else f"{text[:23]}…"


def part_differences(one: MetaModel, other: MetaModel, names: list[str]) -> list[str]:
    places = [
        {
            path: describe(node.module)
            for path, _, node in module_tree(found.model).walk()
            if path and not is_empty(node.module)
        }
        for found in (one, other)
    ]
    wide = max(map(len, names)) + 2
    lines, replaced = list[str](), list[str]()
    for path in dict.fromkeys((*places[0], *places[1])):
        texts = [place.get(path, "–") for place in places]
        if texts[0] == texts[1] or any(path.startswith(f"{above}.") for above in replaced):
            continue
        if texts[0].partition("(")[0] != texts[1].partition("(")[0]:
            replaced.append(path)  # what is inside another class is not compared
        lines.append(path)
        for name, text in zip(names, texts, strict=True):
            label = f"   {name:{wide}}"
            lines += wrap(label + text, COLUMNS, subsequent_indent=" " * len(label), break_on_hyphens=False)
    return lines or ["nothing"]
