"""Another library's config.json: every option is used, required to be what we compute, noted, or refused by name.

`Options` reads it option by option.  What transformers' own class of the family would ignore is ignored too, and noted
(`collect_notes`); what it computes with and we do not is refused.  Options that are fields of our config under another
name stand in a table, a `ConfigMap`, that is read in both directions, as the rules of a `KeyMap` are for tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast

from headway.errors import UserError, listed, nearest
from headway.zoo.choices import check_range

T = TypeVar("T")
REQUIRED = object()  # in place of a default
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
SPELLED = {"gelu": "gelu", "gelu_tanh": "gelu_new", "quick_gelu": "quick_gelu", "relu": "relu", "silu": "silu"}
# in a tokenizer_config.json
WITH_SEGMENTS = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}


NOTES: ContextVar[list[str] | None] = ContextVar("NOTES", default=None)


@contextmanager
def collect_notes() -> Generator[list[str]]:
    """Within, what `Options` ignores is added to the list that is given."""
    notes = list[str]()
    token = NOTES.set(notes)
    try:
        yield notes
    finally:
        NOTES.reset(token)


class Options:
    """A config.json of the given family, read option by option."""

    def __init__(self, values: Mapping[str, Any], family: str):
        self.values, self.family = dict(values), family
        self.left = set(self.values) - HARMLESS

    def take(self, name: str, default: T) -> T:
        """An option's value, or what the other library takes where it is absent or null."""
        if default is REQUIRED:
            return self.need(name)
        self.left.discard(name)
        value = self.values.get(name)
        return default if value is None else self.typed(name, value, default)

    def need(self, name: str) -> Any:
        """An option that has no default."""
        self.left.discard(name)
        if self.values.get(name) is None:
            raise UserError(f"config.json of a {self.family} model has no {name!r}")
        return self.values[name]

    def typed(self, name: str, value: Any, default: T) -> T:
        """A value of the type that the default has; None has none."""
        for kind, (told, fits) in KINDS.items():
            if isinstance(default, kind):
                if not fits(value):
                    raise UserError(f"{name}={value!r:.60} in config.json", allowed=told)
                return cast(T, int(value)) if kind is int else value
        return value

    def number(self, name: str, default: Any = REQUIRED) -> float:
        """A number that may be written as an integer."""
        return float(self.typed(name, self.take(name, default), 0.0))

    def sizes(self, name: str, default: Any = REQUIRED) -> tuple[int, ...]:
        """A list of sizes."""
        return tuple(self.typed(name, size, 0) for size in self.typed(name, self.take(name, default), ()))

    def activation(self, name: str, default: str) -> str:
        """Our name of an activation."""
        self.require(name, *ACTIVATIONS, default=default)
        return ACTIVATIONS[self.take(name, default)]

    def side(self, name: str, default: int) -> int:
        """The side of a square, which may be given as its two sides."""
        given = self.need(name) if default is REQUIRED or self.values.get(name) is not None else default
        self.left.discard(name)
        sides: list[int] = [self.typed(name, one, 0) for one in (given if isinstance(given, list | tuple) else [given])]
        if len(set(sides)) != 1:
            raise UserError(f"{name}={given} is not supported for {self.family} models", allowed="squares")
        return sides[0]

    def require(self, name: str, *allowed: object, default: object) -> None:
        """Refuses values that would make another model than ours."""
        value = self.take(name, default)
        if value not in allowed:
            values = ", ".join(repr(value) for value in allowed)
            raise UserError(f"{name}={value!r} is not supported for {self.family} models", allowed=values)

    def expect(self, **values: object) -> None:
        """Requires options to have these values, which the other library takes where they are absent."""
        for name, value in values.items():
            self.require(name, value, default=value)

    def architecture(self, *known: str) -> str:
        """Which of the known models the file holds; the first of them, where it does not say."""
        given = next(iter(self.take("architectures", list[str]())), known[0])
        given = self.typed("architectures", given, "")
        if given not in known:
            said = f"the architecture {given!r} is not supported for {self.family} models"
            raise UserError(said, allowed=listed(known, 10), meant=nearest(given, known))
        return given

    def ignore(self, *names: str) -> None:
        """Options that change training, or nothing."""
        self.left -= set(names)

    def ignorable(self, name: str) -> bool:
        """Whether the other library would ignore an option that is not known here."""
        return name not in UNSUPPORTED

    def done(self, config: T) -> T:
        """The config, once nothing is left that is switched on and that we would compute without knowing it."""
        unknown = sorted(name for name in self.left if self.values[name] not in (None, False, 0, [], {}, ""))
        options = {name: f"{name}={self.values[name]!r}"[:60] for name in unknown}
        if refused := [option for name, option in options.items() if not self.ignorable(name)]:
            said = f"config.json of a {self.family} model sets what is not known here"
            do = "if it does not change what the model computes, take it out of the file"
            raise UserError(f"{said}: {listed(refused)}", do=do)
        if options and (notes := NOTES.get()) is not None:
            what = listed(options.values())
            notes.append(f"config.json sets what {self.family} models do not know in transformers either: {what}")
        return config


def is_number(value: object) -> bool:
    """Whether a value of a file is a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


# types of options, each with its word and its test; bool first, since True is an int
KINDS: dict[type | tuple[type, ...], tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool) or value in (0, 1)),
    int: ("a whole number", lambda value: is_number(value) and value == int(value)),
    float: ("a number", is_number),
    str: ("a text", lambda value: isinstance(value, str)),
    (list, tuple): ("a list", lambda value: isinstance(value, list | tuple)),
    dict: ("names and values", lambda value: isinstance(value, Mapping)),
}


class Arguments(Options):
    """Arguments of another library's function, which would refuse those that it does not know."""

    def ignorable(self, name: str) -> bool:
        return False


class Form(NamedTuple):
    """How an option holds a value of ours: `load(options, name, default)`, and `save(value)`."""

    load: Callable[[Options, str, Any], Any]
    save: Callable[[Any], Any]


def unchanged(value: Any) -> Any:
    return value


PLAIN = Form(Options.take, unchanged)
NUMBER = Form(Options.number, unchanged)
LIST = Form(Options.sizes, list)
SIDE = Form(Options.side, unchanged)
ACTIVATION = Form(Options.activation, SPELLED.__getitem__)


@dataclass(frozen=True)
class Field:
    """An option there, a field of our config here; `default` is what the other library takes where it is absent."""

    theirs: str
    ours: str
    default: object = REQUIRED
    form: Form = PLAIN


class ConfigMap:
    """A table of fields, read in both directions."""

    def __init__(self, *fields: Field):
        self.fields = fields

    def read(self, o: Options) -> dict[str, Any]:
        """Their options under our names."""
        found = {field.ours: field.form.load(o, field.theirs, field.default) for field in self.fields}
        for field in self.fields:
            check_range(field.ours, found[field.ours], field.theirs)
        return found

    def write(self, config: object) -> dict[str, Any]:
        """Our fields under their names."""
        return {field.theirs: field.form.save(getattr(config, field.ours)) for field in self.fields}

    def without(self, *ours: str) -> ConfigMap:
        """The same fields but for these of ours."""
        return ConfigMap(*(field for field in self.fields if field.ours not in ours))

    def with_defaults(self, **defaults: object) -> ConfigMap:
        """The same options in a family where other values are taken where they are absent."""
        return ConfigMap(*(replace(field, default=defaults.get(field.ours, field.default)) for field in self.fields))


def without_aliases(values: Mapping[str, Any], aliases: Mapping[str, str], family: str) -> dict[str, Any]:
    """A config whose options have one name each; `aliases` are second names there, {alias: name}."""
    found = {name: value for name, value in values.items() if name not in aliases}
    for alias, name in aliases.items():
        given = values.get(alias)
        if given is not None and found.setdefault(name, given) != given:
            said = f"config.json says {name}={found[name]!r:.60} and {alias}={given!r:.60}"
            raise UserError(f"{said}, which are one option of a {family} model", do="keep the right one")
    return found


def refuse_fields(config: object, name: str, fields: Mapping[str, str]) -> None:
    """Refuses fields of ours that a family there does not compute, {field: the model_type that does, or nothing}."""
    for field, other in fields.items():
        if (value := getattr(config, field)) != getattr(type(config), field):
            do = written_as(other) if other else "keep it in headway's own layout"
            raise UserError(f"there, a {name} has no {field}, and this model {value!r}", do=do)


def written_as(model_type: str) -> str:
    """What helps where a model has a place in another family's layout than its own."""
    way = f"dataclasses.replace(load(folder), model_type={model_type!r}).save_hf(target)"
    return f"use to=headway, or write it as a {model_type} model in Python: {way}"


# what transformers computes with in some family here, beside what the readers name; a test compares them with it
UNSUPPORTED = frozenset(
    """
    quantization_config compression_config text_config vision_config audio_config image_token_id image_token_index
    mm_tokens_per_image boi_token_index eoi_token_index layer_types sliding_window attention_chunk_size head_dim
    hidden_act hidden_size image_size intermediate_size layer_norm_eps max_position_embeddings n_positions
    num_attention_heads num_channels num_hidden_layers num_key_value_heads patch_size projection_size
    vision_use_head vocab_size
    """.split()  # noqa: SIM905
)
# what every Hugging Face config may hold and no model computes with
HARMLESS = frozenset(
    """
    _name_or_path architectures auto_map bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id
    decoder_start_token_id forced_bos_token_id forced_eos_token_id unk_token_id mask_token_id torch_dtype dtype
    transformers_version model_type use_cache task_specific_params initializer_range initializer_factor
    gradient_checkpointing output_attentions output_hidden_states output_past return_dict torchscript id2label
    label2id num_labels problem_type finetuning_task prefix tokenizer_class license language summary_type
    summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout is_decoder is_encoder_decoder
    chunk_size_feed_forward top_k top_p temperature repetition_penalty length_penalty num_beams num_beam_groups
    max_length min_length do_sample early_stopping no_repeat_ngram_size num_return_sequences bad_words_ids
    _attn_implementation attn_implementation pruned_heads add_cross_attention cross_attention_hidden_size
    tie_encoder_decoder encoder_no_repeat_ngram_size diversity_penalty typical_p remove_invalid_values
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens output_scores return_dict_in_generate
    use_bfloat16 tf_legacy_loss sad_norm pretraining_tp _commit_hash transformers.js_config
    static_position_embeddings
    """.split()  # noqa: SIM905  easier to read than eighty strings
)
