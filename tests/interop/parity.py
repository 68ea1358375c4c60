"""Our numbers against a reference's: logits, hidden states, attention maps and gradients of tiny random models.

A case says how to make the reference model.  `compare` reads its config and weights through `interop`, runs both on a
ragged batch and returns the largest difference of each quantity, relative to the largest value there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from headway import Context, Trace
from headway.interop.keymap import KeyMap
from headway.interop.registry import family
from headway.nn.context import PackedLengths
from headway.nn.head import CTCHead
from headway.nn.trace import Seen
from headway.nn.trunk import tensors_of
from headway.ops.attention_map import Readable

LENGTHS = (9, 6)


class Kind(Enum):
    DECODER = auto()
    ENCODER = auto()
    SEQ2SEQ = auto()
    REREAD = auto()
    SOUND = auto()
    WAVES = auto()
    PYRAMID = auto()
    TOWERS = auto()
    TOWER = auto()
    IMAGE = auto()
    PATCHES = auto()
    PICTURED = auto()
    CAPTIONED = auto()
    ILLUSTRATED = auto()
    CONVOLUTIONS = auto()


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Any]  # a Hugging Face model with attn_implementation="eager"
    kind: Kind
    precision: torch.dtype = torch.float32

    @property
    def limit(self) -> float:
        """The largest difference that is rounding."""
        return {torch.float32: 1e-5, torch.float64: 1e-12}[self.precision]

    def __str__(self) -> str:
        return self.name


def compare(case: Case) -> dict[str, float]:
    usual = torch.get_default_dtype()
    torch.set_default_dtype(case.precision)
    try:
        return compared(case)
    finally:
        torch.set_default_dtype(usual)


def compared(case: Case) -> dict[str, float]:
    torch.manual_seed(0)
    theirs = shaken(case.make()).eval()
    known = family(theirs.config.model_type)
    config = known.read_config(theirs.config.to_dict())
    ours, names = known.build(config).eval(), known.keymap(config)
    load(ours, names.load(theirs.state_dict()))
    runs = {
        Kind.SEQ2SEQ: compare_seq2seq,
        Kind.REREAD: compare_reread,
        Kind.SOUND: compare_sound,
        Kind.WAVES: compare_waves,
        Kind.PYRAMID: compare_pyramid,
        Kind.TOWERS: compare_towers,
        Kind.TOWER: compare_tower,
        Kind.IMAGE: compare_image,
        Kind.PATCHES: compare_patches,
        Kind.PICTURED: compare_pictured,
        Kind.CAPTIONED: compare_captioned,
        Kind.ILLUSTRATED: compare_illustrated,
        Kind.CONVOLUTIONS: compare_convolutions,
    }
    run = runs.get(case.kind, compare_stack)
    found = run(theirs, ours)
    back, kept = (names.bare(tensors) for tensors in (names.save(tensors_of(ours)), stored(theirs)))
    found["export"] = max(difference(back[key], kept[key]) for key in back)
    found["gradients"] = gradients(theirs, ours, names)
    return found


def stored(theirs: Any) -> dict[str, Tensor]:
    """Their tensors as their own files hold them, which may be another layout than in memory."""
    from transformers.core_model_loading import revert_weight_conversion

    kept = revert_weight_conversion(theirs, theirs.state_dict())
    # a slip in transformers 5: it takes the end of `decoder_layers` for a name of its own, unlike published files
    kept = {key.replace("decoder_encoder.layer.", "decoder_layers."): x for key, x in kept.items()}
    # and published LLaVAs have their tower as CLIP's files have it, which it reads and no longer writes
    return {re.sub(r"^vision_tower\.", "vision_tower.vision_model.", key): x for key, x in kept.items()}


def shaken(model: nn.Module) -> nn.Module:
    """Zeros and ones of a fresh model would hide a swapped norm or a lost bias."""
    for parameter in model.parameters():
        if parameter.requires_grad:  # a table of sines is none of ours
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def load(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Every parameter is given, but for those that are another one under a second name."""
    own = dict(model.named_parameters())
    assert set(own) <= set(tensors), sorted(set(own) - set(tensors))
    assert set(tensors) <= set(model.state_dict()), sorted(set(tensors) - set(model.state_dict()))
    model.load_state_dict(tensors, strict=False)


def ragged(vocab: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    ids = torch.randint(5, vocab, (2, LENGTHS[0]), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(LENGTHS[0]) < torch.tensor(LENGTHS)[:, None]
    return ids, mask


def compare_stack(theirs: Any, ours: nn.Module) -> dict[str, float]:
    """A decoder or an encoder; padding queries are left out, being nobody's."""
    ids, real = ragged(theirs.config.vocab_size)
    if hasattr(theirs, "score"):  # it reads the last token that is no padding
        ids = torch.where(real, ids, theirs.config.pad_token_id)
    kinds = getattr(theirs.config, "type_vocab_size", 0)
    marks = {"token_type_ids": ids % kinds} if kinds else {}
    if theirs.config.model_type == "xlnet":  # padded on the left; two texts, and a class token
        real, marks = real.flip(1), {"token_type_ids": ids % 3}
    out = theirs(input_ids=ids, attention_mask=real.long(), output_hidden_states=True, output_attentions=True, **marks)
    trace = Trace(ours, "*")
    logits = ours(ids, Context(keep=real[:, None], trace=trace), *marks.values())
    expected = answer(out)
    expected = expected[..., None] if expected.dim() == logits.dim() - 1 else expected  # one number for each token
    here = real if expected.dim() == 3 else slice(None)  # a head of whole rows has an answer for each
    out.__dict__["scored"] = (expected * pull(expected))[here].sum()
    found = {"logits": difference(logits[here], expected[here])}
    found["hidden states"] = hidden_difference(trace, "", out.hidden_states, real)
    maps = told_maps(out.attentions, out.get("global_attentions"), theirs)
    found["attention maps"] = map_difference(trace, "{}.attn.weights", maps, real)
    out.scored.backward()
    (logits * pull(logits))[here].sum().backward()
    return found


def answer(out: Any) -> Tensor:
    """What a model is for, whatever it is called there."""
    if "start_logits" in out:
        return torch.stack([out.start_logits, out.end_logits], -1)
    return next(out[name] for name in ("logits", "prediction_logits", "last_hidden_state") if name in out)


def told_maps(maps: Any, wide: Any, theirs: Any) -> list[Tensor]:
    """The maps of each layer, B H T S; Longformer tells them by distance, behind those at global tokens."""
    if theirs.config.model_type not in ("led", "longformer"):
        return maps
    return [whole_map(near, far) for near, far in zip(maps, wide or [near[..., :0] for near in maps], strict=True)]


def whole_map(near: Tensor, far: Tensor) -> Tensor:
    """Of windows (B H T G + 2 R + 1) and of the first G tokens, which are global (B H S G)."""
    tokens, length = far.shape[3], near.shape[2]
    radius = (near.shape[3] - tokens - 1) // 2
    found = near.new_zeros(*near.shape[:2], length, length + 2 * radius)
    for query in range(length):
        found[:, :, query, query : query + 2 * radius + 1] = near[:, :, query, tokens:]
    found = found[..., radius : radius + length].clone()
    found[..., :tokens] += near[..., :tokens]
    found[:, :, :tokens] = far[:, :, :length].mT
    return found


def compare_seq2seq(theirs: Any, ours: Any) -> dict[str, float]:
    ids, real = ragged(theirs.config.vocab_size)
    given = {"input_ids": ids, "attention_mask": real.long()}
    return compare_pair(theirs, ours, given, ids, Context(keep=real[:, None]), real)


def compare_reread(theirs: Any, ours: Any) -> dict[str, float]:
    """A text that its decoder reads again, up to the end, which is the last real token."""
    ids, real = ragged(theirs.config.vocab_size)
    ends = torch.arange(LENGTHS[0]) == torch.tensor(LENGTHS)[:, None] - 1
    ids = torch.where(ends, theirs.config.eos_token_id, torch.where(real, ids, theirs.config.pad_token_id))
    out = theirs(input_ids=ids, attention_mask=real.long(), output_hidden_states=True, output_attentions=True)
    trace = Trace(ours, "*")
    logits = ours(ids, Context(keep=real[:, None], trace=trace))
    rows = PackedLengths.of(LENGTHS)
    sides = (("encoder.", "encoder"), ("decoder.", "decoder"))
    (out.logits * pull(logits)).sum().backward()
    (logits * pull(logits)).sum().backward()
    return {
        "logits": difference(logits, out.logits),
        "packed": difference(ours(rows.pack(ids), Context(rows=rows)), out.logits),
        "hidden states": max(
            hidden_difference(trace, ours_, out[f"{side}_hidden_states"], real) for ours_, side in sides
        ),
        "attention maps": max(
            map_difference(trace, "encoder.{}.attn.weights", out.encoder_attentions, real),
            map_difference(trace, "decoder.{}.attn.weights", out.decoder_attentions, real),
            map_difference(trace, "decoder.{}.cross.weights", out.cross_attentions, real),
        ),
    }


def compare_sound(theirs: Any, ours: Any) -> dict[str, float]:
    """A whole window of frames in, as Whisper's encoder wants them."""
    draw, c = torch.Generator().manual_seed(2), theirs.config
    frames = torch.randn(2, 2 * c.max_source_positions, c.num_mel_bins, generator=draw)
    real = torch.ones(2, c.max_source_positions, dtype=torch.bool)
    return compare_pair(theirs, ours, {"input_features": frames.mT}, frames, Context(), real)


def compare_waves(theirs: Any, ours: Any) -> dict[str, float]:
    """Samples in, without padding, which theirs hears; a CTC head gives probabilities here and logits there."""
    waves = torch.randn(2, 61, generator=torch.Generator().manual_seed(2))
    out = theirs(input_values=waves, output_hidden_states=True, output_attentions=True)
    trace = Trace(ours, "*")
    found_here, expected = ours(waves[..., None], Context(trace=trace)), answer(out)
    if isinstance(ours.head, CTCHead):
        logits = nn.Linear.forward(ours.head, ours.features(waves[..., None]))
        found = {"logits": difference(logits, expected), "symbols": difference(found_here, expected.log_softmax(-1))}
        expected = expected.log_softmax(-1)
    else:
        found = {"logits": difference(found_here, expected)}
    real = torch.ones(out.hidden_states[0].shape[:2], dtype=torch.bool)
    found["hidden states"] = hidden_difference(trace, "", out.hidden_states, real)
    averaged = theirs.config.model_type == "wavlm"  # it tells the mean of the heads for each
    found["attention maps"] = map_difference(trace, "{}.attn.weights", out.attentions, real, averaged=averaged)
    (expected * pull(expected)).sum().backward()
    (found_here * pull(found_here)).sum().backward()
    return found


def compare_pictured(theirs: Any, ours: Any) -> dict[str, float]:
    """An image in, and what is written about it."""
    images = some_images(theirs.config.encoder)
    tokens = ours.encoder(images).shape[:2]
    return compare_pair(theirs, ours, {"pixel_values": images}, images, Context(), torch.ones(tokens, dtype=torch.bool))


def compare_pair(
    theirs: Any, ours: Any, given: dict[str, Tensor], source: Tensor, source_ctx: Context, real: Tensor
) -> dict[str, float]:
    """`given` and `source` are the same to read, theirs and ours; `real` (B S) are the encoder's tokens that count."""
    targets, _ = ragged(getattr(theirs.config, "decoder", theirs.config).vocab_size, seed=1)
    out = theirs(**given, decoder_input_ids=targets, output_hidden_states=True, output_attentions=True)
    maps = told_maps(out.encoder_attentions, None, theirs)
    return compare_written(ours, out, maps, source, targets, source_ctx, real)


def compare_captioned(theirs: Any, ours: Any) -> dict[str, float]:
    """The same by BLIP's two halves, one after the other: the whole tells nothing of what its decoder shows."""
    images = some_images(theirs.config.vision_config)
    targets, _ = ragged(theirs.config.text_config.vocab_size, seed=1)
    shown = {"output_hidden_states": True, "output_attentions": True}
    seen = theirs.vision_model(pixel_values=images, **shown)
    said = theirs.text_decoder(input_ids=targets, encoder_hidden_states=seen.last_hidden_state, **shown)
    assert torch.equal(theirs(pixel_values=images, input_ids=targets).logits, said.logits)
    return compare_halves(ours, seen, said, said.cross_attentions, images, targets)


def compare_illustrated(theirs: Any, ours: Any) -> dict[str, float]:
    """An image among the words of a text; its states are read before the encoder's end."""
    images, image = some_images(theirs.config.vision_config), theirs.config.image_token_id
    texts, _ = ragged(image, seed=1)
    patches = ours.encoder(images).shape[1]
    targets = torch.cat([texts[:, :2], torch.full((2, patches), image), texts[:, 2:]], 1)
    shown = {"output_hidden_states": True, "output_attentions": True}
    seen = theirs.model.vision_tower(images, **shown)
    said = theirs(pixel_values=images, input_ids=targets, **shown)
    return compare_halves(ours, seen, said, (), images, targets)


def compare_halves(
    ours: Any, seen: Any, said: Any, cross: Sequence[Tensor], images: Tensor, targets: Tensor
) -> dict[str, float]:
    """What their encoder `seen` and their decoder `said` tell apart, where the whole model tells less."""
    out = SimpleNamespace(
        logits=said.logits,
        encoder_hidden_states=seen.hidden_states,
        decoder_hidden_states=said.hidden_states,
        decoder_attentions=said.attentions,
        cross_attentions=cross,
    )
    real = torch.ones(seen.last_hidden_state.shape[:2], dtype=torch.bool)
    return compare_written(ours, out, seen.attentions, images, targets, Context(), real)


def compare_written(
    ours: Any, out: Any, maps: Sequence[Tensor], source: Tensor, targets: Tensor, source_ctx: Context, real: Tensor
) -> dict[str, float]:
    trace = Trace(ours, "*")
    logits = ours(source, targets, replace(source_ctx, trace=trace), Context(trace=trace))
    found, everywhere = {"logits": difference(logits, out.logits)}, torch.ones_like(targets, dtype=torch.bool)
    found["hidden states"] = max(
        hidden_difference(trace, "encoder.", out.encoder_hidden_states, real),
        hidden_difference(trace, "decoder.", out.decoder_hidden_states, everywhere),
    )
    found["attention maps"] = max(
        map_difference(trace, "encoder.{}.attn.weights", maps, real),
        map_difference(trace, "decoder.{}.attn.weights", out.decoder_attentions, everywhere),
        map_difference(trace, "decoder.{}.cross.weights", out.cross_attentions, everywhere),
    )
    (out.logits * pull(out.logits)).sum().backward()
    (logits * pull(logits)).sum().backward()
    return found


def compare_pyramid(theirs: Any, ours: nn.Module) -> dict[str, float]:
    """Swin: grids that shrink from stage to stage; of the maps they tell those of the last layer of each."""
    c = theirs.config
    images = torch.randn(2, c.num_channels, c.image_size, c.image_size, generator=torch.Generator().manual_seed(2))
    out = theirs(pixel_values=images, output_hidden_states=True, output_attentions=True)
    trace = Trace(ours, "*")
    scores = ours(images, Context(trace=trace))
    logits, expected = scores if scores.dim() == 2 else scores.flatten(1, 2), answer(out)
    stages = len(c.depths)
    states = [trace["embed.out"], *(trace[f"{i}.merge.out"] for i in range(1, stages)), trace[f"{stages - 1}.out"]]
    maps = [trace[f"{i}.{depth - 1}.attn.attention.weights"] for i, depth in enumerate(c.depths)]
    pairs = zip(states, out.hidden_states, strict=True)
    (expected * pull(expected)).sum().backward()
    (logits * pull(logits)).sum().backward()
    return {
        "logits": difference(logits, expected),
        "hidden states": max(difference(tensor(grid).flatten(1, 2), state) for grid, state in pairs),
        "attention maps": max(difference(full(m), a) for m, a in zip(maps, out.attentions, strict=True)),
    }


def full(amap: object) -> Tensor:
    assert isinstance(amap, Readable)
    return amap.full()


def compare_image(theirs: Any, ours: nn.Module) -> dict[str, float]:
    """Images, or spectrograms, in, of the size that positions are made for."""
    name = theirs.main_input_name
    inputs = some_images(theirs.config) if name == "pixel_values" else some_frames(theirs.config)
    out = theirs(**{name: inputs}, output_hidden_states=True, output_attentions=True)
    trace = Trace(ours, "*")
    logits, expected = ours(inputs, Context(trace=trace)), answer(out)
    found = {"logits": difference(logits, expected)}
    everywhere = torch.ones(out.hidden_states[0].shape[:2], dtype=torch.bool)
    found["hidden states"] = hidden_difference(trace, "", out.hidden_states, everywhere)
    found["attention maps"] = map_difference(trace, "{}.attn.weights", out.attentions, everywhere)
    (expected * pull(expected)).sum().backward()
    (logits * pull(logits)).sum().backward()
    return found


def compare_patches(theirs: Any, ours: Any) -> dict[str, float]:
    """Images in, and which patches of them are visible: the first in the order of their noise."""
    images, c = some_images(theirs.config), theirs.config
    patches = (c.image_size // c.patch_size) ** 2
    noise = torch.rand(len(images), patches, generator=torch.Generator().manual_seed(4))
    visible = noise.argsort(1)[:, : int(patches * (1 - c.mask_ratio))]
    out = theirs(pixel_values=images, noise=noise, output_hidden_states=True, output_attentions=True)
    trace = Trace(ours, "*")
    said = ours(images, visible, Context(trace=trace))
    loss = ours.loss(images, visible) / out.mask.sum()
    found = {"logits": difference(said, out.logits), "loss": difference(loss, out.loss)}
    pairs = zip(layers(trace, "encoder.{}.out"), out.hidden_states[1:], strict=True)
    found["hidden states"] = max(difference(tensor(value), state) for value, state in pairs)
    everywhere = torch.ones(out.hidden_states[0].shape[:2], dtype=torch.bool)
    found["attention maps"] = map_difference(trace, "encoder.{}.attn.weights", out.attentions, everywhere)
    (out.loss + (out.logits * pull(said)).sum()).backward()
    (loss + (said * pull(said)).sum()).backward()
    return found


def compare_convolutions(theirs: Any, ours: nn.Module) -> dict[str, float]:
    """Images of any size in; grids there have their channels first, and nothing attends."""
    images = torch.randn(2, theirs.config.num_channels, 37, 30, generator=torch.Generator().manual_seed(2))
    out = theirs(pixel_values=images, output_hidden_states=True)
    trace = Trace(ours, "*")
    logits, expected = ours(images, Context(trace=trace)), answer(out)
    expected = expected if expected.dim() == 2 else expected.movedim(1, -1)
    states = [trace["embed.out"], *layers(trace, "{}.out")]
    pairs = zip(states, out.hidden_states, strict=True)
    found = {"logits": difference(logits, expected)}
    found["hidden states"] = max(difference(tensor(grid).movedim(-1, 1), state) for grid, state in pairs)
    (expected * pull(expected)).sum().backward()
    (logits * pull(logits)).sum().backward()
    return found


def some_images(c: Any) -> Tensor:
    channels, draw = getattr(c, "num_channels", 3), torch.Generator().manual_seed(2)
    return torch.randn(2, channels, c.image_size, c.image_size, generator=draw)


def some_frames(c: Any) -> Tensor:
    return torch.randn(2, c.max_length, c.num_mel_bins, generator=torch.Generator().manual_seed(2))


def compare_towers(theirs: Any, ours: Any) -> dict[str, float]:
    """Images and texts; a text's first end token is its last, and what stands behind it is filled with more of them."""
    text, image = theirs.config.text_config, theirs.config.vision_config
    ids, real = some_texts(text)
    images = torch.randn(3, 3, image.image_size, image.image_size, generator=torch.Generator().manual_seed(2))
    recorded = {"output_hidden_states": True, "output_attentions": True}
    out = theirs(input_ids=ids, pixel_values=images, attention_mask=real.long(), **recorded)
    trace = Trace(ours, "*")
    ours(images, ids, Context(trace=trace), Context(keep=real[:, None], trace=trace))
    logits = ours(images, ids)  # without a mask: the ends tell
    everywhere = torch.ones(tensor(trace["image.embed.out"]).shape[:2], dtype=torch.bool)
    sides = (("image.", out.vision_model_output, everywhere), ("text.", out.text_model_output, real))
    found = {"logits": difference(logits, out.logits_per_image)}
    found["hidden states"] = max(hidden_difference(trace, name, side.hidden_states, here) for name, side, here in sides)
    found["attention maps"] = max(
        map_difference(trace, name + "{}.attn.weights", side.attentions, here) for name, side, here in sides
    )
    vectors = ((ours.image(images), out.vision_model_output), (ours.text(ids), out.text_model_output))
    found["features"] = max(difference(vector, side.pooler_output) for vector, side in vectors)
    (out.logits_per_image * pull(logits)).sum().backward()
    (logits * pull(logits)).sum().backward()
    return found


def some_texts(c: Any) -> tuple[Tensor, Tensor]:
    """Texts and which of their tokens count: CLIP's end, SigLIP's are filled up to the context."""
    ids, real = ragged(c.vocab_size - 1)
    if c.model_type.startswith("siglip"):
        return torch.where(real, ids, c.pad_token_id), torch.ones_like(real)
    last = max(c.eos_token_id, c.vocab_size - 1)  # old files give no end, and the largest id is meant
    return torch.where(torch.arange(LENGTHS[0]) < torch.tensor(LENGTHS)[:, None] - 1, ids, last), real


def compare_tower(theirs: Any, ours: Any) -> dict[str, float]:
    """One of two towers alone, whose answer is a vector of the whole text or image."""
    c, recorded = theirs.config, {"output_hidden_states": True, "output_attentions": True}
    trace = Trace(ours, "*")
    if hasattr(c, "vocab_size"):
        ids, real = some_texts(c)
        out = theirs(input_ids=ids, attention_mask=real.long(), **recorded)
        ours(ids, Context(keep=real[:, None], trace=trace))
        inputs = ids  # without a mask: the ends tell
    else:
        inputs = some_images(c)
        out = theirs(pixel_values=inputs, **recorded)
        ours(inputs, Context(trace=trace))
        real = torch.ones(out.hidden_states[0].shape[:2], dtype=torch.bool)
    vector = ours(inputs)
    expected = next(out[name] for name in ("text_embeds", "image_embeds", "pooler_output") if name in out)
    found = {
        "logits": difference(vector, expected),
        "hidden states": hidden_difference(trace, "", out.hidden_states, real),
        "attention maps": map_difference(trace, "{}.attn.weights", out.attentions, real),
        "features": difference(ours.features(inputs)[real], out.last_hidden_state[real]),
    }
    (expected * pull(expected)).sum().backward()
    (vector * pull(vector)).sum().backward()
    return found


def hidden_difference(trace: Trace, prefix: str, states: Iterable[Tensor], real: Tensor) -> float:
    """Embedding and blocks; the last of theirs is after the final norm, which the logits show."""
    first, *others, _ = states
    shown = [trace[f"{prefix}embed.out"], *layers(trace, prefix + "{}.out")[: len(others)]]
    pairs = zip(shown, [first, *others], strict=True)
    return max(difference(tensor(value)[real], state[real]) for value, state in pairs)


def map_difference(trace: Trace, site: str, maps: Iterable[Tensor], real: Tensor, *, averaged: bool = False) -> float:
    found = []
    for amap, expected in zip(layers(trace, site), maps, strict=True):
        assert isinstance(amap, Readable)
        weights = amap.full()
        weights = weights.mean(1, keepdim=True).expand_as(weights) if averaged else weights
        found.append(difference(weights.transpose(1, 2)[real], expected.transpose(1, 2)[real]))
    return max(found, default=0.0)


def layers(trace: Trace, site: str) -> list[Seen]:
    """What each layer showed, in order; the blocks of a group with shared parameters show it once in each turn."""
    groups: dict[int, list[list[Seen]]] = {}
    for name in trace.values:
        found = re.fullmatch(re.escape(site).replace(r"\{\}", r"(\d+)(?:\.block\.\d+)?"), name)
        if found:
            groups.setdefault(int(found[1]), []).append(trace.all(name))
    return [value for _, blocks in sorted(groups.items()) for turn in zip(*blocks, strict=True) for value in turn]


def gradients(theirs: nn.Module, ours: nn.Module, names: KeyMap) -> float:
    """A map of names and layouts is linear, so it carries gradients as it carries weights."""
    there = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    mapped = replace(names, absent={}).load(
        {name: grad for name, grad in there.items() if name not in (names.ties or {})}
    )
    here = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None and p.numel()}
    largest = max(float(grad.abs().max()) for grad in here.values())
    shared = set(mapped) & set(here)
    assert shared
    return max(float((mapped[name] - here[name]).abs().max()) for name in shared) / largest


def pull(x: Tensor) -> Tensor:
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(3))


def difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    ours, theirs = ours.detach(), theirs.detach()
    return 0.0 if not theirs.numel() else float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-6))


def tensor(value: object) -> Tensor:
    assert isinstance(value, Tensor)
    return value
