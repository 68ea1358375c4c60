"""The command line: `headway COMMAND …`: the commands, the exit codes, and how errors are printed.

Exit codes: 0 done, 1 the machine refused (a full disk, a missing right), 2 a mistake that the caller can mend,
130 interrupted, 141 nobody reads the output any more, 143 terminated.
Commands import what they need when they run, so that help and mistakes answer at once, without torch.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import fields
from functools import reduce
from traceback import print_exc
from typing import Literal, TextIO, get_args, get_origin

from cyclopts import App, CycloptsError, Parameter
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from headway import __version__
from headway.cli import (
    bench_command,
    chat_command,
    data_commands,
    explain_command,
    inspect_commands,
    lecture_command,
    lesson_commands,
    look_command,
    model_commands,
    plan_command,
    serve_command,
    train_commands,
)
from headway.cli.options import TYPED
from headway.cli.standard_input import DASH
from headway.console import fitted, is_terminal, progress_on
from headway.errors import UserError, listed, nearest
from headway.recipe import SETTINGS
from headway.system import Terminated, memory_errors, spin_briefly
from headway.tasks.registry import SPELLING
from headway.training.setting_origins import COMMAND_LINE

PART = r"\.\d+\.part(?=$|/)"  # behind the name of what is being written
START = f"""\
headway {__version__}: attention and transformers from one readable set of parts

  headway train dates        train on the built-in data: dates in 44 languages
  headway train FILE         train on your own texts, images, sounds or numbers
  headway run MODEL "text"   run a trained or downloaded model
  headway look MODEL "text"  show its attention in a web page
  headway serve MODEL        serve it over HTTP, as OpenAI's clients ask
  headway explain attention  work through attention, with every number
  headway lesson list        short experiments that run offline

  headway --help             all commands
"""

COMMANDS_ELSEWHERE = {  # names in other programs
    **dict.fromkeys(("predict", "infer", "inference", "translate", "classify", "transcribe"), "run"),
    **dict.fromkeys(("evaluate", "test", "validate"), "eval"),
    **dict.fromkeys(("fit", "finetune", "fine-tune"), "train"),
}

NEGATIVE = re.compile(r"-[\d.]")  # a number rather than an option
NOUNS: dict[object, str] = {int: "a whole number", float: "a number"}
DOTTED = re.compile(r"(?<![\w./-])(?:data|model|train)\.[a-z_]+(?![\w/-]|\.\w| =)")
ARGUMENT = re.compile(
    r"(?P<advice>(?:as in|use|with) )?(?<![\w./'\"-])(?P<name>[a-z]\w*)=(?P<value>-?[\w.]*\w)?(?![\w'\"(\[-])"
)

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

app.command(train_commands.train)
app.command(data_commands.check)
app.command(data_commands.evaluate, name="eval")
app.command(train_commands.init)
app.command(model_commands.doctor)
app.command(train_commands.demo)
app.command(model_commands.list_presets, name="list")
app.command(model_commands.cost)
app.command(plan_command.plan)
app.command(model_commands.run)
app.command(model_commands.generate)
app.command(chat_command.chat)
app.command(model_commands.convert)
app.command(explain_command.explain)
app.command(lesson_commands.lesson)
app.command(lecture_command.lecture)
app.command(train_commands.bottleneck)
app.command(train_commands.compare)
app.command(look_command.look)
app.command(serve_command.serve)
app.command(inspect_commands.inspect)
app.command(bench_command.bench)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    spin_briefly()
    forgive_narrow_encodings()
    try:
        code = copy_context().run(dispatch, words)
        sys.stdout.flush()  # a closed pipe is noticed here, not at exit
    except UserError as error:
        trace(words)
        print(fitted("\n".join(told(error, words)), sys.stderr), file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130
    except Terminated:
        return 143
    except BrokenPipeError:
        silence(sys.stdout)
        return 141
    except OSError as error:
        silence(sys.stdout)
        trace(words)
        # what is written becomes the file that was asked for when it is whole
        named = f": {re.sub(PART, '', str(error.filename))}" if error.filename else ""
        notes = [f"  tip: {note}" for note in getattr(error, "__notes__", ())]
        print(
            f"error: {error.strerror or error}{named}; check space, rights and path", *notes, sep="\n", file=sys.stderr
        )
        return 1
    return code


def spelled(message: str, words: list[str]) -> str:
    """The message of the library with the options of a command: data.columns as --columns, and beam=2 as --beam 2.

    The library names settings by their dotted names, and arguments with a sign behind them.  Fields of a model's config
    may have the same names, so an argument with a value is spelled only where it was typed, or where it is advised.
    """
    command = app.parse_commands(words)[1][-1]
    arguments = command.assemble_argument_collection() if command.default_command else ()
    known = {name for argument in arguments for name in argument.names}

    def setting(found: re.Match[str]) -> str:
        name = found[0]
        if name not in SETTINGS and name.removeprefix("model.") not in config_fields():
            return name
        short = f"--{name.rpartition('.')[2].replace('_', '-')}"
        spelling = "DATA" if name == "data.path" else COMMAND_LINE.spell(name)
        return short if short in known and spelling not in known else spelling

    def argument(found: re.Match[str]) -> str:
        option, value = f"--{found['name'].replace('_', '-')}", found["value"]
        typed = any(word.partition("=")[0] == option for word in words)
        if option not in known or (value and not (found["advice"] or typed)):
            return found[0]
        return (found["advice"] or "") + option + (f" {value}" if value and value != "True" else "")

    return ARGUMENT.sub(argument, DOTTED.sub(setting, message))


def config_fields() -> set[str]:
    """The fields of configs of the architectures that are loaded: a message about others cannot be."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("headway.zoo.")]
    configs = [module.Config for module in modules if hasattr(module, "Config")]
    return {field.name for config in configs for field in fields(config)}


def trace(words: list[str]) -> None:
    """Shows where an error came from, to whom asks for it."""
    if "--debug" in words:
        print_exc()


def silence(stream: TextIO) -> None:
    """Lets what is left in a stream go nowhere: the interpreter flushes once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def dispatch(words: list[str]) -> int:
    """Runs a command; the exit code is what it returns, and 0 if that is nothing."""
    SPELLING.set(COMMAND_LINE.spell)
    TYPED.set(words)
    if not words:
        print(START, end="")
        return 0
    match words:  # as people ask other programs
        case ["help", *rest]:
            words = [*rest, "--help"]
        case ["version"]:
            words = ["--version"]
        case ["train", *rest] if DASH in rest and "--" not in rest:  # cyclopts takes it for an option
            words = ["train", *(word for word in rest if word != DASH), "--", *[DASH] * rest.count(DASH)]
        case _:
            pass
    try:
        progress = progress_on(sys.stderr if is_terminal(sys.stderr) else None)
        with progress, memory_errors("use a smaller model, or fewer and shorter inputs at a time"):
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
            commands = [name for name in names if not name.startswith("-")]
            return unknown(command, "command", word, commands, COMMANDS_ELSEWHERE.get(word))
        case UnknownOptionError(token=token, argument_collection=arguments):
            shown = [argument for argument in arguments if argument.show]
            names = [name for argument in shown for name in argument.names if name.startswith("--")]
            word = (token.keyword or token.value).partition("=")[0]
            if NEGATIVE.match(word) or " " in word:  # a number or a text
                do = f"put -- before it, as in {command} … -- {shlex.quote(word)}"
                return UserError(f"{word!r} begins with a dash, as options do", do=do)
            meant = train_commands.known_elsewhere(word) if command == "headway train" else None
            return unknown(command, "option", word, [*names, "--help"], meant)
        case CoercionError(token=token, target_type=kind) if token and token.value and kind in NOUNS:
            return UserError(f"{token.keyword or ''} {token.value!r} is not {NOUNS[kind]}".strip())
        case CoercionError(token=token, target_type=kind) if token and get_origin(kind) is Literal:
            choices = [str(choice) for choice in get_args(kind)]
            said = f"{token.keyword or ''} {token.value!r} is not a choice".strip()
            return UserError(said, allowed=listed(choices), meant=nearest(token.value, choices))
        case MissingArgumentError(keyword=str(keyword)):
            return UserError(f"{keyword} needs a value", do=f"see {command} --help")
        case MissingArgumentError(argument=argument) if argument:
            return UserError(f"{command} needs {argument.name}", do=f"see {command} --help")
        case ValidationError(__cause__=UserError() as cause):  # what a validator of ours said
            return cause
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return UserError(f"{command} has no use for {word!r}", do=f"see {command} --help")
        case _:
            return UserError(str(error).rstrip("."), do=f"see {command} --help")


def unknown(command: str, kind: str, word: str, names: list[str], meant: str | None = None) -> UserError:
    near = nearest(word.lstrip("-"), [name.lstrip("-") for name in names])  # dashes make all options alike
    meant = meant or next((name for name in names if name.lstrip("-") == near), None)
    do = None if meant else f"see {command} --help"
    return UserError(f"{command} has no {kind} {word!r}", allowed=listed(names), meant=meant, do=do)


def told(error: UserError, words: list[str]) -> list[str]:
    """The lines of an error: its sentence, and the command as it was probably meant, ready to be copied.

    A long list of what is allowed stands behind the command.
    """
    mended = mended_words(error, words)
    if mended is None:
        return [f"error: {spelled(str(error), words)}"]
    rest = [f"  {spelled(error.long_list, words)}"] if error.long_list else []
    return [f"error: {spelled(error.advice, words)}", f"  tip: headway {shlex.join(mended)}", *rest]


def mended_words(error: UserError, words: list[str]) -> list[str] | None:
    """The words of the command with the wrong one replaced: that which the error quotes, or the nearest."""
    if not error.meant:
        return None
    option = error.meant.startswith("-")
    typed = [word.partition("=")[0] for word in words if word.startswith("-") == option]
    quoted = [word for word in typed if repr(word) in error.said] or [w for w in typed if w in error.said.split()]
    wrong = nearest(error.meant, quoted) or next(iter(quoted), None) or nearest(error.meant, typed)
    if not wrong:
        return None
    return [error.meant + word[len(wrong) :] if word.partition("=")[0] == wrong else word for word in words]


def forgive_narrow_encodings() -> None:
    """Where the terminal cannot show a sign such as √, it shows a question mark rather than an exception."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
