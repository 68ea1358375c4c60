"""What was written is what is read, in every format, with its line numbers, in little memory."""

from __future__ import annotations

import gzip
import json
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data import records as sources
from headway.data.kinds import DataKind
from headway.data.recognise import recognise
from headway.data.records import ParallelFiles, RecognisedData, Record, RecordSource, TextFile, records
from headway.data.table import Dialect, JsonLines, Table
from headway.data.text_lines import MAX_LINE_BYTES, Flaw, Problem

Pairs = list[tuple[str, str]]

# letters that are line ends for others, quotes, separators, and anything else
LETTERS = st.sampled_from("ab \"',;\t\r\n\x0b\x0c\x1c\x85\u2028\u2029\ufeff\u00a0é你😀\\") | st.characters(
    exclude_categories=("Cs",), exclude_characters="\0"
)
TEXTS = st.text(LETTERS, max_size=12).map(lambda text: f"x{text}")
ENDS = st.sampled_from(["\n", "\r\n"])


def one_line(text: str) -> str:
    return text.replace("\n", "").rstrip("\r")


LINES = TEXTS.map(one_line)
CELLS = LINES.map(lambda text: text.replace("\t", ""))


def write(folder: Path, name: str, text: str, packed: bool, mark: bool) -> Path:
    data = ("\ufeff" if mark else "").encode() + text.encode()
    file = folder / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(data, 1) if packed else data)
    return file


def read(kind: DataKind, source: RecordSource) -> list[Record | Problem]:
    return list(records(RecognisedData(kind, (source,), "")))


def places(parts: Sequence[str]) -> list[int]:
    """The numbers of the lines at which parts of a file begin."""
    return [1 + "".join(parts[:at]).count("\n") for at in range(len(parts))]


def held(
    pairs: Pairs, parts: Sequence[str], name: str, source: Callable[[Path], RecordSource], packed: bool, mark: bool
) -> None:
    """A file of these parts reads as these pairs, each at the line where its part begins."""
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), name, "".join(parts), packed, mark)
        found = read(DataKind.PAIRS, source(file))
        assert found == [Record(pair, file, line) for pair, line in zip(pairs, places(parts), strict=True)]


@pytest.mark.slow
@given(st.lists(st.tuples(CELLS, CELLS), max_size=8), ENDS, st.booleans(), st.booleans())
def test_tsv_reads_as_it_was_written(pairs: Pairs, end: str, packed: bool, mark: bool) -> None:
    parts = [f"{a}\t{b}{end}" for a, b in pairs]
    held(pairs, parts, "a.tsv", lambda file: Table(file, Dialect(), 2, (0, 1)), packed, mark)


@pytest.mark.slow
@given(
    st.lists(st.tuples(TEXTS, TEXTS, st.booleans(), st.booleans()), max_size=8),
    st.sampled_from(",;\t"),
    ENDS,
    st.booleans(),
    st.booleans(),
)
def test_csv_reads_as_it_was_written(
    rows: list[tuple[str, str, bool, bool]], separator: str, end: str, packed: bool, mark: bool
) -> None:
    def cell(text: str, quoted: bool) -> str:
        must = quoted or separator in text or "\n" in text or text.endswith("\r") or text.startswith('"')
        return '"' + text.replace('"', '""') + '"' if must else text

    parts = [cell(a, p) + separator + cell(b, q) + end for a, b, p, q in rows]
    source = Dialect(separator, quoted=True)
    held([row[:2] for row in rows], parts, "a.csv", lambda file: Table(file, source, 2, (0, 1)), packed, mark)


@pytest.mark.slow
@given(st.lists(st.tuples(TEXTS, TEXTS, st.booleans()), max_size=8), ENDS, st.booleans(), st.booleans())
def test_jsonl_reads_as_it_was_written(rows: list[tuple[str, str, bool]], end: str, packed: bool, mark: bool) -> None:
    parts = [json.dumps({"b": b, "id": 3, "a": a}, ensure_ascii=ascii) + end for a, b, ascii in rows]
    held([row[:2] for row in rows], parts, "a.jsonl", lambda file: JsonLines(file, ("a", "b")), packed, mark)


@pytest.mark.slow
@given(st.lists(st.tuples(LINES, LINES), max_size=8), ENDS, ENDS, st.booleans(), st.booleans())
def test_parallel_files_read_as_they_were_written(pairs: Pairs, end: str, other: str, packed: bool, last: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sides = [end.join(a for a, _ in pairs), other.join(b for _, b in pairs)]
        sides = [side + tail * (last and bool(pairs)) for side, tail in zip(sides, (end, other), strict=True)]
        files = [write(Path(folder), name, side, packed, mark=False) for name, side in zip("ab", sides, strict=True)]
        found = read(DataKind.PAIRS, ParallelFiles(files[0], files[1]))
        assert found == [Record(pair, files[0], at) for at, pair in enumerate(pairs, 1)]


@pytest.mark.slow
@given(st.lists(TEXTS, min_size=1, max_size=30).map("".join), st.booleans(), st.booleans(), st.integers(4, 40))
def test_documents_read_as_they_were_written(text: str, packed: bool, mark: bool, piece: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PIECE_CHARACTERS", piece)
        file = write(Path(folder), "a.txt", text, packed, mark)
        found = [one for one in read(DataKind.TEXTS, TextFile(file)) if isinstance(one, Record)]
        pieces = [record.fields[0] for record in found]
        assert "".join(pieces) == text.replace("\r\n", "\n")
        assert [record.line for record in found] == places(pieces)
        assert [record.goes_on for record in found] == [at > 0 for at in range(len(found))]
        assert max(map(len, pieces)) <= 4 * piece


BYTES = st.lists(TEXTS.map(str.encode) | st.sampled_from([b"\0", b"\xff", b"\n", b"\r\n"]), min_size=1, max_size=30)


@pytest.mark.slow
@given(BYTES.map(b"".join), st.integers(4, 40))
def test_lines_that_are_read_together_are_cut_as_one_by_one(data: bytes, piece: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PIECE_CHARACTERS", piece)
        file, chunks = Path(folder, "a.txt"), sources.chunks
        file.write_bytes(data)
        together = list(sources.read_document(file))
        patch.setattr(sources, "chunks", lambda stream, _: chunks(stream, lambda: 0))  # pyright: ignore
        assert together == list(sources.read_document(file))


@pytest.mark.slow
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8), st.integers(0, 3))
def test_blank_lines_end_a_table_and_do_not_count(pairs: Pairs, blanks: int) -> None:
    parts = [f"{a}\t{b}\n" for a, b in pairs]
    parts[-1] += "\n" * blanks
    held(pairs, parts, "a.tsv", lambda file: Table(file, Dialect(), 2, (0, 1)), packed=False, mark=False)


def test_a_document_is_cut_where_a_tokenizer_minds_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PIECE_CHARACTERS", 10)
    (tmp_path / "a.txt").write_text("One line.\nTwo lines.\n\n  Three.\nand a very-long line goes on\n")
    found = read(DataKind.TEXTS, TextFile(tmp_path / "a.txt"))
    told = [(one.line, one.fields[0]) for one in found if isinstance(one, Record)]
    assert told == [
        (1, "One line.\n"),
        (2, "Two lines.\n\n  Three.\n"),
        (5, "and a very-long"),
        (5, " line goes on\n"),
    ]


def test_quotes_in_csv_and_none_in_tsv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"a ""b"", c","two\nlines"\n5" disk,d\n')
    (tmp_path / "a.tsv").write_text('"Go!" he said.\t"Geh!"\n"Open\tOffen\n')
    csv = read(DataKind.PAIRS, Table(tmp_path / "a.csv", Dialect(",", quoted=True), 2, (0, 1)))
    tsv = read(DataKind.PAIRS, Table(tmp_path / "a.tsv", Dialect(), 2, (1, 0)))
    assert [(one.fields, one.line) for one in csv if isinstance(one, Record)] == [
        (('a "b", c', "two\nlines"), 1),
        (('5" disk', "d"), 3),
    ]
    assert [one.fields for one in tsv if isinstance(one, Record)] == [('"Geh!"', '"Go!" he said.'), ("Offen", '"Open')]


def test_lines_lose_their_ends_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"a\tb\r\r\n c \td \x85\n e\tf\r")
    found = read(DataKind.PAIRS, Table(tmp_path / "a.tsv", Dialect(), 2, (0, 1)))
    assert [getattr(one, "what", None) for one in found] == [None, Flaw.ENCODING, None]
    (tmp_path / "a.tsv").write_bytes("a\tb\r\r\n c \td \x85\n e\tf\r".encode())
    found = read(DataKind.PAIRS, Table(tmp_path / "a.tsv", Dialect(), 2, (0, 1)))
    assert [one.fields for one in found if isinstance(one, Record)] == [("a", "b\r"), (" c ", "d \x85"), (" e", "f\r")]


def test_words_and_tags_come_joined_by_single_spaces(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"words": ["New", "York"], "tags": [1, 2]}\n{"words": " a  b ", "tags": "X\\tY"}\n'
    )
    found = read(DataKind.TAGS, JsonLines(tmp_path / "a.jsonl", ("words", "tags")))
    assert [one.fields for one in found if isinstance(one, Record)] == [("New York", "1 2"), ("a b", "X Y")]


@pytest.mark.slow
def test_a_line_too_long_for_memory_is_a_problem_of_its_own(tmp_path: Path) -> None:
    with (tmp_path / "long.tsv").open("wb") as stream:
        stream.write(b"a\tb\n")
        for _ in range(6):
            stream.write(b" " * MAX_LINE_BYTES)
        stream.write(b"\nc\td\n")
    data = recognise([tmp_path / "long.tsv"])
    tracemalloc.start()
    found = list(records(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(one.line, getattr(one, "what", None)) for one in found] == [(1, None), (2, Flaw.LONG), (3, None)]
    assert peak < 3 * MAX_LINE_BYTES


@pytest.mark.slow
def test_memory_does_not_grow_with_a_document_of_one_line(tmp_path: Path) -> None:
    with (tmp_path / "text8.txt").open("wb") as stream:
        for _ in range(64):
            stream.write("naïve words and 你好 ".encode() * 10_000)
    size = (tmp_path / "text8.txt").stat().st_size
    tracemalloc.start()
    read_bytes = sum(len(one.fields[0].encode()) for one in records(recognise([tmp_path])) if isinstance(one, Record))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read_bytes == size
    assert peak < 2**22 < size
