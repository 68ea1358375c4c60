"""The model folder: read, whatever library wrote it, and written, so that it explains itself.

A folder holds `config.json`, `model.safetensors` and, where there is one, a tokenizer.  In our own layout config.json
says `{"headway": 1, "architecture": …, "config": {…}, "kept": {…}}` and tensors have our names; in Hugging Face's
layout both are as `transformers` expects them.  Files are data: nothing in them names code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headway.data.kinds import DataKind
from headway.data.preprocess import FILE as PREPROCESS
from headway.data.preprocess import (
    ImagePreprocess,
    Preprocess,
    read_preprocess,
    read_timm,
    timm_told,
    write_preprocess,
)
from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_files import read_sides
from headway.data.tokenizer_readers import READERS, load_tokenizer
from headway.errors import UserError, listed, nearest
from headway.generate.request import LENGTHS, MASKS, is_setting
from headway.generate.session import arrange
from headway.interop.registry import Family, family, model_type_of, type_for
from headway.interop.timm_folder import SETTINGS, read_names, settings_of, with_settings
from headway.interop.weights import OPENAI, fill, read_weights, write_weights
from headway.nn.embed import TokenEmbed
from headway.nn.trunk import EncoderDecoder, tensors_of
from headway.system import read_json, write_json
from headway.tasks.base import StreamsText, Task
from headway.tasks.generation import GenerationOptions, check_draft, generation_options
from headway.tasks.model_parts import CUSTOM, required_tokenizer
from headway.tasks.registry import task_of
from headway.tasks.results import DEFAULT_EVALUATION, EvalOptions, EvalResult
from headway.tasks.tracing import TraceOptions
from headway.zoo.build import ARCHITECTURES, architecture, from_plain, to_plain

if TYPE_CHECKING:
    from headway.look.recording import Recording
    from headway.look.recording_view import RecordingView

WHISPER = "whisper"  # its files have a layout of their own, and it makes frames of sounds by itself
LAYOUT = 1  # of our own folders; what is newer is refused
KEPT = ("id2label", "label2id")
# rates that training there uses and no model here has a place for
RATES = (
    *("encoder_layerdrop", "decoder_layerdrop", "resid_pdrop", "embd_pdrop", "router_jitter_noise"),
    *("classif_dropout", "classifier_dropout", "seq_classif_dropout", "qa_dropout", "summary_first_dropout"),
)
TARGET = "target"  # the folder of the tokenizer of what is written, where it is another


@dataclass(frozen=True, eq=False)
class Model:
    """A model with its config, tokenizers and preprocessing: `predict`, `evaluate`, `attend`, `save`."""

    model: nn.Module
    config: Any
    architecture: str
    model_type: str | None = None  # in Hugging Face's layout, where that has one
    extra_config: Mapping[str, Any] = field(default_factory=dict[str, Any])  # special tokens, names of classes
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None  # of what it writes, where that is another
    assumed: str = ""  # what no file says, and was taken as usual
    preprocess: Preprocess | None = None  # of images, sounds or numbers
    lacking: str = ""  # the file that would hold its tokenizer, where that is not tokenizer.json
    task_name: str | None = None  # as config.json says it
    own_task: type[Task] | None = None  # a task that is none of headway's

    @property
    def task(self) -> Task:
        """What the model is for."""
        return self.task_for(None)

    def task_for(self, data_kind: DataKind | None) -> Task:
        """What the model is for; some encoder–decoders are for pairs and for texts, so the data decides."""
        if self.own_task is not None:
            found = self.own_task.from_model(self)
            if found is None:
                raise UserError(
                    f"{self.own_task.__name__} is no task of this model", do="give the one it was trained for"
                )
            return found
        return task_of(self, self.task_name, data_kind)

    def predict(self, inputs: str | Sequence[str], options: GenerationOptions | None = None, **how: Any) -> Any:
        """The answer to an input, or to each of several: a text, or a file for a model of images, sounds or tables.

        One input gives a `Prediction`, a list of inputs a list of them; each has `to_dict()` and `to_text()`.  How a
        text is written is told by the arguments of `generation_options`: temperature, max_new_tokens, beam, seed, stop.
        """
        options, asked = options or self.generation_options(**how), [inputs] if isinstance(inputs, str) else inputs
        found = list(self.task.predict(self.model, asked, options)) if asked else []
        return found[0] if isinstance(inputs, str) else found

    def generation_options(self, *, draft: Model | None = None, **how: Any) -> GenerationOptions:
        """Options of this model by name; `draft` is a smaller model with the same tokens."""
        if draft is not None:
            check_draft(*((one.tokenizer, one.target_tokenizer or one.tokenizer) for one in (self, draft)))
        return generation_options(draft=None if draft is None else draft.model, **how)

    def stream(self, text: str, options: GenerationOptions | None = None, **how: Any) -> Iterator[str]:
        """What the model writes for a text, piece by piece as it comes; `how` as for `predict`."""
        options, task = options or self.generation_options(**how), self.task
        if not isinstance(task, StreamsText):
            raise UserError(f"the model {task.does} and writes nothing piece by piece", do="call predict")
        return task.stream(self.model, text, options)

    def run(self, text: str, options: GenerationOptions | None = None, **how: Any) -> dict[str, Any]:
        """`predict(text).to_dict()`, as earlier versions called it."""
        return self.predict(text, options, **how).to_dict()

    def embed(self, inputs: Sequence[str]) -> Tensor:
        """A vector of length 1 for each input, B C."""
        return self.task.embed(self.model, inputs)

    def evaluate(self, data: Any, options: EvalOptions = DEFAULT_EVALUATION, **query: Any) -> EvalResult:
        """How good the model is on data: a path, several, or records; `query` as for `headway.evaluate`."""
        from headway.evaluation import evaluate

        return evaluate(self, data, options, **query)

    def attend(self, input: str, *, most: int = 16, said: Recording | None = None) -> RecordingView:
        """What the model does with one input, recorded: every attention map, lazily, and what came out.

        `input` is a text, or the name of a file where the model reads images or sounds.  A model that continues texts
        writes at most `most` tokens.  In a notebook the result shows the page of `headway look`.

        A model that writes reads its own tokens as it goes; with `said`, a recording of another model, it reads what
        was written there.  Then both have maps with the same rows, and the outcome's steps are the other's tokens with
        this model's probabilities; its text is what this model writes itself.
        """
        from headway.look.recording_view import record_input  # late: whoever runs or trains a model does not need it

        context: object = getattr(self.config, "context", None)
        forced = None if said is None else said.forced_text
        options = TraceOptions(most, context if isinstance(context, int) else None, forced)
        title = self.model_type or self.architecture
        return record_input(self.task, self.model, input, options, title=title, architecture=self.architecture)

    def vocabulary(self) -> Tokenizer:
        return required_tokenizer(self)

    def save(self, folder: str | Path) -> None:
        """Writes the model in our own layout."""
        place = made(folder)
        write_weights(place, tensors_of(self.model))
        config = {} if self.config is None else to_plain(self.config)
        told = {"architecture": self.architecture, "task": self.task_name, "config": config}
        told |= {"family": self.model_type, "kept": dict(self.extra_config)}
        write_json(place / "config.json", {"headway": LAYOUT, **told})
        self.save_tokenizers(place)

    def save_hf(self, folder: str | Path) -> None:
        """Writes the model in Hugging Face's layout, for `transformers` to load."""
        known = self.family()
        written = known.write_config(self.config)  # refused, if at all, before anything is written
        kept = {name: value for name, value in self.extra_config.items() if name not in (*LENGTHS, *MASKS)}
        told = {**kept, **written, **{name: value for name, value in kept.items() if name not in RATES}}
        if SETTINGS in written:  # timm's
            ready = timm_told(self.preprocess) if isinstance(self.preprocess, ImagePreprocess) else {}
            told = with_settings(told, ready, class_list(self.extra_config))
        tensors, place = known.keymap(self.config).save(tensors_of(self.model)), made(folder)
        write_weights(place, tensors)
        write_json(place / "config.json", told)
        if any(name in self.extra_config for name in (*LENGTHS, *MASKS)):
            settings = {name: value for name, value in self.extra_config.items() if is_setting(name)}
            write_json(place / "generation_config.json", settings)
        self.save_tokenizers(place)

    def save_tokenizers(self, folder: Path) -> None:
        for words, place in ((self.tokenizer, folder), (self.target_tokenizer, folder / TARGET)):
            if words is not None:
                words.save(place)
        if self.architecture == WHISPER:
            from headway.interop.whisper import write_sound

            write_json(folder / PREPROCESS, write_sound(self.config))
        elif self.preprocess is not None:
            write_preprocess(self.preprocess, folder)

    def family(self) -> Family:
        name = self.model_type or type_for(self.architecture)
        if name is None:
            said = f"{self.architecture} models have no place in Hugging Face's layout"
            raise UserError(said, do="use to=headway")
        return family(name)


def load(
    folder: str | Path,
    *,
    heads: int | None = None,
    unsafe: bool = False,
    dtype: torch.dtype = torch.float32,
    task: type[Task] | None = None,
    module: nn.Module | None = None,
) -> Model:
    """The model in a folder of ours or of Hugging Face's, ready to run; `unsafe` lets it read a PyTorch pickle.

    `heads` is for a folder without config.json that holds a fairseq Transformer or an `nn.Transformer`, whose tensors
    show all the rest.  `task` is the class of a task that is none of headway's, and `module` takes the weights of a
    torch module of your own.  Matrices lie in memory as decoding reads them fastest; shapes and values are the file's.
    """
    place = Path(folder)
    published = place.suffix == OPENAI and place.is_file()
    if not place.is_dir() and not published:
        raise UserError(f"{place} is not a folder", allowed="a folder with config.json and model.safetensors")
    read = openai if published else configured if (place / "config.json").exists() else bare
    loaded, tensors = read(place, heads, unsafe)
    if loaded.architecture == CUSTOM:
        if module is None:
            said = f"{place} holds the weights of a torch module that is none of headway's"
            raise UserError(said, do="load it from Python, as in headway.load(folder, module=my_module)")
        loaded = replace(loaded, model=module)
    fill(loaded.model, tensors, dtype)
    arrange(loaded.model.eval())
    reader, writer = (loaded.tokenizer, loaded.target_tokenizer) if loaded.tokenizer else read_tokenizers(place)
    check_tokenizers(reader, writer, loaded.model, place)
    if loaded.architecture == WHISPER and (place / PREPROCESS).is_file():
        from headway.interop.whisper import check_sound

        check_sound(read_json(place / PREPROCESS), loaded.config)
    ready = read_preprocess(place) or loaded.preprocess
    return replace(loaded, tokenizer=reader, target_tokenizer=writer, preprocess=ready, own_task=task)


def configured(place: Path, heads: int | None, unsafe: bool) -> tuple[Model, Mapping[str, Tensor]]:
    """A model without memory yet, as config.json tells, and its tensors under our names."""
    if heads is not None:
        raise UserError(f"{place} has a config.json, which tells the heads", do="leave heads= out")
    values = read_json(place / "config.json")
    named = identified(values)
    tensors = read_weights(place, unsafe=unsafe)
    if named is None:
        return from_native(values), tensors
    loaded = from_hf(values, named, tensors)
    loaded = replace(loaded, extra_config={**loaded.extra_config, **generation_settings(place)})
    return loaded, loaded.family().keymap(loaded.config).load(tensors)


def generation_settings(place: Path) -> dict[str, Any]:
    """What generation_config.json says of the model's own tokens, lengths and masks."""
    file = place / "generation_config.json"
    found = read_json(file) if file.is_file() else {}
    return {name: value for name, value in found.items() if is_setting(name)}


def bare(place: Path, heads: int | None, unsafe: bool) -> tuple[Model, Mapping[str, Tensor]]:
    """The same where there is no config.json: as the tensors show, with the words that lie beside them."""
    from headway.interop.no_config import recognised

    tensors = read_weights(place, unsafe=unsafe)
    known = recognised(tensors)
    if known is None:
        said = (
            f"{place / 'config.json'} does not exist, and the tensors are no fairseq Transformer's or nn.Transformer's"
        )
        raise UserError(said, do="add the config.json that belongs to them")
    if heads is None:
        said = f"{place} holds {known.name} and no config.json, and its tensors do not show how many heads it has"
        raise UserError(said, do="give their number, as in heads=8")
    config = known.read_config(heads)
    source = config.vocab if config.source_vocab is None else config.source_vocab
    reader, writer = read_sides(place, source, config.vocab)
    model = without_memory(architecture("transformer").build, config)
    loaded = Model(model, config, "transformer", None, known.tokens, reader, writer, known.assumed)
    return loaded, known.keymap(config).load(tensors)


def openai(place: Path, heads: int | None, unsafe: bool) -> tuple[Model, Mapping[str, Tensor]]:
    """One of OpenAI's Whisper files, with the words that lie beside it: a *.tiktoken file of its package."""
    from headway.data.whisper_tokenizer import ENGLISH_VOCAB, marks_of, read_tiktoken, usual_settings
    from headway.interop.whisper import read_openai

    config, tensors = read_openai(place, unsafe=unsafe)
    loaded = Model(without_memory(architecture(WHISPER).build, config), config, WHISPER, WHISPER)
    words = place.with_name("gpt2.tiktoken" if config.vocab == ENGLISH_VOCAB else "multilingual.tiktoken")
    if not words.is_file():
        return replace(loaded, lacking=f"{words.name} of OpenAI's package"), tensors
    tokenizer = read_tiktoken(words, config.vocab)
    kept = usual_settings(tokenizer, marks_of(tokenizer))
    return replace(loaded, tokenizer=tokenizer, extra_config=kept), tensors


def identified(values: Mapping[str, Any]) -> Family | None:
    """Whose config.json this is: a family of Hugging Face's, or None for our own."""
    if "headway" in values:
        if values["headway"] != LAYOUT:
            said, do = f"config.json is of layout {values['headway']!r}", "use a newer headway"
            raise UserError(said, allowed=f"{LAYOUT}", do=do)
        return None
    return family(model_type_of(values))


def from_native(values: Mapping[str, Any]) -> Model:
    """A model without memory yet, from our own config.json."""
    name = values.get("architecture")
    if name == CUSTOM:
        return Model(nn.Identity(), None, CUSTOM, None, values.get("kept", {}), task_name=values.get("task"))
    if not isinstance(name, str) or name not in ARCHITECTURES:
        meant = nearest(str(name), ARCHITECTURES)
        raise UserError(f"no architecture {name!r}", allowed=listed(ARCHITECTURES, 20), meant=meant)
    known = architecture(name)
    config, model_type = from_plain(known.Config, values.get("config", {})), values.get("family")
    if model_type is not None:
        family(str(model_type))  # an unknown one is told here, not when it is saved
    task = values.get("task")
    model = without_memory(known.build, config)
    return Model(model, config, name, model_type, values.get("kept", {}), task_name=task)


def from_hf(values: Mapping[str, Any], known: Family, tensors: Mapping[str, Tensor]) -> Model:
    """The same from Hugging Face's; what the config leaves open is seen from the tensors' names."""
    config = known.settle(known.read_config(values), tensors)
    kept = {name: value for name, value in values.items() if name in (*KEPT, *RATES) or is_setting(name)}
    loaded = Model(without_memory(known.build, config), config, known.architecture, model_type_of(values), kept)
    if "model_type" in values:
        return loaded
    ready = read_timm(settings_of(values), (config.channels, config.image, config.image))
    return replace(loaded, extra_config={**kept, **read_names(values, config.classes)}, preprocess=ready)


def read_tokenizers(folder: Path) -> tuple[Tokenizer | None, Tokenizer | None]:
    """The tokenizers of what is read and of what is written, where these differ; None where there is none."""
    source, target = folder / "source.spm", folder / "target.spm"  # Marian's
    if source.is_file() and target.is_file():
        return load_tokenizer(source), load_tokenizer(target)
    writer = load_tokenizer(folder / TARGET) if (folder / TARGET).is_dir() else None
    found = any(True for pattern in READERS for _ in folder.glob(pattern))
    return load_tokenizer(folder) if found else None, writer


def check_tokenizers(reader: Tokenizer | None, writer: Tokenizer | None, model: nn.Module, folder: Path) -> None:
    """A tokenizer may not name more tokens than the model has rows for."""
    sides = [(reader, model)]
    if isinstance(model, EncoderDecoder):
        sides = [(reader, model.encoder), (writer or reader, model.decoder)]
    for words, side in sides:
        rows = next((part.token.num_embeddings for part in side.modules() if isinstance(part, TokenEmbed)), None)
        if words is not None and rows is not None and words.vocab > rows:  # without rows, it reads no words
            said = f"the tokenizer in {folder} has {words.vocab} tokens and the model's embedding {rows}"
            raise UserError(said, do="use the tokenizer that the model was trained with")


def without_memory(build: Any, config: Any) -> nn.Module:
    with torch.device("meta"):
        return build(config)


def made(folder: str | Path) -> Path:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    return place


def class_list(settings: Mapping[str, Any]) -> list[str]:
    """The names of classes in a config, in order."""
    names = settings.get("id2label") or {}
    return [names[key] for key in sorted(names, key=int)]
