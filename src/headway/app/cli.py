"""The command line: `headway COMMAND …`.  All use of cyclopts is in this file and the others named cli_*.py.

Exit codes: 0 done, 1 the machine refused (a full disk, a missing right), 2 a mistake that the caller can mend,
130 interrupted, 141 nobody reads the output any more.
Commands import what they need when they run, so that help and mistakes answer at once, without torch.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from traceback import print_exc
from typing import TextIO

from cyclopts import App, CycloptsError, Parameter
from cyclopts.exceptions import MissingArgumentError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from headway import __version__
from headway.app import cli_inspect, cli_look, cli_train
from headway.app.cli_options import Heads, Unsafe
from headway.app.cli_write import GENERATE, Writing
from headway.errors import UserError, listed, nearest

START = f"""\
headway {__version__}: attention and transformers from one readable set of parts

  headway train dates        learn to read dates in many languages, in minutes
  headway train FILE         train on your own pairs, labelled texts or texts
  headway run MODEL "text"   what a trained or downloaded model makes of a text
  headway look MODEL "text"  what it looks at while it reads, as a page
  headway explain attention  one attention worked through, with every number

  headway --help             all commands
"""

app = App(
    name="headway",
    help="Attention and transformers from one readable set of parts.",
    version=__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=lambda value: None if value is False else value),
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    verbose=False,
    suppress_keyboard_interrupt=False,
)

app.command(cli_train.train)
app.command(cli_train.check)
app.command(cli_train.evaluate, name="eval")
app.command(cli_train.init)
app.command(cli_train.doctor)


@app.command
def demo() -> int:
    """Train a translator of dates in 44 languages, in about three minutes, and see what it looks at."""
    from headway.app.demo import demo

    return demo()


@app.command(name="list")
def list_presets(*, json: bool = False) -> None:
    """List the presets: architectures at their published sizes.

    Parameters
    ----------
    json
        Print them as JSON, with every size.
    """
    from headway.app.models import list_presets

    print(list_presets(json))


@app.command
def cost(preset: str, /, *, batch: int = 1, length: int | None = None, json: bool = False) -> None:
    """Say what a preset takes: parameters, FLOPs and bytes, layer by layer.

    Parameters
    ----------
    preset
        One of headway list.
    batch
        Rows of a batch.
    length
        Tokens of a row; the model's whole context unless given.
    json
        Print the numbers as JSON, and nothing else.
    """
    from headway.app.models import cost

    print(cost(preset, batch=batch, length=length, json=json))


WRITING = Writing()


@app.command
def run(
    model: Path,
    /,
    *texts: str,
    lines: bool = False,
    embed: bool = False,
    json: bool = False,
    heads: Heads = None,
    unsafe: Unsafe = False,
    writing: Writing = WRITING,
) -> None:
    """Do what a model is for: continue, fill the mask, translate, classify, tell what is on an image, or embed.

    Parameters
    ----------
    model
        A model folder, of headway's or of Hugging Face's layout.
    texts
        What to answer: texts; or files, for a model of images, sounds or tables of numbers.  For a CLIP, first an
        image, and then the texts that it may belong to.
    lines
        Answer each line of standard input.
    embed
        Print the vector of each text instead.
    json
        Print an answer as a line of JSON.
    """
    from headway.app.run import run

    wish, draft = writing.wish(), writing.draft
    for line in run(model, texts, wish, lines=lines, embed=embed, json=json, heads=heads, unsafe=unsafe, draft=draft):
        print(line, flush=True)


@app.command(help=GENERATE)
def generate(
    model: Path, text: str, /, *, heads: Heads = None, unsafe: Unsafe = False, writing: Writing = WRITING
) -> None:
    """Write with a model, and show the text as it is written.

    Parameters
    ----------
    model
        The folder of a model that writes.
    text
        How the text begins, or what to answer.
    """
    from headway.app.run import generate

    generate(model, text, writing.wish(), sys.stdout, heads=heads, unsafe=unsafe, draft=writing.draft)


@app.command
def convert(source: Path, target: Path, /, *, to: str = "headway", heads: Heads = None, unsafe: Unsafe = False) -> None:
    """Write a model folder in another layout.

    Parameters
    ----------
    source
        The folder to read, of either layout.
    target
        The folder to write, new or empty.
    to
        The layout to write: headway or hf (Hugging Face's).
    """
    from headway.app.convert import convert

    print(convert(source, target, to, heads=heads, unsafe=unsafe))


@app.command
def explain(topic: str, /, *, json: bool = False, source: bool = False) -> None:
    """Work through a formula step by step, with its numbers.

    Parameters
    ----------
    topic
        What to explain: attention.
    json
        Print the numbers as JSON, and nothing else.
    source
        Print where the code of the formula is, as file:line.
    """
    from headway.app.explain import explain

    print(explain(topic, json=json, source=source))


app.command(cli_train.bottleneck)
app.command(cli_look.look)
app.command(cli_inspect.inspect)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    forgive_narrow_encodings()
    try:
        code = dispatch(words)
        sys.stdout.flush()  # a closed pipe is noticed here, not at exit
    except UserError as error:
        trace(words)
        print(f"error: {error}", *tips(error, words), sep="\n", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        silence(sys.stdout)
        return 141
    except OSError as error:
        silence(sys.stdout)
        trace(words)
        named = f": {error.filename}" if error.filename else ""
        notes = [f"  tip: {note}" for note in getattr(error, "__notes__", ())]
        print(
            f"error: {error.strerror or error}{named}; check space, rights and path", *notes, sep="\n", file=sys.stderr
        )
        return 1
    return code


def trace(words: list[str]) -> None:
    """Shows where an error came from, to whom asks for it."""
    if "--debug" in words:
        print_exc()


def silence(stream: TextIO) -> None:
    """Lets what is left in a stream go nowhere: the interpreter flushes once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def dispatch(words: list[str]) -> int:
    """Runs a command; the exit code is what it returns, and 0 if that is nothing."""
    if not words:
        print(START, end="")
        return 0
    try:
        return app(words) or 0
    except CycloptsError as error:
        raise mistake(error) from None


def mistake(error: CycloptsError) -> UserError:
    """What cyclopts found wrong, in our own words."""
    command = " ".join(("headway", *(error.command_chain or ())))
    match error:
        case UnknownCommandError(unused_tokens=[str(word), *_]):
            names = list(reduce(App.__getitem__, error.command_chain or (), app))
            if word.startswith("-"):
                return unknown(command, "option", word, [name for name in names if name.startswith("--")])
            return unknown(command, "command", word, [name for name in names if not name.startswith("-")])
        case UnknownOptionError(token=token, argument_collection=arguments):
            names = [name for argument in arguments for name in argument.names if name.startswith("--")]
            word = (token.keyword or token.value).partition("=")[0]
            meant = cli_train.known_elsewhere(word) if command == "headway train" else None
            return unknown(command, "option", word, [*names, "--help"], meant)
        case MissingArgumentError(keyword=str(keyword)):
            return UserError(f"{keyword} needs a value", do=f"see {command} --help")
        case MissingArgumentError(argument=argument) if argument:
            return UserError(f"{command} needs {argument.name}", do=f"see {command} --help")
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return UserError(f"{command} has no use for {word!r}", do=f"see {command} --help")
        case _:
            return UserError(str(error).rstrip("."), do=f"see {command} --help")


def unknown(command: str, kind: str, word: str, names: list[str], meant: str | None = None) -> UserError:
    return UserError(f"{command} has no {kind} {word!r}", allowed=listed(names), meant=meant or nearest(word, names))


def tips(error: UserError, words: list[str]) -> list[str]:
    """The command as it was probably meant, ready to be copied."""
    if not error.meant:
        return []
    option = error.meant.startswith("-")
    wrong = nearest(error.meant, [word.partition("=")[0] for word in words if word.startswith("-") == option])
    if not wrong:
        return []
    mended = [error.meant + word[len(wrong) :] if word.partition("=")[0] == wrong else word for word in words]
    return [f"  tip: headway {shlex.join(mended)}"]


def forgive_narrow_encodings() -> None:
    """Where the terminal cannot show a sign such as √, it shows a question mark rather than an exception."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
