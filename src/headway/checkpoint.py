"""The model folder: read, whatever library wrote it, and written, so that it explains itself.

A folder holds `config.json`, `model.safetensors` and, where there is one, a tokenizer.  In our own layout config.json
says `{"headway": 1, "architecture": …, "config": {…}, "kept": {…}}` and tensors have our names; in Hugging Face's
layout both are as `transformers` expects them.  Files are data: nothing in them names code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headway.answer import PLAIN, Answer, Speaker, Wish
from headway.data.preprocess import FILE as PREPROCESS
from headway.data.preprocess import (
    ImagePreprocess,
    Preprocess,
    SoundPreprocess,
    read_preprocess,
    read_timm,
    timm_told,
    write_preprocess,
)
from headway.data.read_fairseq import read_sides
from headway.data.read_tokenizer import READERS, load_tokenizer
from headway.data.tokenizer import Tokenizer
from headway.data.whisper_tokenizer import ENGLISH_VOCAB, marks_of, read_tiktoken, usual_settings
from headway.errors import UserError, listed, nearest
from headway.files import read_json, write_json
from headway.generate.layout import arrange
from headway.generate.settings import LENGTHS, MASKS, is_setting
from headway.interop.bare import recognised
from headway.interop.families import Family, family, model_type_of, type_for
from headway.interop.timm_folder import SETTINGS, read_names, settings_of, with_settings
from headway.interop.weights import OPENAI, read_weights, write_weights
from headway.interop.whisper import check_sound, read_openai, write_sound
from headway.nn.embed import TokenEmbed
from headway.nn.model import EncoderDecoder, Trunk, tensors_of
from headway.nn.waves import WaveEmbed
from headway.observer import Listener, Observer, sense_of
from headway.tasks.senses import Waves
from headway.zoo import whisper
from headway.zoo.build import ARCHITECTURES, architecture
from headway.zoo.plain import from_plain, to_plain

if TYPE_CHECKING:
    from headway.look.attended import Attended
    from headway.look.shown import Shown

LAYOUT = 1  # of our own folders; what is newer is refused
KEPT = ("id2label", "label2id")
# rates that training there uses and no model here has a place for
RATES = (
    *("encoder_layerdrop", "decoder_layerdrop", "resid_pdrop", "embd_pdrop", "router_jitter_noise"),
    *("classif_dropout", "classifier_dropout", "seq_classif_dropout", "qa_dropout", "summary_first_dropout"),
)
SENSED = {"image": "images", "features": "sounds or numbers"}  # what a config with such a field is made for
TARGET = "target"  # the folder of the tokenizer of what is written, where it is another
COUNT = ".num_batches_tracked"  # of a batch norm, which old files leave out and nothing here computes with


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model, its config, and where it came from."""

    model: nn.Module
    config: Any
    architecture: str
    model_type: str | None = None  # in Hugging Face's layout, where that has one
    kept: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of their config: special tokens, names of classes
    tokenizer: Tokenizer | None = None
    writer: Tokenizer | None = None  # the words of what it writes, where these are others
    assumed: str = ""  # what no file tells, and was taken as usual
    preprocess: Preprocess | None = None  # how images or sounds are made fit for it
    lacking: str = ""  # the file that would hold its words, where that is not tokenizer.json

    def run(self, text: str, wish: Wish = PLAIN) -> Answer:
        """Does what the model is for: continues, fills masks, writes, classifies, tags or embeds.

        `text` is the name of a file where the model reads images or sounds.
        """
        return self.answerer().answer([text], wish)[0]

    def attend(self, input: str, *, most: int = 16, said: Attended | None = None) -> Shown:
        """What the model does with one input, recorded: every attention map, lazily, and what came out.

        `input` is a text, or the name of a file where the model reads images or sounds.  A model that continues texts
        goes on for at most `most` tokens.  In a notebook the result shows the page of `headway look`.

        A model that writes reads its own words as it goes; with `said`, a recording of another model, it reads what was
        written there.  Then both have maps with the same rows, and the outcome's steps are the other's words as this
        model finds them; its text is what this model writes itself.  A model that writes nothing reads the input alone.
        """
        from headway.look.shown import attend  # late: whoever runs or trains a model does not look at it
        from headway.look.speaking import Terms

        context: object = getattr(self.config, "context", None)
        return attend(
            self.answerer(),
            input,
            Terms(most, context if isinstance(context, int) else None, None if said is None else said.said),
            title=self.model_type or self.architecture,
            architecture=self.architecture,
        )

    def answerer(self) -> Speaker | Observer | Listener:
        """Whoever answers: a reader of texts, or of images, sounds and numbers."""
        if isinstance(self.config, whisper.Config):
            return self.listener(self.config)
        return self.speaker() if self.preprocess is None and not self.hears_samples() else self.observer()

    def listener(self, config: whisper.Config) -> Listener:
        assert isinstance(self.model, EncoderDecoder)
        return Listener(self.model, self.vocabulary(), self.kept, config.source_context * prod(whisper.STRIDES))

    def observer(self) -> Observer:
        """The model with what it senses."""
        words, ready = self.writer or self.tokenizer, self.preprocess
        if self.hears_samples():
            sense = Waves(ready if isinstance(ready, SoundPreprocess) else SoundPreprocess())
        else:
            assert ready is not None
            sense = sense_of(ready)
        return Observer(self.model, sense, self.kept, self.labels(), words)

    def hears_samples(self) -> bool:
        """Whether it reads waveforms, of which nobody makes frames before."""
        return isinstance(self.model, Trunk) and isinstance(self.model.embed, WaveEmbed)

    def labels(self) -> list[str]:
        names = self.kept.get("id2label") or {}
        return [names[key] for key in sorted(names, key=int)]

    def speaker(self) -> Speaker:
        """The model with its words."""
        sensed = next((what for field, what in SENSED.items() if hasattr(self.config, field)), None)
        if sensed and self.preprocess is None:
            said = f"this model's folder does not say how {sensed} are made fit for {self.architecture}"
            raise UserError(said, do=f"add {PREPROCESS}")
        return Speaker(self.model, self.vocabulary(), self.kept, self.labels(), self.writer)

    def vocabulary(self) -> Tokenizer:
        if self.tokenizer is None:
            where = f"put {self.lacking} beside it" if self.lacking else "add tokenizer.json"
            raise UserError("this model's folder holds no tokenizer", do=f"call model(ids) with numbers, or {where}")
        return self.tokenizer

    def save(self, folder: str | Path) -> None:
        """Writes the model in our own layout."""
        place = made(folder)
        write_weights(place, tensors_of(self.model))
        told = {"architecture": self.architecture, "config": to_plain(self.config)}
        told |= {"family": self.model_type, "kept": dict(self.kept)}
        write_json(place / "config.json", {"headway": LAYOUT, **told})
        self.save_words(place)

    def save_hf(self, folder: str | Path) -> None:
        """Writes the model in Hugging Face's layout, for `transformers` to load."""
        known = self.family()
        written = known.write_config(self.config)  # refused, if at all, before anything is written
        kept = {name: value for name, value in self.kept.items() if name not in (*LENGTHS, *MASKS)}
        told = {**kept, **written, **{name: value for name, value in kept.items() if name not in RATES}}
        if SETTINGS in written:  # timm's
            ready = timm_told(self.preprocess) if isinstance(self.preprocess, ImagePreprocess) else {}
            told = with_settings(told, ready, self.labels())
        tensors, place = known.keymap(self.config).save(tensors_of(self.model)), made(folder)
        write_weights(place, tensors)
        write_json(place / "config.json", told)
        if any(name in self.kept for name in (*LENGTHS, *MASKS)):
            settings = {name: value for name, value in self.kept.items() if is_setting(name)}
            write_json(place / "generation_config.json", settings)
        self.save_words(place)

    def save_words(self, folder: Path) -> None:
        for words, place in ((self.tokenizer, folder), (self.writer, folder / TARGET)):
            if words is not None:
                words.save(place)
        if isinstance(self.config, whisper.Config):
            write_json(folder / PREPROCESS, write_sound(self.config))
        elif self.preprocess is not None:
            write_preprocess(self.preprocess, folder)

    def family(self) -> Family:
        name = self.model_type or type_for(self.architecture)
        if name is None:
            said = f"{self.architecture} models have no place in Hugging Face's layout"
            raise UserError(said, do="use --to headway")
        return family(name)


def load(
    folder: str | Path, *, heads: int | None = None, unsafe: bool = False, dtype: torch.dtype = torch.float32
) -> Loaded:
    """The model in a folder of ours or of Hugging Face's, ready to run; `unsafe` lets it read a PyTorch pickle.

    `heads` is for a folder without config.json that holds a fairseq Transformer or an `nn.Transformer`, whose tensors
    show all the rest.  Matrices lie in memory as decoding reads them fastest; shapes and values are the file's.
    """
    place = Path(folder)
    published = place.suffix == OPENAI and place.is_file()
    if not place.is_dir() and not published:
        raise UserError(f"{place} is not a folder", allowed="a folder with config.json and model.safetensors")
    read = openai if published else configured if (place / "config.json").exists() else bare
    loaded, tensors = read(place, heads, unsafe)
    fill(loaded.model, tensors, dtype)
    arrange(loaded.model.eval())
    reader, writer = (loaded.tokenizer, loaded.writer) if loaded.tokenizer else words_of(place)
    check_words(reader, writer, loaded.model, place)
    if isinstance(loaded.config, whisper.Config) and (place / PREPROCESS).is_file():
        check_sound(read_json(place / PREPROCESS), loaded.config)
    ready = read_preprocess(place) or loaded.preprocess
    return replace(loaded, tokenizer=reader, writer=writer, preprocess=ready)


def configured(place: Path, heads: int | None, unsafe: bool) -> tuple[Loaded, Mapping[str, Tensor]]:
    """A model without memory yet, as config.json tells, and its tensors under our names."""
    if heads is not None:
        raise UserError(f"{place} has a config.json, which tells the heads", do="leave heads (--heads) out")
    values = read_json(place / "config.json")
    named = identified(values)
    tensors = read_weights(place, unsafe=unsafe)
    if named is None:
        return told_here(values), tensors
    loaded = told_there(values, named, tensors)
    loaded = replace(loaded, kept={**loaded.kept, **generation_settings(place)})
    return loaded, loaded.family().keymap(loaded.config).load(tensors)


def generation_settings(place: Path) -> dict[str, Any]:
    """What generation_config.json says of the model's own tokens, lengths and masks."""
    file = place / "generation_config.json"
    found = read_json(file) if file.is_file() else {}
    return {name: value for name, value in found.items() if is_setting(name)}


def bare(place: Path, heads: int | None, unsafe: bool) -> tuple[Loaded, Mapping[str, Tensor]]:
    """The same where there is no config.json: as the tensors show, with the words that lie beside them."""
    tensors = read_weights(place, unsafe=unsafe)
    known = recognised(tensors)
    if known is None:
        said = (
            f"{place / 'config.json'} does not exist, and the tensors are no fairseq Transformer's or nn.Transformer's"
        )
        raise UserError(said, do="add the config.json that belongs to them")
    if heads is None:
        said = f"{place} holds {known.name} and no config.json, and its tensors do not show how many heads it has"
        raise UserError(said, do="give their number, as in heads=8 (--heads 8)")
    config = known.read_config(heads)
    source = config.vocab if config.source_vocab is None else config.source_vocab
    reader, writer = read_sides(place, source, config.vocab)
    model = without_memory(architecture("transformer").build, config)
    loaded = Loaded(model, config, "transformer", None, known.tokens, reader, writer, known.assumed)
    return loaded, known.keymap(config).load(tensors)


def openai(place: Path, heads: int | None, unsafe: bool) -> tuple[Loaded, Mapping[str, Tensor]]:
    """One of OpenAI's Whisper files, with the words that lie beside it: a *.tiktoken file of its package."""
    config, tensors = read_openai(place, unsafe=unsafe)
    loaded = Loaded(without_memory(architecture("whisper").build, config), config, "whisper", "whisper")
    words = place.with_name("gpt2.tiktoken" if config.vocab == ENGLISH_VOCAB else "multilingual.tiktoken")
    if not words.is_file():
        return replace(loaded, lacking=f"{words.name} of OpenAI's package"), tensors
    tokenizer = read_tiktoken(words, config.vocab)
    kept = usual_settings(tokenizer, marks_of(tokenizer))
    return replace(loaded, tokenizer=tokenizer, kept=kept), tensors


def identified(values: Mapping[str, Any]) -> Family | None:
    """Whose config.json this is: a family of Hugging Face's, or None for our own."""
    if "headway" in values:
        if values["headway"] != LAYOUT:
            said, do = f"config.json is of layout {values['headway']!r}", "use a newer headway"
            raise UserError(said, allowed=f"{LAYOUT}", do=do)
        return None
    return family(model_type_of(values))


def told_here(values: Mapping[str, Any]) -> Loaded:
    """A model without memory yet, from our own config.json."""
    name = values.get("architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        meant = nearest(str(name), ARCHITECTURES)
        raise UserError(f"no architecture {name!r}", allowed=listed(ARCHITECTURES, 20), meant=meant)
    known = architecture(name)
    config, model_type = from_plain(known.Config, values.get("config", {})), values.get("family")
    if model_type is not None:
        family(str(model_type))  # an unknown one is told here, not when it is saved
    return Loaded(without_memory(known.build, config), config, name, model_type, values.get("kept", {}))


def told_there(values: Mapping[str, Any], known: Family, tensors: Mapping[str, Tensor]) -> Loaded:
    """The same from Hugging Face's; what the config leaves open is seen from the tensors' names."""
    config = known.settle(known.read_config(values), tensors)
    kept = {name: value for name, value in values.items() if name in (*KEPT, *RATES) or is_setting(name)}
    loaded = Loaded(without_memory(known.build, config), config, known.architecture, model_type_of(values), kept)
    if "model_type" in values:
        return loaded
    ready = read_timm(settings_of(values), (config.channels, config.image, config.image))
    return replace(loaded, kept={**kept, **read_names(values, config.classes)}, preprocess=ready)


def words_of(folder: Path) -> tuple[Tokenizer | None, Tokenizer | None]:
    """The tokenizers of what is read and of what is written, where these differ; None where there is none."""
    source, target = folder / "source.spm", folder / "target.spm"  # Marian's
    if source.is_file() and target.is_file():
        return load_tokenizer(source), load_tokenizer(target)
    writer = load_tokenizer(folder / TARGET) if (folder / TARGET).is_dir() else None
    found = any(True for pattern in READERS for _ in folder.glob(pattern))
    return load_tokenizer(folder) if found else None, writer


def check_words(reader: Tokenizer | None, writer: Tokenizer | None, model: nn.Module, folder: Path) -> None:
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


def fill(model: nn.Module, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Gives a model that was built without memory its tensors; parameters with several names stay one parameter."""
    groups = aliases(model)
    tensors = {**{name: torch.zeros((), dtype=torch.long) for [name, *_] in groups if name.endswith(COUNT)}, **tensors}
    check_names(groups, tensors)
    meant = model.state_dict(keep_vars=True)
    for names in groups:
        tensor, expected = next(tensors[name] for name in names if name in tensors), meant[names[0]]
        if tensor.shape != expected.shape:
            said = f"{names[0]} is {tuple(tensor.shape)} in the file and {tuple(expected.shape)} by the config"
            raise UserError(said, do="use the config.json that was written with these weights")
        filled = tensor.to(dtype if expected.is_floating_point() else expected.dtype)
        if isinstance(expected, nn.Parameter):
            filled = nn.Parameter(filled, expected.requires_grad)
        for name in names:
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, filled)


def check_names(groups: list[list[str]], tensors: Mapping[str, Tensor]) -> None:
    missing = sorted(names[0] for names in groups if not any(name in tensors for name in names))
    unknown = sorted(set(tensors) - {name for names in groups for name in names})
    told = [
        f"{len(missing)} tensors are missing: {listed(missing)}" if missing else "",
        f"{len(unknown)} have no place: {listed(unknown)}" if unknown else "",
    ]
    if missing or unknown:
        raise UserError(f"the weights do not fit the config: {' and '.join(filter(None, told))}")


def aliases(model: nn.Module) -> list[list[str]]:
    """The names of each parameter, and of what batch norms have gathered; tied ones have several."""
    groups: dict[int, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def made(folder: str | Path) -> Path:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    return place
