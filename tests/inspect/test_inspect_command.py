"""`headway inspect`: what is printed and drawn is what the library computes, and mistakes are told in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from headway.cli import main as cli
from headway.data.preprocess import ImagePreprocess
from headway.figures import HeatMap, Plot, save_plot
from headway.inspect.embedding_space import token_embeddings
from headway.loading import load
from headway.model import Model
from headway.nn.context import Context
from headway.nn.trace import Off, record
from headway.ops.attention_rollout import gradient_rollout, rollout
from headway.tasks.model_parts import named_classes
from headway.zoo import bert, rnn, swin, vit
from headway.zoo.build import build
from tests.cli.folders import LABELS, TEXTS, encoder, jsonl, made, named_lines, pair_lines, saved, sentences

Inspect = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
TEXT = "the cat sat on the mat"
SIZE = 16


def colours(name: str, config: Any) -> Model:
    """A small classifier of images."""
    torch.manual_seed(0)
    ready = ImagePreprocess(resize=(SIZE, SIZE))
    return Model(build(config).eval(), config, name, None, named_classes(LABELS), preprocess=ready)


@pytest.fixture(scope="session")
def places(folders: Path) -> Path:
    """The folders of all purposes, and a few more: of images, and without attention."""
    small: dict[str, Any] = {"image": SIZE, "patch": 4, "classes": 2}
    colours("vit", vit.Config(dim=8, layers=2, heads=2, hidden=16, **small)).save(folders / "vit")
    windows = swin.Config(dim=8, layers=(2, 2), heads=(2, 2), windows=(2, 2), **small)
    colours("swin", windows).save(folders / "swin")
    words = encoder("none").vocabulary()
    deep = bert.Config(vocab=words.vocab, context=16, dim=16, layers=2, heads=2, hidden=32, top="rows", classes=2)
    made("bert", deep, words, named_classes(LABELS), "bert").save(folders / "deep")
    config = rnn.Config(vocab=words.vocab, dim=8, hidden=8, score="fixed", readout=8)
    kept = {"decoder_start_token_id": words.bos, "eos_token_id": words.eos}
    Model(build(config).eval(), config, "rnn", None, kept, words).save(folders / "recurrent")
    return folders


@pytest.fixture
def inspect(places: Path, capsys: pytest.CaptureFixture[str]) -> Inspect:
    """What `headway inspect … --json` says of a model by its name."""

    def run(what: str, model: str, *words: str | Path) -> dict[str, Any]:
        code = cli.main(["inspect", what, str(places / model), *map(str, words), "--json"])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


@pytest.fixture
def refused(places: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """The one sentence with which `headway inspect …` ends."""

    def run(*words: str | Path) -> str:
        assert cli.main(["inspect", *map(str, words)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert all(line.startswith(("  tip: ", "  allowed: ")) for line in err.splitlines()[1:])
        return err

    return run


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)
    (tmp_path / "pictures").mkdir()
    Image.fromarray(pixels).save(tmp_path / "pictures" / "a.png")
    return tmp_path / "pictures" / "a.png"


# ---- heads


@pytest.mark.slow
def test_heads_are_told_of_every_site(inspect: Inspect, models: dict[str, Model]) -> None:
    found = inspect("heads", "labels", "the cat sat the cat")
    assert [site["site"] for site in found["sites"]] == ["0.attn"]
    [site] = found["sites"]
    assert len(site["heads"]) == 2
    amap = models["labels"].attend("the cat sat the cat")["0.attn"]
    assert [head["entropy"] for head in site["heads"]] == pytest.approx(amap.entropy().mean((0, 2)).tolist(), rel=1e-5)
    ends = amap.full()[0][:, :, [0, -1]].sum(-1).mean(-1)  # [CLS] and [SEP]
    assert [head["special"] for head in site["heads"]] == pytest.approx(ends.tolist(), rel=1e-5)
    assert all(head["duplicate"] is not None for head in site["heads"])


@pytest.mark.slow
def test_an_encoder_and_decoder_have_three_kinds_of_sites(inspect: Inspect) -> None:
    sites = {site["site"]: site for site in inspect("heads", "pairs", TEXT)["sites"]}
    assert list(sites) == ["encoder.0.attn", "decoder.0.attn", "decoder.0.cross"]
    assert sites["decoder.0.cross"]["heads"][0]["distance"] is None  # how far is a source from a target?
    assert sites["encoder.0.attn"]["heads"][0]["distance"] is not None


def test_windows_are_measured_in_cells_of_the_picture(inspect: Inspect, picture: Path) -> None:
    sites = inspect("heads", "swin", picture)["sites"]
    assert [site["keys"] for site in sites] == [16, 16, 4, 4]
    for site in sites:  # two cells of a window of 2 × 2 are at most a diagonal apart, also where it is shifted
        assert all(0 < head["distance"] <= 2**0.5 for head in site["heads"])


def test_a_text_may_come_from_a_file(inspect: Inspect, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    found = inspect("heads", "labels", "--file", tmp_path / "text.txt")
    assert found["sites"] == inspect("heads", "labels", TEXT)["sites"]


def test_heads_are_sorted(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "heads", str(places / "spans"), TEXT, "--by", "entropy"]) == 0
    lines = capsys.readouterr().out.split("\n\n")[1].splitlines()[1:]
    values = [float(line.split()[2]) for line in lines]
    assert len(values) == 6
    assert values == sorted(values, reverse=True)


# ---- rollout


def maps_of(loaded: Model, text: str) -> list[torch.Tensor]:
    return [site.map.full()[0] for site in loaded.attend(text, most=1).sites.values()]


def test_rollout_is_read_at_the_class_token(inspect: Inspect, models: dict[str, Model]) -> None:
    [stream] = inspect("rollout", "labels", TEXT)["streams"]
    [last] = rollout(maps_of(models["labels"], TEXT))[-1:]
    assert stream["row"] == 0
    assert stream["layers"][-1]["weights"] == pytest.approx(last[0].tolist(), rel=1e-5)


def test_rollout_of_a_text_is_read_at_its_last_token(inspect: Inspect) -> None:
    [stream] = inspect("rollout", "causal", "a cat")["streams"]
    assert stream["row"] == len(stream["tokens"]) - 1
    [other] = inspect("rollout", "causal", "a cat", "--row", "1")["streams"]
    assert other["layers"][-1]["weights"][2:] == [0.0] * (len(other["tokens"]) - 2)


@pytest.mark.slow
def test_gradients_follow_the_score_of_a_class(inspect: Inspect, places: Path) -> None:
    """The gradient is that of the class's logit by each weight, tried with small changes of single weights."""
    found = inspect("rollout", "deep", "the cat", "--gradient", "good")
    loaded = load(places / "deep")
    ids = torch.tensor([loaded.vocabulary().encode("the cat")])
    maps = maps_of(loaded, "the cat")

    def score(layer: int, change: torch.Tensor) -> float:
        edit = {f"{layer}.attn.weights": lambda w: w + change}
        with torch.no_grad(), record(loaded.model, f"{layer}.attn.weights", edit=edit):
            return float(loaded.model(ids)[0, LABELS.index("good")])

    gradients = [torch.zeros_like(weights) for weights in maps]
    for layer, gradient in enumerate(gradients):
        for at in np.ndindex(*gradient.shape):
            change = torch.zeros_like(gradient)
            change[at] = 0.01
            gradient[at] = (score(layer, change) - score(layer, -change)) / 0.02
    expected = gradient_rollout(maps, gradients)[-1][0]
    expected[0] -= 1  # what the class token is to itself
    assert found["streams"][0]["layers"][-1]["weights"] == pytest.approx(expected.tolist(), rel=1e-2, abs=1e-4)
    other = inspect("rollout", "deep", "the cat", "--gradient", "bad")
    assert other["streams"] != found["streams"]


@pytest.mark.parametrize(("model", "wanted"), [("causal", "t"), ("masked", "cat"), ("pairs", "cat"), ("tags", "O")])
def test_gradients_follow_any_choice(model: str, wanted: str, inspect: Inspect) -> None:
    text = "the [MASK] sat" if model == "masked" else "the mat"
    found = inspect("rollout", model, text, "--gradient", wanted)
    assert found["gradient"]["label"] == wanted
    weights = found["streams"][0]["layers"][-1]["weights"]
    assert max(weights) > 0


@pytest.mark.slow
@pytest.mark.parametrize("model", ["vit", "swin"])
def test_pictures_are_rolled_out_in_cells(model: str, inspect: Inspect, picture: Path) -> None:
    plain = inspect("rollout", model, picture)
    assert [len(stream["tokens"]) for stream in plain["streams"]] == ([17] if model == "vit" else [16, 4])
    found = inspect("rollout", model, picture, "--gradient", "good")
    assert all(len(stream["layers"]) == 2 for stream in found["streams"])


# ---- importance


def test_importance_is_the_loss_without_each_head(inspect: Inspect, models: dict[str, Model], tmp_path: Path) -> None:
    lines = named_lines(LABELS, 12)
    found = inspect("importance", "labels", saved(tmp_path / "data.tsv", lines), "--task", "classification")
    loaded = models["labels"]
    assert loaded.tokenizer is not None

    def loss() -> float:
        total = 0.0
        for text, label in (line.split("\t") for line in lines):
            logits = loaded.model(torch.tensor([loaded.tokenizer.encode(text)]))  # type: ignore[union-attr]
            total += float(F.cross_entropy(logits, torch.tensor([LABELS.index(label)])))
        return total / len(lines)

    with torch.no_grad():
        assert found["base"] == pytest.approx(loss(), rel=1e-5)
        for head, told in enumerate(found["sites"][0]["heads"]):
            with record(loaded.model, edit={"0.attn.weights": Off()(head)}):
                assert told["loss"] == pytest.approx(loss(), rel=1e-5)
            assert told["worse"] == pytest.approx(told["loss"] - found["base"], abs=1e-6)
    assert len({head["loss"] for head in found["sites"][0]["heads"]}) == 2


@pytest.mark.slow
def test_importance_of_texts_and_of_pairs(inspect: Inspect, models: dict[str, Model], tmp_path: Path) -> None:
    texts = inspect("importance", "causal", jsonl(tmp_path / "texts.jsonl", TEXTS))
    assert (texts["measure"], len(texts["sites"])) == ("loss", 1)
    pairs = saved(tmp_path / "pairs.tsv", pair_lines(models, 6))
    found = inspect("importance", "pairs", pairs, "--task", "translation", "--how", "uniform", "--most", "4")
    assert [len(site["heads"]) for site in found["sites"]] == [2, 2, 2]
    assert any(head["worse"] != 0 for site in found["sites"] for head in site["heads"])


# ---- layers


@pytest.mark.slow
def test_a_probe_is_fitted_to_each_layer(inspect: Inspect, tmp_path: Path) -> None:
    lines = [f"{text}\t{'cat' if 'cat' in text else 'none'}" for text in dict.fromkeys(sentences(120, 3))]
    found = inspect("probe", "vectors", saved(tmp_path / "data.tsv", lines), "--task", "classification")
    assert [layer["layer"] for layer in found["layers"]] == ["embed.out", "0.out"]
    assert found["learned"] + found["held"] == len(lines)
    # whether a word is there is what a mean of embeddings tells
    assert found["layers"][0]["accuracy"] > found["majority"] + 0.1
    assert inspect("probe", "vectors", tmp_path / "data.tsv", "--task", "classification") == found


@pytest.mark.slow
def test_a_probe_reads_pictures(inspect: Inspect, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    for label, light in (("dark", 60), ("light", 190)):
        (tmp_path / "set" / label).mkdir(parents=True)
        for number in range(10):
            pixels = draw.integers(light - 40, light + 40, (SIZE, SIZE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "set" / label / f"{number}.png")
    found = inspect("probe", "vit", tmp_path / "set")
    assert found["classes"] == ["dark", "light"]
    assert found["layers"][0]["accuracy"] == 1.0
    some = inspect("probe", "vit", tmp_path / "set", "--most", "10")  # of both classes, though one comes first
    assert (some["classes"], some["learned"] + some["held"]) == (["dark", "light"], 10)
    alike = inspect("cka", "vit", "--data", tmp_path / "set")
    assert (alike["samples"], alike["rows"]) == (20, ["embed.out", "0.out", "1.out"])
    way = inspect("direction", "vit", tmp_path / "set" / "dark", tmp_path / "set" / "light")
    assert way["layers"][0]["accuracy"] == 1.0


def test_layers_are_compared(inspect: Inspect, places: Path, tmp_path: Path) -> None:
    data = saved(tmp_path / "lines.txt", sentences(30, 4))
    found = inspect("cka", "masked", "--data", data)
    matrix = np.array(found["cka"])
    assert matrix.shape == (2, 2)
    assert np.diag(matrix) == pytest.approx([1.0, 1.0])
    assert matrix == pytest.approx(matrix.T)
    other = inspect("cka", "masked", places / "causal", "--data", data)
    assert (other["rows"], other["columns"]) == (["embed.out", "0.out"], ["embed.out", "0.out"])
    assert 0 < other["cka"][0][0] < 1


def test_a_direction_moves_the_answer(inspect: Inspect, models: dict[str, Model], tmp_path: Path) -> None:
    one = saved(tmp_path / "a.txt", [text for text in sentences(60, 5) if "cat" in text])
    two = saved(tmp_path / "b.txt", [text for text in sentences(60, 5) if "cat" not in text])
    still = inspect("direction", "labels", one, two, "--move", TEXT, "--by", "0")
    assert still["moved"]["before"] == still["moved"]["after"]
    found = inspect("direction", "labels", one, two, "--move", TEXT, "--by", "4", "--layer", "embed")
    assert found["moved"]["layer"] == "embed.out"
    loaded = models["labels"]
    assert loaded.tokenizer is not None

    def mean(file: Path) -> torch.Tensor:
        rows = [loaded.tokenizer.encode(line) for line in file.read_text().splitlines()]  # type: ignore[union-attr]
        features = [loaded.model.get_submodule("embed")(torch.tensor([row]), Context())[0].mean(0) for row in rows]
        return torch.stack(features).mean(0)

    with torch.no_grad():
        way = mean(one) - mean(two)
        assert found["layers"][0]["length"] == pytest.approx(float(way.norm()), rel=1e-4)
        with record(loaded.model, edit={"embed.out": lambda x: x + 4 * way}):
            expected = loaded.run(TEXT)["probabilities"]
    assert found["moved"]["after"]["probabilities"] == pytest.approx(expected, rel=1e-3)
    assert found["moved"]["before"]["probabilities"] != pytest.approx(expected, rel=1e-3)


# ---- neighbours


def test_neighbours_of_a_word(inspect: Inspect, models: dict[str, Model]) -> None:
    found = inspect("neighbours", "masked", "cat", "dog", "--count", "3")["neighbours"]
    words, table = models["masked"].tokenizer, token_embeddings(models["masked"].model)
    assert words is not None
    own = words.id("cat")
    cosines = F.cosine_similarity(table[own], table)
    best = [id for id in cosines.argsort(descending=True).tolist() if id != own][:3]
    assert [near["cosine"] for near in found["cat"]] == pytest.approx(cosines[best].tolist(), rel=1e-5)
    assert len(found["dog"]) == 3


def test_neighbours_among_lines(inspect: Inspect, models: dict[str, Model], tmp_path: Path) -> None:
    lines = sentences(12, 6)
    found = inspect("neighbours", "vectors", TEXT, "--among", saved(tmp_path / "lines.txt", lines), "--count", "2")
    vectors = models["vectors"]
    cosines = (vectors.embed([TEXT]) @ vectors.embed(lines).mT)[0]
    assert found["neighbours"][TEXT][0]["text"] == lines[int(cosines.argmax())]
    assert found["neighbours"][TEXT][0]["cosine"] == pytest.approx(float(cosines.max()), rel=1e-4)


# ---- figures

HOSTILE = ["$x$", "$", "</text><script>", "\x00\x1b[31m", "مرحبا", "語", "🙂", "y" * 10_000]


@pytest.mark.slow
def test_every_subject_has_its_figure(places: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = saved(tmp_path / "data.tsv", named_lines(LABELS, 12))
    lines = saved(tmp_path / "lines.txt", sentences(6, 4))
    many = [
        ["heads", "labels", TEXT],
        ["rollout", "pairs", TEXT],
        ["importance", "labels", data, "--task", "classification"],
        ["probe", "labels", data, "--task", "classification"],
        ["neighbours", "masked", "cat"],
        ["direction", "labels", lines, lines],
        ["cka", "labels", "--data", lines],
    ]
    for at, [what, model, *words] in enumerate(many):
        figure = tmp_path / f"{at}.svg"
        assert (
            cli.main(["inspect", str(what), str(places / str(model)), *map(str, words), "--figure", str(figure)]) == 0
        )
        assert f"figure: {figure}" in capsys.readouterr().out
        assert ElementTree.parse(figure).getroot().tag.endswith("svg")


@pytest.mark.slow
def test_hostile_texts_are_drawn_as_letters(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    values = [[float(at)] * len(HOSTILE) for at in range(len(HOSTILE))]
    drawing = Plot(HOSTILE[0], [HeatMap(HOSTILE[1], values, HOSTILE, HOSTILE)])
    for name in ("a.svg", "b.svg", "c.png"):
        save_plot(drawing, tmp_path / name)
    told = {element.text for element in ElementTree.parse(tmp_path / "a.svg").iter() if element.tag.endswith("text")}
    assert {"$x$", "$", "</text><script>", "··[31m", "y" * 15 + "…"} <= told
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with Image.open(tmp_path / "c.png") as image:
        assert len(set(image.convert("L").resize((64, 64)).tobytes())) > 8
    assert not recwarn.list


def test_what_is_printed_moves_no_cursor(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "rollout", str(places / "spans"), "a\x1b[31m\x00b"]) == 0
    out = capsys.readouterr().out
    assert "\x00" not in out
    assert "\x1b" not in out


# ---- mistakes


@pytest.mark.slow
def test_mistakes_are_told_in_a_sentence(refused: Refused, places: Path, tmp_path: Path, picture: Path) -> None:
    one_class = saved(tmp_path / "one.tsv", [f"{text}\tgood" for text in sentences(9)])
    lines = saved(tmp_path / "lines.txt", sentences(6))
    short = saved(tmp_path / "short.txt", ["cat"])
    labels, masked = places / "labels", places / "masked"
    said = {
        "no attention": refused("heads", places / "recurrent", TEXT),
        "and so no heads": refused(
            "importance", places / "recurrent", saved(tmp_path / "p.tsv", ["a\tb"] * 3), "--task", "translation"
        ),
        "the vocabulary has no token 'catt'": refused("neighbours", masked, "catt"),
        "did you mean 'cat'": refused("neighbours", masked, "catt"),
        "one class": refused("probe", labels, one_class, "--task", "classification"),
        "does not exist": refused("probe", labels, tmp_path / "none.tsv"),
        "nothing.txt does not exist": refused("cka", labels, "--data", tmp_path / "nothing.txt"),
        "nowhere does not exist": refused("heads", tmp_path / "nowhere", TEXT),
        "ends in .png or .svg": refused("heads", labels, TEXT, "--figure", "a.pdf"),
        "did you mean 'entropy'": refused("heads", labels, TEXT, "--by", "entrpy"),
        "did you mean 'heads'": refused("haeds", labels, TEXT),
        "one input is needed": refused("heads", labels),
        "did you mean 'off'": refused("importance", labels, one_class, "--how", "of"),
        "no one class or token 'godo'": refused("rollout", labels, TEXT, "--gradient", "godo"),
        "gives a vector": refused("rollout", places / "vectors", TEXT, "--gradient", "good"),
        "--row 99": refused("rollout", labels, TEXT, "--row", "99"),
        "groups of 1 and 6": refused("direction", labels, short, lines),
        "no layer '7' can be moved": refused("direction", labels, lines, lines, "--move", TEXT, "--layer", "7"),
        "--data needs a value": refused("cka", labels, "--data"),
        "reads images": refused("cka", places / "vit", "--data", one_class),
        "holds no images": refused("cka", labels, "--data", places / "labels"),
        "is a folder": refused("cka", labels, "--data", picture.parent),
        "context of 16": refused("heads", labels, "cat " * 40),
    }
    for words, told in said.items():
        assert words in told, told
