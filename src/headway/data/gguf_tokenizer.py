"""The tokenizer within a GGUF file: byte-level BPE ("gpt2") or SentencePiece's BPE ("llama"), read and written.

Of byte-level BPE a file names how texts are cut into words; llama.cpp knows the patterns, and here are four of them.
SentencePiece's merges follow from the scores of the pieces.  What is written is read again and compared on a short
text, since most pipelines of the `tokenizers` package have no place in the format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from headway.data.decode_stream import BYTES
from headway.data.sentencepiece_model import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER,
    SentencePieceModel,
    VocabPiece,
    check_pieces,
)
from headway.data.sentencepiece_tokenizer import exact
from headway.data.tokenizer import Tokenizer, frame_of
from headway.data.tokenizer_files import add_flagged, check_merges, find_roles, numbered_lines
from headway.data.tokenizer_readers import MAX_TOKENS, PROBE, check_tokens, refused
from headway.data.tokenizer_training import frame
from headway.errors import UserError, listed

KEY, TEMPLATE = "tokenizer.ggml", "tokenizer.chat_template"
WORDS, DIGITS = "words", "digits"  # GPT-2's pattern, and each digit by itself
CONTRACTIONS, REST = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
LLAMA3 = "llama-bpe"
CUTS = {
    "gpt-2": [WORDS],
    LLAMA3: [rf"{CONTRACTIONS}\p{{N}}{{1,3}}{REST}"],
    "qwen2": [rf"{CONTRACTIONS}\p{{N}}{REST}"],
    "smollm": [DIGITS, WORDS],
}
SAME_CUTS = {"llama3": LLAMA3, "llama-v3": LLAMA3, "deepseek-r1-qwen": "qwen2"}
ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "mask": "mask"}  # ours, and GGUF's word


def read_gguf_tokenizer(values: Mapping[str, Any], file: Path) -> Tokenizer | None:
    """The tokenizer of a file's values; None where it has none."""
    kind = values.get(f"{KEY}.model", "none")
    if kind in ("none", "no_vocab"):
        return None
    if kind not in READERS:
        raise UserError(f"{file} has a tokenizer of the kind {kind!r:.60}", allowed=", ".join(READERS))
    tokens = values.get(f"{KEY}.tokens")
    if not isinstance(tokens, list):
        raise UserError(f"{file} has a tokenizer without tokens", do="convert the model anew with llama.cpp")
    check_tokens("vocabulary", tokens, MAX_TOKENS, file)
    kinds = column(values, "token_type", len(tokens), NORMAL, file)
    named = {f"{role}_token": tokens[id] for role in ROLES if (id := role_id(values, role, len(tokens))) is not None}
    usual = kind == "llama" or cuts_of(values) == LLAMA3  # as llama.cpp assumes where the file does not say it
    settings = {"add_bos_token": values.get(f"{KEY}.add_bos_token", usual), **named}
    settings["add_eos_token"] = values.get(f"{KEY}.add_eos_token", False)
    found = READERS[kind](values, tokens, [int(one) for one in kinds], settings, file)
    template = values.get(TEMPLATE)
    return replace(found, chat_template=template) if isinstance(template, str) else found


def column(values: Mapping[str, Any], name: str, count: int, usual: int, file: Path) -> Any:
    """A number for each token."""
    found = values.get(f"{KEY}.{name}", np.full(count, usual))
    if not isinstance(found, np.ndarray) or len(found) != count:
        raise UserError(f"{file}: {KEY}.{name} is not a number for each of the {count:,} tokens")
    return found


def role_id(values: Mapping[str, Any], role: str, count: int) -> int | None:
    found = values.get(f"{KEY}.{ROLES[role]}_token_id")
    return found if isinstance(found, int) and 0 <= found < count else None


def cuts_of(values: Mapping[str, Any]) -> object:
    name = values.get(f"{KEY}.pre")
    return SAME_CUTS.get(name, name) if isinstance(name, str) else None


def read_bytes_bpe(
    values: Mapping[str, Any], tokens: list[str], kinds: list[int], settings: Mapping[str, Any], file: Path
) -> Tokenizer:
    name, merges = cuts_of(values), values.get(f"{KEY}.merges")
    if name not in CUTS:
        allowed = ", ".join([*CUTS, *SAME_CUTS])
        raise UserError(f"{file} cuts texts into words as {name!r:.60}, which is not known here", allowed=allowed)
    vocab = numbered_lines(tokens, file)
    pairs = check_merges(enumerate(merges if isinstance(merges, list) else []), file)
    try:
        backend = Backend(models.BPE(vocab, pairs, ignore_merges=name == LLAMA3))
    except BaseException as error:
        raise refused(error, file) from error
    steps: list[pre_tokenizers.PreTokenizer] = []
    for cut in CUTS[str(name)]:
        if cut == DIGITS:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        elif cut != WORDS:
            steps.append(pre_tokenizers.Split(Regex(cut), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=WORDS in CUTS[str(name)]))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    flagged = ((token, kind) for token, kind in zip(tokens, kinds, strict=True) if kind in (UNKNOWN, CONTROL, USER))
    add_flagged(backend, [{"content": token, "special": kind != USER} for token, kind in flagged if token])
    roles = find_roles(backend, settings)
    before = [roles.bos or roles.eos] if settings["add_bos_token"] is True else []  # GPT-2's one token is both
    after = [roles.eos] if settings["add_eos_token"] is True else []
    frame(backend, [one for one in before if one], [one for one in after if one])
    return Tokenizer(backend, roles)


def read_pieces(
    values: Mapping[str, Any], tokens: list[str], kinds: list[int], settings: Mapping[str, Any], file: Path
) -> Tokenizer:
    scores = column(values, "scores", len(tokens), 0, file)
    kinds = [CONTROL if kind == UNUSED else kind for kind in kinds]
    if UNKNOWN not in kinds and kinds:
        kinds[role_id(values, "unk", len(tokens)) or 0] = UNKNOWN  # as llama.cpp takes it
    pieces = tuple(VocabPiece(*one) for one in zip(tokens, map(float, scores), kinds, strict=True))
    check_pieces(pieces, file)
    prefix = values.get(f"{KEY}.add_space_prefix", True) is True
    spec = SentencePieceModel(pieces, BPE, fallback=BYTE in kinds, prefix=prefix, squeeze=False)
    if len(spec.of(UNKNOWN)) != 1:
        raise UserError(f"{file}: has {len(spec.of(UNKNOWN))} tokens for the unknown", allowed="one")
    return exact(spec, settings, file / KEY, bos=True, eos=False)  # beside which there is no other file


READERS = {"gpt2": read_bytes_bpe, "llama": read_pieces}


def gguf_tokenizer(tokenizer: Tokenizer, rows: int) -> dict[str, object]:
    """The values of a tokenizer for an embedding of so many rows, of which the last may be no tokens."""
    state = json.loads(tokenizer.backend.to_str())
    model, decoder = state["model"], state["decoder"] or {}
    if model["type"] != "BPE" or model["end_of_word_suffix"] or model["continuing_subword_prefix"] or tokenizer.known:
        what = f"a tokenizer of {model['type']}" if model["type"] != "BPE" else "this tokenizer"
        do = "train the model with --data.level bpe, or write it with --to hf"
        raise UserError(
            f"{what} has no place in GGUF", allowed="byte-level BPE, SentencePiece's BPE, characters", do=do
        )
    ids = {id: token for token, id in tokenizer.backend.get_vocab(with_added_tokens=True).items()}
    tokens = [ids.get(id, f"[PAD{id}]") for id in range(rows)]
    special = {one["id"]: one["special"] for one in state["added_tokens"]}
    kinds = [
        CONTROL if special.get(id) else USER if id in special else NORMAL if id in ids else UNUSED for id in range(rows)
    ]
    if tokenizer.unk is not None:
        kinds[tokenizer.unk] = UNKNOWN
    merges = [one if isinstance(one, list) else one.split(" ") for one in model["merges"]]
    if decoder.get("type") == "ByteLevel":
        cuts = written_cuts(state["pre_tokenizer"])
        name = next((name for name, known in CUTS.items() if known == cuts), None)
        if name is None:
            allowed = f"those of {listed(CUTS)}"
            raise UserError(f"this tokenizer cuts texts into words by {cuts!r:.80}", allowed=allowed, do="use --to hf")
        own = {"model": "gpt2", "pre": name, "tokens": tokens, "merges": [" ".join(pair) for pair in merges]}
    else:
        own = pieces_of(tokenizer, tokens, kinds, merges)
    before, after = frame_of(tokenizer.backend)
    roles = {role: id for role in ROLES if (id := tokenizer.role(getattr(tokenizer.roles, role))) is not None}
    roles.setdefault("bos", roles["eos"]) if "eos" in roles else None
    values = {
        **{f"{KEY}.{name}": value for name, value in own.items()},
        f"{KEY}.token_type": np.array(kinds, np.int32),
        **{f"{KEY}.{ROLES[role]}_token_id": id for role, id in roles.items()},
        f"{KEY}.add_bos_token": bool(before),
        f"{KEY}.add_eos_token": bool(after),
        **({} if tokenizer.chat_template is None else {TEMPLATE: tokenizer.chat_template}),
    }
    again = read_gguf_tokenizer(values, Path("what was written"))
    assert again is not None
    for text in (PROBE, " two  spaces\n\n\tand a tab", "a"):
        if again.plain(text) != tokenizer.plain(text) or len(before) > 1 or len(after) > 1:
            said = "this tokenizer reads texts in a way that GGUF cannot tell"
            raise UserError(said, do="write the model with --to hf, or take one with byte-level BPE")
    return values


def written_cuts(state: Mapping[str, Any] | None) -> list[str]:
    """How a pipeline cuts texts into words, in the terms of CUTS."""
    found = list[str]()
    for step in (state or {}).get("pretokenizers", [state] if state else []):
        match step:
            case {"type": "Split", "pattern": {"Regex": pattern}}:
                found.append(pattern)
            case {"type": "Digits", "individual_digits": True}:
                found.append(DIGITS)
            case {"type": "ByteLevel", "add_prefix_space": False}:
                found += [WORDS] if step.get("use_regex", True) else []
            case _:
                found.append(str(step["type"]))
    return found


def pieces_of(tokenizer: Tokenizer, tokens: list[str], kinds: list[int], merges: list[list[str]]) -> dict[str, object]:
    """SentencePiece's form of merges: the earlier a piece is made, the better is its score."""
    scores = dict[str, float]()
    for rank, pair in enumerate(merges):
        scores.setdefault("".join(pair), -1.0 - rank)
    for id, token in enumerate(tokens):
        if kinds[id] == NORMAL and token in BYTES:
            kinds[id] = BYTE
    first = tokenizer.backend.id_to_token(tokenizer.plain("a")[0]) or ""
    return {
        "model": "llama",
        "pre": "default",
        "tokens": [one.replace(" ", SPACE) if kind == NORMAL else one for one, kind in zip(tokens, kinds, strict=True)],
        "scores": np.array([scores.get(token, -1.0 - len(merges)) for token in tokens], np.float32),
        "add_space_prefix": first.startswith(SPACE),
    }
