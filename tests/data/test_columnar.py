"""Parquet and Arrow: the same records as other tables, by column, in bounded memory; damaged files in one sentence."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.data.columnar import BATCH_ROWS, read_columns
from headway.data.kinds import DataKind
from headway.data.recognise import recognise, recognise_held_back
from headway.data.records import RecognisedData, Record, records
from headway.data.text_lines import Flaw, Problem
from headway.errors import UserError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    pa = pq = None
WITHOUT = "pyarrow is not installed: pip install 'headway[parquet]'"
needs_pyarrow = pytest.mark.skipif(pa is None, reason=WITHOUT)
LAYOUTS = (".parquet", ".arrow", ".feather", ".stream.arrow")


def write(file: Path, rows: list[dict[str, Any]], metadata: dict[str, str] | None = None, **options: Any) -> Path:
    """Rows in the layout that a name stands for."""
    assert pa is not None
    assert pq is not None
    table = pa.Table.from_pylist(rows)
    table = table.replace_schema_metadata(metadata) if metadata else table
    if file.suffix == ".parquet":
        pq.write_table(table, file, row_group_size=max(1, len(rows) // 3), **options)
        return file
    stream = ".stream" in file.suffixes
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, len(rows) // 3))
    return file


def read(given: RecognisedData) -> list[tuple[tuple[str, ...], int]]:
    found = list(records(given))
    assert all(isinstance(one, Record) for one in found), [str(one) for one in found if isinstance(one, Problem)]
    return [(one.fields, one.line) for one in found if isinstance(one, Record)]


@needs_pyarrow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_records_as_lines_of_json(tmp_path: Path, layout: str) -> None:
    rows = [{"text": f"a text, {n}\nof lines", "label": ("good", "bad")[n % 2]} for n in range(2 * BATCH_ROWS + 7)]
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    ours, theirs = recognise([write(tmp_path / f"a{layout}", rows)]), recognise([lines])
    assert (ours.kind, ours.columns) == (theirs.kind, theirs.columns) == (DataKind.LABELS, ("text", "label"))
    assert read(ours) == read(theirs)
    assert f"{len(rows):,} lines" in ours.description


@needs_pyarrow
@pytest.mark.parametrize("layout", [".jsonl", *LAYOUTS])
def test_nested_columns_by_path(tmp_path: Path, layout: str) -> None:
    rows = [
        {"id": str(n), "translation": {"de": f"Satz {n}", "en": f"sentence {n}"}, "at": {"n": n + 0.5}}
        for n in range(9)
    ]
    file = tmp_path / f"a{layout}"
    if layout == ".jsonl":
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    else:
        write(file, rows)
    given = recognise([file])  # by the languages at the ends of the paths
    assert (given.kind, given.columns) == (DataKind.PAIRS, ("translation.de", "translation.en"))
    assert read(given)[3] == (("Satz 3", "sentence 3"), 4)
    turned = recognise([file], columns=["translation.en", "translation.de"])
    assert read(turned)[0][0] == ("sentence 0", "Satz 0")
    with pytest.raises(UserError, match=r"has no key 'translation\.fr'"):
        recognise([file], columns=["translation.en", "translation.fr"])


@needs_pyarrow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_columns_in_use_are_read(tmp_path: Path, layout: str) -> None:
    rows = [{"text": "a", "n": {"x": 1, "y": 2}, "blob": b"\0" * 9}]
    file = write(tmp_path / f"a{layout}", rows)
    found = [one[1] for one in read_columns(file, ("n.x", "text")) if not isinstance(one, Problem)]
    whole = {"text": "a", "n": {"x": 1, "y": 2}}
    assert found == [{"text": "a", "n": {"x": 1}} if layout == ".parquet" else whole]


@needs_pyarrow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_problems_have_the_number_of_the_row(tmp_path: Path, layout: str) -> None:
    rows = [{"source": "a", "target": "b"}, {"source": None, "target": "b"}, {"source": "c", "target": ""}]
    given = recognise([write(tmp_path / f"a{layout}", rows * 3)], columns=["source", "target"])
    found = [one for one in records(given) if isinstance(one, Problem)]
    assert [(one.line, one.what) for one in found[:2]] == [(2, Flaw.KEY), (3, Flaw.EMPTY)]
    assert str(found[0]).endswith(f"a{layout}:2: 'source' is null")


@needs_pyarrow
def test_numbers_of_classes_get_their_names(tmp_path: Path) -> None:
    feature = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    told = {"huggingface": json.dumps({"info": {"features": {"label": feature, "text": {"dtype": "string"}}}})}
    rows = [{"text": f"text {n}", "label": n % 3 - 1} for n in range(12)]
    given = recognise([write(tmp_path / "a.parquet", rows, told)], columns=["text", "label"])
    found = list(records(given))
    assert [one.fields[1] if isinstance(one, Record) else one.what for one in found[:3]] == [Flaw.KEY, "neg", "pos"]
    for odd in ("{", "[]", '{"info": 3}', '{"info": {"features": {"label": {"names": 3}}}}'):
        given = recognise([write(tmp_path / "b.parquet", rows, {"huggingface": odd})], columns=["text", "label"])
        assert [one.fields[1] for one in records(given) if isinstance(one, Record)][:3] == ["-1", "0", "1"]


@needs_pyarrow
def test_validation_that_is_the_training_data_is_refused(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(12)]
    first, again = (write(tmp_path / name, rows) for name in ("a.parquet", "b.parquet"))
    other = write(tmp_path / "c.parquet", rows[:8])
    given = recognise([first])
    assert recognise_held_back(given, [other]).kind is DataKind.LABELS
    with pytest.raises(UserError, match="is the training data"):
        recognise_held_back(given, [again])


@pytest.mark.parametrize("inside", [False, True], ids=["list", "within an object"])
def test_one_list_of_json(tmp_path: Path, inside: bool) -> None:
    rows = [{"source": f"a {n}", "target": {"de": f"b {n}"}} for n in range(9)]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"version": 1, "data": rows} if inside else rows), "utf-8")
    given = recognise([file], columns=["source", "target.de"])
    assert read(given)[8] == (("a 8", "b 8"), 9)
    assert "9 lines" in given.description
    file.write_text(json.dumps([*rows, 3]))
    (problem,) = [
        one for one in records(recognise([file], columns=["source", "target.de"])) if isinstance(one, Problem)
    ]
    assert str(problem).endswith("a.json:10: 3 is no JSON object")


BAD_JSON = {
    "3": "is one JSON value and no list of objects; write a list",
    '{"a": [], "b": []}': "no list of objects",
    "[]": "is empty",
    "[1, 2": "is not JSON: Expecting ',' delimiter: line 1 column 6 (char 5)",
    "[" * 10**5: "is not JSON: nested too deeply",
    '[{"a": "b", "a": "c"}]': "is not JSON: a key occurs twice",
    '["\udcff"]': "is not JSON: it is not UTF-8",
    "[1, 2]": "1 is no JSON object",
}


@pytest.mark.parametrize("text", BAD_JSON, ids=lambda text: text[:20])
def test_other_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError) as caught:
        recognise([tmp_path / "a.json"])
    assert BAD_JSON[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_packed_json(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps([{"source": f"a {n}", "target": f"b {n}"} for n in range(900)]).encode())
    file = tmp_path / "a.json.gz"
    file.write_bytes(packed)
    assert len(read(recognise([file]))) == 900
    file.write_bytes(packed[:-100])
    with pytest.raises(UserError, match="is damaged; get the file again"):
        recognise([file])


@needs_pyarrow
def test_folders_as_datasets_writes_them(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(12)]
    for part, count in (("train-00000-of-00002", 8), ("train-00001-of-00002", 4), ("validation", 6)):
        write(tmp_path / f"{part}.parquet", rows[:count])
    with pytest.raises(UserError, match=r"look like parts of a data set; give one, as in headway train '.*train\*'"):
        recognise([tmp_path])
    given = recognise([tmp_path / "train*"])
    assert len(read(given)) == 12
    (tmp_path / "validation.parquet").unlink()
    assert read(recognise([tmp_path])) == read(given)


@needs_pyarrow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_damaged_files_are_refused_in_one_sentence(tmp_path: Path, layout: str) -> None:
    rows = [{"text": f"some text {n}", "label": "ab"[n % 2]} for n in range(300)]
    good = write(tmp_path / f"good{layout}", rows).read_bytes()
    chance = random.Random(layout)
    bad = [b"", b"PAR1", b"PAR1PAR1", b"ARROW1\0\0", good[:-20], good[: len(good) // 2], bytes(chance.randbytes(200))]
    for _ in range(40):
        spoilt = bytearray(good)
        for at in chance.sample(range(len(good)), 8):
            spoilt[at] ^= 1 << chance.randrange(8)
        bad.append(bytes(spoilt))
    file = tmp_path / f"a{layout}"
    refused = 0
    for data in bad:
        file.write_bytes(data)
        try:
            broken = [str(one) for one in records(recognise([file])) if isinstance(one, Problem)]
        except UserError as error:
            broken = [str(error)]
        assert all("\n" not in said for said in broken)
        refused += bool(broken)
    assert refused >= 7
    file.write_bytes(b"no table")
    with pytest.raises(UserError, match=r"cannot be read as an? \w+ file: .*; get it again, or convert it"):
        recognise([file])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_without_pyarrow_the_command_says_what_to_install(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PAR1")
    code = "import sys; sys.modules['pyarrow'] = None; from headway.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "check", name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not installed; pip install 'headway[parquet]'" in done.stderr
    assert "Traceback" not in done.stderr
