"""Whisper's tokenizer: the tokens of its prompt, its timestamps, and OpenAI's vocabulary files.

Ids stand in this order: text; <|endoftext|>; <|startoftranscript|>; a token for each language; <|translate|> and
<|transcribe|>; <|startoflm|>, <|startofprev|>, <|nospeech|>, <|notimestamps|>; a token for each 0.02 seconds of a
window.  English-only models have GPT-2's text, the others one token more; large-v3 added Cantonese.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.data.decode_stream import byte_letters
from headway.data.tokenizer import Roles, Tokenizer
from headway.data.tokenizer_files import check_vocab, read_text
from headway.data.tokenizer_training import byte_bpe, merges_by_score
from headway.errors import UserError, listed, nearest

CODES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml "
    "cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am "
    "yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"
)
LANGUAGES = tuple(CODES.split())  # in the order of their tokens
SIGNS, NOTES = '"#()*+/:;<=>@[\\]^_`{|}~「」『』', "♩♪♫♬♭♮♯"
RUNS = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪"
TASKS = ("translate", "transcribe")
END, BEGIN, UNTIMED = "<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"
OTHERS = ("<|startoflm|>", "<|startofprev|>", "<|nospeech|>", UNTIMED)
ENGLISH, ENGLISH_VOCAB = 50_256, 51_864  # <|endoftext|> and all tokens of the models that know no other language
TIMES = 1501  # 0.00 to 30.00 seconds
EMPTY = "="  # the last piece of multilingual.tiktoken, which has no bytes
LATEST = 50  # steps of time: in its first second a window's first segment begins


@dataclass(frozen=True)
class Marks:
    """Whisper's own tokens by their ids.  All text has smaller ids than `end`, and times have larger than `untimed`.

    Without `languages` a model knows English alone, and its prompt has neither language nor task.
    """

    end: int
    begin: int
    languages: Mapping[str, int]
    tasks: Mapping[str, int]
    silence: int
    untimed: int

    @property
    def first_time(self) -> int:
        """The token of 0.00 seconds."""
        return self.untimed + 1

    def prompt(self, language: str | None, task: str, timed: bool) -> list[int]:
        """The prompt: language, task, with or without timestamps."""
        end = [] if timed else [self.untimed]
        if not self.languages:
            if language not in (None, "en") or task != "transcribe":
                said = f"a model that knows English alone was asked for {language or 'en'}, {task}"
                raise UserError(said, do="take a multilingual model, whose name has no .en")
            return [self.begin, *end]
        if language is None or language not in self.languages:
            meant = nearest(str(language), self.languages)
            raise UserError(f"the model knows no language {language!r}", allowed=listed(self.languages, 8), meant=meant)
        if task not in self.tasks:
            raise UserError(f"no task {task!r}", allowed=listed(TASKS), meant=nearest(task, TASKS))
        return [self.begin, self.languages[language], self.tasks[task], *end]

    def text(self, ids: Sequence[int]) -> list[int]:
        """The ids that are text."""
        return [id for id in ids if id < self.end]


def marks_of(tokenizer: Tokenizer, multilingual: bool | None = None) -> Marks:
    """The tokens of Whisper in a tokenizer; whether it is multilingual is seen from its text where it is not given."""

    def known(*spellings: str) -> int:
        found = (tokenizer.backend.token_to_id(spelling) for spelling in spellings)
        id = next((id for id in found if id is not None), None)
        if id is None:
            raise UserError(f"these are not Whisper's words: there is no token {spellings[0]}")
        return id

    end = known(END)
    multilingual = end != ENGLISH if multilingual is None else multilingual
    ids = {code: tokenizer.backend.token_to_id(spelled(code)) for code in LANGUAGES if multilingual}
    return Marks(
        end=end,
        begin=known(BEGIN),
        languages={code: id for code, id in ids.items() if id is not None},
        tasks={task: known(spelled(task)) for task in TASKS},
        silence=known("<|nospeech|>", "<|nocaptions|>"),  # its second name is the older one
        untimed=known(UNTIMED),
    )


def read_tiktoken(file: Path, vocab: int) -> Tokenizer:
    """The words in a *.tiktoken file of OpenAI's package, for a model of `vocab` tokens: as many languages as fit."""
    ranks = read_ranks(file)
    languages = vocab - len(ranks) - 2 - len(TASKS) - len(OTHERS) - TIMES
    if not 1 <= languages <= len(LANGUAGES):
        said = f"{file} has {len(ranks)} tokens of text, which do not belong to a Whisper of {vocab} tokens"
        raise UserError(said, do="take gpt2.tiktoken for models of English, multilingual.tiktoken for the others")
    codes = [*LANGUAGES[:languages], *TASKS]
    times = [spelled(f"{time * 0.02:.2f}") for time in range(TIMES)]
    backend = byte_bpe(ranks, merges_by_score({piece: -rank for piece, rank in ranks.items()}))
    backend.add_special_tokens([END, BEGIN, *(spelled(code) for code in codes), *OTHERS, *times])
    return Tokenizer(backend, Roles(eos=END))


def read_ranks(file: Path) -> dict[str, int]:
    """The pieces of text, in GPT-2's characters for bytes, with their ids."""
    letters = {byte: letter for letter, byte in byte_letters().items()}
    ranks: dict[str, int] = {}
    for number, line in enumerate(read_text(file).splitlines(), 1):
        piece, _, rank = line.partition(" ")
        try:
            found = b"" if piece == EMPTY else base64.b64decode(piece, validate=True)
            ranks["".join(letters[byte] for byte in found)] = int(rank)
        except (binascii.Error, ValueError):
            raise UserError(f"{file} line {number}: {line[:60]!r} is no piece in base 64 with its number") from None
    if max(check_vocab(ranks, file).values()) != len(ranks) - 1:
        raise UserError(f"{file}: {len(ranks)} pieces are not numbered from 0 to {len(ranks) - 1}")
    return ranks


def usual_settings(tokenizer: Tokenizer, marks: Marks) -> dict[str, Any]:
    """The generation_config.json of these words where none is there: what OpenAI bars is not written."""
    prompts = range(min(marks.tasks.values()), marks.untimed)  # what occurs in prompts alone
    languages = {spelled(code): id for code, id in marks.languages.items()}
    return {
        **{f"{role}_token_id": marks.end for role in ("bos", "eos", "pad")},
        "decoder_start_token_id": marks.begin,
        "no_timestamps_token_id": marks.untimed,
        "is_multilingual": bool(languages),
        **({"lang_to_id": languages, "task_to_id": dict(marks.tasks)} if languages else {}),
        "suppress_tokens": [*unspoken(tokenizer), marks.begin, *prompts],
        "begin_suppress_tokens": [*tokenizer.plain(" "), marks.end],
        "max_initial_timestamp_index": LATEST,
    }


def unspoken(tokenizer: Tokenizer) -> list[int]:
    """The tokens of what is not spoken: brackets, notes and the like, as OpenAI suppresses them by default.

    A sign counts that is one token, by itself or behind a space; of notes, which are several, the first token.
    """
    signs = [*SIGNS, *RUNS.split(), *NOTES]
    read = tokenizer.plain_batch([*signs, *(f" {sign}" for sign in signs)])
    whole = {ids[0] for sign, ids in zip(signs * 2, read, strict=True) if len(ids) == 1 or (ids and sign in NOTES)}
    return sorted(whole | {ids[0] for ids in tokenizer.plain_batch([" -", " '"]) if ids})


def spelled(word: str) -> str:
    return f"<|{word}|>"
