"""Bad data is named or counted: by file and line where training is strict, exactly where it goes on without."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.data_commands import check as command
from headway.cli.main import main
from headway.cli.options import SplitOptions
from headway.data import checks
from headway.data.checks import Skipped, check, good_records
from headway.data.kinds import DataKind
from headway.data.recognise import recognise
from headway.data.records import RecognisedData, Record, records
from headway.data.text_lines import MAX_LINE_BYTES, Flaw, Problem
from headway.errors import UserError


class Bad(NamedTuple):
    """Files of a data set, and what is wrong with them: file, line, kind, lines."""

    files: dict[str, bytes]
    wrong: list[tuple[str, int, Flaw, int]]
    kind: DataKind = DataKind.PAIRS
    good: int = 6


def among(bad: bytes, good: list[bytes], at: int = 3) -> bytes:
    """Good lines with a bad one after the third of them."""
    return b"".join([*good[:at], bad, *good[at:]])


TSV = [f"source {at}\ttarget {at}\n".encode() for at in range(6)]
CSV = [f'"source, {at}",target {at}\n'.encode() for at in range(6)]
JSON = [json.dumps({"source": f"s {at}", "target": f"t {at}"}).encode() + b"\n" for at in range(6)]
TAGS = [f"the {at} cat\tA B C\n".encode() for at in range(6)]
LISTS = [json.dumps({"words": ["the", str(at)], "tags": ["A", "B"]}).encode() + b"\n" for at in range(6)]
LEFT, RIGHT = ([f"{side} {at}\n".encode() for at in range(6)] for side in ("left", "right"))


def tsv(line: bytes, what: Flaw) -> Bad:
    return Bad({"a.tsv": among(line + b"\n", TSV)}, [("a.tsv", 4, what, 1)])


def csv(line: bytes, what: Flaw) -> Bad:
    return Bad({"a.csv": among(line + b"\n", CSV)}, [("a.csv", 4, what, 1)])


def jsonl(line: bytes, what: Flaw) -> Bad:
    return Bad({"a.jsonl": among(line + b"\n", JSON)}, [("a.jsonl", 4, what, 1)])


def parallel(left: bytes, right: bytes, *wrong: tuple[str, int, Flaw, int], good: int = 6) -> Bad:
    return Bad({"a.left": left, "a.right": right}, list(wrong), good=good)


BAD = {
    "a byte of Latin-1": tsv(b"caf\xe9\tb", Flaw.ENCODING),
    "a letter cut in two": tsv("a\té".encode()[:-1], Flaw.ENCODING),
    "a surrogate in UTF-8": tsv(b"a\xed\xa0\x80\tb", Flaw.ENCODING),
    "a letter written too long": tsv(b"a\xc0\xafb\tb", Flaw.ENCODING),
    "beyond Unicode": tsv(b"a\xf5\x80\x80\x80\tb", Flaw.ENCODING),
    "a line of UTF-16": tsv("aé\tb".encode("utf-16-be"), Flaw.ENCODING),
    "a column too few": tsv(b"alone", Flaw.COLUMNS),
    "a column too many": tsv(b"a\tb\tc", Flaw.COLUMNS),
    "another separator": tsv(b"a,b", Flaw.COLUMNS),
    "old line ends": tsv(b"a\tb\rc\td", Flaw.COLUMNS),
    "no source": tsv(b"\tb", Flaw.EMPTY),
    "no target": tsv(b"a\t", Flaw.EMPTY),
    "a target of spaces": tsv(b"a\t  ", Flaw.EMPTY),
    "a target of wide spaces": tsv("a\t\u3000\u00a0".encode(), Flaw.EMPTY),
    "a blank line": tsv(b"", Flaw.EMPTY),
    "a NUL": tsv(b"a\0\tb", Flaw.NUL),
    "a long target": tsv(b"a\t" + b"b" * 10_001, Flaw.LONG),
    "a line beyond memory": tsv(b"a\t" + b"b" * MAX_LINE_BYTES, Flaw.LONG),
    "the first line": Bad({"a.tsv": b"alone\n" + b"".join(TSV)}, [("a.tsv", 1, Flaw.COLUMNS, 1)]),
    "the last line, without its end": Bad({"a.tsv": b"".join(TSV) + b"alone"}, [("a.tsv", 7, Flaw.COLUMNS, 1)]),
    "several at once": Bad(
        {"a.tsv": b"a\t\n" + among(b"\xff\tb\nx\n", TSV)},
        [
            ("a.tsv", 1, Flaw.EMPTY, 1),
            ("a.tsv", 5, Flaw.ENCODING, 1),
            ("a.tsv", 6, Flaw.COLUMNS, 1),
        ],
    ),
    "packed": Bad({"a.tsv.gz": gzip.compress(among(b"x\n", TSV))}, [("a.tsv.gz", 4, Flaw.COLUMNS, 1)]),
    "a second file": Bad(
        {"a.tsv": b"".join(TSV), "b.tsv": among(b"c\td\te\n", [line.upper() for line in TSV])},
        [("b.tsv", 4, Flaw.COLUMNS, 1)],
        good=12,
    ),
    "a quote that stays open": csv(b'"a,b', Flaw.QUOTES),
    "letters after a quote": csv(b'"a" b,c', Flaw.QUOTES),
    "a quote open at the end": Bad({"a.csv": b"".join(CSV) + b'a,"b\n'}, [("a.csv", 7, Flaw.QUOTES, 1)]),
    "a cell too few": csv(b'"a,b"', Flaw.COLUMNS),
    "an unquoted comma": csv(b"a,b,c", Flaw.COLUMNS),
    "an empty cell": csv(b'"",b', Flaw.EMPTY),
    "a bad byte on the second line of a cell": csv(b'"a\nb\xff\nc",d', Flaw.ENCODING)._replace(
        wrong=[("a.csv", 5, Flaw.ENCODING, 1)]
    ),
    "after a cell of two lines": Bad(
        {"a.csv": among(b"x\n", [b'"two\nlines",one\n', *CSV[1:]])}, [("a.csv", 5, Flaw.COLUMNS, 1)]
    ),
    "no JSON": jsonl(b"{source: 1}", Flaw.JSON),
    "JSON cut off": jsonl(b'{"source": "a", "tar', Flaw.JSON),
    "a list": jsonl(b'["a", "b"]', Flaw.JSON),
    "a number": jsonl(b"7", Flaw.JSON),
    "two objects": jsonl(b'{"source": "a", "target": "b"} {}', Flaw.JSON),
    "a key twice": jsonl(b'{"source": "a", "source": "b", "target": "c"}', Flaw.JSON),
    "very deep": jsonl(b"[" * 100_000, Flaw.JSON),
    "a number of many digits": jsonl(b'{"source": ' + b"9" * 5000 + b', "target": "b"}', Flaw.JSON),
    "a missing key": jsonl(b'{"source": "a", "goal": "b"}', Flaw.KEY),
    "an empty object": jsonl(b"{}", Flaw.KEY),
    "null": jsonl(b'{"source": "a", "target": null}', Flaw.KEY),
    "an object for a text": jsonl(b'{"source": {}, "target": "b"}', Flaw.VALUE),
    "a fraction": jsonl(b'{"source": "a", "target": 0.5}', Flaw.VALUE),
    "not a number": jsonl(b'{"source": "a", "target": NaN}', Flaw.VALUE),
    "sentences in a list": jsonl(b'{"source": ["a b"], "target": "b"}', Flaw.VALUE),
    "half a pair": jsonl(rb'{"source": "\ud83d", "target": "b"}', Flaw.ENCODING),
    "a NUL in escapes": jsonl(rb'{"source": "a\u0000", "target": "b"}', Flaw.NUL),
    "an empty text": jsonl(b'{"source": "", "target": "b"}', Flaw.EMPTY),
    "a blank line among objects": jsonl(b"", Flaw.EMPTY),
    "bytes among objects": jsonl(b'{"source": "\xff", "target": "b"}', Flaw.ENCODING),
    "a tag too few": Bad({"a.tsv": among(b"a b c\tA B\n", TAGS)}, [("a.tsv", 4, Flaw.COUNTS, 1)], DataKind.TAGS),
    "a word too few": Bad(
        {"a.jsonl": among(b'{"words": ["a"], "tags": ["A", "B"]}\n', LISTS)},
        [("a.jsonl", 4, Flaw.COUNTS, 1)],
        DataKind.TAGS,
    ),
    "a space in a word": Bad(
        {"a.jsonl": among(b'{"words": ["New York"], "tags": ["A"]}\n', LISTS)},
        [("a.jsonl", 4, Flaw.VALUE, 1)],
        DataKind.TAGS,
    ),
    "a label too few": Bad({"a.tsv": among(b"a\t \n", TSV)}, [("a.tsv", 4, Flaw.EMPTY, 1)], DataKind.LABELS),
    "a longer source": parallel(b"".join(LEFT) + b"more\n" * 3, b"".join(RIGHT), ("a.left", 7, Flaw.UNPAIRED, 3)),
    "a longer target": parallel(b"".join(LEFT), b"".join(RIGHT) + b"more", ("a.right", 7, Flaw.UNPAIRED, 1)),
    "a line without target": parallel(
        b"".join(LEFT), among(b"", [*RIGHT[:3], b"\n", *RIGHT[4:]]), ("a.right", 4, Flaw.EMPTY, 1), good=5
    ),
    "a bad byte in the target": parallel(
        b"".join(LEFT), b"".join([*RIGHT[:3], b"\xff\n", *RIGHT[4:]]), ("a.right", 4, Flaw.ENCODING, 1), good=5
    ),
    "both sides bad": parallel(among(b"\xff\n", LEFT), among(b"\xff\n", RIGHT), ("a.left", 4, Flaw.ENCODING, 1)),
    "a long line of the target": parallel(
        among(b"a\n", LEFT), among(b"b" * 10_001 + b"\n", RIGHT), ("a.right", 4, Flaw.LONG, 1)
    ),
    "a bad byte in a document": Bad(
        {"a.txt": among(b"\xff\n", LEFT)}, [("a.txt", 4, Flaw.ENCODING, 1)], DataKind.TEXTS, good=1
    ),
    "a NUL in a document": Bad({"a.txt": among(b"\0\n", LEFT)}, [("a.txt", 4, Flaw.NUL, 1)], DataKind.TEXTS, good=1),
    "a blank document": Bad(
        {"a.txt": b"text", "b.txt": b" \n\n", "c.txt": b"more"},
        [("b.txt", 1, Flaw.EMPTY, 1)],
        DataKind.TEXTS,
        good=2,
    ),
    "an empty document": Bad(
        {"a.txt": b"text", "b.txt": b"", "c.txt": b"more"}, [("b.txt", 1, Flaw.EMPTY, 1)], DataKind.TEXTS, good=2
    ),
}


def written(folder: Path, bad: Bad) -> RecognisedData:
    for name, data in bad.files.items():
        (folder / name).write_bytes(data)
    files = [folder / name for name in bad.files]
    if "a.left" in bad.files:
        return recognise([], source=files[0], target=files[1])
    return recognise(files, kind=bad.kind)


@pytest.mark.parametrize("case", BAD)
def test_reading_tells_exactly_what_is_wrong(tmp_path: Path, case: str) -> None:
    found = list(records(written(tmp_path, BAD[case])))
    problems = [one for one in found if isinstance(one, Problem)]
    assert [(one.file.name, one.line, one.what, one.lines) for one in problems] == BAD[case].wrong
    assert len(found) - len(problems) == BAD[case].good
    assert not any("\n" in one.said for one in problems)


@pytest.mark.parametrize("case", BAD)
def test_strict_training_names_file_and_line(tmp_path: Path, case: str) -> None:
    file, line, _, _ = BAD[case].wrong[0]
    with pytest.raises(UserError) as caught:
        list(good_records(written(tmp_path, BAD[case]), None))
    assert f"{file}:{line}: " in str(caught.value)
    assert "data.skip_bad" in str(caught.value)
    parallel = f"--source {tmp_path / 'a.left'} --target {tmp_path / 'a.right'}"
    assert f"headway check {parallel if 'a.left' in BAD[case].files else tmp_path / file}" in str(caught.value)
    more = sum(lines for _, _, _, lines in BAD[case].wrong) - 1
    assert (f"{more} line" in str(caught.value)) == (more > 0)


@pytest.mark.parametrize("case", BAD)
def test_skipping_counts_exactly(tmp_path: Path, case: str) -> None:
    data, skipped = written(tmp_path, BAD[case]), Skipped()
    expected = Counter[Flaw]()
    for _, _, what, lines in BAD[case].wrong:
        expected[what] += lines
    for _ in range(2):  # each reading counts anew
        assert len(list(good_records(data, skipped))) == BAD[case].good
        assert skipped.counts == expected
    assert check(data).counts.keys() >= expected.keys()


def test_there_are_enough_kinds() -> None:
    assert len(BAD) >= 40


DAMAGED = {
    "cut off": lambda data: data[: len(data) // 2],
    "cut off at once": lambda data: data[:12],
    "bytes changed": lambda data: data[: len(data) // 2] + b"\xff" * 9 + data[len(data) // 2 + 9 :],
    "a wrong sum": lambda data: data[:-8] + b"\0\0\0\0" + data[-4:],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.tsv.gz", "a.csv.gz", "a.jsonl.gz", "a.txt.gz"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_archive_is_never_trained_on(tmp_path: Path, name: str, damage: str) -> None:
    rows = {".tsv": TSV, ".csv": CSV, ".jsonl": JSON, ".txt": LEFT}[Path(name).with_suffix("").suffix]
    data = b"".join(line.replace(b"0", str(at**5).encode()) for at in range(5000) for line in rows[:1])
    (tmp_path / name).write_bytes(DAMAGED[damage](gzip.compress(data)))
    kind = DataKind.TEXTS if ".txt" in name else DataKind.PAIRS
    for skipped in (None, Skipped()):
        with pytest.raises(UserError, match=rf"{name}:\d+: .*archive"):
            list(good_records(recognise([tmp_path / name], kind=kind), skipped))
    if damage != "cut off at once":
        assert check(recognise([tmp_path / name], kind=kind)).counts[Flaw.BROKEN] == 1


def test_when_nothing_is_left_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"a\tb\n\tb\n")
    (tmp_path / "b.tsv").write_bytes(b"a\tb\n")
    data, held = recognise([tmp_path / "a.tsv"]), recognise([tmp_path / "b.tsv"])
    with pytest.raises(UserError, match="nothing is left to learn from: 2 lines left out"):
        list(good_records(data, Skipped(), beside=[held]))


def test_a_strict_training_counts_no_further_than_is_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_AHEAD", 3)
    (tmp_path / "a.tsv").write_bytes(b"a\tb\nc\td\n" + b"\tb\n" * 9)
    with pytest.raises(UserError, match=r"a\.tsv:3: column 1 is empty; at least 3 lines more"):
        list(good_records(recognise([tmp_path / "a.tsv"]), None))


def test_a_test_is_compared_with_training_and_validation(tmp_path: Path) -> None:
    for name, rows in {"train": b"a\tb\nc\td\n", "held": b"e\tf\n", "test": b"g\th\ne\tz\na\ty\n"}.items():
        (tmp_path / f"{name}.tsv").write_bytes(rows)
    data, held, test = (recognise([tmp_path / f"{name}.tsv"]) for name in ("train", "held", "test"))
    found = check(data, validation=held, test=test)
    leaked = [(one.line, one.said) for one in found.problems if one.what is Flaw.LEAK]
    files = tmp_path / "train.tsv", tmp_path / "held.tsv"
    assert leaked == [(3, f"in training too, at {files[0]}:1"), (2, f"in validation too, at {files[1]}:1")]
    assert found.lines[-1] == "3 records for test, 3 good"


FEW = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz")), min_size=1, max_size=12)


@pytest.mark.slow
@given(FEW, FEW)
def test_repeats_and_leaks_are_found(train: list[tuple[str, str]], held: list[tuple[str, str]]) -> None:
    """Against the plain text of what is meant, in lists and sets."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("train.tsv", "held.tsv")]
        for file, rows in zip(files, (train, held), strict=True):
            file.write_text("".join(f"{a}\t{b}\n" for a, b in rows))
        data, beside = (recognise([file], kind=DataKind.PAIRS) for file in files)
        found = check(data, validation=beside)
        repeated = [at for at, row in enumerate(train) if row in train[:at]]
        another = [at for at, row in enumerate(train) if row not in train[:at] and row[0] in [a for a, _ in train[:at]]]
        sources = [a for a, _ in train]
        leaked = [at for at, row in enumerate(held) if row[0] in sources]
        assert lines_of(found.problems, Flaw.DUPLICATE) == [at + 1 for at in repeated]
        assert lines_of(found.problems, Flaw.ANOTHER) == [at + 1 for at in another]
        assert lines_of(found.problems, Flaw.LEAK) == [at + 1 for at in leaked]
        first = [train.index(train[at]) + 1 for at in repeated]
        assert [one.said for one in found.problems if one.what is Flaw.DUPLICATE] == [
            f"the same as {files[0]}:{line}" for line in first
        ]
        assert (found.count, found.good, found.bad) == (len(train), len(train), len(repeated) + len(leaked))
        barred = {a for a, _ in held}
        left = [row for at, row in enumerate(train) if at not in repeated and row[0] not in barred]
        if left:
            skipped = Skipped()
            rest = [one.fields for one in good_records(data, skipped, beside=[beside])]
            assert rest == left
            assert skipped.total == len(train) - len(left)


def lines_of(problems: tuple[Problem, ...], what: Flaw) -> list[int]:
    return [one.line for one in problems if one.what is what]


def test_the_first_of_each_kind_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"a\tb\n" * 1000 + b"alone\n" * 500)
    found = check(recognise([tmp_path / "a.tsv"], kind=DataKind.PAIRS))
    assert found.counts == {Flaw.COLUMNS: 500, Flaw.DUPLICATE: 999}
    assert lines_of(found.problems, Flaw.DUPLICATE) == list(range(2, 2 + checks.MAX_SHOWN))
    assert (found.count, found.good, found.bad) == (1500, 1000, 1499)


def labelled(tmp_path: Path, name: str, labels: list[str], kind: DataKind = DataKind.LABELS) -> RecognisedData:
    (tmp_path / name).write_text("".join(f"{name} {at}\t{label}\n" for at, label in enumerate(labels)))
    return recognise([tmp_path / name], kind=kind)


def test_classes(tmp_path: Path) -> None:
    one = labelled(tmp_path, "one.tsv", ["yes"] * 9)
    two = labelled(tmp_path, "two.tsv", ["yes", "no"] * 4)
    more = labelled(tmp_path, "more.tsv", ["yes", "no", "maybe"] * 3)
    assert check(two).counts == {}
    assert check(one).counts == {Flaw.ONE_CLASS: 1}
    one = labelled(tmp_path, "single.tsv", ["yes"])  # of which it said: nothing to mend
    assert check(one).counts == {Flaw.FEW: 1, Flaw.ONE_CLASS: 1}
    found = check(two, validation=more)
    assert found.counts == {Flaw.CLASS: 3}
    assert lines_of(found.problems, Flaw.CLASS) == [3, 6, 9]
    assert found.lines[0] == "8 records, 8 good; 2 labels: yes 4, no 4"


@pytest.mark.long
@pytest.mark.parametrize("own_validation", [False, True])
@pytest.mark.parametrize(("name", "line"), [("a.csv", "{0}.5"), ("a.tsv", "word {0}\tWort {0}"), ("a.txt", "a text")])
def test_too_few_are_told_where_training_refuses_them(
    tmp_path: Path, name: str, line: str, own_validation: bool
) -> None:
    def file(called: str, count: int) -> Path:
        (tmp_path / called).write_text("".join(line.format(at) + "\n" for at in range(count)), encoding="utf-8")
        return tmp_path / called

    other = file(f"validation-{name}", 20) if own_validation else None
    words = [] if other is None else ["--validation", str(other)]
    held = None if other is None else recognise([other])
    for count in (1, 2, 8, 9, 10, 11):
        found = check(recognise([file(name, count)]), validation=held)
        few = [problem for problem in found.problems if problem.what is Flaw.FEW]
        small = ["--data.max-length", "4"] if name.endswith("txt") else []  # else it says that a text is too short
        refused = main(["train", str(tmp_path / name), *words, *small, "--dry-run", "--train.steps", "1"]) == 2
        assert bool(few) == refused, (count, found.to_text())


def test_documents_are_compared_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.data.records.PIECE_CHARACTERS", 8)
    long = "\n".join(f"line {at}" for at in range(50))
    for name, text in {"a": long, "b": f"{long}!", "c": long, "d": "line 0\n"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    data = recognise([tmp_path])
    found = check(data)
    assert [(one.file.name, one.what) for one in found.problems] == [("c.txt", Flaw.DUPLICATE)]
    skipped = Skipped()
    left = [one for one in good_records(data, skipped) if isinstance(one, Record)]
    assert {one.file.name for one in left} == {"a.txt", "b.txt", "d.txt"}
    assert skipped.counts == {Flaw.DUPLICATE: 1}


def test_honest_repeats_do_not_stop_a_strict_training(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"a\tb\na\tb\na\tc\n")
    assert len(list(good_records(recognise([tmp_path / "a.tsv"], kind=DataKind.PAIRS), None))) == 3


def test_the_command_lists_problems_and_says_so_by_its_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(b"".join(TSV) + b"alone\n" * 7 + TSV[0])
    assert main(["check", str(file)]) == 2
    told = capsys.readouterr().out
    assert f"{file}: 14 lines of two text columns, so translation (change with --task)\n14 records, 7 good\n" in told
    assert f"wrong columns: 7\n  {file}:7: 1 column where the file has 2\n" in told
    assert "  and 2 more\n" in told
    assert f"duplicate: 1\n  {file}:14: the same as {file}:1\n" in told
    assert command(file, json=True) == 2
    plain: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (plain["records"], plain["good"], plain["bad"]) == (14, 7, 8)
    assert plain["counts"] == {"wrong columns": 7, "duplicate": 1}
    assert plain["problems"][0] == {
        "file": str(file),
        "line": 7,
        "what": "wrong columns",
        "said": "1 column where the file has 2",
        "lines": 1,
    }


def test_the_command_on_good_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_bytes(b"".join(TSV))
    assert command(tmp_path / "a.tsv", split=SplitOptions(columns="2,1", task="translation")) == 0
    assert capsys.readouterr().out.endswith("\nnothing to mend\n")
    with pytest.raises(UserError, match="did you mean 'translation'"):
        command(tmp_path / "a.tsv", split=SplitOptions(task="translate"))


@pytest.mark.slow
def test_real_data_is_checked(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = shared / "data" / "multi30k"
    beside = [data / "val.en.gz", data / "val.de.gz"]
    both = SplitOptions(source=data / "train.en.gz", target=data / "train.de.gz")
    assert command(split=both, validation=beside, json=True) == 2
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["good"] == 29_000
    assert found["counts"] == {"duplicate": 3, "same source, another target": 6, "in training and validation": 1}
