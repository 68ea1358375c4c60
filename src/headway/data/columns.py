"""Which columns of a table are meant, and for what: by what was asked for, by names in the header, by their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.data.heads import BESIDES, LABEL, LANGUAGE, SOURCE, TAGS, TARGET, TEXT, WORDS, Head
from headway.data.kinds import Kind
from headway.errors import UserError, listed

NAMES = {Kind.TAGS: (WORDS, TAGS), Kind.PAIRS: (SOURCE, TARGET), Kind.LABELS: (TEXT, LABEL)}
LABEL_LENGTH, TAG_KINDS = 40, 100  # the longest label and the most tags that are taken for such without a name


@dataclass(frozen=True)
class Chosen:
    """Columns from 0, in the order of a record's fields."""

    kind: Kind
    columns: tuple[int, ...]


def choose(head: Head, kind: Kind | None, asked: Sequence[str | int]) -> Chosen:
    """What was asked for, else what the columns look like; where that leaves a choice, a UserError that lists them."""
    columns = tuple(head.find(column) for column in asked)
    if len(set(columns)) < len(columns) or len(columns) > 2:
        raise UserError(f"--columns {spelled(asked)} is no choice", allowed="one column of text, or two different ones")
    candidates = columns or tuple(at for at in range(head.width) if head.name(at) not in BESIDES)
    found = arranged(head, kind, candidates) if kind else guessed(head, candidates)
    if found is None:
        raise undecided(head, kind)
    # columns that were asked for stay in their order, unless one of them is the label
    return Chosen(found.kind, columns) if columns and found.kind is not Kind.LABELS else found


def guessed(head: Head, candidates: tuple[int, ...]) -> Chosen | None:
    named = next((found for kind in NAMES if (found := by_names(head, kind, candidates))), None)
    if named:
        return named
    plain = tuple(at for at in candidates if at not in head.lists)
    if len(plain) == 1:
        return Chosen(Kind.TEXTS, plain)
    if len(plain) != 2:
        return None
    left, right = plain
    if all(head.name(at) in LANGUAGE for at in plain):
        return Chosen(Kind.PAIRS, plain)
    if look_like_tags(head.values(left), head.values(right)):
        return Chosen(Kind.TAGS, plain)
    for text, label in ((left, right), (right, left)):
        if look_like_labels(head.values(label), head.values(text)):
            return Chosen(Kind.LABELS, (text, label))
    return Chosen(Kind.PAIRS, plain)


def arranged(head: Head, kind: Kind, candidates: tuple[int, ...]) -> Chosen | None:
    """The columns for a kind that is known."""
    if kind is Kind.TEXTS:
        texts = [at for at in candidates if head.name(at) in TEXT]
        one = candidates if len(candidates) == 1 else tuple(texts)
        return Chosen(kind, one) if len(one) == 1 else None
    if named := by_names(head, kind, candidates):
        return named
    if len(candidates) != 2:
        return None
    if kind is Kind.LABELS:  # the column with fewer different values, the second where they are equal
        label = min(reversed(candidates), key=lambda at: len(set(head.values(at))))
        return Chosen(kind, (*(at for at in candidates if at != label), label))
    return Chosen(kind, candidates)


def by_names(head: Head, kind: Kind, candidates: tuple[int, ...]) -> Chosen | None:
    """The columns whose names say what they are, where each role has one."""
    first, second = ([at for at in candidates if head.name(at) in names] for names in NAMES[kind])
    return Chosen(kind, (first[0], second[0])) if len(first) == len(second) == 1 else None


def look_like_labels(values: list[str], texts: list[str]) -> bool:
    """Short values of which a few stand again and again, beside texts that differ."""
    rows, different = len(values), len(set(values))
    few = max(2, min(rows // 3, 10), rows // 10)
    short = max(len(value) for value in values) <= LABEL_LENGTH
    return rows > 3 and short and different <= few and 2 * different <= len(set(texts))


def look_like_tags(words: list[str], tags: list[str]) -> bool:
    """As many tags as words in every row, and few different tags for many words."""
    counts = [len(text.split()) for text in tags]
    if counts != [len(text.split()) for text in words] or sum(counts) < 2 * len(counts):
        return False
    different = len({tag for text in tags for tag in text.split()})
    return different <= min(TAG_KINDS, sum(counts) // 10)


def described(head: Head, chosen: Chosen) -> str:
    """The columns for a sentence: two text columns (en, de)"""
    apart = ", ".join(str(head.names[at] if head.names else at + 1) for at in chosen.columns)
    named = f" ({apart})" if head.names or head.width > len(chosen.columns) else ""
    if chosen.kind is Kind.LABELS:
        return f"text and label{named}"
    return {Kind.PAIRS: "two text columns", Kind.TAGS: "words and tags", Kind.TEXTS: "one text column"}[
        chosen.kind
    ] + named


def undecided(head: Head, kind: Kind | None) -> UserError:
    """What there is to choose from; the example names the columns with the longest texts."""
    shown = [f"{head.names[at]}" if head.names else f"{at + 1} {head.rows[0][at][:24]!r}" for at in range(head.width)]
    many = 1 if kind is Kind.TEXTS else 2
    longest = sorted(range(head.width), key=lambda at: -sum(map(len, head.values(at))))[:many]
    example = [head.names[at] if head.names else at + 1 for at in sorted(longest)]
    what = f"for {kind.value}" if kind else "to learn from"
    said = f"{head.file} has {head.width} columns ({listed(shown)}) and nothing says which are {what}"
    return UserError(said, do=f"choose them, as in --columns {spelled(example)}")


def spelled(columns: Sequence[str | int]) -> str:
    return ",".join(str(column) for column in columns)
