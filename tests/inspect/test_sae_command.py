"""`headway inspect superposition` and `headway inspect dictionary`: what they say is so, and what cannot be is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from headway.cli import main as cli
from headway.evaluation import EvalQuery
from headway.inspect.loss_batches import collect, equal_length_batches, loss_source, mean_loss
from headway.inspect.sae_analysis import Activation, activation_in, replacement_losses, top_activations
from headway.inspect.sparse_autoencoder import SAEConfig, SparseAutoencoder, Top, load_sae
from headway.model import Model
from headway.nn.trace import record
from tests.cli.folders import LABELS, documents, jsonl, named_lines, saved, sentences, tagged_lines

Inspect = Callable[..., dict[str, Any]]
SMALL = ("--atoms", "24", "--top", "3", "--steps", "30", "--vectors", "300")
SITES = {  # of a model of each purpose
    "causal": "0.out",
    "masked": "0.attn.heads",
    "spans": "encoder.0.out",
    "pairs": "decoder.0.out",
    "narrow": "encoder.0.out",
    "labels": "0.out",
    "tags": "0.attn.values",
    "vectors": "0.out",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("data")
    texts = jsonl(place / "texts.jsonl", documents())
    pairs = saved(place / "pairs.tsv", [f"{a}\t{b}" for a, b in zip(sentences(40), sentences(40, 1), strict=True)])
    lines = saved(place / "lines.txt", sentences(30))
    labels = saved(place / "labels.tsv", named_lines(LABELS, 40))
    tags = saved(place / "tags.tsv", tagged_lines(40))
    of_texts = dict.fromkeys(("causal", "masked", "spans"), texts)
    return {**of_texts, "pairs": pairs, "narrow": pairs, "labels": labels, "tags": tags, "vectors": lines}


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str]) -> Inspect:
    """What `headway inspect … --json` says."""

    def run(*words: object) -> dict[str, Any]:
        code = cli.main(["inspect", *map(str, words), "--json"])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", SITES)
def test_models_of_every_purpose_are_taken_apart(
    name: str, folders: Path, data: dict[str, Path], inspect: Inspect
) -> None:
    found = inspect("dictionary", folders / name, data[name], "--site", SITES[name], *SMALL)
    assert (found["site"], found["width"], found["atoms"], found["top"]) == (SITES[name], 16, 24, 3)
    assert found["vectors"]["learned"] > found["vectors"]["held"] > 0
    assert found["active"] <= 3
    assert found["explained"] <= 1
    assert found["most_used"]
    assert all(place["code"] > 0 for atom in found["most_used"] for place in atom["places"])
    if name == "vectors":
        assert found["loss"] is None
    else:
        assert found["loss"]["whole"] != found["loss"]["rebuilt"] != found["loss"]["zero"] != found["loss"]["mean"]


@pytest.mark.slow
def test_the_same_seed_says_the_same_and_another_something_else(
    folders: Path, data: dict[str, Path], inspect: Inspect
) -> None:
    words = ("dictionary", folders / "causal", data["causal"], "--site", "0", *SMALL)
    assert inspect(*words) == inspect(*words)
    assert inspect(*words) != inspect(*words, "--seed", "1")


def test_vectors_are_those_of_their_tokens(models: dict[str, Model], data: dict[str, Path]) -> None:
    """Each vector is what the model alone makes of the row up to that token."""
    loaded = models["causal"]
    found = collect(loaded.model, "0.out", loss_source(loaded, EvalQuery.of(data["causal"])), 10_000)
    assert len(found.vectors) == len(found.owners) == len(found.positions) == sum(len(row.ids) for row in found.rows)
    for at in range(0, len(found.vectors), 37):
        row, place = found.rows[int(found.owners[at])], int(found.positions[at])
        with record(loaded.model, "0.out") as trace, torch.no_grad():
            loaded.model(torch.tensor([row.ids[: place + 1]]))
        alone = trace["0.out"]
        assert isinstance(alone, torch.Tensor)
        torch.testing.assert_close(found.vectors[at], alone[0, -1], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_each_side_has_its_own_tokens(side: str, models: dict[str, Model], data: dict[str, Path]) -> None:
    loaded, site = models["pairs"], f"{side}.0.out"
    found = collect(loaded.model, site, loss_source(loaded, EvalQuery.of(data["pairs"])), 10_000)
    assert len(found.vectors) == sum(len(row.ids) for row in found.rows)
    assert loaded.tokenizer is not None
    texts = {loaded.tokenizer.decode(row.ids) for row in found.rows}
    assert texts == {line.split("\t")[side == "decoder"] for line in data["pairs"].read_text().splitlines()}


def test_rows_are_learned_from_or_held_out(models: dict[str, Model], data: dict[str, Path]) -> None:
    loaded = models["labels"]
    found = collect(loaded.model, "0.out", loss_source(loaded, EvalQuery.of(data["labels"])), 10_000)
    learned, held = found.owners[: len(found.training)], found.owners[len(found.training) :]
    assert not set(learned.tolist()) & set(held.tolist())
    assert len(found.held_out) == found.held == len(held)
    assert len(set(held.tolist())) == 4  # of 40
    assert sum(len(batch.rows) for batch in found.batches) == 4


def test_the_loss_is_that_of_the_model(measured: Inspect, models: dict[str, Model], data: dict[str, Path]) -> None:
    """All rows, held out or not, have the loss that `headway eval` says."""
    loaded = models["causal"]
    source = loss_source(loaded, EvalQuery.of(data["causal"]))
    batches = [source.batch(some, "0.out") for some in equal_length_batches(source.rows())]
    assert mean_loss(batches) == pytest.approx(measured("causal", data["causal"])["scores"]["loss"], rel=1e-4)


@pytest.mark.slow
def test_a_site_that_is_rebuilt_whole_loses_nothing(models: dict[str, Model], data: dict[str, Path]) -> None:
    """With an atom for each direction and its opposite, every vector is told exactly; with zeros it is not."""
    loaded = models["pairs"]
    source = loss_source(loaded, EvalQuery.of(data["pairs"]))
    batches = [source.batch(some, "decoder.0.out") for some in equal_length_batches(source.rows())]
    whole = SparseAutoencoder(SAEConfig(16, 32, Top(32), "decoder.0.out"))
    both = torch.cat([torch.eye(16), -torch.eye(16)])
    whole.load_state_dict({**whole.state_dict(), "atoms": both, "encoder": both})
    found = replacement_losses(loaded.model, whole.requires_grad_(False), batches, "token")
    assert found.rebuilt == pytest.approx(found.whole, rel=1e-5)
    assert found.recovered == pytest.approx(1.0, abs=1e-3)
    assert found.zero != pytest.approx(found.whole, rel=1e-3)
    assert found.mean == pytest.approx(found.zero, rel=1e-5)  # whose centre is zero here


def test_a_place_is_told_by_its_token_and_what_stands_around(models: dict[str, Model], data: dict[str, Path]) -> None:
    loaded = models["causal"]
    found = collect(loaded.model, "0.out", loss_source(loaded, EvalQuery.of(data["causal"])), 10_000)
    row = next(row for row in found.rows if len(row.ids) > 10)
    assert row.tokenizer is not None
    place = activation_in(row, 6, 1.5)
    text = row.tokenizer.decode(row.ids)
    assert place.token in text
    assert place.before + place.token + place.after in row.tokenizer.token(row.ids[0]) + text
    codes, same = torch.zeros(len(found.vectors)), int((found.owners.diff() == 0).nonzero()[0])
    codes[same], codes[same + 1], codes[-1] = 2.0, 1.0, 3.0
    best = top_activations(codes, found)
    assert [one.code for one in best] == [3.0, 2.0]  # one place of a row


def test_hostile_tokens_are_shown_on_one_line() -> None:
    told = Activation(1.0, "\0\n\x1b[31m</script>" + "x" * 10_000, "a\r\n" * 500, "\u202eabc").to_text()
    assert told.isprintable()
    assert len(told) < 120


@pytest.mark.slow
def test_what_is_written_is_the_dictionary(
    folders: Path, data: dict[str, Path], inspect: Inspect, tmp_path: Path
) -> None:
    out = tmp_path / "atoms"
    found = inspect("dictionary", folders / "causal", data["causal"], "--site", "0.out", *SMALL, "--out", out)
    made = load_sae(out)
    assert (made.config.site, made.config.atoms, made.config.dim) == ("0.out", 24, 16)
    assert found["out"] == str(out)


def test_a_penalty_in_the_place_of_a_count(folders: Path, data: dict[str, Path], inspect: Inspect) -> None:
    words = ("--atoms", "24", "--l1", "0.3", "--steps", "12", "--vectors", "300")
    found = inspect("dictionary", folders / "labels", data["labels"], "--site", "0.out", *words)
    assert found["l1"] == 0.3
    assert "top" not in found
    assert found["loss"]["per"] == "text"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_people_get_a_table_and_a_figure(
    suffix: str, folders: Path, data: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    figure = tmp_path / f"atoms.{suffix}"
    words = ["--site", "0.out", *SMALL, "--figure", str(figure)]
    assert cli.main(["inspect", "dictionary", str(folders / "causal"), str(data["causal"]), *words]) == 0
    out, err = capsys.readouterr()
    assert "explained variance" in out
    assert "SAE reconstruction" in out
    assert "step 30" in err
    drawn(figure)


def drawn(figure: Path) -> None:
    if figure.suffix == ".svg":
        assert "<svg" in figure.read_text()
    else:
        colours = Image.open(figure).convert("RGB").getcolors(2**24)
        assert colours is not None
        assert len(colours) > 50


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("causal", "causal", "--site", "9.out"), "matches no site"),
        (("causal", "causal", "--site", "*.out"), "means 2 sites"),
        (("causal", "causal", "--site", "0.attn.weights"), "are no vectors"),
        (("causal", "causal", "--site", "0.out", "--atoms", "0"), "allowed: 1 or more"),
        (("causal", "causal", "--site", "0.out", "--top", "0"), "allowed: 1 or more"),
        (("causal", "causal", "--site", "0.out", "--atoms", "4", "--top", "5"), "allowed: 1 to 4"),
        (("causal", "causal", "--site", "0.out", "--top", "5", "--l1", "1"), "give one of them"),
        (("causal", "causal", "--site", "0.out", "--l1", "-1"), "allowed: a number above 0"),
        (("causal", "causal", "--site", "0.out", "--steps", "0"), "--steps 0"),
        (("causal", "causal", "--site", "0.out", "--vectors", "1"), "--vectors 1"),
        (("causal", "causal", "--site", "0.out", "--figure", "x.pdf"), ".png or .svg"),
        (("causal", "nowhere", "--site", "0.out"), "nowhere does not exist"),
        (("causal", "--site", "0.out"), "no data was given"),
        (("causal", "labels", "--site", "0.out"), "continues texts"),
        (("causal", "causal"), "--site"),
        (("causal", "causal", "--site", "0.out", "--heads", "2"), "which tells the heads"),
        (("nowhere", "causal", "--site", "0.out"), "nowhere"),
    ],
)
def test_what_cannot_be_taken_apart_is_told(
    words: tuple[str, ...], said: str, folders: Path, data: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model, *others = words
    given = [str(data.get(word, word)) for word in others]
    assert cli.main(["inspect", "dictionary", str(folders / model), *given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert said in err
    assert "Traceback" not in err


def test_a_single_row_is_too_little(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = jsonl(tmp_path / "one.jsonl", ["the cat"])
    assert cli.main(["inspect", "dictionary", str(folders / "causal"), str(file), "--site", "0.out"]) == 2
    assert "a single row" in capsys.readouterr().err


def test_nothing_is_overwritten(folders: Path, data: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    out = str(folders / "causal")
    words = [out, str(data["causal"]), "--site", "0.out", *SMALL, "--out", out]
    assert cli.main(["inspect", "dictionary", *words]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.slow
def test_superposition_says_what_was_learned(inspect: Inspect) -> None:
    found = inspect("superposition", "--features", 4, "--hidden", 2, "--sparsity", 0, 0.9, "--steps", 30)
    assert [one["sparsity"] for one in found["models"]] == [0.0, 0.9]
    for one in found["models"]:
        weight = torch.tensor(one["weight"])
        assert weight.shape == (4, 2)
        torch.testing.assert_close(torch.tensor(one["gram"]), weight @ weight.mT)
        assert one["dimensions_per_feature"] == pytest.approx(2 / float((weight**2).sum()))
    again = inspect("superposition", "--features", 4, "--hidden", 2, "--sparsity", 0, 0.9, "--steps", 30)
    assert found == again


@pytest.mark.slow
@pytest.mark.parametrize("hidden", ["1", "2", "3"])
def test_superposition_is_drawn(hidden: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "toy.png"
    words = ["--hidden", hidden, "--sparsity", "0", "0.9", "--steps", "5", "--figure", str(figure)]
    assert cli.main(["inspect", "superposition", *words]) == 0
    assert "dimensions per feature" in capsys.readouterr().out
    drawn(figure)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sparsity", "1"), "--sparsity 1; allowed: from 0 up to, but not, 1"),
        (("--sparsity", "0.5", "-0.1"), "--sparsity -0.1"),
        (("--features", "0"), "--features 0"),
        (("--hidden", "0"), "--hidden 0"),
        (("--decay", "0"), "--decay 0"),
        (("--steps", "0"), "--steps 0"),
        (("--figure", "toy.gif"), ".png or .svg"),
        (("--heads", "2"), "has no option '--heads'"),
        (("--sparsity", "much"), "much"),
    ],
)
def test_what_cannot_be_packed_is_told(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "superposition", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
