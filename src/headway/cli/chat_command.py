"""`headway chat`: a model that answers line by line in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headway.cli.model_commands import WRITING, Writing, prepared, printed
from headway.cli.options import LOAD_OPTIONS, Device, Dtype, LoadOptions
from headway.errors import UserError, counted
from headway.system import CPU

if TYPE_CHECKING:
    from headway.model import Model
    from headway.serve.conversation import Conversation
    from headway.tasks.generation import GenerationOptions

IMAGE = "/image"  # in front of the name of a file


def chat(
    model: Path,
    /,
    *,
    system: str | None = None,
    image: Annotated[tuple[Path, ...], Parameter(show_default=False)] = (),
    dtype: Dtype = None,
    device: Device = CPU,
    loading: LoadOptions = LOAD_OPTIONS,
    writing: Writing = WRITING,
) -> None:
    """Talk to a model in the terminal: type a line, and it answers as it writes.

    A model with a chat template is given the whole conversation.  Any other answers
    each line by itself: it continues, translates, classifies, fills masks …; a model
    of images or sounds is given names of files.  Ctrl-C ends an answer, Ctrl-D leaves.

    A model that reads images among words (LLaVA) talks about them: --image photo.png
    shows one with the first message, the line /image photo.png with the next one.

    Parameters
    ----------
    model
        A model folder, in headway's or Hugging Face's layout.
    system
        What the model is told before the conversation begins.
    image
        An image that the conversation is about; may be given several times.
    """
    writing.check()
    loaded, options = prepared(model, writing, loading, dtype, device)
    talk = conversation_with(loaded, model, system, options)
    for file in image:
        if talk is None:
            do = "leave it out"
            raise UserError(f"the model {loaded.task.does} and holds no conversation about --image", do=do)
        talk.show(str(file))
    about = f"the model {loaded.task.does}" if talk is None else "a conversation"
    also = f"{IMAGE} photo.png shows an image, " if talk is not None and talk.decoder.reads_images else ""
    print(f"{about}; {also}Ctrl-C ends an answer, Ctrl-D leaves", file=sys.stderr)
    while (line := read_line()) is not None:
        if not line.strip():
            continue
        try:
            if talk is not None and talk.decoder.reads_images and line.split()[0] == IMAGE:
                talk.show(image_named(line))
            else:
                say(answered(loaded, line, options) if talk is None else talk.ask(line, options))
        except KeyboardInterrupt:
            print(" …")
        except UserError as error:  # of this line alone
            print(f"error: {error}", file=sys.stderr)
        if talk is not None and talk.left_out:
            count = counted(talk.left_out, "message")
            print(f"note: the first {count} no longer fit the context and were left out", file=sys.stderr)


def conversation_with(
    loaded: Model, folder: Path, system: str | None, options: GenerationOptions
) -> Conversation | None:
    """A conversation with a model that has a chat template; None: it answers each line by itself."""
    from headway.data.chat_template import load_chat_template
    from headway.serve.conversation import Conversation

    decoder = loaded.task.causal_decoder(loaded.model)
    template = None if decoder is None else decoder.chat_template(load_chat_template(folder))
    if system is not None and template is None:
        raise UserError(f"the model in {folder} has no chat template to put --system into", do="leave it out")
    if template is not None and options.prompt is not None:
        raise UserError("--prompt asks about each image, and in a conversation you type", do="leave it out")
    return None if template is None else Conversation(loaded, template, system)


def image_named(line: str) -> str:
    """The file behind /image."""
    _, *named = line.split(maxsplit=1)
    if not named:
        raise UserError(f"{IMAGE} without a file", do=f"name one, as in {IMAGE} photo.png")
    return named[0].strip()


def read_line() -> str | None:
    """The next line; None at the end, or where Ctrl-C is typed in place of one."""
    try:
        return input("> " if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            print()
        return None


def say(pieces: Generator[str, None, str]) -> None:
    """Prints an answer as it comes, and which limit ended it."""
    limits = {"length": "the maximum number of tokens; raise --max-new-tokens", "context": "its full context"}
    with closing(pieces):
        reason = printed(pieces)
    if reason in limits:
        print(f"note: the answer was ended by {limits[reason]}", file=sys.stderr)


def answered(model: Model, line: str, options: GenerationOptions) -> Generator[str, None, str]:
    """What a model answers to a line by itself, as it writes where it can."""
    from headway.generate.sampling import Sampler
    from headway.tasks.results import StreamsText, TextPrediction

    if isinstance(model.task, StreamsText) and isinstance(options.decoding, Sampler):
        found = yield from model.stream(line, options)
    else:
        found = model.predict(line, options)
        yield found.to_text()
    return found.hypotheses[0].reason if isinstance(found, TextPrediction) else ""
