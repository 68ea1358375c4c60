"""Our numbers against a reference's: logits, hidden states, attention maps and gradients of tiny random models.

A case says how to make the reference model.  `compare` reads its config and weights through `interop`, runs both on a
ragged batch and returns the largest difference of each quantity, relative to the largest value there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor, nn

from headway import Context, Trace
from headway.interop.families import family
from headway.interop.keymap import KeyMap
from headway.nn.trace import Seen
from headway.ops.reading import Readable

LENGTHS = (9, 6)


class Kind(Enum):
    DECODER = auto()
    ENCODER = auto()
    SEQ2SEQ = auto()


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Any]  # a Hugging Face model with attn_implementation="eager"
    kind: Kind

    def __str__(self) -> str:
        return self.name


def compare(case: Case) -> dict[str, float]:
    torch.manual_seed(0)
    theirs = shaken(case.make()).eval()
    known = family(theirs.config.model_type)
    config = known.read_config(theirs.config.to_dict())
    ours, names = known.build(config).eval(), known.keymap(config)
    load(ours, names.load(theirs.state_dict()))
    run = compare_seq2seq if case.kind is Kind.SEQ2SEQ else compare_stack
    found = run(theirs, ours)
    back = names.save(dict(ours.named_parameters()))
    kept = stored(theirs)
    found["export"] = max(difference(back[key], kept[key]) for key in back)
    found["gradients"] = gradients(theirs, ours, names)
    return found


def stored(theirs: Any) -> dict[str, Tensor]:
    """Their tensors as their own files hold them, which may be another layout than in memory."""
    from transformers.core_model_loading import revert_weight_conversion

    return revert_weight_conversion(theirs, theirs.state_dict())


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
    kinds = getattr(theirs.config, "type_vocab_size", 0)
    marks = {"token_type_ids": ids % kinds} if kinds else {}
    out = theirs(input_ids=ids, attention_mask=real.long(), output_hidden_states=True, output_attentions=True, **marks)
    trace = Trace(ours, "*")
    logits = ours(ids, Context(keep=real[:, None], trace=trace), *marks.values())
    expected = answer(out)
    here = real if expected.dim() == 3 else slice(None)  # a head of whole rows has an answer for each
    out.__dict__["scored"] = (expected * pull(expected))[here].sum()
    found = {"logits": difference(logits[here], expected[here])}
    found["hidden states"] = hidden_difference(trace, "", out.hidden_states, real)
    found["attention maps"] = map_difference(trace, "{}.attn.weights", out.attentions, real)
    out.scored.backward()
    (logits * pull(logits))[here].sum().backward()
    return found


def answer(out: Any) -> Tensor:
    """What a model is for, whatever it is called there."""
    if "start_logits" in out:
        return torch.stack([out.start_logits, out.end_logits], -1)
    return next(out[name] for name in ("logits", "prediction_logits", "last_hidden_state") if name in out)


def compare_seq2seq(theirs: Any, ours: Any) -> dict[str, float]:
    ids, real = ragged(theirs.config.vocab_size)
    targets, target_real = ragged(theirs.config.vocab_size, seed=1)
    out = theirs(
        input_ids=ids,
        attention_mask=real.long(),
        decoder_input_ids=targets,
        output_hidden_states=True,
        output_attentions=True,
    )
    trace = Trace(ours, "*")
    logits = ours(ids, targets, Context(keep=real[:, None], trace=trace), Context(trace=trace))
    found = {"logits": difference(logits, out.logits)}
    found["hidden states"] = max(
        hidden_difference(trace, "encoder.", out.encoder_hidden_states, real),
        hidden_difference(trace, "decoder.", out.decoder_hidden_states, torch.ones_like(target_real)),
    )
    everywhere = torch.ones_like(target_real)
    found["attention maps"] = max(
        map_difference(trace, "encoder.{}.attn.weights", out.encoder_attentions, real),
        map_difference(trace, "decoder.{}.attn.weights", out.decoder_attentions, everywhere),
        map_difference(trace, "decoder.{}.cross.weights", out.cross_attentions, everywhere),
    )
    (out.logits * pull(out.logits)).sum().backward()
    (logits * pull(logits)).sum().backward()
    return found


def hidden_difference(trace: Trace, prefix: str, states: Iterable[Tensor], real: Tensor) -> float:
    """Embedding and blocks; the last of theirs is after the final norm, which the logits show."""
    first, *others, _ = states
    shown = [trace[f"{prefix}embed.out"], *layers(trace, prefix + "{}.out")[: len(others)]]
    pairs = zip(shown, [first, *others], strict=True)
    return max(difference(tensor(value)[real], state[real]) for value, state in pairs)


def map_difference(trace: Trace, site: str, maps: Iterable[Tensor], real: Tensor) -> float:
    found = []
    for amap, expected in zip(layers(trace, site), maps, strict=True):
        assert isinstance(amap, Readable)
        found.append(difference(amap.full().transpose(1, 2)[real], expected.transpose(1, 2)[real]))
    return max(found)


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
    here = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}
    largest = max(float(grad.abs().max()) for grad in here.values())
    shared = set(mapped) & set(here)
    assert shared
    return max(float((mapped[name] - here[name]).abs().max()) for name in shared) / largest


def pull(x: Tensor) -> Tensor:
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(3))


def difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    ours, theirs = ours.detach(), theirs.detach()
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-6))


def tensor(value: object) -> Tensor:
    assert isinstance(value, Tensor)
    return value
