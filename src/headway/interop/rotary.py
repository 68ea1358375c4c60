"""Rotary frequencies in Hugging Face's configs: `rope_theta` and `rope_scaling`, or both within `rope_parameters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headway.errors import UserError
from headway.interop.config_reader import Arguments, Options, written_as
from headway.ops.rotary import UNSCALED, DynamicNtk, Linear, Llama3, LongRope, Scaling, Yarn
from headway.zoo.choices import check_range
from headway.zoo.llama import Frequencies

ORIGINAL = "original_max_position_embeddings"
# words of one type may stand beside another, which does not read them
WORDS = f"""
factor {ORIGINAL} low_freq_factor high_freq_factor short_factor long_factor beta_fast beta_slow attention_factor mscale
mscale_all_dim truncate finetuned
""".split()


def read_frequencies(o: Options, context: int, *, parts: bool = False) -> Frequencies:
    """`parts`: whether the model's own code turns a part of each head, where `partial_rotary_factor` says so."""
    o.ignore("rope_scaling", "rope_parameters")
    told = o.values.get("rope_scaling") or o.values.get("rope_parameters") or {}
    if not isinstance(told, Mapping):
        raise UserError(f"rope_scaling={told!r} in config.json", allowed="null, or its type and numbers")
    original = o.take(ORIGINAL, None)
    above = {"rope_theta": o.take("rope_theta", None), "partial_rotary_factor": o.take("partial_rotary_factor", 1.0)}
    r = Arguments({**above, ORIGINAL: context, **told, **({ORIGINAL: original} if original else {})}, o.family)
    if not parts:
        r.expect(partial_rotary_factor=1.0)
    r.require("rope_type", *SCALINGS, default=r.take("type", "default"))
    scaling = SCALINGS[r.take("rope_type", r.take("type", "default"))](r, context)
    r.ignore(*WORDS)
    return r.done(Frequencies(r.number("rope_theta"), scaling, r.number("partial_rotary_factor", 1.0)))


class TwoFrequencies(NamedTuple):
    """Those of the layers without a window, and of the layers with one."""

    rotary: Frequencies
    local_rotary: Frequencies


def read_two_frequencies(o: Options, context: int, *, base: float, local_base: float) -> TwoFrequencies:
    """Frequencies by the type of a layer, in either spelling; a scaling that stands alone is of the full layers."""
    told = o.values.get("rope_parameters")
    if not isinstance(told, Mapping) or not set(told) & {*LAYER_TYPES}:
        o.ignore("rope_theta")
        local = Options({"rope_theta": local_base}, o.family)
        return TwoFrequencies(
            read_frequencies(Options({"rope_theta": base, **o.values}, o.family), context),
            read_frequencies(local, context),
        )
    o.ignore("rope_parameters", "rope_scaling", "rope_theta")
    inner = [
        {"rope_theta": usual, "rope_parameters": told.get(name)}
        for name, usual in zip(LAYER_TYPES, (base, local_base), strict=True)
    ]
    return TwoFrequencies(*(read_frequencies(Options(one, o.family), context) for one in inner))


LAYER_TYPES = ("full_attention", "sliding_attention")


def write_frequencies(f: Frequencies, context: int, *, parts: bool = False) -> dict[str, Any]:
    """In the older spelling, which every version reads."""
    if f.part != 1.0 and not parts:
        raise UserError(f"only a Phi-3 turns a part of each head there, and this model {f.part}", do=written_as("phi3"))
    part = {"partial_rotary_factor": f.part} if parts else {}
    return {"rope_theta": f.base, "rope_scaling": write_scaling(f.scaling, context), **part}


def write_scaling(scaling: Scaling, context: int) -> dict[str, Any] | None:
    match scaling:
        case Linear(factor=1.0):
            return None
        case Linear(factor):
            return {"rope_type": "linear", "factor": factor}
        case DynamicNtk(factor, original) if original == context:
            return {"rope_type": "dynamic", "factor": factor}
        case Llama3(factor, low, high, original):
            turns = {"low_freq_factor": low, "high_freq_factor": high}
            return {"rope_type": "llama3", "factor": factor, **turns, ORIGINAL: original}
        case Yarn(factor, original, fast, slow):
            usual = scaling == Yarn(factor, original, fast, slow, whole=scaling.whole)
            amplitude = {} if usual else {"attention_factor": scaling.amplitude()}
            turns = {"beta_fast": fast, "beta_slow": slow} | ({} if scaling.whole else {"truncate": False})
            return {"rope_type": "yarn", "factor": factor, **turns, **amplitude, ORIGINAL: original}
        case LongRope(factor, short, long, original, attention):
            amplitude = {} if attention is None else {"attention_factor": attention}
            factors = {"factor": factor, "short_factor": list(short), "long_factor": list(long)}
            return {"rope_type": "longrope", **factors, **amplitude, ORIGINAL: original}
        case _:
            do = "keep it in headway's own layout"
            raise UserError(f"{scaling} with context={context} cannot be told in Hugging Face's layout", do=do)


def read_default(r: Options, context: int) -> Scaling:
    return UNSCALED


def read_linear(r: Options, context: int) -> Scaling:
    return Linear(r.number("factor"))


def read_dynamic(r: Options, context: int) -> Scaling:
    return DynamicNtk(r.number("factor"), context)


def read_llama3(r: Options, context: int) -> Scaling:
    return Llama3(r.number("factor"), r.number("low_freq_factor"), r.number("high_freq_factor"), length(r))


def read_yarn(r: Options, context: int) -> Scaling:
    original = length(r)
    mscale, mscale_all = r.take("mscale", 0.0), r.take("mscale_all_dim", 0.0)
    return Yarn(
        r.take("factor", context / original),
        original,
        beta_fast=r.take("beta_fast", 32.0),
        beta_slow=r.take("beta_slow", 1.0),
        attention=r.take("attention_factor", None),
        whole=r.take("truncate", True),
        **({"mscale": mscale, "mscale_all": mscale_all} if mscale and mscale_all else {}),  # one alone is not used
    )


def read_longrope(r: Options, context: int) -> Scaling:
    original = length(r)
    # a context shorter than the trained one sharpens nothing
    factor = r.take("factor", max(context / original, 1.0))
    return LongRope(factor, each(r, "short_factor"), each(r, "long_factor"), original, r.take("attention_factor", None))


def length(r: Options) -> int:
    """The context that the model was trained with."""
    original = r.typed(ORIGINAL, r.need(ORIGINAL), 0)
    check_range("original_context", original, ORIGINAL)
    return original


def each(r: Options, name: str) -> tuple[float, ...]:
    """A number for each pair of dims."""
    numbers = r.need(name)
    if not isinstance(numbers, list) or not all(isinstance(x, int | float) and x > 0 for x in numbers):
        raise UserError(f"{name}={numbers!r:.60} in config.json", allowed="a list of positive numbers")
    return tuple(float(x) for x in numbers)


SCALINGS = {
    "default": read_default,
    "linear": read_linear,
    "dynamic": read_dynamic,
    "llama3": read_llama3,
    "yarn": read_yarn,
    "longrope": read_longrope,
}
