"""The graphs that a model consists of in ONNX: what each reads and gives, and the inputs it is traced and checked on.

One graph for an encoder or a decoder, the latter with its past as inputs; two for an encoder and a decoder, whose first
step and later steps are branches of one file; one for each tower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from headway.data.preprocess import ImagePreprocess
from headway.errors import UserError
from headway.generate.session import context_of
from headway.model import Model
from headway.nn.attention import SelfAttention
from headway.nn.context import Context
from headway.nn.head import LMHead, main_head
from headway.nn.image_words import Illustrated
from headway.nn.masked_autoencoder import MaskedAutoencoder, MaskedImageModel
from headway.nn.state import State
from headway.nn.towers import TwoTowers
from headway.nn.trunk import EncoderDecoder, RereadingClassifier, Trunk
from headway.onnx_export.graph_modules import BATCH, TOKENS, Axes, EncoderGraph, MemoryGraph, Reading, reading_of
from headway.onnx_export.past_keys import CachedDecoder, DecoderInputs, Slot, slots_of
from headway.tasks.model_parts import CUSTOM

PAST, MEMORY, ALL = "past_sequence_length", "encoder_sequence_length", "past_sequence_length + sequence_length"
Sizes = Mapping[str, int]
Draw = Callable[[Sizes, Generator], list[Tensor]]


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """A graph to write: `module` is called with a list of tensors, which `draw` makes in given sizes.

    It is traced on the first of `sizes` and checked on all.  Of a branch, `file` is the file that it is in and
    `cached` whether it is the one with a past.
    """

    file: str
    module: nn.Module
    inputs: Mapping[str, Axes]
    outputs: Sequence[str]
    draw: Draw
    sizes: Sequence[Sizes]
    cached: bool | None = None


def graphs_of(model: Model) -> list[OnnxGraph]:
    """The graphs of a model; refuses one that has none."""
    body: nn.Module = model.model
    if model.architecture == CUSTOM:
        raise UserError("a torch module of your own is not written as ONNX here", do="call torch.onnx.export with it")
    if isinstance(body, MaskedAutoencoder | MaskedImageModel):
        said = f"{model.architecture} models are made to learn: they are told which patches are hidden"
        raise UserError(said, do="train a classifier from it, with headway train --from, and convert that")
    if isinstance(body, Illustrated):
        said = f"{model.architecture} models read an image among the words of a text"
        raise UserError(f"{said}, for which Optimum knows no inputs", do="use --to hf")
    for part in body.modules():
        if type(part) in (nn.LSTM, nn.GRU, nn.RNN):
            said = f"{model.architecture} models read their tokens one by one with torch's {type(part).__name__}"
            raise UserError(f"{said}, which is not written as ONNX for rows of any length")
    if isinstance(body, TwoTowers):
        towers = {"vision_model": body.image, "text_model": body.text}
        return [encoder_graph(tower, model, name) for name, tower in towers.items()]
    if isinstance(body, EncoderDecoder):
        return encoder_decoder_graphs(body, model)
    if isinstance(body, Trunk) and writes(body):
        return [decoder_graph(body)]
    if not isinstance(body, Trunk | RereadingClassifier):
        raise UserError(f"a {type(body).__name__} is not written as ONNX")
    return [encoder_graph(body, model, "model")]


def writes(model: Trunk) -> bool:
    """Whether a model says the next token of those so far."""
    ahead = (part.pattern.looks_ahead() for part in model.modules() if isinstance(part, SelfAttention))
    return isinstance(main_head(model.head), LMHead) and not any(ahead)


# ---- encoders


def encoder_graph(body: Trunk | RereadingClassifier, model: Model, file: str) -> OnnxGraph:
    encoder = body.input_encoder
    reading = reading_of(encoder, model.config, pixels_of(model))
    module = EncoderGraph(body, reading).eval()
    draw, inputs = drawing(reading), encoder_inputs(reading)
    return OnnxGraph(file, module, inputs, module.outputs, draw, encoder_sizes(reading, context_of(encoder)))


def pixels_of(model: Model) -> tuple[int, int] | None:
    """The height and width that images are brought to, where the model says so."""
    return model.preprocess.size if isinstance(model.preprocess, ImagePreprocess) else None


def encoder_inputs(reading: Reading) -> dict[str, Axes]:
    return {name: reading.axes if at == 0 else reading.axes[:2] for at, name in enumerate(reading.names())}


def encoder_sizes(reading: Reading, context: int | None) -> list[Sizes]:
    """Batches and lengths: of those that a table of positions limits, as many as fit."""
    unit = max(reading.least, 1)
    lengths = (6, 11, 4) if unit == 1 else (3 * unit + 1, 5 * unit, 2 * unit)
    if reading.name == "input_features":
        lengths = (38, 61, 20)
    if context is not None:
        lengths = tuple(min(length, context) for length in lengths)
    sides = reading.axes[1] if isinstance(reading.axes[1], str) else ""
    return [{BATCH: batch, **({sides: one} if sides else {})} for batch, one in zip((2, 3, 1), lengths, strict=True)]


def drawing(reading: Reading) -> Draw:
    """Random inputs; where there is a mask, each row but the first is shorter than the longest."""

    def draw(sizes: Sizes, random: Generator) -> list[Tensor]:
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in reading.axes]
        if reading.vocab:
            x = torch.randint(0, reading.vocab, shape, generator=random)
        else:
            x = torch.randn(shape, generator=random)
        found = [x]
        if reading.masked:
            cut = torch.arange(shape[0]) * (shape[1] - reading.least) // (2 * shape[0])
            found.append((torch.arange(shape[1]) < shape[1] - cut[:, None]).long())
        if reading.segments:
            found.append((torch.arange(shape[1]) > shape[1] // 2).long().repeat(shape[0], 1))
        return found

    return draw


# ---- decoders


def decoder_graph(model: Trunk) -> OnnxGraph:
    """A language model: one graph for the prompt and for each step, whose past may be empty."""
    vocab, context = tokens_of(model), context_of(model)
    inputs = DecoderInputs(mask=True, memory=False, memory_mask=False)
    slots, axes, samples = measured(model, vocab, None)
    module = CachedDecoder(model, inputs, slots).eval()
    names, outputs = past_names(slots, beside_memory=False)
    given: dict[str, Axes] = {"input_ids": (BATCH, TOKENS), "attention_mask": (BATCH, ALL)}

    def draw(sizes: Sizes, random: Generator) -> list[Tensor]:
        batch, past, new = sizes[BATCH], sizes[PAST], sizes[TOKENS]
        tokens = torch.randint(0, vocab, (batch, past + new), generator=random)
        padding = torch.arange(batch) * (past + new - 1) // (2 * batch)  # on the left of each row but the first
        mask = (torch.arange(past + new) >= padding[:, None]).long()
        before = empty_past(samples, axes, batch)
        if past:
            _, *before = module([tokens[:, :past], mask[:, :past], *before])
        return [tokens[:, past:], mask, *before]

    room = 16 if context is None else context
    lengths = [(2, 5, 3), (3, 0, 7), (1, 9, 1), (2, 1, 4)]
    if room < 10:
        lengths = [(2, 2, 2), (3, 0, min(3, room)), (1, min(2, room - 1), 1)]
    sizes = [{BATCH: batch, PAST: past, TOKENS: new, ALL: past + new} for batch, past, new in lengths]
    return OnnxGraph("model", module, given | dict(zip(names, axes, strict=True)), outputs, draw, sizes)


def empty_past(samples: Sequence[Tensor], axes: Sequence[Axes], batch: int) -> list[Tensor]:
    """The past before the first token: nothing to which more is appended, and zeros."""
    sizes = [[{BATCH: batch}.get(axis, 0) if isinstance(axis, str) else axis for axis in one] for one in axes]
    return [x.new_zeros(size) for x, size in zip(samples, sizes, strict=True)]


def encoder_decoder_graphs(body: EncoderDecoder, model: Model) -> list[OnnxGraph]:
    """The encoder; the decoder's first step, which reads the memory; and its later steps, with what the first kept."""
    reading = reading_of(body.encoder, model.config, pixels_of(model))
    shortens = reading.masked and not reading.vocab
    memory = MemoryGraph(body.encoder, reading, shortens=shortens).eval()
    sizes = encoder_sizes(reading, context_of(body.encoder))
    encoder = OnnxGraph("encoder_model", memory, encoder_inputs(reading), memory.outputs, drawing(reading), sizes)

    vocab, draw_source = tokens_of(body.decoder), drawing(reading)
    inputs = DecoderInputs(mask=False, memory=True, memory_mask=reading.masked)
    single = any(hasattr(part, "recurrent_unit") for part in body.decoder.modules())  # one token at a time

    def source(sizes: Sizes, random: Generator) -> list[Tensor]:
        """What the decoder reads besides tokens."""
        given = draw_source(sizes, random)
        found = memory(given)
        mask = [found[1] if shortens else given[1]] if reading.masked else []
        return [*mask, found[0]]

    slots, axes, _ = measured(body.decoder, vocab, source, sizes)
    width = source(sizes[0], Generator())[-1].shape[-1]
    given: dict[str, Axes] = {"input_ids": (BATCH, 1 if single else TOKENS)}
    if reading.masked:
        given["encoder_attention_mask"] = (BATCH, MEMORY)
    length = MEMORY if isinstance(reading.axes[1], str) else source(sizes[0], Generator())[-1].shape[1]
    given["encoder_hidden_states"] = (BATCH, length, width)
    first = CachedDecoder(body.decoder, inputs).eval()
    later = CachedDecoder(body.decoder, inputs, slots).eval()
    names, outputs = past_names(slots, beside_memory=True)

    def draw(sizes: Sizes, random: Generator) -> list[Tensor]:
        tokens = torch.randint(0, vocab, (sizes[BATCH], 1 if single else sizes[TOKENS]), generator=random)
        return [tokens, *source(sizes, random)]

    def draw_later(sizes: Sizes, random: Generator) -> list[Tensor]:
        told = source(sizes, random)
        before = torch.randint(0, vocab, (sizes[BATCH], 1 if single else sizes[PAST]), generator=random)
        _, *past = first([before, *told])
        new = torch.randint(0, vocab, (sizes[BATCH], 1 if single else sizes[TOKENS]), generator=random)
        return [new, *told, *past]

    begun = [{**one, TOKENS: new} for one, new in zip(sizes, (3, 2, 1), strict=True)]
    gone = [{**one, PAST: past, TOKENS: new} for one, (past, new) in zip(sizes, ((4, 2), (2, 3), (5, 1)), strict=True)]
    file = "decoder_model_merged"
    past_axes = dict(zip(names, axes, strict=True))
    return [
        encoder,
        OnnxGraph(file, first, given, outputs, draw, begun, cached=False),
        OnnxGraph(file, later, given | past_axes, outputs, draw_later, gone, cached=True),
    ]


def tokens_of(model: Trunk) -> int:
    vocab = getattr(getattr(model.embed, "token", None), "num_embeddings", None)
    if not isinstance(vocab, int):
        raise UserError(f"a decoder that reads no tokens but {type(model.embed).__name__} is not written as ONNX")
    return vocab


@torch.no_grad()
def measured(
    decoder: Trunk, vocab: int, source: Draw | None, sizes: Sequence[Sizes] = ()
) -> tuple[list[Slot], list[Axes], list[Tensor]]:
    """What a decoder keeps in its state, and the axes of these tensors: those that differ from call to call by name."""

    def kept(batch: int, length: int, one: Sizes) -> tuple[list[Slot], list[Tensor]]:
        memory = memory_keep = None
        if source is not None:
            *mask, memory = source(one, Generator().manual_seed(0))
            memory_keep = mask[0].bool()[:, None] if mask else None
        state = State()
        tokens = torch.randint(0, vocab, (batch, length), generator=Generator().manual_seed(0))
        decoder(tokens, Context(state=state, memory=memory, memory_keep=memory_keep))
        found = slots_of(state)
        return [slot for slot, _ in found], [x for _, tensors in found for x in tensors]

    two: Sequence[Sizes] = sizes[:2] or ({BATCH: 2}, {BATCH: 3})
    (slots, small), (_, large) = (kept(one[BATCH], length, one) for one, length in zip(two, (2, 4), strict=True))
    grows = [slot.grows for slot in slots for _ in range(slot.parts)]
    axes = [
        tuple(
            a if a == b and at else BATCH if at == 0 else PAST if growing else MEMORY
            for at, (a, b) in enumerate(zip(one.shape, other.shape, strict=True))
        )
        for one, other, growing in zip(small, large, grows, strict=True)
    ]
    return slots, axes, small


def past_names(slots: Sequence[Slot], *, beside_memory: bool) -> tuple[list[str], list[str]]:
    """The names of the past as inputs, and of all outputs."""
    found, counts = list[str](), dict[bool, int]()
    for slot in slots:
        at = counts.get(slot.grows, 0)
        counts[slot.grows] = at + 1
        found += slot.names(at, beside_memory)
    return [f"past_key_values.{name}" for name in found], ["logits", *(f"present.{name}" for name in found)]
