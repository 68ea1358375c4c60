"""What readers of tokenizers share: files that may hold anything, and settings that stand beside them.

Nothing that a file says is believed before it is checked against the file's size or its other half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.data.tokenizer import Roles
from headway.errors import UserError, listed
from headway.files import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# Spellings by which roles are known where no file tells them; eos first, because GPT-2's one token is that.
NAMES = {
    "eos": ("</s>", "<|endoftext|>", "[SEP]", "<eos>", "<|end_of_text|>", "<|im_end|>"),
    "bos": ("<s>", "[CLS]", "<bos>", "<|begin_of_text|>", "<|im_start|>"),
    "unk": ("<unk>", "[UNK]"),
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"),
    "mask": ("<mask>", "[MASK]"),
}
MOST = 2**24  # rows that a vocabulary may ask of an embedding; the largest published have 2^18


def read_bytes(file: Path) -> bytes:
    if not file.is_file():
        raise UserError(f"{file}: there is no such file")
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error


def read_text(file: Path) -> str:
    try:
        return read_bytes(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not a text in UTF-8 (byte {error.start})") from error


def check_vocab(vocab: Mapping[str, object], file: Path) -> dict[str, int]:
    """Tokens with distinct whole numbers."""
    if not vocab:
        raise UserError(f"{file}: the vocabulary is empty")
    owners: dict[int, str] = {}
    for token, id in vocab.items():
        if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < MOST:
            raise UserError(f"{file}: the id of {token!r} is {id!r}", allowed=f"whole numbers from 0 to {MOST - 1}")
        if id in owners:
            raise UserError(f"{file}: {owners[id]!r} and {token!r} have the same id {id}")
        owners[id] = token
    return {token: id for id, token in owners.items()}


def numbered_lines(tokens: Iterable[str], file: Path) -> dict[str, int]:
    """Tokens with the numbers of their lines."""
    vocab: dict[str, int] = {}
    for token in tokens:
        if token in vocab:
            raise UserError(f"{file}: {token!r} stands there twice, as number {vocab[token]} and {len(vocab)}")
        vocab[token] = len(vocab)
    return check_vocab(vocab, file)


def check_merges(lines: Iterable[tuple[int, str]], file: Path) -> list[tuple[str, str]]:
    """Pairs of tokens, from numbered lines."""
    merges: list[tuple[str, str]] = []
    for number, line in lines:
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise UserError(f"{file} line {number}: {line[:60]!r} is no pair of tokens")
        merges.append((left, right))
    return merges


def settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json and, before it, special_tokens_map.json tell beside a vocabulary."""
    told: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            told |= {key: value for key, value in read_json(folder / name).items() if value is not None}
    return told


def spelled(told: Mapping[str, Any], role: str) -> str | None:
    """The token of a role: a string, or an object that holds one."""
    value = told.get(f"{role}_token")
    token = value.get("content") if isinstance(value, dict) else value
    return token if isinstance(token, str) and token else None


def find_roles(backend: Backend, told: Mapping[str, Any]) -> Roles:
    """Roles as the settings tell them, else by the usual spellings of special tokens.

    Some checkpoints let one token play several roles (GPT-2's ends and begins a text and stands for the unknown); here
    it plays the first of eos, bos, unk, pad, mask.  BERT's [CLS] and [SEP] begin and end a text.
    """
    also = {"bos": "cls", "eos": "sep"}
    named = {role: spelled(told, role) or spelled(told, also.get(role, role)) for role in NAMES}
    if not any(named.values()):
        special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        named = {role: next((name for name in names if name in special), None) for role, names in NAMES.items()}
    roles: dict[str, str] = {}
    for role, token in named.items():
        if token is not None and token not in roles.values():
            roles[role] = token
    return Roles(**roles)


def add_tokens(backend: Backend, told: Mapping[str, Any], folder: Path) -> None:
    """Tokens that stand beside a vocabulary, each with the id that the settings give it."""
    from tokenizers import AddedToken

    beside = folder / "added_tokens.json"
    plain = read_json(beside) if beside.is_file() else {}
    added: dict[int, dict[str, Any]] = (
        {id: {"content": token} for token, id in check_vocab(plain, beside).items()} if plain else {}
    )
    listed_there = told.get("added_tokens_decoder")
    entries = listed_there.items() if isinstance(listed_there, dict) else ()
    added |= {int(id): entry for id, entry in entries if id.isdecimal() and isinstance(entry, dict)}
    for id, entry in sorted(added.items()):
        token = entry.get("content")
        if not isinstance(token, str) or not token:
            raise UserError(f"{folder}: the added token with id {id} has no spelling")
        flags = {flag: entry.get(flag) is True for flag in ("lstrip", "rstrip", "single_word", "normalized")}
        flagged = AddedToken(token, special=entry.get("special") is True, **flags)
        (backend.add_special_tokens if flagged.special else backend.add_tokens)([flagged])
        if backend.token_to_id(token) != id:
            raise UserError(f"{folder}: {token!r} is added with id {id}, but would get {backend.token_to_id(token)}")


def choose(files: list[Path], what: str) -> Path:
    """The one file, where there is one."""
    if len(files) != 1:
        raise UserError(
            f"{files[0].parent} holds {len(files)} {what}: {listed(file.name for file in files)}",
            do="load one of these files by its path",
        )
    return files[0]
