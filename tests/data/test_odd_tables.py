"""Tables as people have them: headers of any words, what no task learns from, and columns of numbers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headway.data import media_sources
from headway.data.checks import check
from headway.data.kinds import DataKind
from headway.data.recognise import recognise, recognise_held_back
from headway.data.records import Record, records
from headway.data.table_preview import is_header
from headway.data.text_lines import Flaw, Problem
from headway.errors import UserError
from headway.tasks.registry import sentence

COUNT = 40
TEXTS = [f"The {thing} number {at} is here." for at in range(COUNT // 2) for thing in ("cat", "dog")]
GERMAN = [text.replace("The", "Das").replace("is here", "ist da") for text in TEXTS]
CLASSES = ["ham", "spam", "spam", "ham"] * (COUNT // 4)
BITS = ["0", "1"] * (COUNT // 2)
STARS = [str(at % 5 + 1) for at in range(COUNT)]
SCORES = [f"{at / 7:.3f}" for at in range(COUNT)]
COUNTS = [str(at * 37 % 1009) for at in range(COUNT)]
NAMES = ["Ada", "Alan", "Grace", "Kurt"] * (COUNT // 4)


def table(head: str, *columns: Sequence[str], by: str = ",") -> str:
    return (f"{head}\n" if head else "") + "".join(by.join(row) + "\n" for row in zip(*columns, strict=True))


def objects(**columns: Sequence[object]) -> str:
    return "".join(
        json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in zip(*columns.values(), strict=True)
    )


HEADERS = {
    "a class of numbers": (table("message,spam", TEXTS, BITS), DataKind.LABELS),
    "a class that is named like the column": (table("message,spam", TEXTS, CLASSES), DataKind.LABELS),
    "label first": (table("verdict,mail", CLASSES, TEXTS), DataKind.LABELS),
    "short names": (table("content,y", TEXTS, BITS), DataKind.LABELS),
    "stars": (table("review_text,stars", TEXTS, STARS), DataKind.LABELS),
    "another language": (table("Nachricht,Urteil", TEXTS, CLASSES), DataKind.LABELS),
    "words with a class": (table("name,gender", NAMES, BITS), DataKind.LABELS),
    "pairs": (table("sentence_en,sentence_fr", TEXTS, GERMAN), DataKind.PAIRS),
    "pairs of unknown names": (table("left,right", TEXTS, GERMAN), DataKind.PAIRS),
    "one column": (table("utterances", TEXTS), DataKind.TEXTS),
    "an index of pandas": (table(",message,spam", [str(at) for at in range(COUNT)], TEXTS, CLASSES), DataKind.LABELS),
    "one column of numbers": (table("level", SCORES), DataKind.ROWS),
    "two columns of numbers": (table("level,rain", SCORES, COUNTS), DataKind.ROWS),
    "points with a class": (table("x,z,colour", SCORES, COUNTS, CLASSES), DataKind.SERIES),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_is_no_record_and_is_said(tmp_path: Path, case: str) -> None:
    text, kind = HEADERS[case]
    (tmp_path / "a.csv").write_text(text)
    found = recognise([tmp_path / "a.csv"])
    assert found.kind is kind
    assert all(isinstance(column, str) for column in found.columns)
    assert f"{COUNT} lines of " in sentence(found)
    assert f"({', '.join(map(str, found.columns))}; the first line is a header" in sentence(found)
    result = check(found)
    assert (result.count, result.good) == (COUNT, COUNT)
    (tmp_path / "b.csv").write_text(text.partition("\n")[2])  # the same without its header
    assert check(recognise([tmp_path / "b.csv"], kind=kind, columns=columns_of(found.columns, text))).good == COUNT


def columns_of(names: Sequence[str | int], text: str) -> list[int]:
    head = text.partition("\n")[0].split(",")
    return [1 + head.index(str(name)) for name in names]


FIRST_RECORDS = {
    "a class again": table("", ["great", *TEXTS[1:]], ["spam", *CLASSES[1:]]),
    "a sentence of a rare class": table("", TEXTS, ["rare", *CLASSES[1:]]),
    "a phrase book": table("", ["Hello", *TEXTS[1:]], ["Hallo", *GERMAN[1:]]),
    "a dictionary": table("", [f"word{at}x" for at in range(COUNT)], [f"Wort{at}x" for at in range(COUNT)]),
    "one word of headers in a dictionary": table("", ["text", *NAMES[1:]], [f"Wort{at}x" for at in range(COUNT)]),
    "a title": table("", ["Introduction", *TEXTS[1:]]),
    "a bad first cell of many": table("", ["oops", *SCORES[1:]], COUNTS, COUNTS),
    "a missing number": table("", TEXTS, ["n/a", *STARS[1:]]),
    "sounds of words": table("", ["euchre", *TEXTS[1:]], ["Y UW1 K ER0", *GERMAN[1:]]),
    "calculations": table("", [f"{at}+{at}" for at in range(COUNT)], [str(2 * at) for at in range(COUNT)]),
}


@pytest.mark.parametrize("case", FIRST_RECORDS)
def test_a_first_record_is_no_header(tmp_path: Path, case: str) -> None:
    (tmp_path / "a.csv").write_text(FIRST_RECORDS[case])
    found = recognise([tmp_path / "a.csv"])
    assert "; the first line is a header" not in sentence(found)
    assert len(list(records(found))) == COUNT


def test_what_a_person_says_of_the_first_line_wins_over_its_looks(tmp_path: Path) -> None:
    """Before there was the option, the first line could only be judged by its looks."""
    texts, numbers = tmp_path / "a.csv", tmp_path / "b.csv"
    texts.write_text(table("message,spam", TEXTS, CLASSES))
    numbers.write_text(table("", SCORES, COUNTS))
    for file, header, count in [(texts, "no", COUNT + 1), (texts, "yes", COUNT), (numbers, "yes", COUNT - 1)]:
        assert len(list(records(recognise([file], header=header)))) == count
    assert recognise([texts], header="yes").columns == ("message", "spam")
    with pytest.raises(UserError, match=r"has no column 'spam'; allowed: 1 to 2"):
        recognise([texts], columns=["spam"], header="no")


def test_validation_data_is_read_by_the_same_header(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text(table("hello,greeting", TEXTS, CLASSES))
    second.write_text(table("goodbye,greeting", TEXTS[::-1], CLASSES))
    given = recognise([first], header="no")
    assert len(list(records(recognise_held_back(given, [second], header="no")))) == COUNT + 1


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "parallel"])
def test_a_header_is_that_of_a_table(tmp_path: Path, name: str) -> None:
    for file, text in {"a.txt": "a text\n" * 9, "a.jsonl": objects(text=TEXTS, label=CLASSES)}.items():
        (tmp_path / file).write_text(text)
    files = {"source": tmp_path / "a.txt", "target": tmp_path / "a.jsonl"} if name == "parallel" else {}
    with pytest.raises(UserError, match=r"there is no \.csv or \.tsv table that could have a header; leave"):
        recognise([] if files else [tmp_path / name], **files, header="no")


def test_columns_by_name_in_a_file_without_names(tmp_path: Path) -> None:
    """It was said that the cells of the first record are the columns to choose from."""
    file = tmp_path / "a.csv"
    file.write_text(table("", TEXTS, GERMAN))
    with pytest.raises(UserError, match="has no column 'message', and its first line does not look like a header; put"):
        recognise([file], columns=["message", "spam"])


def test_bars_between_columns(tmp_path: Path) -> None:
    """They were taken for characters of one column of text."""
    file = tmp_path / "a.csv"
    file.write_text(table("text|label", TEXTS, CLASSES, by="|"))
    assert recognise([file]).kind is DataKind.LABELS


RARE = ["sport", *CLASSES[1:]]  # a class that occurs once


def test_a_first_word_of_a_class_of_its_own_is_judged_by_the_other_classes(tmp_path: Path) -> None:
    """A record where classes occur once; else a header, and the plan says how it becomes a record."""
    file = tmp_path / "a.csv"
    for word, name in (("Hello", "Greeting"), ("hello", "greeting")):
        file.write_text(table(f"{word},{name}", TEXTS, RARE))
        assert len(list(records(recognise([file])))) == COUNT + 1
        file.write_text(table(f"{word},{name}", TEXTS, CLASSES))
        said = sentence(recognise([file]))
        assert f"({word}, {name}; the first line is a header), so" in said
        assert "or with data.header no if the first line is a record)" in said
        found = recognise([file], header="no")  # as it says
        assert len(list(records(found))) == COUNT + 1
        assert "data.header" not in sentence(found)
    file.write_text(table("message,grade", TEXTS, STARS))
    assert sentence(recognise([file])).count("the first line is a header)") == 1


@pytest.mark.slow
def test_no_record_of_real_data_is_taken_for_a_header(shared: Path) -> None:
    data = shared / "data"
    for file in (
        data / "cmudict" / "cmudict.tsv.gz",
        data / "tatoeba_de_en" / "pairs.en-de.tsv.gz",
        data / "bible" / "bible.en-de-es.tsv.gz",
        data / "sentence_polarity" / "train.tsv",
    ):
        rows = [row for row in rows_of(file) if row != ("text", "label")]
        step = len(rows) // 100
        taken = [rows[at] for at in range(0, len(rows) - 300, step) if is_header(rows[at], rows[at + 1 : at + 300])]
        assert taken == []
        shortest = sorted(rows, key=lambda row: sum(map(len, row)))
        assert not is_header(shortest[0], shortest[1:300])


def rows_of(file: Path) -> Iterator[tuple[str, ...]]:
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
        yield from (tuple(line.rstrip("\n").split("\t")) for line in lines)


@pytest.mark.parametrize("names", [("tokens", "ner_tags"), ("words", "labels")])
@pytest.mark.parametrize("tag", ["I", "B-organisation"])
def test_words_with_as_many_tags_are_no_label_sets(tmp_path: Path, names: tuple[str, str], tag: str) -> None:
    """Tags with more characters than the words were taken for the text, and the words for its labels."""
    words = [["a", "b", str(at)] for at in range(COUNT)]
    file = tmp_path / "a.jsonl"
    file.write_text(objects(**dict(zip(names, (words, [[tag, "O", tag]] * COUNT), strict=True))))
    found = recognise([file])
    assert (found.kind, found.columns) == (DataKind.TAGS, names)
    file.write_text(objects(**dict(zip(names, (words, LABEL_LISTS), strict=True))))
    assert recognise([file]).kind is DataKind.LABEL_SETS


LABEL_LISTS = [["a", "b"], ["b"], ["a", "c"], []] * (COUNT // 4)
TEXT_LABEL, TEXT_SCORE = ("text", "labels"), ("text", "score")
PARTS = [f"the {name} sat here" for name in NAMES]
AGES = [str(at // 3) for at in range(2 * COUNT)]  # whole numbers that come again, more than classes have
LONGER = [f"a {first}{second} of theirs" for first in "abcdefgh" for second in "klmnopqrst"]
PLACED = [{"text": [one], "answer_start": [4]} for one in NAMES]
COMPOSED = {  # of several cells: a kind, its columns, and the fields of the first record
    "lists of labels": ("a.jsonl", objects(text=TEXTS, labels=LABEL_LISTS), DataKind.LABEL_SETS, TEXT_LABEL, "a|b"),
    "lists of long labels": (
        "a.jsonl",
        objects(text=TEXTS, topics=[["so so", "b"]] * COUNT),
        DataKind.LABEL_SETS,
        ("text", "topics"),
        "b|so so",
    ),
    "labels with a separator": (
        "a.csv",
        table("text,labels", TEXTS, ["sport|news", "news", "sport", "money|news|sport"] * (COUNT // 4)),
        DataKind.LABEL_SETS,
        TEXT_LABEL,
        "news|sport",
    ),
    "labels in a cell": (
        "a.csv",
        table("text,labels", TEXTS, ["\"['a', 'b']\"", "\"['b']\"", "\"['a']\"", "\"['a', 'b', 'c']\""] * (COUNT // 4)),
        DataKind.LABEL_SETS,
        TEXT_LABEL,
        "a|b",
    ),
    "a column for each label": (
        "a.csv",
        table("comment_text,toxic,rude,threat", TEXTS, ["1", "0"] * (COUNT // 2), ["1"] * COUNT, ["0"] * COUNT),
        DataKind.LABEL_SETS,
        ("comment_text", "toxic", "rude", "threat"),
        "rude|toxic",
    ),
    "a score": ("a.csv", table("text,score", TEXTS, SCORES).replace("number ", ""), DataKind.SCORES, TEXT_SCORE, None),
    "a whole score": ("a.csv", table("text,score", TEXTS, COUNTS), DataKind.SCORES, TEXT_SCORE, COUNTS[0]),
    "ages": ("a.csv", table("text,age", LONGER, AGES), DataKind.SCORES, ("text", "age"), AGES[0]),
    "pages": ("a.jsonl", objects(text=LONGER, pages=list(map(int, AGES))), DataKind.SCORES, ("text", "pages"), "0"),
    "a score as label": ("a.csv", table("text,label", TEXTS, SCORES), DataKind.SCORES, ("text", "label"), SCORES[0]),
    "a score of JSON": (
        "a.jsonl",
        objects(text=TEXTS, score=[at / 7 for at in range(COUNT)]),
        DataKind.SCORES,
        TEXT_SCORE,
        "0.0",
    ),
    "a score that is missing": (
        "a.csv",
        table("text,score", TEXTS, [*SCORES[:30], *["nan"] * 10]),
        DataKind.SCORES,
        TEXT_SCORE,
        SCORES[0],
    ),
    "two texts and a class": (
        "a.csv",
        table("premise,hypothesis,label", TEXTS, GERMAN, CLASSES),
        DataKind.PAIR_LABELS,
        ("premise", "hypothesis", "label"),
        CLASSES[0],
    ),
    "two texts and a class, without names": (
        "a.tsv",
        table("", TEXTS, GERMAN, CLASSES, by="\t"),
        DataKind.PAIR_LABELS,
        (1, 2, 3),
        CLASSES[0],
    ),
    "two texts and a number": (
        "a.jsonl",
        objects(idx=COUNTS, sentence1=TEXTS, sentence2=GERMAN, label=[at / 7 for at in range(COUNT)]),
        DataKind.PAIR_SCORES,
        ("sentence1", "sentence2", "label"),
        "0.0",
    ),
    "questions with a context": (
        "a.jsonl",
        objects(context=PARTS, question=GERMAN, answer=NAMES),
        DataKind.ANSWERS,
        ("question", "context", "answer"),
        json.dumps([{"text": NAMES[0], "answer_start": 4}]),
    ),
    "SQuAD by lines": (
        "a.jsonl",
        objects(
            id=COUNTS, context=PARTS, question=GERMAN, answers=[{"text": [one], "answer_start": [4]} for one in NAMES]
        ),
        DataKind.ANSWERS,
        ("question", "context", "answers.text", "answers.answer_start"),
        json.dumps([{"text": NAMES[0], "answer_start": 4}]),
    ),
    "SQuAD": (
        "a.json",
        json.dumps(
            {
                "version": "1.1",
                "data": [
                    {
                        "title": "cats",
                        "paragraphs": [
                            {
                                "context": "the cat sat",
                                "qas": [
                                    {
                                        "id": "1",
                                        "question": "who sat?",
                                        "answers": [{"text": "the cat", "answer_start": 0}],
                                    },
                                    {"id": "2", "question": "who stood?", "answers": [], "is_impossible": True},
                                ],
                            }
                        ],
                    }
                ],
            }
        ),
        DataKind.ANSWERS,
        (),
        json.dumps([{"text": "the cat", "answer_start": 0}]),
    ),
}


@pytest.mark.parametrize("case", COMPOSED)
def test_fields_of_several_cells(tmp_path: Path, case: str) -> None:
    name, text, kind, columns, target = COMPOSED[case]
    (tmp_path / name).write_text(text)
    found = recognise([tmp_path / name])
    assert (found.kind, found.columns) == (kind, columns)
    first = next(records(found))
    assert isinstance(first, Record)
    assert first.fields[1] == (SCORES[0].replace("number ", "") if target is None else target)
    again = recognise([tmp_path / name], kind=kind, columns=columns or None)  # as validation data is read
    assert list(records(again)) == list(records(found))


BAD_COMPOSED = {
    "an answer elsewhere": (
        objects(question=["who?"], context=["a cat"], answer=["dog"]),
        "the answer 'dog' is not in the context",
    ),
    "a place that is wrong": (
        objects(question=["who?"], context=["a cat"], answers=[{"text": ["cat"], "answer_start": [1]}]),
        "the answer 'cat' is not in the context at character 1",
    ),
    "no number": (objects(sentence1=["a b"], sentence2=["c d"], score=["NaN"]), "score is 'NaN', not a number"),
    "half a pair": (objects(premise=["a b"], hypothesis=[" "], label=["x"]), "hypothesis is empty"),
    "the mark of pairs": (objects(premise=["a ||| b"], hypothesis=["c"], label=["x"]), "premise has ||| in it"),
    "the mark of labels": (objects(text=["a b"], labels=[["x|y", "z"]]), "the label 'x|y' has | in it"),
    "neither 0 nor 1": (objects(text=["a b"], toxic=[1], rude=["perhaps"]), "rude is 'perhaps', not 0 or 1"),
}


@pytest.mark.parametrize("case", BAD_COMPOSED)
def test_cells_that_cannot_be_learned_from(tmp_path: Path, case: str) -> None:
    text, said = BAD_COMPOSED[case]
    (tmp_path / "a.jsonl").write_text(text)
    kinds = {"labels": DataKind.LABEL_SETS, "toxic": DataKind.LABEL_SETS, "score": DataKind.PAIR_SCORES}
    kind = next((kind for key, kind in kinds.items() if key in text), None)
    columns = ["text", "toxic", "rude"] if "toxic" in text else None
    [problem] = records(recognise([tmp_path / "a.jsonl"], kind=kind, columns=columns))
    assert isinstance(problem, Problem)
    assert said in problem.said


REFUSED = {
    "questions without an answer": (
        "a.jsonl",
        objects(context=TEXTS, question=GERMAN),
        "a question with a context, and no answer; add a column answer",
    ),
    "objects of two kinds": (
        "a.jsonl",
        objects(text=TEXTS, label=CLASSES) + objects(source=TEXTS, target=GERMAN),
        "records of several kinds (40 with text, label, 40 with source, target among the first); give a file of one",
    ),
    "rows of two kinds": (
        "a.csv",
        table("text,label", TEXTS, CLASSES) + table("", TEXTS, GERMAN, CLASSES),
        "records of several kinds (41 with 2 columns, 40 with 3 columns among the first)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_task_learns_from_is_one_sentence(tmp_path: Path, case: str) -> None:
    name, text, said = REFUSED[case]
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        recognise([tmp_path / name])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_asked_for_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table("text,score", TEXTS, COUNTS))
    assert recognise([tmp_path / "a.csv"], kind=DataKind.PAIRS).columns == ("text", "score")
    (tmp_path / "b.jsonl").write_text(objects(context=TEXTS, question=GERMAN, answer=NAMES))
    assert recognise([tmp_path / "b.jsonl"], columns=["question", "answer"]).kind is DataKind.PAIRS
    (tmp_path / "c.csv").write_text(table("text,labels", TEXTS, ["a|b", "b", "a", "c"] * (COUNT // 4)))
    assert recognise([tmp_path / "c.csv"], kind=DataKind.LABELS).kind is DataKind.LABELS
    (tmp_path / "d.jsonl").write_text(objects(text=TEXTS, labels=[[name] for name in NAMES]))
    assert recognise([tmp_path / "d.jsonl"]).kind is DataKind.LABELS  # a list of one is a label
    (tmp_path / "e.jsonl").write_text(objects(text=TEXTS, labels=[["D", "N", "N", "N", "V", "A"]] * COUNT))
    assert recognise([tmp_path / "e.jsonl"]).kind is DataKind.TAGS  # one for each word


NUMBERS = {
    "one column": ("a.csv", table("", SCORES)),
    "a line each": ("a.txt", table("", SCORES)),
    "two rows": ("a.csv", "1,2\n3,4\n"),
    "two columns": ("a.tsv", table("", SCORES, COUNTS, by="\t")),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_are_no_language(tmp_path: Path, case: str) -> None:
    name, text = NUMBERS[case]
    (tmp_path / name).write_text(text)
    found = recognise([tmp_path / name])
    assert found.kind is DataKind.ROWS
    assert check(found).good == text.count("\n")


BAD_CELLS = {
    "half of a column": "p,q,r\n1,2,3\n4,oops,6\n",
    "two columns": "p,q\n1,2\n4,oops\n5,6\n",
    "one column": "p\n1\noops\n3\n",
    "no header": "7,7,8,x\n1,2,3,x\n4,oops,6,y\n7,8,9,y\n",
}


@pytest.mark.parametrize("case", BAD_CELLS)
def test_a_cell_that_is_no_number_is_said_by_its_line(tmp_path: Path, case: str) -> None:
    (tmp_path / "a.csv").write_text(BAD_CELLS[case])
    found = check(recognise([tmp_path / "a.csv"])).problems
    (problem,) = (one for one in found if one.what is not Flaw.FEW)
    assert problem.line == 3
    assert '"oops", not a number' in problem.said


def test_validation_data_that_is_the_training_data_is_refused(tmp_path: Path) -> None:
    train, link, packed = (tmp_path / name for name in ("train.tsv", "link.tsv", "copy.tsv.gz"))
    train.write_text(table("", TEXTS, GERMAN, by="\t"))
    link.symlink_to(train)
    packed.write_bytes(gzip.compress(train.read_bytes()))
    given = recognise([train])
    for path in (train, link, packed):
        with pytest.raises(UserError, match=r"is the training data, so its scores would say nothing; give other"):
            recognise_held_back(given, [path])
    (tmp_path / "more.tsv").write_text(train.read_text() + "One more.\tEins mehr.\n")
    assert len(list(records(recognise_held_back(given, [tmp_path / "more.tsv"])))) == COUNT + 1
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text(table("", TEXTS))
    target.write_text(table("", GERMAN))
    with pytest.raises(UserError, match="is the training data"):
        recognise_held_back(recognise([], source=source, target=target), [source, target])


def test_validation_data_of_another_task_is_refused(tmp_path: Path) -> None:
    pairs, labels = tmp_path / "pairs.tsv", tmp_path / "labels.tsv"
    pairs.write_text(table("", TEXTS, GERMAN, by="\t"))
    labels.write_text(table("", GERMAN, CLASSES, by="\t"))
    with pytest.raises(UserError, match="looks like text pairs, and the training data like labelled texts; give"):
        recognise_held_back(recognise([labels]), [pairs])
    with pytest.raises(UserError, match="looks like labelled texts, and the training data like text pairs"):
        recognise_held_back(recognise([pairs]), [labels])
    (tmp_path / "few.tsv").write_text("Good.\tham\nBad.\tspam\n")  # too few to look like classes
    assert recognise_held_back(recognise([labels]), [tmp_path / "few.tsv"]).kind is DataKind.LABELS


@pytest.mark.parametrize("kind", [None, DataKind.TEXTS])
def test_a_disk_is_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: DataKind | None) -> None:
    monkeypatch.setattr(media_sources, "MAX_FOLDERS", 10)
    for at in range(12):
        (tmp_path / str(at)).mkdir()
        (tmp_path / str(at) / "a.txt").write_text("text\n")
    with pytest.raises(UserError, match=r"holds more than 10 folders or .* give the folder of the data set"):
        recognise([tmp_path], kind=kind)


@pytest.mark.parametrize("kind", [None, DataKind.TEXTS, DataKind.IMAGES])
def test_the_root_is_refused_before_a_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: DataKind | None
) -> None:
    def forbidden(*places: object) -> None:
        raise AssertionError(places)

    (tmp_path / "root").symlink_to("/")
    monkeypatch.setattr("os.walk", forbidden)
    for place in (Path("/"), tmp_path / "root"):
        with pytest.raises(UserError, match=r"is the root of the file system; give the folder of the data set"):
            recognise([place], kind=kind)


def test_texts_that_are_written_alike_are_no_tags(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(table("", TEXTS, [" ".join(text.split()[::-1]) for text in TEXTS], by="\t"))
    found = recognise([tmp_path / "a.tsv"])
    assert found.kind is DataKind.PAIRS
    assert isinstance(next(records(found)), Record)
