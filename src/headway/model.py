"""The model folder: read, whatever library wrote it, and written, so that it explains itself.

A folder holds `config.json`, `model.safetensors` and, where there is one, a tokenizer.  In our own layout config.json
says `{"headway": 1, "architecture": …, "config": {…}, "kept": {…}}` and tensors have our names; in Hugging Face's
layout both are as `transformers` expects them.  Files are data: nothing in them names code.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from headway.data.kinds import DataKind
from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_readers import TARGET
from headway.dtype import FP32, INT8
from headway.errors import UserError
from headway.generate.request import LENGTHS, MASKS, generation_settings
from headway.generate.weight_layout import arrange_waiting
from headway.interop.timm_folder import SETTINGS, with_settings
from headway.interop.weights import write_weights
from headway.nn.trunk import tensors_of
from headway.system import write_json
from headway.tasks.base import Task, task_of
from headway.tasks.generation import GenerationOptions, check_draft, check_useful, generation_options
from headway.tasks.model_parts import (
    RATES,
    class_list,
    required_tokenizer,
)
from headway.tasks.results import DEFAULT_EVALUATION, EvalOptions, EvalResult, Prediction, StreamsText
from headway.zoo.build import to_plain

if TYPE_CHECKING:
    from headway.data.preprocess import Preprocess
    from headway.interop.registry import Family
    from headway.look.html_page import RecordingView
    from headway.look.recording import Recording
    from headway.tasks.causal_decoder import CausalDecoder

WHISPER = "whisper"  # its files have a layout of their own, and it makes frames of sounds by itself
LAYOUT = 1  # of our own folders; what is newer is refused
PREPROCESSING = "preprocessor_config.json"  # is read and written by data.preprocess, which models of texts never load


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
    assumed: str = ""  # what no file says, and was assumed to be as usual
    notes: tuple[str, ...] = ()  # what was inferred or ignored of its config.json
    preprocess: Preprocess | None = None  # of images, sounds or numbers
    lacking: str = ""  # the file that would hold its tokenizer, where that is not tokenizer.json
    task_name: str | None = None  # from config.json
    own_task: type[Task] | None = None  # a task that is none of headway's
    dtype: str = FP32  # that it computes in: fp32, bf16, fp16 or int8

    @property
    def task(self) -> Task:
        """What the model is for."""
        return self.task_for(None)

    def task_for(self, data_kind: DataKind | None) -> Task:
        """What the model is for; some encoder–decoders are for pairs and for texts, so the data decides."""
        arrange_waiting(self.model)  # whoever asks is about to use it
        if self.own_task is None:
            return task_of(self, self.task_name, data_kind)
        task = self.own_task.from_model(self)
        if task is None:
            name = self.own_task.__name__
            raise UserError(f"{name} is no task of this model", do="give the one it was trained for")
        return task

    def predict(self, inputs: str | Sequence[str], options: GenerationOptions | None = None, **how: Any) -> Any:
        """The answer to an input, or to each of several: a text, or a file for a model of images, sounds or tables.

        One input gives a `Prediction`, a list of inputs a list of them; each has `to_dict()` and `to_text()`.  `how` is
        given to `generation_options`: temperature, max_new_tokens, beam, seed, stop.
        """
        options, several = options or self.generation_options(**how), [inputs] if isinstance(inputs, str) else inputs
        found = list(self.task.predict(self.model, several, options)) if several else []
        return found[0] if isinstance(inputs, str) else found

    def generation_options(self, *, draft: Model | None = None, **how: Any) -> GenerationOptions:
        """Options of this model by name; `draft` is a smaller model with the same tokens."""
        check_useful({**how, "draft": draft}, self.task.decoding, self.task.does)
        if draft is not None:
            check_draft(*((one.tokenizer, one.target_tokenizer or one.tokenizer) for one in (self, draft)))
        return generation_options(draft=None if draft is None else draft.model, **how)

    def stream(
        self, text: str, options: GenerationOptions | None = None, **how: Any
    ) -> Generator[str, None, Prediction]:
        """What the model writes for a text, piece by piece; it returns the whole in the end; `how` as for `predict`."""
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

    def attend(
        self, input: str, *, most: int = 16, said: Recording | None = None, prefix: Sequence[int] = ()
    ) -> RecordingView:
        """What the model does with one input, recorded: every attention map, lazily, and what came out.

        `input` is a text, or the name of a file where the model reads images or sounds.  A model that continues texts
        writes at most `most` tokens.  In a notebook the result shows the page of `headway look`.

        A model that writes reads its own tokens as it goes; with `said`, a recording of another model, it reads what
        was written there.  Then both have maps with the same rows, and the outcome's steps are the other's tokens with
        this model's probabilities; its text is what this model writes itself.  With `prefix`, ids of tokens, its output
        begins with these.
        """
        from headway.look.html_page import RecordingView  # late: whoever runs or trains a model does not need it
        from headway.tasks.tracing import TraceOptions

        context: object = getattr(self.config, "context", None)
        forced = None if said is None else said.forced_text
        options = TraceOptions(most, context if isinstance(context, int) else None, forced, tuple(prefix))
        title = self.model_type or self.architecture
        return RecordingView.of_input(
            self.task, self.model, input, options, title=title, architecture=self.architecture
        )

    def causal_decoder(self) -> CausalDecoder:
        """What continues its texts and conversations token by token."""
        task = self.task
        found = task.causal_decoder(self.model)
        if found is None:
            raise UserError(f"the model {task.does}", allowed="a model that continues texts")
        return found

    def vocabulary(self) -> Tokenizer:
        return required_tokenizer(self)

    def save(self, folder: str | Path) -> None:
        """Writes the model in our own layout."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        write_weights(place, tensors_of(self.model))
        write_json(place / "config.json", self.native_config())
        self.save_inputs(place)

    def native_config(self) -> dict[str, Any]:
        """What our own config.json says of it."""
        return {
            "headway": LAYOUT,
            "architecture": self.architecture,
            "task": self.task_name,
            "config": {} if self.config is None else to_plain(self.config),
            "family": self.model_type,
            "kept": dict(self.extra_config),
            **({} if self.dtype == FP32 else {"dtype": self.dtype}),
        }

    def save_hf(self, folder: str | Path) -> None:
        """Writes the model in Hugging Face's layout, for `transformers` to load."""
        if self.dtype == INT8:
            raise UserError("int8 weights have no place in Hugging Face's layout", do="use to=headway")
        family, place = self.family(), Path(folder)
        config = family.write_config(self.config)  # refused, if at all, before anything is written
        extra = {name: value for name, value in self.extra_config.items() if name not in (*LENGTHS, *MASKS)}
        values = {**extra, **config, **{name: value for name, value in extra.items() if name not in RATES}}
        values = family.write_settings(values)
        if SETTINGS in config:  # timm's
            from headway.data.preprocess import ImagePreprocess
            from headway.data.timm_preprocess import timm_told

            settings = timm_told(self.preprocess) if isinstance(self.preprocess, ImagePreprocess) else {}
            values = with_settings(values, settings, class_list(self.extra_config))
        tensors = family.keymap(self.config).save(tensors_of(self.model))
        place.mkdir(parents=True, exist_ok=True)
        write_weights(place, tensors)
        write_json(place / "config.json", values)
        if any(name in self.extra_config for name in (*LENGTHS, *MASKS)):
            write_json(place / "generation_config.json", generation_settings(self.extra_config))
        if processor := family.write_processor(self.config):
            write_json(place / "processor_config.json", processor)
        self.save_inputs(place, family.write_tokenizer(values))

    def save_inputs(self, folder: Path, settings: Mapping[str, Any] | None = None) -> None:
        """Writes the tokenizers, with settings for transformers, and the preprocessing."""
        for tokenizer, place in ((self.tokenizer, folder), (self.target_tokenizer, folder / TARGET)):
            if tokenizer is not None:
                tokenizer.save(place, settings)
        if self.architecture == WHISPER:
            from headway.interop.whisper import write_sound

            write_json(folder / PREPROCESSING, write_sound(self.config))
        elif self.preprocess is not None:
            from headway.data.preprocess import write_preprocess

            write_preprocess(self.preprocess, folder)

    def family(self) -> Family:
        from headway.interop.registry import family, type_for  # late: our own folders need no other library's layout

        name = self.model_type or type_for(self.architecture)
        if name is None:
            given = f"{self.architecture} models have no place in Hugging Face's layout"
            raise UserError(given, do="use to=headway")
        return family(name)
