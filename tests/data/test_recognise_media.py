"""Folders, archives and tables of images and sounds: what they are taken for, and what is wrong with them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.cli.main import main
from headway.data.checks import Skipped, check, good_records
from headway.data.images import read_image
from headway.data.kinds import DataKind
from headway.data.media_sources import MediaSource
from headway.data.recognise import recognise
from headway.data.records import RecognisedData, Record, records
from headway.data.sounds import Sounds, commonest, read_sound
from headway.data.splits import held_out
from headway.data.text_lines import Flaw, Problem
from headway.errors import UserError
from headway.tasks.registry import sentence
from tests.data.files import coded, jpg, picture, png, put, tarred, wav

CLASSES = ("cat", "dog", "owl")
PHOTOS = {f"{name}/{at}.png": png(10 * n + at) for n, name in enumerate(CLASSES) for at in range(4)}
FLAT = {f"{at}.png": png(at) for at in range(8)}
SOUNDS = {f"{word}/{at}.wav": wav(10 * n + at) for n, word in enumerate(("no", "yes")) for at in range(3)}
TONES = {f"{at}.wav": wav(at, 4000) for at in range(6)}
SAID = [f"what is said in number {at}" for at in range(8)]
LABELS = b"".join(f"{at}.png,{CLASSES[at % 2]}\n".encode() for at in range(8))
CAPTIONS = b"".join(
    json.dumps({"image": f"{at}.png", "size": [16, 12], "captions": [f"one of {at}", f"two of {at}"]}).encode() + b"\n"
    for at in range(8)
)


def tsv(suffix: str, count: int, head: str = "") -> bytes:
    return head.encode() + b"".join(f"{at}{suffix}\t{SAID[at]}\n".encode() for at in range(count))


def found(given: RecognisedData) -> list[Record]:
    return [one for one in records(given) if isinstance(one, Record)]


def problems(given: RecognisedData) -> list[Problem]:
    return [one for one in records(given) if isinstance(one, Problem)]


CASES: dict[str, tuple[dict[str, bytes], list[str], dict[str, Any], DataKind, str]] = {
    "class folders": (
        {f"photos/{name}": data for name, data in PHOTOS.items()},
        ["photos"],
        {},
        DataKind.IMAGES,
        "photos: 12 images in 3 class folders (cat, dog, owl), so image classification (change with data.task)",
    ),
    "classes of sounds": (
        {f"words/{name}": data for name, data in SOUNDS.items()},
        ["words"],
        {},
        DataKind.SOUNDS,
        "words: 6 sounds of 8,000 Hz in 2 class folders (no, yes), so sound classification (change with data.task)",
    ),
    "a table among images": (
        {f"photos/{name}": data for name, data in FLAT.items()} | {"photos/labels.csv": b"file,label\n" + LABELS},
        ["photos"],
        {},
        DataKind.IMAGES,
        "photos/labels.csv and photos: 8 lines of images and classes, so image classification (change with data.task)",
    ),
    "a table beside images": (
        {f"images/{name}": data for name, data in FLAT.items()} | {"labels.csv": LABELS},
        ["labels.csv"],
        {},
        DataKind.IMAGES,
        "labels.csv and images: 8 lines of images and classes",
    ),
    "a table and a folder": (
        {f"all/{name}": data for name, data in FLAT.items()} | {"labels.csv": b"img_file,breed\n" + LABELS},
        ["all", "labels.csv"],
        {},
        DataKind.IMAGES,
        "labels.csv and all: 8 lines of images and classes",
    ),
    "captions": (
        {f"images/{name}": data for name, data in FLAT.items()} | {"captions.tsv": tsv(".png", 8)},
        ["captions.tsv"],
        {},
        DataKind.CAPTIONS,
        "captions.tsv and images: 8 lines of images and captions, so captioning",
    ),
    "captions in lists": (
        {f"images/{name}": data for name, data in FLAT.items()} | {"captions.jsonl": CAPTIONS},
        ["images", "captions.jsonl"],
        {},
        DataKind.CAPTIONS,
        "captions.jsonl and images: 8 lines of images and captions, so captioning",
    ),
    "paths in a table": (
        {f"deep/er/{name}": data for name, data in FLAT.items()}
        | {
            "t.jsonl": b"".join(
                json.dumps({"path": f"deep/er/{at}.png", "label": at % 2}).encode() + b"\n" for at in range(8)
            )
        },
        ["t.jsonl"],
        {},
        DataKind.IMAGES,
        "8 lines of images and classes",
    ),
    "transcripts": (
        {f"set/wav/{name}": data for name, data in TONES.items()}
        | {"set/transcripts.tsv": tsv(".wav", 6, "path\tsentence\n")},
        ["set"],
        {},
        DataKind.SPEECH,
        "set/transcripts.tsv and set/wav: 6 lines of sounds of 8,000 Hz and transcripts, so speech recognition",
    ),
    "classes in names": (
        {f"recordings/{at % 3}_ann_{at}.wav": wav(at) for at in range(6)},
        ["recordings"],
        {"label_from": r"(\d)_"},
        DataKind.SOUNDS,
        "recordings: 6 sounds of 8,000 Hz with 3 classes in their names (0, 1, 2), so sound classification",
    ),
    "transcripts in names": (
        {f"yesno/0_1_{at}.wav": wav(at) for at in range(6)},
        ["yesno"],
        {"label_from": "(.*)", "kind": DataKind.SPEECH},
        DataKind.SPEECH,
        "yesno: 6 sounds of 8,000 Hz with 6 transcripts in their names (0 1 0, 0 1 1, 0 1 2, 0 1 3, 0 1 4 and 1 more)",
    ),
    "other files": (
        {f"photos/{name}": data for name, data in PHOTOS.items()}
        | {"photos/notes.md": b"hello", "photos/.DS_Store": b""},
        ["photos"],
        {},
        DataKind.IMAGES,
        "12 images in 3 class folders (cat, dog, owl) (1 other file not read: .md), so image classification",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_media_are_taken_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    files, paths, options, kind, why = CASES[case]
    monkeypatch.chdir(put(tmp_path, files))
    given = recognise([Path(path) for path in paths], **options)
    assert given.kind is kind
    assert why in sentence(given)
    assert problems(given) == []
    media = [name for name in files if name.endswith((".png", ".wav"))]
    read = found(given)
    assert [str(one.place and one.place.path) for one in read] == sorted(media)
    assert check(given).counts == {}
    for one in read:
        assert one.place is not None
        if kind in (DataKind.IMAGES, DataKind.CAPTIONS):
            assert read_image(one.place).shape == (12, 16, 3)
            assert one.extent == (12, 16)
        else:
            assert read_sound(one.place).shape == one.extent[:1]
            assert one.extent[0] in (400, 4000)


def test_the_fields_are_a_hash_and_what_is_said(tmp_path: Path) -> None:
    put(tmp_path, {f"images/{name}": data for name, data in FLAT.items()} | {"captions.jsonl": CAPTIONS})
    one = found(recognise([tmp_path / "captions.jsonl"]))[3]
    assert one.fields[1:] == ("one of 3", "two of 3")
    assert len(one.fields[0]) == 32
    assert (one.file.name, one.line) == ("captions.jsonl", 4)
    assert [one.fields[1] for one in found(recognise([put(tmp_path / "photos", PHOTOS)]))] == [
        name for name in CLASSES for _ in range(4)
    ]


def test_lines_that_name_the_same_image_are_one_record(tmp_path: Path) -> None:
    lines = b"".join(f"{at // 3}.png\tcaption {at} of an image\n".encode() for at in range(24))
    put(tmp_path, {f"images/{name}": data for name, data in FLAT.items()} | {"captions.tsv": lines})
    read = found(recognise([tmp_path / "captions.tsv"]))
    assert len(read) == 8
    assert read[1].fields[1:] == tuple(f"caption {at} of an image" for at in (3, 4, 5))
    assert read[1].line == 4


ARCHIVES = {
    "class folders": (PHOTOS, None),
    "a table inside": (FLAT | {"labels.csv": b"file,label\n" + LABELS}, None),
    "captions inside": (FLAT | {"captions.jsonl": CAPTIONS}, None),
    "a folder and a table inside": ({f"images/{n}": d for n, d in FLAT.items()} | {"labels.csv": LABELS}, None),
    "captions beside": (FLAT, CAPTIONS),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_an_archive_is_read_in_place(tmp_path: Path, case: str) -> None:
    """The same records as of a folder with the same files, and no new file anywhere."""
    files, beside = ARCHIVES[case]
    tarred(tmp_path / "set.tar", files)
    folder = put(tmp_path / "plain" / "set", files)
    if beside:
        (tmp_path / "set.jsonl").write_bytes(beside)
        (tmp_path / "plain" / "set.jsonl").write_bytes(beside)
    before = sorted(tmp_path.rglob("*"))
    packed = recognise([tmp_path / "set.tar"])
    plain = recognise([tmp_path / "plain" / "set.jsonl" if beside else folder])
    assert packed.kind is plain.kind
    assert [one.fields for one in found(packed)] == [one.fields for one in found(plain)]
    assert problems(packed) == problems(plain) == []
    for one, other in zip(found(packed), found(plain), strict=True):
        assert one.place is not None
        assert other.place is not None
        assert np.array_equal(read_image(one.place), read_image(other.place))
        assert one.place.file == tmp_path / "set.tar"
    assert sorted(tmp_path.rglob("*")) == before
    if beside:
        assert found(recognise([tmp_path / "set.jsonl"])) == found(packed)


FILM = coded(picture(0), "GIF", save_all=True, append_images=[picture(1)])
BAD: dict[str, tuple[dict[str, bytes], list[str], dict[str, Any], str, int, Flaw, str, int]] = {
    "a truncated image": (
        {f"photos/{n}": d for n, d in PHOTOS.items()} | {"photos/dog/9.jpg": jpg(9)[:-100]},
        ["photos"],
        {},
        "photos/dog/9.jpg",
        0,
        Flaw.IMAGE,
        "photos/dog/9.jpg: is truncated",
        12,
    ),
    "no image": (
        {f"photos/{n}": d for n, d in PHOTOS.items()} | {"photos/dog/9.jpg": b"hello"},
        ["photos"],
        {},
        "photos/dog/9.jpg",
        0,
        Flaw.IMAGE,
        "photos/dog/9.jpg: is no image of a known format",
        12,
    ),
    "a film": (
        {f"photos/{n}": d for n, d in PHOTOS.items()} | {"photos/dog/9.gif": FILM},
        ["photos"],
        {},
        "photos/dog/9.gif",
        0,
        Flaw.ANIMATED,
        "photos/dog/9.gif: is animated: 2 frames",
        12,
    ),
    "an image in no class": (
        {f"photos/{n}": d for n, d in PHOTOS.items()} | {"photos/stray.png": png(99)},
        ["photos"],
        {},
        "photos/stray.png",
        0,
        Flaw.UNNAMED,
        "photos/stray.png: is in no class folder of photos",
        12,
    ),
    "an image that no line names": (
        {f"images/{n}": d for n, d in FLAT.items()} | {"images/x.png": png(99), "labels.csv": LABELS},
        ["labels.csv"],
        {},
        "images/x.png",
        0,
        Flaw.UNNAMED,
        "images/x.png: is named by no line of labels.csv",
        8,
    ),
    "a caption for a missing image": (
        {f"images/{n}": d for n, d in FLAT.items()}
        | {"captions.jsonl": CAPTIONS + b'{"image": "gone.png", "captions": ["a b"]}\n'},
        ["captions.jsonl"],
        {},
        "captions.jsonl",
        9,
        Flaw.MISSING,
        "captions.jsonl:9: 'gone.png' is not in images",
        8,
    ),
    "a truncated image in a table": (
        {f"images/{n}": d for n, d in FLAT.items()} | {"images/3.png": png(3)[:300], "labels.csv": LABELS},
        ["labels.csv"],
        {},
        "labels.csv",
        4,
        Flaw.IMAGE,
        "labels.csv:4: images/3.png is truncated",
        7,
    ),
    "an empty caption": (
        {f"images/{n}": d for n, d in FLAT.items()} | {"captions.tsv": tsv(".png", 7) + b"7.png\t\n"},
        ["captions.tsv"],
        {},
        "captions.tsv",
        8,
        Flaw.EMPTY,
        "captions.tsv:8: the caption is empty",
        7,
    ),
    "captions that are a number": (
        {f"images/{n}": d for n, d in FLAT.items()}
        | {"captions.jsonl": CAPTIONS + b'{"image": "7.png", "captions": 0.5}\n'},
        ["captions.jsonl"],
        {},
        "captions.jsonl",
        9,
        Flaw.VALUE,
        "captions.jsonl:9: 'captions' is 0.5, not a text or a list",
        8,
    ),
    "an empty sound": (
        {f"words/{n}": d for n, d in SOUNDS.items()} | {"words/no/9.wav": b""},
        ["words"],
        {},
        "words/no/9.wav",
        0,
        Flaw.SOUND,
        "words/no/9.wav: is an empty file",
        6,
    ),
    "a forged header": (
        {f"words/{n}": d for n, d in SOUNDS.items()} | {"words/no/9.wav": wav(9)[:-10]},
        ["words"],
        {},
        "words/no/9.wav",
        0,
        Flaw.SOUND,
        "words/no/9.wav: has a header that promises 800 bytes of sound, and 790",
        6,
    ),
    "a name without a class": (
        {f"r/{at % 3}_a_{at}.wav": wav(at) for at in range(6)} | {"r/noise.wav": wav(9)},
        ["r"],
        {"label_from": r"(\d)_"},
        "r/noise.wav",
        0,
        Flaw.UNNAMED,
        r"r/noise.wav: has a name in which '(\\d)_' finds nothing",
        6,
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_media_are_named_or_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    files, paths, options, file, line, what, said, good = BAD[case]
    monkeypatch.chdir(put(tmp_path, files))
    given = recognise([Path(path) for path in paths], **options)
    (problem,) = problems(given)
    assert (str(problem.file), problem.line, problem.what) == (file, line, what)
    assert str(problem).startswith(said)
    with pytest.raises(UserError) as strict:
        list(good_records(given, None))
    assert str(strict.value).startswith(said)
    assert f"see headway check {paths[0]}, or train without such records with data.skip_bad" in str(strict.value)
    skipped = Skipped()
    assert len(list(good_records(given, skipped))) == good
    assert skipped.counts == {what: 1}
    assert str(skipped) == f"1 record left out ({what} 1)"
    seen = check(given)
    assert (seen.count, seen.good, seen.counts) == (good + 1, good, {what: 1})
    if not options:
        assert main(["check", *paths]) == 2
        assert said in capsys.readouterr().out


REFUSED: dict[str, tuple[dict[str, bytes], list[str], dict[str, Any], str]] = {
    "no classes": (
        FLAT,
        ["."],
        {},
        "holds 8 images and nothing says the classes; put each class into a folder of its own",
    ),
    "no transcripts": (
        TONES,
        ["."],
        {"kind": DataKind.SPEECH},
        "holds 6 sounds and nothing says the transcripts; add transcripts.tsv",
    ),
    "parts for classes": (
        {f"{part}/{name}": data for part in ("val", "train") for name, data in PHOTOS.items()},
        ["."],
        {},
        "look like parts of a data set, not like classes; give one of them, as in headway train train --validation val",
    ),
    "images and sounds": (PHOTOS | SOUNDS, ["."], {}, "12 images and 6 sounds; say which are meant with data.task"),
    "one image": (FLAT, ["3.png"], {}, "3.png is one image; give the folder that holds all of them"),
    "images elsewhere": (
        {"labels.csv": LABELS},
        ["labels.csv"],
        {},
        "labels.csv names images such as '0.png', and none of the first are beside it; give the folder or .tar",
    ),
    "other images": (
        {"labels.csv": LABELS} | {f"all/{name}": data for name, data in PHOTOS.items()},
        ["labels.csv", "all"],
        {},
        "labels.csv names images such as '0.png', and none of the first are in all",
    ),
    "two tables": (
        FLAT | {"a.csv": LABELS, "b.csv": LABELS},
        ["."],
        {},
        "has several tables: a.csv, b.csv; name one, as in headway train a.csv",
    ),
    "no images": (PHOTOS, ["."], {"kind": DataKind.SOUNDS}, "holds no sounds, only cat/0.png"),
    "a table of texts": (
        {"a.tsv": b"a b\tc d\n" * 9},
        ["a.tsv"],
        {"kind": DataKind.IMAGES},
        "a.tsv: no labelled images are there",
    ),
    "a text": ({"a.txt": b"words"}, ["a.txt"], {"kind": DataKind.SPEECH}, "a.txt: no sounds are there"),
    "no pattern": (TONES, ["."], {"label_from": "("}, "'(' is no pattern: missing )"),
    "a pattern that finds nothing": (
        TONES,
        ["."],
        {"label_from": "([a-z]+)_"},
        "data.label_from '([a-z]+)_' finds nothing in '0'",
    ),
    "a pattern for texts": (
        {"a.txt": b"words"},
        ["a.txt"],
        {"label_from": "(.)"},
        "classes are in names of images and sounds only",
    ),
    "several columns": (
        FLAT | {"t.csv": b"file,breed,colour\n" + b"".join(f"{at}.png,a{at},b{at}\n".encode() for at in range(8))},
        ["t.csv"],
        {},
        "t.csv names files and nothing says what else in it is meant (file, breed, colour); choose two columns, "
        "as in data.columns file,colour",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_recognised_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    files, paths, options, said = REFUSED[case]
    monkeypatch.chdir(put(tmp_path, files))
    with pytest.raises(UserError) as caught:
        recognise([Path(path) for path in paths], **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    rows = b"".join(f"{at}.png,a{at % 2},b{at % 3}\n".encode() for at in range(8))
    put(tmp_path, FLAT | {"t.csv": b"file,breed,colour\n" + rows})
    given = recognise([tmp_path / "t.csv"], columns=["file", "colour"], kind=DataKind.IMAGES)
    assert [one.fields[1] for one in found(given)] == [f"b{at % 3}" for at in range(8)]
    assert given.columns == ("file", "colour")


def test_names_of_images_in_a_table_of_texts_do_not_make_it_images(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{at}.jpg\tA man {at}.\tEin Mann {at}.\n" for at in range(9)))
    assert recognise([tmp_path / "a.tsv"], kind=DataKind.PAIRS, columns=[2, 3]).kind is DataKind.PAIRS
    assert recognise([tmp_path / "a.tsv"], columns=[2, 3]).kind is DataKind.PAIRS
    (tmp_path / "b.tsv").write_text("image\ten\tde\n" + (tmp_path / "a.tsv").read_text())
    assert recognise([tmp_path / "b.tsv"]).kind is DataKind.PAIRS


def rates(given: RecognisedData) -> set[int | None]:
    media = [source.medium for source in given.sources if isinstance(source, MediaSource)]
    return {medium.rate for medium in media if isinstance(medium, Sounds)}


def test_a_rate_that_is_given_takes_all(tmp_path: Path) -> None:
    put(tmp_path, SOUNDS | {"no/9.wav": wav(9, rate=16_000)})
    given = recognise([tmp_path], rate=8000)
    assert problems(given) == []
    assert rates(given) == {None}
    assert rates(recognise([tmp_path])) == {8000}
    lengths = [len(read_sound(one.place, 8000)) for one in found(given) if one.place]
    assert Counter(lengths) == {400: 6, 200: 1}


def test_mixed_rates_are_resampled_to_the_commonest(tmp_path: Path) -> None:
    """None is called bad, and it is said; the first file has one of the others."""
    rates_of = [16_000, 8000, 8000, 16_000, 8000, 44_100]
    put(tmp_path, {f"{'no' if at % 2 else 'yes'}/{at}.wav": wav(at, rate=rate) for at, rate in enumerate(rates_of)})
    given = recognise([tmp_path])
    assert problems(given) == []
    assert given.description.startswith(
        f"{tmp_path}: 6 sounds of 8,000 Hz (those of 16,000, 44,100 Hz are resampled) in 2 class folders"
    )
    assert commonest([1, 2, 2, 1]) == 2  # of equally many the highest, whatever the order of files
    assert "nothing to mend" in check(given).to_text()


def test_frames_of_a_film_may_be_allowed(tmp_path: Path) -> None:
    given = recognise([put(tmp_path, PHOTOS | {"dog/9.gif": FILM})], frames=2)
    assert problems(given) == []
    assert len(found(given)) == 13


def test_the_same_contents_are_never_on_both_sides(tmp_path: Path) -> None:
    given = recognise(
        [put(tmp_path, PHOTOS | {"owl/again.png": PHOTOS["cat/0.png"], "cat/again.png": PHOTOS["cat/0.png"]})]
    )
    same = {held_out(one.fields[0], 0.5, 3) for one in found(given) if one.fields[0] == found(given)[0].fields[0]}
    assert len(same) == 1
    assert check(given).counts == {Flaw.DUPLICATE: 1, Flaw.ANOTHER: 1}


def test_classes_are_counted(tmp_path: Path) -> None:
    assert check(recognise([put(tmp_path / "a", PHOTOS)])).lines == (
        "12 records, 12 good; 3 labels: cat 4, dog 4, owl 4",
    )
    assert check(recognise([put(tmp_path / "b", {"cat/1.png": png(1), "cat/2.png": png(2)})])).counts == {
        Flaw.ONE_CLASS: 1
    }


def test_a_leak_is_found(tmp_path: Path) -> None:
    train, held = (
        put(tmp_path / "a", PHOTOS),
        put(tmp_path / "b", {"cat/x.png": PHOTOS["dog/2.png"], "dog/y.png": png(77)}),
    )
    seen = check(recognise([train]), validation=recognise([held]))
    assert seen.counts == {Flaw.LEAK: 1}
    assert str(seen.problems[0]) == f"{held}/cat/x.png: in training too, at {train}/dog/2.png"


def test_folders_are_joined(tmp_path: Path) -> None:
    one, two = put(tmp_path / "a", PHOTOS), put(tmp_path / "b", {"cat/x.png": png(77)})
    assert len(found(recognise([one, two]))) == 13
    one, two = put(tmp_path / "c", SOUNDS), put(tmp_path / "d", {"no/x.wav": wav(77, rate=16_000)})
    both = recognise([one, two])
    assert problems(both) == []
    assert both.description.endswith(f"(sounds of other rates are resampled to that of {one})")  # of the first folder


def test_links_are_followed_and_do_not_go_round(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", {"x.png": png(77)})
    photos = put(tmp_path / "photos", PHOTOS | {".hidden/y.png": png(78)})
    (photos / "fox").symlink_to(tmp_path / "elsewhere")
    (photos / "cat" / "round").symlink_to(photos)
    (photos / "dog" / "gone.png").symlink_to(tmp_path / "nothing.png")
    given = recognise([photos])
    assert "14 images in 4 class folders" in sentence(given)
    assert Counter(one.fields[1] for one in found(given)) == {"cat": 4, "dog": 4, "owl": 4, "fox": 1}
    assert [str(problem) for problem in problems(given)] == [f"{photos}/dog/gone.png: is gone"]


def test_moving_an_image_changes_what_the_data_is_called(tmp_path: Path) -> None:
    given = recognise([put(tmp_path, PHOTOS)])
    (tmp_path / "cat/0.png").rename(tmp_path / "dog/zero.png")
    assert recognise([tmp_path]).fingerprint != given.fingerprint


def test_several_tables_beside_the_same_images(tmp_path: Path) -> None:
    """Images that another table names are no problem of this one."""
    lines = LABELS.splitlines(keepends=True)
    put(
        tmp_path,
        {f"images/{n}": d for n, d in FLAT.items()}
        | {"train.csv": b"".join(lines[:6]), "val.csv": b"".join(lines[6:])},
    )
    given = recognise([tmp_path / "train.csv"], kind=DataKind.IMAGES)
    assert problems(given) == []
    assert len(found(given)) == 6


DAMAGED = {
    "cut in a header": (lambda data: data[:2000], "set.tar is cut off or damaged after 1 of its files"),
    "cut in a file": (lambda data: data[:2100], "set.tar cannot be read as a .tar archive: unexpected end of data"),
    "cut at the end": (
        lambda data: data[: -(-len(data.rstrip(b"\0")) // 512) * 512],
        "set.tar is cut off or damaged after 12 of its files",
    ),
    "a wrong header": (
        lambda data: data[:1536] + b"x" * 512 + data[2048:],
        "set.tar is cut off or damaged after 1 of its files",
    ),
    "no archive": (lambda _: b"hello" * 200, "set.tar cannot be read as a .tar archive"),
    "packed": (lambda _: b"\x1f\x8b" + bytes(600), "unpack it with gunzip"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_archives_are_named(tmp_path: Path, case: str) -> None:
    change, said = DAMAGED[case]
    file = tarred(tmp_path / "set.tar", PHOTOS)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(UserError) as caught:
        list(records(recognise([file])))
    assert said in str(caught.value)


@pytest.mark.slow
def test_real_captions_in_an_archive(shared: Path) -> None:
    given = recognise([shared / "data/flickr8k/dev.tar"])
    assert "1,000 lines of images and captions, so captioning" in sentence(given)
    some = [one for one, _ in zip(records(given), range(20), strict=False) if isinstance(one, Record)]
    assert all(len(one.fields) == 6 and one.place and one.place.name.endswith(".jpg") for one in some)
    assert min(some[0].extent) == 128


@pytest.mark.slow
def test_real_digits(shared: Path) -> None:
    given = recognise([shared / "data/fsdd/recordings"], label_from=r"(\d)_")
    assert "3,000 sounds of 8,000 Hz with 10 classes in their names" in sentence(given)
    first = next(iter(records(given)))
    assert isinstance(first, Record)
    assert (first.file.name, first.fields[1]) == ("0_george_0.wav", "0")


def test_real_words(shared: Path) -> None:
    given = recognise([shared / "data/yesno"], label_from="(.*)", kind=DataKind.SPEECH)
    texts = [one.fields[1] for one in found(given)]
    assert len(texts) == 60
    assert all(len(text.split()) == 8 for text in texts)
