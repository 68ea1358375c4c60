"""`headway check` and `headway eval`: data, and a model on data."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from headway.cli.options import (
    LOAD_OPTIONS,
    SPLIT_OPTIONS,
    DataPath,
    Debug,
    Device,
    Dtype,
    LoadOptions,
    ModelPath,
    SplitOptions,
    import_torch,
    trained_label_from,
)
from headway.console import fitted, phase
from headway.dtype import FP32, holds_int8
from headway.errors import UserError
from headway.generate.option_checks import DecodingOptions
from headway.system import CPU


def check(
    *data: Path,
    split: SplitOptions = SPLIT_OPTIONS,
    validation: tuple[Path, ...] = (),
    test: tuple[Path, ...] = (),
    max_length: int | None = None,
    longest: Annotated[int | None, Parameter(show=False)] = None,
    json: bool = False,
    debug: Debug = False,
) -> int:
    """Check data before training: damaged, empty, duplicate and overlong records, by line.

    Parameters
    ----------
    data
        Files or folders, as for headway train.
    validation
        Validation data to compare with the training data: one file, or two parallel files.
    test
        Test data to compare with both: one file, or two parallel files.
    max_length
        Maximum length of a text in characters.
    longest
        The same, by its name in earlier versions.
    json
        Print the findings as JSON, and nothing else.
    """
    from headway.data.checks import check
    from headway.data.named_splits import named_splits
    from headway.data.recognise import recognise, recognise_held_back
    from headway.data.records import MAX_FIELD_CHARACTERS
    from headway.data.splits import split_by_names
    from headway.tasks.registry import data_entry, data_kind, sentence

    kind, columns = data_kind(split.task), split.columns.split(",") if split.columns else ()
    for name, files in (("--validation", validation), ("--test", test)):
        if files and split.test_from is not None:
            raise UserError(f"{name} and --test-from are both given", do="give one of them")
    named: dict[str, Any] = {"columns": columns, "label_from": split.label_from, "header": split.header}
    if parts := named_splits(data):
        data, validation, test = parts.train, validation or parts.validation, test or parts.test
    with phase("reading the data"):
        given = recognise(data, source=split.source, target=split.target, kind=kind, **named)
        beside = recognise_held_back(given, validation, **named) if validation else None
        tested = recognise_held_back(given, test, "data.test", **named) if test else None
        if split.test_from is not None:
            given, beside = split_by_names(given, split.test_from, "data.test_from")
    given = replace(given, description=sentence(given))
    longest = longest if max_length is None else max_length
    with phase("checking the data"):
        limit = MAX_FIELD_CHARACTERS if longest is None else longest
        found = check(given, validation=beside, test=tested, longest=limit)
    fields = {"data": given.description, "task": data_entry(given.kind).word, **found.to_dict()}
    print(dumps(fields, indent=1, ensure_ascii=False) if json else fitted(found.to_text(), sys.stdout))
    return 2 if found.bad else 0


def evaluate(
    model: ModelPath,
    /,
    *data: DataPath,
    split: SplitOptions = SPLIT_OPTIONS,
    beam: int | None = None,
    max_new_tokens: int | None = None,
    dtype: Dtype = None,
    device: Device = CPU,
    json: bool = False,
    loading: LoadOptions = LOAD_OPTIONS,
    debug: Debug = False,
) -> int:
    """Evaluate a model on data, with the metrics of its task.

    Texts: BLEU, chrF, exact match, accuracy, F1, perplexity, also by length.
    Classes of images, sounds and numbers: accuracy, top-5 accuracy, F1, confusion
    matrix.  Captions: CIDEr, BLEU-1 to 4.  Speech: word and character error rate.
    Images and texts: recall at 1, 5 and 10.  Tables over time: error against
    repeating the row before.  Images alone: error of hidden patches, or how often
    the other view of an image is found; with classes, those of nearest neighbours.
    With --dtype, the same in fp32 beside it.  Vectors: with --dtype, their cosine to
    those in fp32.

    Parameters
    ----------
    model
        A model folder, in headway's or Hugging Face's layout.
    data
        Files or folders, as for headway train; with --test-from only the test data is used.
    beam
        Beam search with this many beams.
    max_new_tokens
        Maximum number of tokens of an answer; by default as for headway run.
    json
        Print the numbers as JSON, and nothing else.
    """
    DecodingOptions(beam=beam, max_new_tokens=max_new_tokens)
    import_torch()
    from headway.evaluation import EvalQuery, compare_dtypes, evaluate
    from headway.loading import load
    from headway.system import keep_memory

    keep_memory()
    query = EvalQuery.of(data, **vars(split), trained_label_from=trained_label_from(model))
    query.check()  # what is wrong with the data is said before the model is loaded
    loaded, named = loading.load(model, dtype, device), f"the model in {model}"
    decoding: dict[str, Any] = {"beam": beam, "max_new_tokens": max_new_tokens}
    compares = dtype not in (None, FP32) and not holds_int8(model)
    with phase("evaluating"):
        if compares:
            full = load(model, dtype=FP32, device=device, **vars(loading))
            compared = compare_dtypes(loaded, full, loaded.dtype, query, named=named, **decoding)
            found, told, notes = compared.low, compared.to_dict(), [compared.to_text()] if compared.full else []
        else:
            found = evaluate(loaded, query, named=named, **decoding)
            told, notes = found.to_dict(), list[str]()
    if (final := final_scores(model)) is not None:
        told, notes = {**told, "training": final}, [*notes, final_note(final)]
    text = "\n\n".join([fitted(str(found.extra["data"]), sys.stdout), found.to_text(), *notes])
    print(dumps({"model": str(model), **told}, indent=1, ensure_ascii=False) if json else text)
    return 0


def final_scores(model: Path) -> dict[str, Any] | None:
    """The scores at the end of the training, and those of simple methods on the same records, where they are known."""
    from headway.metrics.scores import MEASURES
    from headway.system import read_json

    def measured(found: object, kind: Any) -> dict[str, Any]:
        """What is known by the name of a measure."""
        some = found if isinstance(found, dict) else {}
        return {key: value for key, value in some.items() if key in MEASURES and isinstance(value, kind)}

    with suppress(UserError):  # of a folder without a run
        told = read_json(model / "scores.json")
        count, scores, baselines = told.get("count"), told.get("scores"), told.get("baselines")
        if isinstance(count, int) and isinstance(scores, dict) and isinstance(baselines, dict):
            limits = told.get("baseline_intervals")
            limits = limits if isinstance(limits, dict) else {}
            return {
                "count": count,
                "things": str(told.get("things", "records")),
                "split": "validation",
                "scores": measured(scores, float | int),
                "intervals": measured(told.get("intervals"), dict),
                "baselines": {name: measured(one, float | int) for name, one in baselines.items()},
                "baseline_intervals": {name: measured(limits.get(name), dict) for name in baselines},
            }
    return None


def final_note(final: dict[str, Any]) -> str:
    """The scores of the training in a few lines: the model's, and those of simple methods, with their intervals."""
    from headway.console import side_by_side
    from headway.metrics.intervals import Interval
    from headway.metrics.scores import MEASURES

    def cell(name: str, number: float | None, limits: dict[str, Any]) -> str:
        ends = (limits.get(name, {}).get(end) for end in ("low", "high"))
        known = Interval(*(math.nan if end is None else end for end in ends))
        return "" if number is None else MEASURES[name].with_interval(number, known)

    names = list(final["scores"])
    rows = {"the model": (final["scores"], final["intervals"])}
    rows |= {f"by {name}": (one, final["baseline_intervals"][name]) for name, one in final["baselines"].items()}
    table = [["", *(MEASURES[name].title for name in names)]]
    table += [[label, *(cell(name, one.get(name), limits) for name in names)] for label, (one, limits) in rows.items()]
    head = f"for comparison, on the validation split of the training (n = {final['count']:,} {final['things']})"
    return "\n\n".join([head, *side_by_side(table, fixed=1)])
