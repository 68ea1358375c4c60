"""Reading the letters that a published CTC model hears: vocab.json alone, as Wav2Vec2's folders have it.

The blank is one of its tokens, the padding; a token of its own, usually |, stands between words.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.data.levels import characters
from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_files import add_tokens, check_vocab, find_roles, settings, spelled
from headway.errors import UserError
from headway.files import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

CLASS = "Wav2Vec2CTCTokenizer"
ROLES = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}  # where no file spells them
BRACKETS = ("<>", "[]")


def holds_letters(file: Path) -> bool:
    """Whether a vocab.json is of letters: its settings say so, or it has a blank and no token longer than a letter."""
    told = settings(file.parent)
    if "tokenizer_class" in told:
        return told["tokenizer_class"] == CLASS
    vocab = read_json(file)
    longer = (token for token in vocab if len(token) != 1 and token[:1] + token[-1:] not in BRACKETS)
    return spelled_roles(told)["pad"] in vocab and not any(True for _ in longer)


def read_letters(file: Path) -> Tokenizer:
    """vocab.json: letters, what stands between words, and special tokens."""
    told = settings(file.parent)
    if told.get("do_lower_case") is True:
        said = f"{file.parent}: do_lower_case=True is not known for letters that a model hears"
        raise UserError(said, allowed="false")
    vocab, roles = check_vocab(read_json(file), file), spelled_roles(told)
    unk = roles["unk"]
    backend = characters(vocab, unk if unk in vocab else None)
    part_words(backend, spelled(told, "word_delimiter") or "|", str(told.get("replace_word_delimiter_char", " ")))
    special = [token for token in roles.values() if token in vocab]
    backend.add_special_tokens(special)
    backend.add_tokens([token for token in vocab if len(token) > 1 and token not in special])
    add_tokens(backend, {"added_tokens_decoder": beyond(told.get("added_tokens_decoder"), vocab)}, file.parent)
    return Tokenizer(backend, find_roles(backend, {f"{role}_token": token for role, token in roles.items()}))


def beyond(added: object, vocab: Mapping[str, int]) -> dict[str, Any]:
    """The added tokens that the vocabulary lacks: transformers lists its special ones again, and | among them."""
    entries: dict[str, Any] = added if isinstance(added, dict) else {}
    return {id: entry for id, entry in entries.items() if isinstance(entry, dict) and entry.get("content") not in vocab}


def part_words(backend: Backend, mark: str, space: str) -> None:
    """Lets a mark stand between words in place of a space; where a text begins or ends there is none."""
    from tokenizers import Regex, decoders, normalizers

    backend.normalizer = normalizers.Replace(space, mark)
    edges = decoders.Replace(Regex(r"^\s+|\s+$"), "")
    backend.decoder = decoders.Sequence([decoders.Replace(mark, space), decoders.Fuse(), edges])


def spelled_roles(told: Mapping[str, Any]) -> dict[str, str]:
    return {role: spelled(told, role) or usual for role, usual in ROLES.items()}
