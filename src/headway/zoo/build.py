"""From a preset's name or a config to a model; configs as plain data, and configs that fit given data.

`build` makes the model of a preset or of a config; architectures are imported when they are asked for.  `to_plain` and
`from_plain` take configs to dictionaries for files and back, every value checked against its field.  `config_for` is
an architecture's config with the vocabulary, the context, the classes and the head that data needs: what data asks for
is the same for every architecture (`DataRequirements`), and which fields of a config take its vocabularies is a
property of the architecture, `VOCABULARY` in its file of the zoo.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib import import_module
from math import inf
from threading import get_ident
from types import UnionType
from typing import Any, NamedTuple, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from headway.errors import UserError, listed, nearest
from headway.zoo.choices import check_blocks, check_range, range_of

C = TypeVar("C")
Sizes = Mapping[str, Any]


def build(preset_or_config: str | object, **sizes: object) -> nn.Module:
    """The model of a preset (`build("gpt2", layers=2)`) or of a config, with its first weights.

    `sizes` replace fields of the config.
    """
    config = config_of(preset_or_config, **sizes)
    return architecture(architecture_of(config)).build(config)


def on_meta(preset_or_config: str | object, max_parameters: float = inf) -> nn.Module:
    """The model of a preset or of a config with its shapes and no numbers, which takes little memory and time.

    `ParameterCountError` is raised where it passes `max_parameters`, whatever is left to be made.
    """
    with torch.device("meta"), Uninitialised(), parameters_within(max_parameters):
        return build(preset_or_config)


class ParameterCountError(UserError):
    def __init__(self, count: int):
        super().__init__(f"a model of {count:,} parameters or more")
        self.count = count


@contextmanager
def parameters_within(limit: float) -> Generator[None]:
    """Counts the parameters of modules as they are made, tied ones once, and raises `ParameterCountError`."""
    found, thread = dict[int, nn.Parameter](), get_ident()
    total = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal total
        if parameter is None or id(parameter) in found or get_ident() != thread:
            return
        found[id(parameter)] = parameter  # held, so that no other has its id
        total += parameter.numel()
        if total > limit:
            raise ParameterCountError(total)

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


class Uninitialised(TorchFunctionMode):
    """Tensors are not filled.  On the meta device each initialiser would be traced, which imports torch's compiler."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.__name__ in FILLING:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


# of torch.nn.init and of tensors
FILLING = {
    *("normal_", "trunc_normal_", "uniform_", "kaiming_normal_", "kaiming_uniform_", "xavier_normal_"),
    *("xavier_uniform_", "orthogonal_", "constant_", "ones_", "zeros_", "fill_", "zero_"),
}


def config_of(preset_or_config: str | object, **sizes: object) -> object:
    """The config of a preset, or the one given, where `sizes` replace some fields."""
    if isinstance(preset_or_config, str):
        from headway.zoo.presets import preset

        chosen = preset(preset_or_config)
        return from_plain(architecture(chosen.architecture).Config, {**chosen.sizes, **sizes})
    architecture_of(preset_or_config)
    given = {field.name: getattr(preset_or_config, field.name) for field in fields(cast(Any, preset_or_config))}
    return from_plain(type(preset_or_config), {**given, **sizes})


def architecture_of(config: object) -> str:
    """The name of the architecture whose config this is."""
    home = type(config).__module__
    names = [name for name, module in ARCHITECTURES.items() if module == home]
    if not names or not is_dataclass(config):
        do = "give a preset's name (headway list shows them) or a Config of headway.zoo"
        raise UserError(f"cannot build a model from {type(config).__name__} {config!r:.60}", do=do)
    return names[0]


def architecture(name: str) -> Architecture:
    return cast(Architecture, import_module(ARCHITECTURES[name]))


class Architecture(Protocol):
    """What a file of the zoo holds."""

    Config: type
    build: Callable[[Any], nn.Module]


# each a file of `zoo`
ARCHITECTURE_NAMES = """
    albert ast bart beit bert blip bloom captioner clip clip_image clip_text conformer convnext deberta deepseek
    deit dinov2 dinov3 forecaster gemma gpt2 gpt_neox gpt_oss image_text led llama llava longformer lrnet mae marian
    mbart mixtral modernbert mvit mvitv2 olmo olmo2 qwen2_moe resnet rnn seq2seq siglip siglip_image simclr simmim swin
    swinv2 t5 t5gemma text_classifier transformer trocr vectors vit vit_captioner wav2vec2 wav2vec2_conformer whisper
    workbench xlnet
""".split()  # noqa: SIM905  easier to read than fifty strings
ARCHITECTURES = {name: f"headway.zoo.{name}" for name in ARCHITECTURE_NAMES}


def to_plain(config: Any) -> dict[str, Any]:
    """A config's fields; a value that is itself a dataclass says its kind."""

    def plain(value: Any) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return {"kind": kind_of(value), **{f.name: plain(getattr(value, f.name)) for f in fields(value)}}
        return value

    return {f.name: plain(getattr(config, f.name)) for f in fields(config)}


def kind_of(value: object) -> str:
    """The name of a dataclass; of an architecture's config, which are all called so, that of the architecture."""
    cls = type(value)
    names = (name for name, module in ARCHITECTURES.items() if (cls.__module__, cls.__name__) == (module, "Config"))
    return next(names, cls.__name__)


def from_plain(kind: type[C], values: Mapping[str, Any]) -> C:
    """The config that `values` tell of; refuses unknown fields, and values of another type or range."""
    hints = get_type_hints(kind)
    if not isinstance(cast(object, values), Mapping):
        raise UserError(f"a config is {values!r:.60}", allowed="fields and their values")
    for name in values:
        if name not in hints:
            allowed = listed(sorted(hints), 20)
            raise UserError(f"a config has no field {name!r}", allowed=allowed, meant=nearest(name, hints))
    missing = [f.name for f in fields(cast(Any, kind)) if f.default is f.default_factory is MISSING]
    if lacking := [name for name in missing if name not in values]:
        raise UserError(f"{kind.__name__} of a config has no {lacking[0]!r}")
    config = kind(**{name: fitted(name, value, hints[name]) for name, value in values.items()})
    check_blocks(config)
    return config


def config_like(kind: type[C], config: object, **values: object) -> C:
    """A config of `kind` with these values, and else with those that another config has under the same names."""
    names = (f.name for f in fields(cast(Any, kind)))
    return kind(**{name: getattr(config, name) for name in names if hasattr(config, name)} | values)


def fitted(name: str, value: Any, hint: Any) -> Any:
    """The value in the type and range of a field."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if isinstance(value, Mapping) and "kind" in value:
        told = cast(Sizes, value)
        inner = {key: x for key, x in told.items() if key != "kind"}
        for kind in (known for base in kinds for known in family_of(base)):
            if kind.__name__ == told["kind"]:
                return from_plain(kind, inner)
        if told["kind"] not in ARCHITECTURES:
            raise UserError(f"{name} of kind {told['kind']!r:.60} is not known")
        value = from_plain(architecture(told["kind"]).Config, inner)
    for kind in kinds:
        if not is_of(kind, value):
            continue
        if is_dataclass(value) and not isinstance(value, type):
            return from_plain(type(value), {f.name: getattr(value, f.name) for f in fields(value)})
        if not isinstance(value, str | bool):
            check_range(name, value)
        right = cast(Any, value)
        return float(right) if kind is float else tuple(right) if get_origin(kind) is tuple else right
    told = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    raise UserError(f"{name}={value!r:.60} in a config", allowed=told)


def is_of(kind: Any, value: Any) -> bool:
    """Whether a value of a file has the type of a field; a whole number is a float too, and no truth is a number."""
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(is_of(get_args(kind)[0], item) for item in cast(Any, value))
    if kind is float:
        return is_of(int, value) or isinstance(value, float)
    return isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def family_of(kind: Any) -> list[type]:
    """A dataclass and all that inherit from it."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return []
    return [kind, *(known for child in kind.__subclasses__() for known in family_of(child))]


def config_for(name: str, sizes: Sizes, required: DataRequirements, dropout: float | None) -> object:
    """The config of architecture `name`: its sizes, and what the data asks for."""
    kind, known = architecture(name).Config, {*known_sizes(name, sizes)}
    check_sizes(name, sizes)
    values = {**sizes, **vocabulary_of(name).sizes(required, sizes)}
    if required.head is not None and get_type_hints(kind).get("top") is str:  # Mixtral's is the number of experts
        values["top"] = required.head
    if required.classes:
        values["classes"] = required.classes
    if dropout is not None:
        values |= dropouts(name, known, dropout, sizes)
    return from_plain(kind, folded(kind, {**training_sizes(known), **values}))


def config_to_train(name: str, **sizes: object) -> object:
    """The config of a preset as a training has it."""
    from headway.zoo.presets import preset

    return config_of(name, **{**training_sizes(known_sizes(preset(name).architecture, {})), **sizes})


def training_sizes(known: Iterable[str]) -> Sizes:
    """What models have that are built to be trained, unless asked otherwise; `known` are the sizes there are.

    The fused kernel of attention has no dropout on a CPU: a third of the speed, for little.
    """
    return {"attention_dropout": 0.0} if "attention_dropout" in known else {}


def overruled(sizes: Sizes, config: object) -> dict[str, Any]:
    """Of these sizes those that the config has otherwise, because the data asks for it; with the values it has."""
    whole = to_plain(config) if is_dataclass(config) else {}
    inner = whole.get("encoder")
    found = {**(inner if isinstance(inner, Mapping) else {}), **whole}
    return {name: found[name] for name, value in sizes.items() if name in found and not holds(found[name], value)}


def check_obeyed(sizes: Sizes, config: object) -> None:
    """Refuses sizes that the data overrules."""
    for name, value in overruled(sizes, config).items():
        do = f"give data.max_length {sizes[name]} instead" if name == "context" else "leave it out"
        raise UserError(f"model.{name} {sizes[name]} with data that asks for {value}", do=do)


def holds(built: object, value: object) -> bool:
    """Whether a plain value of a config is as it was given; one of a kind may be given in part."""
    if isinstance(built, Mapping) and isinstance(value, Mapping):
        return all(holds(cast(Sizes, built).get(key), part) for key, part in cast(Sizes, value).items())
    if isinstance(built, list | tuple) and isinstance(value, list | tuple):
        return list(cast(Any, built)) == list(cast(Any, value))
    return isinstance(built, Mapping) or built == value


def dropouts(name: str, known: set[str], dropout: float, sizes: Sizes) -> Sizes:
    """The config fields that `train.dropout` sets: dropout of layers and of the embedding."""
    rates = ({"dropout"} | {"embed_dropout"} - {*sizes}) & known
    if dropout > 0 and not rates:
        raise UserError(f"train.dropout {dropout:g}: {name} has none", do="leave it out")
    return dict.fromkeys(rates, dropout)


def check_sizes(name: str, sizes: Sizes) -> None:
    """Refuses sizes below 1, but 0 where that is an architecture's default, or is in the range of a list."""
    for known in fields(architecture(name).Config):
        value: Any = sizes.get(known.name)
        is_list = isinstance(value, tuple | list)
        low, _ = (range_of(known.name) if is_list else None) or (1, 0)
        for number in value if is_list else (value,):
            if type(number) is int and number < (0 if known.default == 0 else low):
                raise UserError(f"model.{known.name} {value}", allowed="whole numbers of 1 or more")


def known_sizes(name: str, sizes: Sizes) -> list[str]:
    """The fields of an architecture's config, and those of an encoder's config inside it."""
    kind = architecture(name).Config
    own = [field.name for field in fields(kind)]
    inner = from_plain(kind, {"encoder": sizes["encoder"]}).encoder if "encoder" in sizes else None
    return [*own, *(field.name for field in fields(inner))] if is_dataclass(inner) else own


def folded(kind: type, values: Sizes) -> Sizes:
    """Values with those of an encoder's config inside it moved there."""
    own = {field.name for field in fields(kind)}
    encoder: Any = values.get("encoder")
    if is_dataclass(encoder):
        encoder = {"kind": kind_of(encoder), **to_plain(encoder)}
    if not isinstance(encoder, Mapping):
        return values
    inner = {key: value for key, value in values.items() if key not in own}
    return {**{key: value for key, value in values.items() if key in own}, "encoder": {**encoder, **inner}}


@dataclass(frozen=True)
class DataRequirements:
    """What the data and the task ask of a model."""

    longest: int  # tokens of a row at most
    source_vocab: int | None = None  # None: it reads no text
    target_vocab: int | None = None  # None: one tokenizer for both sides
    classes: int = 0
    head: str | None = None  # the value of the config field `top`, where an encoder has several heads to choose from
    fields: Sizes = field(default_factory=dict[str, Any])  # other config fields: sizes of images, features of frames

    @property
    def joint(self) -> bool:
        """Whether source and target have one tokenizer."""
        return self.target_vocab is None

    @property
    def source(self) -> int:
        assert self.source_vocab is not None, "an architecture of texts for data without a tokenizer"
        return self.source_vocab

    @property
    def target(self) -> int:
        return self.source if self.target_vocab is None else self.target_vocab


def vocabulary_of(name: str) -> Vocabulary:
    return cast(Any, architecture(name)).VOCABULARY


class Vocabulary(NamedTuple):
    """How the config of an architecture takes the vocabularies of the data."""

    sizes: Callable[[DataRequirements, Sizes], Sizes]  # fields of the config, beside the sizes that are given
    joint_only: bool = False  # source and target must have one tokenizer


def one_vocabulary(required: DataRequirements, given: Sizes) -> Sizes:
    if not required.joint:
        do = "leave out data.target_tokenizer, or model.preset"
        raise UserError("this architecture reads and writes the same words", do=do)
    return {"vocab": required.source}


def vocabulary_and_context(required: DataRequirements, given: Sizes) -> Sizes:
    return {"vocab": required.source, "context": required.longest}


def optional_source(required: DataRequirements, given: Sizes) -> Sizes:
    if required.joint:
        return {"vocab": required.target}
    tied = "target" if given.get("tied") == "all" else given.get("tied", "none")
    return {"vocab": required.target, "source_vocab": required.source, "tied": tied}


def optional_target(required: DataRequirements, given: Sizes) -> Sizes:
    return {"vocab": required.source, "target_vocab": required.target_vocab}


def from_fields(required: DataRequirements, given: Sizes) -> Sizes:
    return required.fields


ONE_VOCABULARY = Vocabulary(one_vocabulary, joint_only=True)  # `vocab`, of both sides
VOCABULARY_AND_CONTEXT = Vocabulary(vocabulary_and_context)  # `vocab`, and positions up to `context`
OPTIONAL_SOURCE_VOCAB = Vocabulary(optional_source)  # `vocab` is the target's, `source_vocab` where that is another one
OPTIONAL_TARGET_VOCAB = Vocabulary(optional_target)  # `vocab` is the source's, `target_vocab` where that is another one
FROM_FIELDS = Vocabulary(from_fields)  # it reads images, sounds or numbers: the data names the fields
