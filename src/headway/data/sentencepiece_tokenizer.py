"""Tokenizers from SentencePiece's files, as SentencePiece reads them or as a class of transformers does.

A file beside which no class is named is read as SentencePiece reads it, and every text is literal.  A folder's
tokenizer_config.json or config.json names the class that belongs to its model:

Llama, Mistral, Marian   SentencePiece itself, on what lies between special tokens; <s> before, or </s> behind.
T5, mT5                  </s> behind; sentinels <extra_id_99> … <extra_id_0> after the pieces.
ALBERT                   [CLS] … [SEP]; lower-cased and without accents, unless the settings say otherwise.
XLNet                    <sep> <cls> behind, <sep> after each text of two; without accents.
XLM-RoBERTa, CamemBERT   <s> … </s>; fairseq's special tokens come first and shift the ids, <mask> is last.

The classes of the last four lines read words: white space is only where these end, and a text is normalised by the
tokenizers package.  Other classes are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from headway.data.sentencepiece_model import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
    USER,
    SentencePieceModel,
    SentencePieceNormalizer,
    VocabPiece,
    parse,
    whole_charsmap,
)
from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_files import (
    add_tokens,
    check_vocab,
    find_roles,
    read_bytes,
    read_settings,
    spelling,
    strip_edges,
    tokenizer_class,
)
from headway.data.tokenizer_training import NEVER, frame, merges_by_score, shields
from headway.errors import UserError
from headway.system import read_json

MAX_LEADING_SPACES = 2**16  # leading spaces that are stripped
FAIRSEQ = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
# a language at the beginning of a text or of what follows a special token, in Marian
LEADING_CODE = r"(?:\A|(?<=</s>)|(?<=<unk>)|(?<=<pad>))>>(?:(?!</s>|<unk>|<pad>)[\s\S])*?<<"
Settings = Mapping[str, Any]


def read_sentencepiece(file: Path) -> Tokenizer:
    spec = parse(read_bytes(file), file)
    if spec.charsmap and not whole_charsmap(spec.charsmap):
        raise UserError(f"{file}: its table of normal forms is broken")
    if len(spec.of(UNKNOWN)) != 1:
        raise UserError(f"{file}: has {len(spec.of(UNKNOWN))} pieces for the unknown", allowed="one")
    name = "MarianTokenizer" if file.suffix == ".spm" else tokenizer_class(file, CLASSES)
    return CLASSES[name](spec, read_settings(file.parent), file)


def read_bare(spec: SentencePieceModel, settings: Settings, file: Path) -> Tokenizer:
    return exact(spec, settings, file, bos=False, eos=False, literal=True)


def read_llama(spec: SentencePieceModel, settings: Settings, file: Path) -> Tokenizer:
    """With `legacy` false, only a text that begins without a space gets one, and none follows a special token."""
    tokenizer = exact(spec, settings, file, bos=True, eos=False)
    if settings.get("legacy") is not False or spec.kind != BPE:
        return tokenizer
    scheme = "never" if settings.get("add_prefix_space") is False else "first"
    tokenizer.backend.normalizer = None  # type: ignore[assignment]  # the package's setter takes it
    tokenizer.backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=False)
    return replace(tokenizer, normalizer=None)


def read_marian(spec: SentencePieceModel, settings: Settings, file: Path) -> Tokenizer:
    """Marian's vocab.json numbers the pieces; those that it lacks come after it and are unknown to the model."""
    own_vocab = file.name == "target.spm" and settings.get("separate_vocabs") is True
    beside = file.with_name("target_vocab.json" if own_vocab else "vocab.json")
    if not beside.is_file():
        raise UserError(f"{file}: there is no {beside.name} beside it, which numbers its pieces")
    vocab = check_vocab(read_json(beside), beside)
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise UserError(f"{beside}: its ids have holes", allowed=f"0 to {len(vocab) - 1}, each once")
    own = {piece.text: piece for piece in spec.pieces}
    order = sorted(vocab, key=vocab.__getitem__)
    named = [own.get(token, VocabPiece(token, NEVER, CONTROL if token == "<pad>" else UNUSED)) for token in order]
    rest = [piece for piece in spec.pieces if piece.text not in vocab]
    ordered = spec._replace(pieces=(*named, *rest))
    tokenizer = exact(ordered, settings, file, bos=False, eos=True, known=len(vocab), leading=LEADING_CODE)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), strip_edges()]
    tokenizer.backend.decoder = decoders.Sequence(steps)
    return tokenizer


def exact(
    spec: SentencePieceModel,
    settings: Settings,
    file: Path,
    *,
    bos: bool,
    eos: bool,
    literal: bool = False,
    known: int | None = None,
    leading: str = "",
) -> Tokenizer:
    """The tokenizer that finds the pieces that SentencePiece finds."""
    backend = pipeline(spec, file)
    backend.add_special_tokens(spec.of(UNKNOWN, CONTROL))
    if spec.kind == BPE:
        backend.add_tokens([AddedToken(symbol, normalized=False, special=False) for symbol in spec.of(USER)])
    add_tokens(backend, settings, file.parent)
    roles = find_roles(backend, settings)
    before = [roles.bos] if settings.get("add_bos_token", bos) is True and roles.bos else []
    after = [roles.eos] if settings.get("add_eos_token", eos) is True and roles.eos else []
    frame(backend, before, after)
    normalizer = SentencePieceNormalizer(spec.charsmap, spec.prefix, spec.squeeze, tuple(spec.of(USER)), leading)
    return Tokenizer(backend, roles, literal=literal, known=known, normalizer=normalizer)


def pipeline(spec: SentencePieceModel, file: Path) -> Backend:
    backend = Backend(model(spec, file))
    backend.normalizer = normalizers.Sequence(near(spec))
    inner = any(SPACE in piece[1:] for piece in spec.of(NORMAL, USER))
    # where no piece crosses words, words can be read one by one, and remembered
    apart = [] if inner else [pre_tokenizers.Split(SPACE, "merged_with_next")]
    guard = shields(scored(spec)) if spec.kind == UNIGRAM else []
    if apart or guard:
        backend.pre_tokenizer = pre_tokenizers.Sequence([*apart, *guard])
    strip = [decoders.Strip(" ", MAX_LEADING_SPACES if spec.squeeze else 1, 0)] if spec.prefix or spec.squeeze else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def model(spec: SentencePieceModel, file: Path) -> models.Model:
    (unk,) = spec.of(UNKNOWN)
    vocab = {piece.text: id for id, piece in enumerate(spec.pieces)}
    if spec.kind == UNIGRAM:
        if any({*piece} == {SPACE} for piece in spec.of(USER)):
            said = f"{file}: runs of spaces as user-defined pieces are not supported in unigram models"
            raise UserError(said, do="add its tokenizer.json")
        return models.Unigram(scored(spec), vocab[unk], byte_fallback=spec.fallback)
    if spec.of(UNUSED):
        raise UserError(f"{file}: unused pieces are not supported in BPE models", do="add its tokenizer.json")
    scores = {piece.text: piece.score for piece in spec.pieces if piece.kind == NORMAL}
    return models.BPE(
        vocab, merges_by_score(scores), unk_token=unk, byte_fallback=spec.fallback, fuse_unk=not spec.fallback
    )


def scored(spec: SentencePieceModel) -> list[tuple[str, float]]:
    """Pieces with their scores; a user's own piece has such a good one that it is always taken."""
    # SentencePiece looks for the best score from 0 upward, so that it finds 0 among logarithms
    best = max(0.0, *(piece.score for piece in spec.pieces if piece.kind == NORMAL))

    def score(piece: VocabPiece) -> float:
        if piece.kind == USER:
            return len(piece.text) * best - 0.1
        return piece.score if piece.kind == NORMAL else NEVER

    return [(piece.text, score(piece)) for piece in spec.pieces]


def near(spec: SentencePieceModel) -> list[normalizers.Normalizer]:
    """Steps of the tokenizers package that come near SentencePiece's normal form."""
    steps: list[normalizers.Normalizer] = [normalizers.Precompiled(spec.charsmap)] if spec.charsmap else []
    if spec.squeeze:
        steps += [normalizers.Replace(Regex(rf"\A +|[ {SPACE}]+\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if spec.prefix:
        steps.append(normalizers.Prepend(SPACE))
    return [*steps, normalizers.Replace(" ", SPACE)]


def read_t5(spec: SentencePieceModel, settings: Settings, file: Path) -> Tokenizer:
    count = settings.get("extra_ids", 100)
    sentinels = [f"<extra_id_{n}>" for n in reversed(range(count if isinstance(count, int) else 0))]
    there = {piece.text for piece in spec.pieces}
    pieces = [*spec.pieces, *(VocabPiece(token, NEVER, CONTROL) for token in sentinels if token not in there)]
    roles = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
    return of_words(spec, pieces, settings, file, roles, before=[], after=["eos"])


def read_albert(spec: SentencePieceModel, settings: Settings, file: Path) -> Tokenizer:
    accents, lower = settings.get("keep_accents") is True, settings.get("do_lower_case", True) is True
    steps = normal_words(accents=accents, lower=lower)
    roles = {"bos": "[CLS]", "eos": "[SEP]", "unk": "<unk>", "pad": "<pad>", "mask": "[MASK]"}
    return of_words(spec, spec.pieces, settings, file, roles, before=["bos"], after=["eos"], first=steps)


def read_xlnet(spec: SentencePieceModel, settings: Settings, file: Path) -> Tokenizer:
    """As transformers' class, which leaves accents out whatever the settings say."""
    steps = normal_words(accents=False, lower=settings.get("do_lower_case") is True)
    roles = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
    tokenizer = of_words(spec, spec.pieces, settings, file, roles, before=[], after=[], first=steps)
    backend = tokenizer.backend
    around = {role: spelling(settings.get(f"{role}_token")) or f"<{role}>" for role in ("sep", "cls")}
    ids = [(token, backend.token_to_id(token)) for token in around.values()]
    if missing := [token for token, id in ids if id is None]:
        raise UserError(f"{file}: has no piece {missing[0]!r}")
    end, whole = f"{around['cls']}:2", [f"$A {around['sep']}", f"$B:1 {around['sep']}:1"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{whole[0]} {end}", pair=f"{whole[0]} {whole[1]} {end}", special_tokens=ids
    )
    return tokenizer


def normal_words(*, accents: bool, lower: bool) -> list[normalizers.Normalizer]:
    """What ALBERT's and XLNet's own code does to a text before SentencePiece's normal form."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [] if accents else [normalizers.NFKD(), normalizers.StripAccents()]
    return [*steps, normalizers.Lowercase()] if lower else steps


def read_xlm_roberta(spec: SentencePieceModel, settings: Settings, file: Path) -> Tokenizer:
    return fairseq(spec, ["<s>", "<pad>", "</s>", "<unk>"], 3, settings, file)


def read_camembert(spec: SentencePieceModel, settings: Settings, file: Path) -> Tokenizer:
    return fairseq(spec, ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"], 1, settings, file)


def fairseq(spec: SentencePieceModel, first: list[str], drop: int, settings: Settings, file: Path) -> Tokenizer:
    """fairseq's special tokens in place of the first pieces, which it numbers otherwise, and <mask> behind all."""
    if any(piece.kind == NORMAL for piece in spec.pieces[:drop]):
        said = f"{file}: its first {drop} pieces are {', '.join(repr(one.text) for one in spec.pieces[:drop])}"
        raise UserError(said, allowed="special tokens, such as '<unk>', '<s>', '</s>'")
    special = [VocabPiece(token, NEVER, UNUSED if token.endswith("NOTUSED") else CONTROL) for token in first]
    pieces = [*special, *spec.pieces[drop:], VocabPiece("<mask>", NEVER, CONTROL)]
    return of_words(spec, pieces, settings, file, FAIRSEQ, before=["bos"], after=["eos"])


def of_words(
    spec: SentencePieceModel,
    pieces: Sequence[VocabPiece],
    settings: Settings,
    file: Path,
    roles: Mapping[str, str],
    *,
    before: Sequence[str],
    after: Sequence[str],
    first: Sequence[normalizers.Normalizer] = (),
) -> Tokenizer:
    """Unigram pieces of words, as transformers reads them; `before` and `after` are roles."""
    if spec.kind != UNIGRAM:
        raise UserError(f"{file}: holds byte pairs, and this class of tokenizers reads unigram models")
    told = {**{f"{role}_token": token for role, token in roles.items()}, **settings}
    taken = find_roles(Backend(models.BPE()), told)
    # as there, a byte token is a piece like any other
    scores = [(one.text, one.score if one.kind in (NORMAL, USER, BYTE) else NEVER) for one in pieces]
    ids = {text: id for id, (text, _) in enumerate(scores)}
    if taken.unk is None or taken.unk not in ids:
        raise UserError(f"{file}: has no piece {taken.unk or 'unk'!r}")
    backend = Backend(models.Unigram(scores, ids[taken.unk], byte_fallback=False))
    forms = [normalizers.Precompiled(spec.charsmap)] if spec.charsmap else []
    backend.normalizer = normalizers.Sequence([*first, *forms])
    words = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always", split=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words, *shields(scores)])
    backend.decoder = decoders.Metaspace(SPACE, prepend_scheme="always", split=True)
    for piece in pieces:
        if piece.kind in (UNKNOWN, CONTROL, USER):
            flagged = AddedToken(piece.text, normalized=False, special=piece.kind != USER or piece.text == taken.mask)
            (backend.add_special_tokens if flagged.special else backend.add_tokens)([flagged])
    add_tokens(backend, settings, file.parent)
    framed = taken.named()
    frame(backend, [framed[role] for role in before if role in framed], [framed[role] for role in after])
    return Tokenizer(backend, taken)


CLASSES: dict[str, Callable[[SentencePieceModel, Settings, Path], Tokenizer]] = {
    "": read_bare,
    "AlbertTokenizer": read_albert,
    "CamembertTokenizer": read_camembert,
    "LlamaTokenizer": read_llama,
    "MarianTokenizer": read_marian,
    "T5Tokenizer": read_t5,
    "XLMRobertaTokenizer": read_xlm_roberta,
    "XLNetTokenizer": read_xlnet,
}
