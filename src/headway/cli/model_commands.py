"""The commands that need no training data: presets, running and converting models, this machine."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict, dataclass, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Group, Parameter

from headway.cli.options import (
    DATA_OPTIONS,
    LOAD_OPTIONS,
    DataOptions,
    DataPath,
    Device,
    Dtype,
    LoadOptions,
    ModelPath,
    StoredDtype,
    import_torch,
    trained_label_from,
)
from headway.errors import UserError, argument, listed, path_argument
from headway.system import CPU

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from headway.model import Model
    from headway.tasks.base import Task
    from headway.tasks.generation import GenerationOptions


LINES = 32  # texts at a time
MAX_NAME = 255  # characters of the name of a file
LENGTH = Group("Length", sort_key=10)
DRAWING = Group("Sampling (default: greedy)", sort_key=11)
SEARCHING = Group("Beam search", sort_key=12)
GUESSING = Group("Speculative decoding (the same output, faster)", sort_key=13)
TRANSLATING = Group("Languages (NLLB, mBART, M2M-100)", sort_key=14)
ASKING = Group("Images among words (LLaVA)", sort_key=15)


@Parameter(name="*")
@dataclass(frozen=True)
class Writing:
    """How a model writes.

    Parameters
    ----------
    max_new_tokens
        Maximum number of new tokens; by default those of the longest target in training, for models that write from a
        source, or 64.  Of a table, number of rows; by default 10.
    stop
        Stop string: generation ends before it; may be given several times.
    temperature
        Sampling temperature: below 1 favours probable tokens; 0 is greedy.
    top_k
        Top-k sampling: sample from the k most probable tokens.
    top_p
        Nucleus (top-p) sampling: sample from the smallest set of tokens with this total probability.
    min_p
        Min-p sampling: sample from tokens with at least this fraction of the highest probability.
    repetition_penalty
        Repetition penalty of tokens that already occur; 1 is none.
    seed
        Random seed of the sampling.
    beam
        Number of beams.
    length_penalty
        Length penalty: log-probabilities are divided by ((5 + length) / 6) to this power; 0.6 by default, 0 is none.
    best
        Number of hypotheses to print, with their scores.
    patient
        Search until no open beam can win, rather than until as many hypotheses as beams are complete.
    draft
        Draft model: the folder of a smaller model with the same tokenizer.
    lookup
        Draft by n-gram lookup in the text so far.
    source_language
        Language of the texts, as the tokenizer of a translator of many languages spells it: eng_Latn of NLLB, en_XX of
        mBART, en of M2M-100; by default that of its files.
    target_language
        Language to translate into, spelled likewise.
    prompt
        What is asked about each image, of a model that reads images among words (LLaVA); by default to describe it.
    """

    max_new_tokens: Annotated[int | None, Parameter(group=LENGTH, alias="--most")] = None
    stop: Annotated[tuple[str, ...], Parameter(group=LENGTH, show_default=False)] = ()
    temperature: Annotated[float | None, Parameter(group=DRAWING)] = None
    top_k: Annotated[int | None, Parameter(group=DRAWING)] = None
    top_p: Annotated[float | None, Parameter(group=DRAWING)] = None
    min_p: Annotated[float | None, Parameter(group=DRAWING)] = None
    repetition_penalty: Annotated[float, Parameter(group=DRAWING, alias="--repetition")] = 1.0
    seed: Annotated[int, Parameter(group=DRAWING)] = 0
    beam: Annotated[int | None, Parameter(group=SEARCHING)] = None
    length_penalty: Annotated[float | None, Parameter(group=SEARCHING)] = None
    best: Annotated[int | None, Parameter(group=SEARCHING)] = None
    patient: Annotated[bool, Parameter(group=SEARCHING)] = False
    draft: Annotated[Path | None, Parameter(group=GUESSING)] = None
    lookup: Annotated[bool, Parameter(group=GUESSING)] = False
    source_language: Annotated[str | None, Parameter(group=TRANSLATING)] = None
    target_language: Annotated[str | None, Parameter(group=TRANSLATING)] = None
    prompt: Annotated[str | None, Parameter(group=ASKING)] = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of `generation_options`, but for the draft model."""
        return {name: value for name, value in asdict(self).items() if name != "draft"}

    def check(self) -> None:
        """Refuses what cannot be asked together, before torch and a model are loaded."""
        from headway.generate.option_checks import DecodingOptions

        DecodingOptions(**self.arguments(), draft=self.draft)


WRITING = Writing()
Result = TypeVar("Result")


def list_presets(*, json: bool = False) -> None:
    """List the presets: architectures at their published sizes.

    Parameters
    ----------
    json
        Print them as JSON, with every size.
    """
    from headway.cli.preset_tables import list_presets

    print(list_presets(json))


def cost(
    preset: str,
    /,
    *,
    batch: int = 1,
    length: int | None = None,
    bits: int = 32,
    tokens: float | None = None,
    sizes: Annotated[dict[str, str] | None, Parameter(name="--model")] = None,
    json: bool = False,
) -> None:
    """Show the parameters, FLOPs and memory of a preset, layer by layer.

    Parameters
    ----------
    preset
        One of headway list.
    batch
        Batch size.
    length
        Sequence length in tokens; by default the model's context length.
    bits
        Bits of a number: 8, 16, 32 or 64.
    tokens
        Tokens (images, frames) of a whole training run, as in 300e9: prints what it takes.
    sizes
        Sizes other than the preset's, as in --model.layers 48 --model.pool mean.
    json
        Print the numbers as JSON, and nothing else.
    """
    from headway.cli.preset_tables import cost
    from headway.training.settings import parse_sizes

    print(cost(preset, batch=batch, length=length, bits=bits, tokens=tokens, sizes=parse_sizes(sizes), json=json))


def run(
    model: Path,
    /,
    *texts: str,
    lines: bool = False,
    embed: bool = False,
    dtype: Dtype = None,
    device: Device = CPU,
    json: bool = False,
    loading: LoadOptions = LOAD_OPTIONS,
    writing: Writing = WRITING,
) -> None:
    """Run a model on texts or files: continue, translate, fill masks, classify, caption, transcribe or embed.

    Parameters
    ----------
    model
        A model folder, in headway's or Hugging Face's layout.
    texts
        Inputs: texts; or files or folders, for a model of images, sounds or tables of numbers.  For CLIP, an image and
        then candidate texts.
    lines
        Run on each line of standard input, as it comes.
    embed
        Print the embedding of each input instead.
    json
        Print each prediction as a line of JSON.
    """
    writing.check()
    if lines and texts:
        do = f"give it so, as in headway run {path_argument(model)} --lines < {path_argument(texts[0])}"
        raise UserError(f"--lines reads standard input, and {texts[0][:60]!r} is given too", do=do)
    if not lines and not texts:
        raise UserError(
            "headway run needs something to answer",
            do='give a text or a file, as in headway run MODEL "text", or --lines to read them',
        )
    loaded, options = prepared(model, writing, loading, dtype, device)
    for text in texts if loaded.task.noun == "texts" else ():
        if len(text) < MAX_NAME and Path(text).is_file():
            lines_of = f"headway run {path_argument(model)} --lines < {path_argument(text)}"
            print(f"note: {text!r} is answered as a text; {lines_of} answers the lines of the file", file=sys.stderr)
    task, stops, cuts = loaded.task, Counter[str | None](), Counter[str | None]()
    for batch in line_batches(task) if lines else argument_batches(task, texts):
        for one in task.embeddings(loaded.model, batch) if embed else task.predict(loaded.model, batch, options):
            # of a folder, which file it is
            named = task.takes_files and not lines and one.input not in texts
            text = f"{one.input}: {one.to_text()}" if named else one.to_text()
            print(dumps(one.to_dict(), ensure_ascii=False) if json else text, flush=True)
            stops[one.stopped_at] += 1
            cuts[one.cut] += 1
    print_notes(cuts, stops, options)


def argument_batches(task: Task, texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """What was typed, some at a time: the files of a folder and the rows of a table are inputs of their own."""
    from headway.data.order import batched

    if task.asks_together:  # candidates, for each image
        first, *others = texts
        return ([one, *others] for one in task.inputs_named(first))
    return batched((one for given in texts for one in task.inputs_named(given)), LINES)


def line_batches(task: Task) -> Iterator[Sequence[str]]:
    """Lines of standard input as they come."""
    from headway.cli.standard_input import read_batches

    batches = read_batches(sys.stdin, LINES)
    return iter([[line for batch in batches for line in batch]]) if task.asks_together else batches


def print_notes(cuts: Counter[str | None], stops: Counter[str | None], options: GenerationOptions) -> None:
    """Inputs that were cut, and answers that were ended by a limit that nobody has asked for."""
    from headway.tasks.results import cut_notes, stop_notes

    for note in (*cut_notes(cuts), *(() if options.max_new_tokens else stop_notes(stops))):
        print(note, file=sys.stderr)


def generate(
    model: Path,
    text: str,
    /,
    *,
    dtype: Dtype = None,
    device: Device = CPU,
    loading: LoadOptions = LOAD_OPTIONS,
    writing: Writing = WRITING,
) -> None:
    """Generate text with a model, and print it as it is generated.

    Continue a text (GPT-2, Llama, Mistral, Mixtral, Phi-3, Qwen2):
      headway generate MODEL "Once upon a time" --max-new-tokens 100
      headway generate MODEL "Once upon a time" --temperature 0.8 --top-p 0.95
      headway generate MODEL "def area(r):" --stop $'\\n\\n' --lookup
      headway generate MODEL "Once upon a time" --draft SMALLER

    Generate from a source text (Transformer, Marian, BART, T5, recurrent models):
      headway generate MODEL "Il fait beau." --beam 4
      headway generate MODEL "Il fait beau." --beam 8 --best 3 --length-penalty 1
      headway generate MODEL "summarize: ..." --lookup

    Which decoding to use:
      (default)      greedy: the most probable token at each step; deterministic
      --temperature  sampling, for stories and dialogue
      --beam         beam search, for translations and summaries; printed at the end
      --lookup       speculative decoding by n-gram lookup in the text so far, for
                     outputs that repeat their source or themselves, such as code
      --draft        speculative decoding with a smaller model that has the same
                     tokenizer; not for recurrent models
      --stop         with all of these; the text before the stop string is printed

    Parameters
    ----------
    model
        The folder of a model that generates text.
    text
        The prompt, or the source text.
    """
    writing.check()
    loaded, options = prepared(model, writing, loading, dtype, device)
    from headway.tasks.results import StreamsText

    if not isinstance(loaded.task, StreamsText):
        raise UserError(
            f"the model in {model} does not write from texts",
            do=f"try headway run {path_argument(model)} {argument(text)}",
        )
    if writing.beam is not None:  # the best answer is known in the end
        found = loaded.predict(text, options)
        print(found.to_text())
    else:
        found = printed(loaded.stream(text, options))
    print_notes(Counter([found.cut]), Counter([found.stopped_at]), options)


def printed(pieces: Generator[str, None, Result]) -> Result:
    """Prints a text as it is written, and returns what its generator returns."""
    while True:
        try:
            print(next(pieces), end="", flush=True)
        except StopIteration as end:
            print()
            return end.value


def prepared(
    model: Path, writing: Writing, loading: LoadOptions, dtype: str | None, device: str
) -> tuple[Model, GenerationOptions]:
    """A model and how it writes; a draft model computes in what its own folder says, on the same device."""
    loaded = loading.load(model, dtype, device)
    draft = None if writing.draft is None else replace(loading, heads=None).load(writing.draft, device=device)
    return loaded, loaded.generation_options(**writing.arguments(), draft=draft)


def convert(
    source: ModelPath,
    target: Path,
    /,
    *,
    to: str | None = None,
    dtype: StoredDtype = None,
    data: tuple[DataPath, ...] = (),
    kind: DataOptions = DATA_OPTIONS,
    loading: LoadOptions = LOAD_OPTIONS,
) -> None:
    """Convert a model to another layout or dtype, and check the result numerically.

    Parameters
    ----------
    source
        The folder or the .gguf file to read.
    target
        The folder to write, new or empty; or the .gguf file.
    to
        The layout to write: headway, hf (Hugging Face's), onnx (a folder of graphs as Hugging Face Optimum writes,
        checked in ONNX Runtime, with run.py to try them), ctranslate2 (a folder for CTranslate2, checked in it) or gguf
        (a file for llama.cpp); by default gguf for a target that ends so, else headway.
    data
        Data to measure the loss of quality of another dtype on, as for headway eval; the model card keeps it.
    """
    import_torch()
    from headway.conversion import convert

    query = {**vars(kind), "trained_label_from": trained_label_from(source)}
    print(convert(source, target, to, dtype=dtype, data=data, query=query, **vars(loading)).to_text())


def doctor(*, json: bool = False) -> int:
    """Check this machine: versions, cores, memory, disk, optional packages and speed, with a fix for each problem.

    The exit code is 1 where a package is missing that headway needs.

    Parameters
    ----------
    json
        Print the findings as JSON, and nothing else.
    """
    from headway.doctor import doctor

    found = doctor()
    print(dumps(found.to_dict(), indent=1, ensure_ascii=False) if json else found.to_text())
    if missing := found.missing():
        said = f"error: headway cannot work without {listed(missing, 20)}; pip install {' '.join(missing)}"
        print(said, file=sys.stderr)
    return 1 if missing else 0
