"""`headway check` and `headway eval`: data, and a model on data."""

from __future__ import annotations

from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headway.cli.options import Debug, Heads, Unsafe
from headway.errors import UserError

# the test or the validation split of a recipe
TestFrom = Annotated[str | None, Parameter(name=["--test-from", "--validation-from", "--held-from"])]


def check(
    *data: Path,
    source: Path | None = None,
    target: Path | None = None,
    validation: tuple[Path, ...] = (),
    task: str | None = None,
    columns: str | None = None,
    label_from: str | None = None,
    test_from: TestFrom = None,
    longest: int | None = None,
    json: bool = False,
    debug: Debug = False,
) -> int:
    """Check data before training: damaged, empty, duplicate and overlong records, by line.

    Parameters
    ----------
    data
        Files or folders, as for headway train.
    source
        File of source texts, line by line parallel to --target.
    target
        File of target texts.
    validation
        Validation data to compare with the training data: one file, or two parallel files.
    task
        Task of the data, as for headway train: translation, images, speech, masked-lm …; recognised unless given.
    columns
        Names or numbers of the columns to use, as in en,de; recognised unless given.
    label_from
        Regular expression that finds the class, or the transcript, in names of images or sounds.
    test_from
        Regular expression: images or sounds with matching names are the test data, compared with the others.
    longest
        Maximum length of a text in characters.
    json
        Print the findings as JSON, and nothing else.
    """
    from headway.data.checks import check
    from headway.data.recognise import recognise, recognise_validation
    from headway.data.records import MAX_FIELD_CHARACTERS
    from headway.data.splits import split_by_names
    from headway.tasks.registry import data_entry, data_kind, sentence

    kind, chosen = data_kind(task), columns.split(",") if columns else ()
    if validation and test_from is not None:
        raise UserError("--validation and --test-from are both given", do="give one of them")
    given = recognise(data, source=source, target=target, kind=kind, columns=chosen, label_from=label_from)
    beside = None
    if validation:
        beside = recognise_validation(given, validation, columns=chosen, label_from=label_from)
    if test_from is not None:
        given, beside = split_by_names(given, test_from, "data.test_from")
    given = replace(given, description=sentence(given))
    found = check(given, validation=beside, longest=MAX_FIELD_CHARACTERS if longest is None else longest)
    told = {"data": given.description, "task": data_entry(given.kind).word, **found.to_dict()}
    print(dumps(told, indent=1, ensure_ascii=False) if json else found.to_text())
    return 2 if found.bad else 0


def evaluate(
    model: Path,
    /,
    *data: Path,
    source: Path | None = None,
    target: Path | None = None,
    task: str | None = None,
    columns: str | None = None,
    label_from: str | None = None,
    test_from: TestFrom = None,
    beam: int | None = None,
    json: bool = False,
    heads: Heads = None,
    unsafe: Unsafe = False,
    debug: Debug = False,
) -> int:
    """Evaluate a model on data, with the metrics of its task.

    Texts: BLEU, chrF, exact match, accuracy, F1, perplexity, also by length.
    Classes of images, sounds and numbers: accuracy, top-5 accuracy, F1, confusion
    matrix.  Captions: CIDEr, BLEU-1 to 4.  Speech: word and character error rate.
    Images and texts: recall at 1, 5 and 10.  Tables over time: error against
    repeating the row before.

    Parameters
    ----------
    model
        A model folder, in headway's or Hugging Face's layout.
    data
        Files or folders, as for headway train.
    source
        File of source texts, line by line parallel to --target.
    target
        File of target texts.
    task
        Task of the data, as for headway train: translation, images, speech, masked-lm …; recognised unless given.
    columns
        Names or numbers of the columns to use, as in en,de; recognised unless given.
    label_from
        Regular expression that finds the class, or the transcript, in names of images or sounds.
    test_from
        Regular expression: only images or sounds with matching names are evaluated.
    beam
        Beam search with this many beams.
    json
        Print the numbers as JSON, and nothing else.
    """
    from headway.evaluation import EvalQuery, evaluate
    from headway.model import load
    from headway.system import keep_memory

    keep_memory()
    options = {"task": task, "columns": columns, "label_from": label_from, "test_from": test_from}
    query = EvalQuery.of(list(data), source=source, target=target, **options)
    query.check()  # what is wrong with the data is said before the model is loaded
    found = evaluate(load(model, heads=heads, unsafe=unsafe), query, beam=beam, named=f"the model in {model}")
    if json:
        print(dumps({"model": str(model), **found.to_dict()}, indent=1, ensure_ascii=False))
    else:
        print("\n\n".join([str(found.extra["data"]), found.to_text()]))
    return 0
