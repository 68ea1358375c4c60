"""The command line: `headway COMMAND …`.  All use of cyclopts is in this file.

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
from typing import TextIO

from cyclopts import App, CycloptsError, Parameter
from cyclopts.exceptions import MissingArgumentError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from headway import __version__
from headway.errors import UserError, listed, nearest

START = f"""\
headway {__version__}: attention and transformers from one readable set of parts

  headway demo               train a small translator of dates, and see what it looks at
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


@app.command
def demo() -> None:
    """Train a small translator of dates, in about half a minute, and see what it looks at."""
    from headway.app.demo import demo

    demo()


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    forgive_narrow_encodings()
    try:
        run(words)
        sys.stdout.flush()  # a closed pipe is noticed here, not at exit
    except UserError as error:
        print(f"error: {error}", *tips(error, words), sep="\n", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        silence(sys.stdout)
        return 141
    except OSError as error:
        silence(sys.stdout)
        named = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror or error}{named}; check space, rights and path", file=sys.stderr)
        return 1
    return 0


def silence(stream: TextIO) -> None:
    """Lets what is left in a stream go nowhere: the interpreter flushes once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run(words: list[str]) -> None:
    if not words:
        print(START, end="")
        return
    try:
        app(words)
    except CycloptsError as error:
        raise mistake(error) from None


def mistake(error: CycloptsError) -> UserError:
    """What cyclopts found wrong, in our own words."""
    command = " ".join(("headway", *(error.command_chain or ())))
    match error:
        case UnknownCommandError(unused_tokens=[str(word), *_]):
            if word.startswith("-"):
                return unknown(command, "option", word, [name for name in app if name.startswith("--")])
            return unknown(command, "command", word, [name for name in app if not name.startswith("-")])
        case UnknownOptionError(token=token, argument_collection=arguments):
            names = [name for argument in arguments for name in argument.names if name.startswith("--")]
            return unknown(command, "option", token.keyword or token.value, [*names, "--help"])
        case MissingArgumentError(argument=argument) if argument:
            return UserError(f"{command} needs {argument.name}", do=f"see {command} --help")
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return UserError(f"{command} has no use for {word!r}", do=f"see {command} --help")
        case _:
            return UserError(str(error).rstrip("."), do=f"see {command} --help")


def unknown(command: str, kind: str, word: str, names: list[str]) -> UserError:
    return UserError(f"{command} has no {kind} {word!r}", allowed=listed(names), meant=nearest(word, names))


def tips(error: UserError, words: list[str]) -> list[str]:
    """The command as it was probably meant, ready to be copied."""
    wrong = nearest(error.meant, [word.partition("=")[0] for word in words]) if error.meant else None
    if not (error.meant and wrong):
        return []
    mended = [error.meant + word[len(wrong) :] if word.partition("=")[0] == wrong else word for word in words]
    return [f"  tip: headway {shlex.join(mended)}"]


def forgive_narrow_encodings() -> None:
    """Where the terminal cannot show a sign such as √, it shows a question mark rather than an exception."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
