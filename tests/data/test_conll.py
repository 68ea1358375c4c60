"""CoNLL files in their usual shapes are tagged sentences; a bad line spoils its sentence and no other."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from headway.data.checks import check
from headway.data.kinds import DataKind
from headway.data.recognise import recognise, recognise_held_back
from headway.data.records import Record, records
from headway.data.text_lines import Flaw
from headway.errors import UserError
from headway.tasks.registry import sentence

SENTENCES = [
    (("EU", "rejects", "German", "call", "."), ("B-ORG", "O", "B-MISC", "O", "O")),
    (("Peter", "Blackburn", "#", "spoke", "in", "Brussels"), ("B-PER", "I-PER", "O", "O", "O", "B-LOC")),
] * 5


def lines(row: str, start: str = "", comment: str = "") -> str:
    """A line for each word, and a blank one after each sentence."""
    return start + "".join(
        comment
        + "".join(
            f"{row.format(at=at, word=word, tag=tag)}\n" for at, (word, tag) in enumerate(zip(*one, strict=True), 1)
        )
        + "\n"
        for one in SENTENCES
    )


UNIVERSAL = "{at}\t{word}\t_\t{tag}\t_\t_\t0\troot\t_\t_"
CASES = {
    "two columns, tabs": (lines("{word}\t{tag}"), (1, 2)),
    "two columns, spaces": (lines("{word} {tag}"), (1, 2)),
    "four columns": (lines("{word} NN I-NP {tag}", "-DOCSTART- -X- -X- O\n\n"), (1, 4)),
    "four columns, tabs": (lines("{word}\tNN\tI-NP\t{tag}", "-DOCSTART-\t-X-\t-X-\tO\n\n"), (1, 4)),
    "CoNLL-U": (lines(UNIVERSAL, comment="# text = …\n1-2\tEU's\t_\t_\t_\t_\t_\t_\t_\t_\n"), (2, 4)),
    "no last blank line": (lines("{word}\t{tag}").rstrip("\n"), (1, 2)),
    "line ends of Windows": (lines("{word}\t{tag}").replace("\n", "\r\n"), (1, 2)),
    "several blank lines": (lines("{word}\t{tag}").replace("\n\n", "\n\n\n"), (1, 2)),
}


@pytest.mark.parametrize("name", ["a.conll", "a.txt", "a.tsv", "a.bio.gz"])
@pytest.mark.parametrize("case", CASES)
def test_sentences_are_records(tmp_path: Path, case: str, name: str) -> None:
    text, columns = CASES[case]
    file = tmp_path / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    found = recognise([file])
    assert (found.kind, found.columns) == (DataKind.TAGS, columns)
    word, tag = columns
    said = f"10 sentences of words and tags, a word on each line (columns {word} and {tag}), so tagging"
    assert sentence(found).startswith(f"{file}: {said}")
    fields = [one.fields for one in records(found) if isinstance(one, Record)]
    assert fields == [(" ".join(words), " ".join(tags)) for words, tags in SENTENCES]
    assert check(found).bad == check(found).counts[Flaw.DUPLICATE] == 8


def test_other_columns_are_chosen_by_number(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(lines("{word} NN {tag} I-NP"))
    first = next(records(recognise([tmp_path / "a.txt"], columns=(1, "3"))))
    assert isinstance(first, Record)
    assert first.fields[1] == "B-ORG O B-MISC O O"
    given = recognise([tmp_path / "a.txt"], columns=(1, 3))
    (tmp_path / "b.txt").write_text(lines("{word} NN {tag} I-NP") + "One NN O I-NP\n")
    assert recognise_held_back(given, [tmp_path / "b.txt"]).columns == (1, 3)


def test_a_bad_line_spoils_its_sentence(tmp_path: Path) -> None:
    text = lines("{word}\t{tag}").split("\n")
    text[1] = "rejects"
    (tmp_path / "a.tsv").write_text("\n".join(text))
    found = recognise([tmp_path / "a.tsv"])
    result = check(found)
    (problem,) = (one for one in result.problems if one.what is Flaw.COLUMNS)
    assert str(problem) == f"{tmp_path / 'a.tsv'}:2: 1 column where the file has 2"
    assert (result.count, result.good) == (10, 9)


OTHERS = {
    "a poem of two words a line": "red roses\nblue violets\n\nsweet sugar\nkind people\n\nlong days\nshort nights\n",
    "a dictionary with a gap": "dog\tHund\ncat\tKatze\n\nbird\tVogel\nhorse\tPferd\n",
    "pairs with a gap": "How are you\tOK\nI am fine\tOK\n\nWho is it\tOK\nIt is me\tOK\n",
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_lines_are_no_tags(tmp_path: Path, case: str) -> None:
    file = tmp_path / ("a.tsv" if "\t" in OTHERS[case] else "a.txt")
    file.write_text(OTHERS[case])
    assert recognise([file]).kind is not DataKind.TAGS


def test_a_file_of_that_name_without_tags_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Just a text.\nNo tags are here, as it seems.\n")
    with pytest.raises(UserError, match="holds no words with a tag each; allowed: a word and its tag on a line"):
        recognise([tmp_path / "a.conll"])
    (tmp_path / "b.conll").write_text("EU B-ORG\nrejects O\n")  # one sentence
    assert recognise([tmp_path / "b.conll"]).kind is DataKind.TAGS
