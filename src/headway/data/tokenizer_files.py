"""Text formats of other libraries' vocabularies, and what all readers share.

Nothing that a file says is believed before it is checked against the file's size or its other half.

vocab.txt                 BERT: WordPiece.
vocab.json alone          Wav2Vec2 and its Conformer: the characters of a CTC model.  The blank is the padding token; a
                          token of its own, usually |, stands between words.
dict.*.txt + bpe.code     fairseq over subword-nmt.  A dictionary writes a piece that continues as "pie@@" and one that
                          ends a word as "ce"; the merges write the end as "ce</w>".  Pieces that merging makes and the
                          dictionary lacks are unknown to the model.  Where merges join small letters and never a
                          capital, they were learned from lower-cased texts, and a text is lower-cased first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn, cast

from tokenizers import AddedToken, Regex, decoders, normalizers
from tokenizers import Tokenizer as Backend

from headway.data.tokenizer import CHAT_TEMPLATE, CHAT_TEMPLATE_JSON, Roles, Tokenizer
from headway.data.tokenizer_training import characters, frame, suffix_bpe, wordpiece
from headway.errors import UserError, listed
from headway.system import read_json

# Spellings by which roles are known where no file tells them; eos first, because GPT-2's one token is that.
NAMES = {
    "eos": ("</s>", "<|endoftext|>", "[SEP]", "<eos>", "<|end_of_text|>", "<|im_end|>"),
    "bos": ("<s>", "[CLS]", "<bos>", "<|begin_of_text|>", "<|im_start|>"),
    "unk": ("<unk>", "[UNK]"),
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"),
    "mask": ("<mask>", "[MASK]"),
}
GENERIC_CLASSES = ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend", "PythonBackend")
SAME_CLASSES = {
    "BartTokenizer": "RobertaTokenizer",
    "DistilBertTokenizer": "BertTokenizer",
    "ElectraTokenizer": "BertTokenizer",
    "MT5Tokenizer": "T5Tokenizer",
}
CLASS_OF_MODEL = {
    "albert": "AlbertTokenizer",
    "bart": "RobertaTokenizer",
    "bert": "BertTokenizer",
    "camembert": "CamembertTokenizer",
    "clip": "CLIPTokenizer",
    "clip_text_model": "CLIPTokenizer",
    "distilbert": "BertTokenizer",
    "gpt2": "GPT2Tokenizer",
    "llama": "LlamaTokenizer",
    "marian": "MarianTokenizer",
    "mistral": "LlamaTokenizer",
    "mixtral": "LlamaTokenizer",
    "mt5": "T5Tokenizer",
    "phi3": "LlamaTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "t5": "T5Tokenizer",
    "wav2vec2-conformer": "Wav2Vec2CTCTokenizer",
    "whisper": "WhisperTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "xlnet": "XLNetTokenizer",
}
MAX_VOCAB = 2**24  # rows that a vocabulary may ask of an embedding; the largest published have 2^18
CTC_CLASS = "Wav2Vec2CTCTokenizer"
CTC_ROLES = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}  # where no file spells them
BRACKETS = ("<>", "[]")
FAIRSEQ_ROLES = Roles(bos="<s>", pad="<pad>", eos="</s>", unk="<unk>")
FAIRSEQ_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # fairseq's ids 0 to 3
END, GOES_ON = "</w>", "@@"


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
    numbers = {id for id in vocab.values() if type(id) is int}
    if len(numbers) < len(vocab) or not 0 <= min(numbers) <= max(numbers) < MAX_VOCAB:
        refuse_vocab(vocab, file)
    return cast(dict[str, int], dict(vocab))


def refuse_vocab(vocab: Mapping[str, object], file: Path) -> NoReturn:
    """Tells of the first token whose number is no distinct whole number."""
    owners: dict[int, str] = {}
    for token, id in vocab.items():
        if type(id) is not int or not 0 <= id < MAX_VOCAB:
            allowed = f"whole numbers from 0 to {MAX_VOCAB - 1}"
            raise UserError(f"{file}: the id of {token!r} is {id!r}", allowed=allowed)
        if id in owners:
            raise UserError(f"{file}: {owners[id]!r} and {token!r} have the same id {id}")
        owners[id] = token
    raise AssertionError("the numbers are distinct")


def numbered_lines(tokens: Iterable[str], file: Path) -> dict[str, int]:
    """Tokens with the numbers of their lines."""
    vocab: dict[str, int] = {}
    for token in tokens:
        if token in vocab:
            raise UserError(f"{file}: {token!r} occurs twice, as number {vocab[token]} and {len(vocab)}")
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


def read_settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json and, before it, special_tokens_map.json say beside a vocabulary."""
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        told = read_json(folder / name) if (folder / name).is_file() else {}
        settings |= {key: value for key, value in told.items() if value not in (None, spelling(settings.get(key)))}
    return settings


def read_chat_template(folder: Path) -> str | None:
    """The chat template in a file of its own or in tokenizer_config.json, of several the default one."""
    if (folder / CHAT_TEMPLATE).is_file():
        return read_text(folder / CHAT_TEMPLATE)
    beside = folder / CHAT_TEMPLATE_JSON
    found = (read_json(beside) if beside.is_file() else read_settings(folder)).get("chat_template")
    if isinstance(found, list):
        named = [one for one in found if isinstance(one, dict) and one.get("name") == "default"]
        found = named[0].get("template") if named else None
    return found if isinstance(found, str) else None


def spelling(value: object) -> str | None:
    """A token that is a string, or an object that holds one beside its flags."""
    token = value.get("content") if isinstance(value, dict) else value
    return token if isinstance(token, str) and token else None


SPECIAL_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


def role_token(settings: Mapping[str, Any], role: str) -> str | None:
    return spelling(settings.get(f"{role}_token"))


def find_roles(backend: Backend, settings: Mapping[str, Any]) -> Roles:
    """Roles as the settings say, else by the usual spellings of special tokens.

    Some checkpoints let one token play several roles (GPT-2's ends and begins a text and stands for the unknown); here
    it plays the first of eos, bos, unk, pad, mask.  BERT's [CLS] and [SEP] begin and end a text.
    """
    also = {"bos": "cls", "eos": "sep"}
    named = {role: role_token(settings, role) or role_token(settings, also.get(role, role)) for role in NAMES}
    if not any(named.values()):
        special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        named = {role: next((name for name in names if name in special), None) for role, names in NAMES.items()}
    roles: dict[str, str] = {}
    for role, token in named.items():
        if token is not None and token not in roles.values():
            roles[role] = token
    return Roles(**roles)


def add_tokens(backend: Backend, settings: Mapping[str, Any], folder: Path) -> None:
    """Adds tokens that are listed beside a vocabulary, each with the id that the settings give it."""
    beside = folder / "added_tokens.json"
    plain = read_json(beside) if beside.is_file() else {}
    added: dict[int, dict[str, Any]] = {}
    if plain:
        added = {id: {"content": token} for token, id in check_vocab(plain, beside).items()}
    added |= numbered(settings.get("added_tokens_decoder"))
    for id, entry in added.items():
        if spelling(entry) is None:
            raise UserError(f"{folder}: the added token with id {id} has no spelling")
    add_flagged(backend, [added[id] for id in sorted(added)])
    for id, entry in sorted(added.items()):
        if (found := backend.token_to_id(entry["content"])) != id:
            raise UserError(f"{folder}: {entry['content']!r} is added with id {id}, but would get {found}")


def numbered(entries: object) -> dict[int, dict[str, Any]]:
    """The entries of `added_tokens_decoder` by their ids."""
    found = entries.items() if isinstance(entries, dict) else ()
    return {int(id): entry for id, entry in found if str(id).isdecimal() and isinstance(entry, dict)}


def add_flagged(backend: Backend, entries: Iterable[Mapping[str, Any]]) -> None:
    """Adds tokens with their flags, in order; in few calls, since each looks through all that were added before."""
    flags = ("lstrip", "rstrip", "single_word", "normalized", "special")
    for special, run in groupby(entries, lambda entry: entry.get("special") is True):
        tokens = [AddedToken(one["content"], **{flag: one.get(flag) is True for flag in flags}) for one in run]
        (backend.add_special_tokens if special else backend.add_tokens)(tokens)


def flag_tokens(backend: Backend, settings: Mapping[str, Any]) -> None:
    """Flags of tokens of a pipeline that stand beside it, as transformers heeds them.

    What `added_tokens_decoder` says holds whatever the pipeline says; roles and further special tokens, with their own
    flags, are added where neither has them.  Tokens that the vocabulary lacks stay unknown.
    """
    listed_there = sorted(numbered(settings.get("added_tokens_decoder")).items())
    entries = [entry for id, entry in listed_there if backend.token_to_id(spelling(entry) or "") == id]
    add_flagged(backend, sorted(entries, key=lambda entry: entry.get("special") is True))
    lists = (settings.get(name) for name in ("additional_special_tokens", "extra_special_tokens"))
    further = (one for found in lists if isinstance(found, list) for one in found)
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    new: list[dict[str, Any]] = []
    for value in (*(settings.get(f"{role}_token") for role in SPECIAL_ROLES), *further):
        token = spelling(value)
        if token is not None and token not in known and backend.token_to_id(token) is not None:
            known.add(token)
            new.append({**(value if isinstance(value, dict) else {}), "content": token, "special": True})
    add_flagged(backend, new)


# of the model whose tokenizer is read, where its config.json does not say it
MODEL_TYPE: ContextVar[str | None] = ContextVar("MODEL_TYPE", default=None)


def tokenizer_class(file: Path, allowed: Iterable[str]) -> str:
    """The class of transformers that reads a folder's tokenizer, by tokenizer_config.json or config.json; else "".

    A class that is not `allowed` for this kind of file would give other ids, and is refused.
    """
    model = read_json(beside) if (beside := file.with_name("config.json")).is_file() else {}
    told = read_settings(file.parent).get("tokenizer_class") or model.get("tokenizer_class")
    name = str(told or "").removesuffix("Fast")
    name = "" if name in GENERIC_CLASSES else SAME_CLASSES.get(name, name)
    model_type = model.get("model_type", MODEL_TYPE.get())
    if not name and model_type is not None:
        name = CLASS_OF_MODEL.get(model_type, f"that of {model_type}")
    if name not in allowed:
        known = listed(sorted(one for one in allowed if one), 20)
        said = f"{file} belongs to a tokenizer of the class {name}, which is not read from it"
        raise UserError(said, allowed=known, do="add the folder's tokenizer.json, which AutoTokenizer saves")
    return name


def choose(files: list[Path], what: str) -> Path:
    """The one file, where there is one."""
    if len(files) != 1:
        raise UserError(
            f"{files[0].parent} holds {len(files)} {what}: {listed(file.name for file in files)}",
            do="load one of these files by its path",
        )
    return files[0]


def holds_letters(file: Path) -> bool:
    """Whether a vocab.json is of characters: its settings say so, or it has a blank and no longer token."""
    settings = read_settings(file.parent)
    if "tokenizer_class" in settings:
        return settings["tokenizer_class"] == CTC_CLASS
    vocab = read_json(file)
    longer = [token for token in vocab if len(token) != 1 and token[:1] + token[-1:] not in BRACKETS]
    return ctc_roles(settings)["pad"] in vocab and not longer


def read_letters(file: Path) -> Tokenizer:
    """vocab.json: characters, a word delimiter, and special tokens."""
    settings = read_settings(file.parent)
    if settings.get("do_lower_case") is True:
        said = f"{file.parent}: do_lower_case=True is not supported for the characters of a CTC model"
        raise UserError(said, allowed="false")
    vocab, roles = check_vocab(read_json(file), file), ctc_roles(settings)
    backend = characters(vocab, roles["unk"] if roles["unk"] in vocab else None)
    # a mark stands between words in place of a space; where a text begins or ends there is none
    mark, space = role_token(settings, "word_delimiter") or "|", str(settings.get("replace_word_delimiter_char", " "))
    backend.normalizer = normalizers.Replace(space, mark)
    backend.decoder = decoders.Sequence([decoders.Replace(mark, space), decoders.Fuse(), strip_edges()])
    special = [token for token in roles.values() if token in vocab]
    # as there, white space around a special token is not of the text
    backend.add_special_tokens([AddedToken(token, lstrip=True, rstrip=True, normalized=False) for token in special])
    backend.add_tokens([token for token in vocab if len(token) > 1 and token not in special])
    # transformers lists special tokens of the vocabulary again, and | among them
    added = settings.get("added_tokens_decoder")
    entries = added.items() if isinstance(added, dict) else ()
    new = {id: one for id, one in entries if isinstance(one, dict) and one.get("content") not in vocab}
    add_tokens(backend, {"added_tokens_decoder": new}, file.parent)
    return Tokenizer(backend, find_roles(backend, {f"{role}_token": token for role, token in roles.items()}))


def strip_edges() -> decoders.Decoder:
    """The step of a decoder that strips white space where a text begins and ends."""
    return decoders.Replace(Regex(r"\A\s+|\s+\z"), "")


def ctc_roles(settings: Mapping[str, Any]) -> dict[str, str]:
    return {role: role_token(settings, role) or usual for role, usual in CTC_ROLES.items()}


def read_fairseq(file: Path) -> Tokenizer:
    """`encode` puts </s> at the end, as fairseq does."""
    codes = [found for name in ("bpe.code", "bpe.codes", "bpecodes") if (found := file.with_name(name)).is_file()]
    if not codes:
        raise UserError(f"{file}: there is no bpe.code beside this dictionary")
    merges = read_codes(choose(codes, "files of merges"))
    tokens = read_dictionary(file)
    ended = (token.removesuffix(GOES_ON) if token.endswith(GOES_ON) else token + END for token in tokens)
    vocab = numbered_lines([*FAIRSEQ_SPECIAL, *ended], file)
    known = len(vocab)
    for pair in merges:
        for piece in (*pair, "".join(pair)):
            vocab.setdefault(piece, len(vocab))
    backend = suffix_bpe(vocab, merges, "<unk>")
    letters = "".join(left + right.removesuffix(END) for left, right in merges)
    if letters == letters.lower() != letters.upper():
        backend.normalizer = normalizers.Lowercase()
    backend.add_special_tokens(list(FAIRSEQ_SPECIAL))
    frame(backend, [], ["</s>"])
    return Tokenizer(backend, FAIRSEQ_ROLES, literal=True, known=known)


def read_sides(folder: Path, source: int, target: int) -> tuple[Tokenizer | None, Tokenizer | None]:
    """The tokenizers of what a model reads and writes; None for the second where it is the same.

    Nothing names the sides of two dictionaries; `source` and `target` are how many rows the model has for each.
    """
    files = sorted(folder.glob("dict.*.txt"))
    if not files:
        return None, None
    if len({read_text(file) for file in files}) == 1:
        return read_fairseq(files[0]), None
    found = [read_fairseq(file) for file in files]
    sides = [[words for words in found if words.vocab == rows] for rows in (source, target)]
    if [len(side) for side in sides] != [1, 1] or sides[0] == sides[1]:
        sizes = listed(f"{file.name} with {words.vocab}" for file, words in zip(files, found, strict=True))
        said = f"{folder}: the model reads {source} tokens and writes {target}, and there are {sizes}"
        raise UserError(said, allowed="one dictionary for both, or one of each size")
    return sides[0][0], sides[1][0]


def read_dictionary(file: Path) -> list[str]:
    """The tokens of lines such as `ce 1234`."""
    tokens: list[str] = []
    for number, line in enumerate(read_text(file).removesuffix("\n").split("\n"), 1):
        token, _, count = line.rstrip("\r").removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not token or not count.isdecimal():
            raise UserError(f"{file} line {number}: {line[:60]!r} is no token with its count")
        tokens.append(token)
    return tokens


def read_codes(file: Path) -> list[tuple[str, str]]:
    first, *lines = read_text(file).removesuffix("\n").split("\n")
    if first.split() != ["#version:", "0.2"]:
        raise UserError(f"{file}: begins with {first[:40]!r}", allowed="'#version: 0.2' of subword-nmt")
    return check_merges(enumerate((line.rstrip("\r ") for line in lines), 2), file)


def read_bert(file: Path) -> Tokenizer:
    """vocab.txt: one token a line, its id the number of the line."""
    tokenizer_class(file, ("", "BertTokenizer"))
    settings = read_settings(file.parent)
    lines = read_text(file).removesuffix("\n").split("\n")
    vocab = numbered_lines((line.rstrip("\r") for line in lines), file)
    roles = {role: role_token(settings, role) or f"[{role.upper()}]" for role in ("unk", "cls", "sep", "pad", "mask")}
    if missing := [token for token in (roles["unk"], roles["cls"], roles["sep"]) if token not in vocab]:
        raise UserError(f"{file}: not BERT's vocabulary: it lacks {missing[0]!r}")
    strip = settings.get("strip_accents")
    backend = wordpiece(
        vocab,
        roles["unk"],
        lower=settings.get("do_lower_case", True) is True,
        accents=None if strip is None else not strip,
        chinese=settings.get("tokenize_chinese_chars", True) is True,
    )
    backend.add_special_tokens([token for token in roles.values() if token in vocab])
    add_tokens(backend, settings, file.parent)
    frame(backend, [roles["cls"]], [roles["sep"]])
    return Tokenizer(backend, find_roles(backend, {f"{role}_token": token for role, token in roles.items()}))
