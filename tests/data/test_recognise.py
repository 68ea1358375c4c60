"""What data is taken for, and how that is said."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.data.kinds import DataKind
from headway.data.recognise import recognise
from headway.data.records import RecognisedData, Record, records
from headway.errors import UserError
from headway.tasks.registry import sentence

SENTENCES = [f"The {thing} number {at} is {'big' if at % 3 else 'small'}." for at in range(40) for thing in ("cat",)]
GERMAN = [f"Die Katze Nummer {at} ist {'groß' if at % 3 else 'klein'}." for at in range(40)]
LABELS = ["good", "bad", "so so", "bad"] * 10
PHONES = [f"K AE{at % 3} T {at}" for at in range(40)]
WORDS = ["the cat sat down"] * 20 + ["a dog ran"] * 20
TAGS = ["DET N V P"] * 20 + ["DET N V"] * 20


def joined(*columns: list[str], head: str = "", by: str = "\t") -> str:
    return head + "".join(by.join(row) + "\n" for row in zip(*columns, strict=True))


def objects(**columns: list[Any]) -> str:
    return "".join(
        json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in zip(*columns.values(), strict=True)
    )


CASES: dict[str, tuple[str, str, DataKind, tuple[str | int, ...], str]] = {
    "two texts": (
        "a.tsv",
        joined(SENTENCES, GERMAN),
        DataKind.PAIRS,
        (1, 2),
        "40 lines of two text columns, so translation",
    ),
    "languages": (
        "a.tsv",
        joined(SENTENCES, GERMAN, head="en\tde\n"),
        DataKind.PAIRS,
        ("en", "de"),
        "40 lines of two text columns (en, de), so translation",
    ),
    "text and label": (
        "a.tsv",
        joined(SENTENCES, LABELS),
        DataKind.LABELS,
        (1, 2),
        "40 lines of text and label, so classification",
    ),
    "label first": ("a.csv", joined(LABELS, SENTENCES, by=","), DataKind.LABELS, (2, 1), "text and label"),
    "named label, all different": (
        "a.csv",
        joined(SENTENCES, GERMAN, head="text;label\n", by=";"),
        DataKind.LABELS,
        ("text", "label"),
        "text and label (text, label)",
    ),
    "target with few values": (
        "a.csv",
        joined(SENTENCES, LABELS, head="Text,Target\n", by=","),
        DataKind.LABELS,
        ("Text", "Target"),
        "classification",
    ),
    "named pairs": (
        "a.csv",
        joined(LABELS, SENTENCES, head="output,input\n", by=","),
        DataKind.PAIRS,
        ("input", "output"),
        "translation",
    ),
    "an id beside": (
        "a.tsv",
        joined([str(at) for at in range(40)], SENTENCES, LABELS, head="id\ttext\tlabel\n"),
        DataKind.LABELS,
        ("text", "label"),
        "classification",
    ),
    "letters to sounds": ("a.tsv", joined(SENTENCES, PHONES), DataKind.PAIRS, (1, 2), "translation"),
    "texts that repeat on both sides": (
        "a.tsv",
        joined(LABELS, [f"ja {label}" for label in LABELS]),
        DataKind.PAIRS,
        (1, 2),
        "translation",
    ),
    "a first row with one word of headers": (
        "a.tsv",
        joined(["text", *SENTENCES[1:]], GERMAN),
        DataKind.PAIRS,
        (1, 2),
        "translation",
    ),
    "tags": ("a.tsv", joined(WORDS, TAGS), DataKind.TAGS, (1, 2), "40 lines of words and tags, so tagging"),
    "one column": ("a.tsv", joined(SENTENCES), DataKind.TEXTS, (1,), "one text column, so a language model"),
    "a document": ("a.txt", joined(SENTENCES, GERMAN), DataKind.TEXTS, (), "40 lines of text, so a language model"),
    "objects": (
        "a.jsonl",
        objects(id=list(range(40)), de=GERMAN, en=SENTENCES),
        DataKind.PAIRS,
        ("de", "en"),
        "translation",
    ),
    "objects with whole numbers for labels": (
        "a.jsonl",
        objects(text=SENTENCES, label=[0, 1, 0, 1] * 10),
        DataKind.LABELS,
        ("text", "label"),
        "classification",
    ),
    "objects with lists": (
        "a.ndjson",
        objects(tokens=[text.split() for text in WORDS], ner_tags=[[1] * len(text.split()) for text in WORDS]),
        DataKind.TAGS,
        ("tokens", "ner_tags"),
        "tagging",
    ),
    "objects with texts": ("a.jsonl", objects(text=SENTENCES), DataKind.TEXTS, ("text",), "a language model"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("case", CASES)
def test_data_is_recognised_and_told(tmp_path: Path, case: str, packed: bool) -> None:
    name, text, kind, columns, said = CASES[case]
    file = tmp_path / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found = recognise([file])
    assert (found.kind, found.columns, found.files) == (kind, columns, (file,))
    assert sentence(found).startswith(f"{file}: 40 lines of ")
    assert said in sentence(found)
    assert sentence(found).endswith(" (change with data.task)")
    assert sum(isinstance(one, Record) for one in records(found)) == (1 if case == "a document" else 40)


@pytest.mark.slow
def test_the_sentence_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text("".join(f"a {at}\tb {at}\n" for at in range(29_000)))
    told = sentence(recognise([Path("pairs.tsv")]))
    assert told == "pairs.tsv: 29,000 lines of two text columns, so translation (change with data.task)"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_of_csv_is_found(tmp_path: Path, separator: str) -> None:
    rows = [f'"Well, {at}; said\tshe"{separator}Ja, {at}\n' for at in range(30)]
    if separator == ",":
        rows = [f'"Well, {at}; said\tshe"{separator}"Ja, {at}"\n' for at in range(30)]
    (tmp_path / "a.csv").write_text("".join(rows))
    first = next(records(recognise([tmp_path / "a.csv"])))
    assert isinstance(first, Record)
    assert first.fields == ("Well, 0; said\tshe", "Ja, 0")


def wide(tmp_path: Path, head: str = "") -> Path:
    (tmp_path / "wide.tsv").write_text(joined(LABELS, SENTENCES, GERMAN, PHONES, head=head))
    return tmp_path / "wide.tsv"


def fields(found: RecognisedData) -> tuple[str, ...]:
    first = next(records(found))
    assert isinstance(first, Record)
    return first.fields


def test_columns_are_chosen_by_number_or_name(tmp_path: Path) -> None:
    assert fields(recognise([wide(tmp_path)], columns=(3, "2"))) == (GERMAN[0], SENTENCES[0])
    named = wide(tmp_path, "what\tenglisch\tdeutsch\tlaut\n")
    found = recognise([named], columns=("deutsch", "englisch"))
    assert (found.kind, found.columns, fields(found)) == (
        DataKind.PAIRS,
        ("deutsch", "englisch"),
        (GERMAN[0], SENTENCES[0]),
    )
    assert recognise([named], columns=("englisch", "what")).kind is DataKind.LABELS
    assert recognise([named], columns=("laut",)).kind is DataKind.TEXTS


def test_a_kind_that_is_asked_for_wins(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(joined(LABELS, SENTENCES))
    pairs = recognise([tmp_path / "a.tsv"], kind=DataKind.PAIRS)
    assert (pairs.kind, fields(pairs)) == (DataKind.PAIRS, (LABELS[0], SENTENCES[0]))
    (tmp_path / "b.tsv").write_text(joined(GERMAN, SENTENCES))
    assert recognise([tmp_path / "b.tsv"], kind=DataKind.LABELS).columns == (1, 2)
    (tmp_path / "a.txt").write_text(joined(SENTENCES, GERMAN))
    assert fields(recognise([tmp_path / "a.txt"], kind=DataKind.PAIRS)) == (SENTENCES[0], GERMAN[0])


def test_parallel_files(tmp_path: Path) -> None:
    source, target = tmp_path / "train.en", tmp_path / "train.de"
    source.write_text(joined(SENTENCES))
    target.write_text(joined(GERMAN))
    found = recognise([], source=source, target=target)
    assert (found.kind, found.files, found.columns) == (DataKind.PAIRS, (source, target), ())
    assert fields(found) == (SENTENCES[0], GERMAN[0])
    assert "parallel files of 40 lines each, so translation" in sentence(found)


def test_a_folder_is_its_texts_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a/2.txt", "a/10.TXT", "c.txt.gz", "a/readme.md"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(gzip.compress(b"packed") if name.endswith("gz") else name.encode())
    found = recognise([tmp_path])
    assert [str(file.relative_to(tmp_path)) for file in found.files] == ["a/10.TXT", "a/2.txt", "b.txt", "c.txt.gz"]
    assert "4 files of text" in sentence(found)
    assert [one.fields[0] for one in records(found) if isinstance(one, Record)] == [
        "a/10.TXT",
        "a/2.txt",
        "b.txt",
        "packed",
    ]


def test_several_tables_are_one(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(joined(SENTENCES, LABELS, head="text\tlabel\n"))
    (tmp_path / "b.csv").write_text(joined(LABELS, SENTENCES, head="label,text\n", by=","))
    found = recognise([tmp_path / "a.tsv", tmp_path / "b.csv"])
    assert (found.kind, "80 lines" in sentence(found)) == (DataKind.LABELS, True)
    assert {one.fields[1] for one in records(found) if isinstance(one, Record)} == set(LABELS)


@pytest.mark.parametrize("name", ["with spaces.tsv", "日本語 😀.tsv", "C:\\data\\a.tsv"])
def test_any_name_of_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(joined(SENTENCES, GERMAN))
    assert recognise([tmp_path / name]).files == (tmp_path / name,)


FILES = {
    "empty.tsv": b"",
    "empty.txt": b"",
    "mark.tsv": b"\xef\xbb\xbf",
    "blank.tsv": b"\n\n",
    "head.tsv": b"text\tlabel\n",
    "a.docx": b"PK",
    "a.zip": b"PK",
    "plain": b"a\tb\n",
    "train.en": b"a\n",
    "plain.tsv.gz": b"a\tb\n",
    "utf16.tsv": "a\tb\n".encode("utf-16"),
    "wide.tsv": joined(SENTENCES, GERMAN, PHONES).encode(),
    "named.tsv": joined(SENTENCES, GERMAN, PHONES, head="en\tde\tpt\n").encode(),
    "lists.jsonl": b'{"a": [[1]], "b": {}}\n',
    "none.jsonl": b"nothing\n",
    "a.txt": b"text\n",
    "folder/a.csv": b"a,b\n",
}
REFUSED: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "nothing": ([], {}, "no data was given"),
    "missing": (["wide.tvs"], {}, "wide.tvs does not exist; did you mean 'wide.tsv'?"),
    "an empty file": (["empty.tsv"], {}, "empty.tsv is empty"),
    "an empty text": (["empty.txt"], {}, "empty.txt is empty"),
    "a mark and nothing": (["mark.tsv"], {}, "mark.tsv is empty"),
    "blank lines": (["blank.tsv"], {}, "blank.tsv is empty"),
    "a header only": (["head.tsv"], {}, "head.tsv has a header and no records below it"),
    "another format": (["a.docx"], {}, "a.docx: what a .docx holds is not known; allowed: .tsv, .csv"),
    "no suffix": (["plain"], {}, "plain: what a file without a suffix holds is not known"),
    "a language as suffix": (["train.en"], {}, "two parallel files, as data.source and data.target"),
    "an archive": (["a.zip"], {}, "a.zip is an archive; unpack it"),
    "not packed": (["plain.tsv.gz"], {}, "plain.tsv.gz is not a gzip file"),
    "UTF-16": (["utf16.tsv"], {}, "utf16.tsv is in UTF-16; save it as UTF-8"),
    "three columns": (["wide.tsv"], {}, "has 3 columns (1 'The cat number 0 is smal', 2 'Die Katze"),
    "three names": (["named.tsv"], {}, "has 3 columns (en, de, pt) and nothing says which are to learn from; choose"),
    "an example": (["named.tsv"], {}, "as in data.columns en,de"),
    "a wrong name": (
        ["named.tsv"],
        {"columns": ("en", "dee")},
        "no column 'dee'; allowed: en, de, pt; did you mean 'de'?",
    ),
    "a number too high": (["wide.tsv"], {"columns": (1, 4)}, "wide.tsv has no column 4; allowed: 1 to 3"),
    "three of them": (["wide.tsv"], {"columns": (1, 2, 3)}, "data.columns 1,2,3 is no choice"),
    "the same twice": (["wide.tsv"], {"columns": (1, 1)}, "data.columns 1,1 is no choice"),
    "columns of a text": (["a.txt"], {"columns": (1, 2)}, "a.txt is a text without columns"),
    "tables and texts": (["a.txt", "wide.tsv"], {}, "tables and texts cannot be read together"),
    "no texts in objects": (["lists.jsonl"], {}, "lists.jsonl has no key with texts on most of its lines"),
    "no objects": (["none.jsonl"], {}, "none.jsonl:1: not JSON"),
    "no texts in a folder": (["folder"], {}, "folder holds no .txt or .md files, only a.csv"),
    "a source alone": ([], {"source": "a.txt"}, "give both data.source and data.target"),
    "source is target": ([], {"source": "a.txt", "target": "a.txt"}, "a.txt is given as source and as target"),
    "a folder as source": ([], {"source": "folder", "target": "a.txt"}, "folder is a folder; allowed: a file"),
    "an empty target": ([], {"source": "a.txt", "target": "empty.txt"}, "empty.txt is empty"),
    "both ways": (["a.txt"], {"source": "a.txt", "target": "plain"}, "cannot be read together"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_recognised_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(data)
    paths, options, said = REFUSED[case]
    chosen = {key: Path(value) if key in ("source", "target") else value for key, value in options.items()}
    with pytest.raises(UserError) as caught:
        recognise([Path(path) for path in paths], **chosen)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


CONVERTED = {
    "a.xls": "a.xls is an Excel file, which is not read directly; convert it with "
    'pandas.read_excel("a.xls").to_csv("a.csv", index=False)',
}


@pytest.mark.parametrize("name", CONVERTED)
def test_formats_that_are_not_read_say_how_to_convert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(b"PAR1")
    Path("b.txt").write_text("text")
    options: list[dict[str, Any]] = [{}, *({"kind": kind} for kind in (DataKind.PAIRS, DataKind.ROWS))]
    for chosen in options:
        with pytest.raises(UserError) as caught:
            recognise([Path(name)], **chosen)
        assert CONVERTED[name] in str(caught.value)
    with pytest.raises(UserError, match="convert it with pandas"):
        recognise([], source=Path("b.txt"), target=Path(name))


@pytest.mark.slow
def test_the_command_says_how_to_convert_excel(tmp_path: Path) -> None:
    (tmp_path / "a.xls").write_bytes(b"PAR1")
    command = [sys.executable, "-m", "headway", "check", "a.xls"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'pandas.read_excel("a.xls").to_csv("a.csv", index=False)' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_cannot_be_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tsv")
    with pytest.raises(UserError, match="can be read only once"):
        recognise([tmp_path / "a.tsv"])


@pytest.mark.slow
def test_real_data_is_recognised(shared: Path) -> None:
    data = shared / "data"
    assert recognise([data / "sentence_polarity" / "train.tsv"]).kind is DataKind.LABELS
    assert recognise([data / "cmudict" / "cmudict.tsv.gz"]).kind is DataKind.PAIRS
    assert recognise([data / "tatoeba_de_en" / "pairs.en-de.tsv.gz"]).kind is DataKind.PAIRS
    assert recognise([data / "tinyshakespeare" / "input.txt"]).kind is DataKind.TEXTS
    with pytest.raises(UserError, match=r"data\.columns 2,3"):
        recognise([data / "bible" / "bible.en-de-es.tsv.gz"])
