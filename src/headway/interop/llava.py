"""LLaVA in Hugging Face's layout: CLIP's tower of images, two layers, and a Llama; other towers are refused by name.

Its files spell the tower and the Llama as those of their own; its models in memory leave out a part of each name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop import clip_vision_model, llama
from headway.interop.config_reader import ACTIVATION, ConfigMap, Field, Options
from headway.interop.keymap import KeyMap, Rule, linear
from headway.zoo.llava import Config

ARCHITECTURE = "LlavaForConditionalGeneration"
PARTS = {"vision_config": ("clip_vision_model", clip_vision_model), "text_config": ("llama", llama)}
# what is not read of a part: a tower of images has no words, whatever its file says
UNREAD = {"vision_config": ("architectures", "vocab_size"), "text_config": ("architectures",)}
TOWER = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
USUAL = {"vision_config": {**TOWER, "image_size": 336, "patch_size": 14}, "text_config": dict[str, Any]()}
FIELDS = ConfigMap(
    Field("image_token_index", "image_token", 32_000),
    Field("projector_hidden_act", "act", "gelu", ACTIVATION),
    Field("multimodal_projector_bias", "biased", True),
)
STRATEGIES = {"default": 1, "full": 0}  # how many tokens are left out
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def read_config(values: Mapping[str, Any]) -> Config:
    values = {"image_token_index": values.get("image_token_id"), **values}
    o = Options(values, "llava")
    o.architecture(ARCHITECTURE)
    o.ignore("image_token_id", "image_seq_length")
    eye, writer = (part(o, name) for name in PARTS)
    writer = replace(writer, tied=writer.tied or o.take("tie_word_embeddings", False))
    o.require("vision_feature_select_strategy", *STRATEGIES, default="default")
    given: Any = o.take("vision_feature_layer", None)
    wanted: list[Any] = given if isinstance(given, list) else [-2 if given is None else given]
    taps = tuple(tap(one, eye.layers) for one in wanted)
    first = STRATEGIES[o.take("vision_feature_select_strategy", "default")]
    return o.done(Config(writer.vocab, eye, writer, taps=taps, first=first, **FIELDS.read(o)))


def part(o: Options, name: str) -> Any:
    """The config of a part, by the family's own reader."""
    family, reader = PARTS[name]
    values = o.take(name, USUAL[name])
    if (given := values.get("model_type", family)) != family:
        raise UserError(f"a {name} of type {given!r:.60} in a llava", allowed=family)
    return reader.read_config({key: value for key, value in values.items() if key not in UNREAD[name]})


def tap(layer: object, layers: int) -> int:
    """After how many blocks a state is read that is told by its place, which may be one from the end."""
    if not isinstance(layer, int) or isinstance(layer, bool) or not -layers - 1 <= layer <= layers:
        said = f"vision_feature_layer={layer!r:.60} of a tower of {layers} layers"
        raise UserError(said, allowed=f"whole numbers from {-layers - 1} to {layers}")
    return layer % (layers + 1)


def write_config(c: Config) -> dict[str, Any]:
    layers = [tap - c.encoder.layers - 1 for tap in c.taps]
    words = llama.write_config(replace(c.decoder, vocab=c.vocab))
    if words["model_type"] != "llama":
        said = "there, a LLaVA has a Llama for its words, and this model what no Llama has"
        raise UserError(said, do="use to=headway")
    return {
        "model_type": "llava",
        "architectures": [ARCHITECTURE],
        **FIELDS.write(c),
        "vision_feature_layer": layers[0] if len(layers) == 1 else layers,
        "vision_feature_select_strategy": strategy(c),
        "image_seq_length": (c.encoder.image // c.encoder.patch) ** 2 + 1 - c.first,
        "tie_word_embeddings": c.decoder.tied,
        "vision_config": clip_vision_model.write_config(c.encoder),
        "text_config": words,
    }


def strategy(c: Config) -> str:
    """What is left out of the encoder's tokens, as it is called there."""
    found = next((name for name, first in STRATEGIES.items() if first == c.first), None)
    if found is None:
        raise UserError(f"there, a LLaVA leaves out 1 token or none, and this model {c.first}", do="use to=headway")
    return found


def write_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json with the tokens that begin and end a text where that library reads them."""
    tokens = {name: values[name] for name in TOKENS if name in values}
    return {**values, "text_config": {**values["text_config"], **tokens}}


def write_processor(c: Config) -> dict[str, Any]:
    """How that library puts an image into a text: by as many tokens as it has patches."""
    return {
        "processor_class": "LlavaProcessor",
        "patch_size": c.encoder.patch,
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": strategy(c),
    }


def keymap(c: Config) -> KeyMap:
    eye, writer = clip_vision_model.keymap(c.encoder), llama.keymap(c.decoder)
    towers, words = ("vision_tower.vision_model.", "vision_tower."), ("language_model.model.", "language_model.")
    heads = [rule for rule in writer.rules if rule.outside]
    return KeyMap(
        rules=(
            *(rule.within(tower, "encoder.") for tower in towers for rule in tower_rules(eye)),
            *(rule.within(word, "decoder.") for word in words for rule in writer.rules if not rule.outside),
            *(rule.within(before, "decoder.") for before in ("language_model.", "") for rule in heads),
            *linear("multi_modal_projector.linear_1", "encoder.head.inside"),
            *linear("multi_modal_projector.linear_2", "encoder.head.out"),
        ),
        prefixes=("", "model."),
        ignored=(
            *(f"{tower}{name}" for tower in towers for name in eye.ignored),
            *(f"{word}{name}" for word in words for name in writer.ignored),
        ),
        ties=ties(c),
    )


def tower_rules(eye: KeyMap) -> tuple[Rule, ...]:
    """Those of CLIP's tower, whose last norm stands at the end of its stack here, since the head is another."""
    last = linear("post_layernorm", "stack.norm")
    return *last, *(rule for rule in eye.rules if not rule.theirs.startswith("post_layernorm"))


def ties(c: Config) -> dict[str, str] | None:
    """A head of words that is the table of the input; where it stands alone in memory, the table does too."""
    if not c.decoder.tied:
        return None
    return {
        "language_model.lm_head.weight": "language_model.model.embed_tokens.weight",
        "lm_head.weight": "language_model.embed_tokens.weight",
    }
