"""What a task is rebuilt from: the parts of a model folder, and what a task reads off them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.nn.embed import TokenEmbed
from headway.nn.head import Classifier, TokenClassifier, main_head
from headway.nn.trunk import EncoderDecoder, RereadingClassifier, Trunk

if TYPE_CHECKING:
    from headway.data.preprocess import Preprocess
    from headway.data.shards import Shards

CUSTOM = "custom"  # the architecture of a torch module of your own
CLASS_NAMES = ("id2label", "label2id")  # in config.json
# what the logits of a whole text are, in config.json, and by what the number of a regression is moved and scaled
PROBLEM, TARGET_MEAN, TARGET_STD = "problem_type", "target_mean", "target_std"
ONE_LABEL, SEVERAL_LABELS, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
SPANS = "spans"  # the top of an encoder that says where answers begin and end
# dropout rates of Hugging Face's configs that no model here has a place for
RATES = (
    *("encoder_layerdrop", "decoder_layerdrop", "resid_pdrop", "embd_pdrop", "router_jitter_noise"),
    *("classif_dropout", "classifier_dropout", "seq_classif_dropout", "qa_dropout", "summary_first_dropout"),
)
MEDIA_FIELDS = {"image": "images", "features": "sounds or numbers"}  # what a config with such a field is made for


@runtime_checkable
class CountsWeights(Protocol):
    """A task that can count first weights of a model in the training data, so that it is good before it is trained."""

    def can_count(self, model: nn.Module) -> bool:
        """Whether the weights of this one are counted."""
        ...

    def count_weights(self, model: nn.Module, rows: Shards, held: Shards | None = None) -> None:
        """Sets these by the rows of training, and by those that were held out."""
        ...

    def loss_error(self, model: nn.Module, batches: Sequence[Any]) -> float:
        """The standard error of the loss on validation batches."""
        ...


class ModelParts(Protocol):
    """What a task is rebuilt from: a model with its config, tokenizers and preprocessing (`headway.model.Model`)."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def config(self) -> Any: ...
    @property
    def architecture(self) -> str: ...
    @property
    def extra_config(self) -> Mapping[str, Any]:
        """What config.json says besides the architecture: special tokens, names of classes."""
        ...

    @property
    def tokenizer(self) -> Tokenizer | None: ...
    @property
    def target_tokenizer(self) -> Tokenizer | None: ...
    @property
    def preprocess(self) -> Preprocess | None: ...


def reads_media(parts: ModelParts) -> bool:
    """Whether a model reads images, sounds or numbers instead of texts."""
    waves = isinstance(parts.model, Trunk) and getattr(parts.model.embed, "reads_waveforms", False)
    if waves or parts.preprocess is not None:
        return True
    configs = parts.config, getattr(parts.config, "encoder", None)
    media = next((what for field, what in MEDIA_FIELDS.items() if any(hasattr(c, field) for c in configs)), None)
    if media is None:
        return False
    said = f"this model's folder does not say how {media} are made fit for {parts.architecture}"
    raise UserError(said, do="add preprocessor_config.json")


def required_tokenizer(parts: ModelParts) -> Tokenizer:
    """The tokenizer of what a model reads."""
    if parts.tokenizer is None:
        missing: str = getattr(parts, "lacking", "")
        where = f"put {missing} beside it" if missing else "add tokenizer.json"
        raise UserError("this model's folder holds no tokenizer", do=f"call model(ids) with numbers, or {where}")
    return parts.tokenizer


def class_names(parts: ModelParts, count: int) -> tuple[str, ...]:
    """The names of a model's classes; their numbers where it has none."""
    listed = class_list(parts.extra_config)
    return tuple(listed[k] if k < len(listed) else str(k) for k in range(count))


def labels_of(parts: ModelParts, head: type[Classifier] | type[TokenClassifier]) -> tuple[str, ...] | None:
    """The classes of a model with such a head; a torch module of your own has those that its folder names.

    A head that says where answers begin and end gives no classes.
    """
    if getattr(parts.config, "top", None) == SPANS:
        return None
    model = parts.model.decoder if isinstance(parts.model, RereadingClassifier) else parts.model
    if isinstance(model, Trunk):
        found = main_head(model.head)
        return class_names(parts, found.out.out_features) if isinstance(found, head) else None
    named = parts.extra_config.get("id2label") if parts.architecture == CUSTOM else None
    return class_names(parts, len(named)) if named else None


def problem_of(parts: ModelParts, outputs: int) -> str:
    """What a model's logits are, as its config says or, as in transformers, by how many there are."""
    said = parts.extra_config.get(PROBLEM)
    if said in (ONE_LABEL, SEVERAL_LABELS, REGRESSION):
        return said
    return REGRESSION if outputs == 1 else ONE_LABEL


def is_foreign(parts: ModelParts) -> bool:
    """Whether nothing says what a model was trained for: another library wrote its folder."""
    return getattr(parts, "task_name", None) is None


def named_classes(labels: Sequence[str]) -> dict[str, Any]:
    """The names of classes as config.json keeps them."""
    return {
        "id2label": {str(at): name for at, name in enumerate(labels)},
        "label2id": {name: at for at, name in enumerate(labels)},
    }


def check_class_names(settings: Mapping[str, Any]) -> None:
    """Names of classes are an object from their numbers to texts, and one back."""
    names = settings.get("id2label")
    known = isinstance(names, Mapping) and all(str(key).isdecimal() and isinstance(x, str) for key, x in names.items())
    if names is not None and not known:
        raise UserError(f"config.json: id2label is {names!r:.60}", allowed="an object from numbers to names")
    if not isinstance(settings.get("label2id", {}), Mapping | None):
        raise UserError(f"config.json: label2id is {settings['label2id']!r:.60}", allowed="an object from names")


def class_list(settings: Mapping[str, Any]) -> list[str]:
    """The names of classes in a config, in order."""
    names = settings.get("id2label") or {}
    return [names[key] for key in sorted(names, key=int)]


def check_tokenizers(source: Tokenizer | None, target: Tokenizer | None, model: nn.Module, folder: Path) -> None:
    """A tokenizer may not have more tokens than the model's embedding."""
    sides = [(source, model)]
    if isinstance(model, EncoderDecoder):
        sides = [(source, model.encoder), (target or source, model.decoder)]
    for tokenizer, side in sides:
        rows = next((part.token.num_embeddings for part in side.modules() if isinstance(part, TokenEmbed)), None)
        if tokenizer is not None and rows is not None and tokenizer.vocab > rows:  # without rows, it reads no tokens
            given = f"the tokenizer in {folder} has {tokenizer.vocab} tokens and the model's embedding {rows}"
            raise UserError(given, do="use the tokenizer that the model was trained with")
