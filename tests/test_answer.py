"""What models are for, through the command and through Python: real weights where they lie, tiny ones elsewhere."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.testing import assert_close

import headway
from headway import UserError
from headway.answer import Speaker, Wish
from headway.app import cli
from headway.data.tokenizer import Roles, Tokenizer
from headway.generate.beam import Beam
from headway.generate.sampling import Sample
from headway.zoo.build import build

WORDS = [
    "<pad>",
    "<s>",
    "</s>",
    "<mask>",
    "<unk>",
    *["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "far"],
]
SIZES: dict[str, Any] = {"vocab": len(WORDS), "dim": 16, "layers": 2, "heads": 4, "context": 32}


def words() -> Tokenizer:
    backend = Backend(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    return Tokenizer(backend, Roles(pad="<pad>", bos="<s>", eos="</s>", mask="<mask>", unk="<unk>"))


def speaker(preset: str, **sizes: Any) -> Speaker:
    torch.manual_seed(0)
    return Speaker(build(preset, **{**SIZES, **sizes}).eval(), words())


def test_a_causal_model_goes_on() -> None:
    model = speaker("gpt2")
    [one, two] = model.answer(["the cat", "a dog ran"], Wish(most=5))
    assert len(one["tokens"]) <= 5
    assert one["text"] == "the cat" + one["output"]
    [alone] = model.answer(["a dog ran"], Wish(most=5))
    assert (alone["tokens"], alone["text"]) == (two["tokens"], two["text"])
    assert model.answer([]) == []


def test_the_same_seed_draws_the_same() -> None:
    model = speaker("gpt2")
    draws = [model.answer(["the cat"], Wish(Sample(1.5, seed=seed), most=8))[0]["tokens"] for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_a_masked_model_fills() -> None:
    model = speaker("bert-tiny", top="words")
    [answer] = model.answer(["the <mask> sat on a <mask>"], Wish(best=3))
    assert [len(mask) for mask in answer["masks"]] == [3, 3]
    assert answer["masks"][0][0]["probability"] >= answer["masks"][0][1]["probability"]
    with pytest.raises(UserError, match="'the cat' has no <mask> to fill; put <mask> in"):
        model.answer(["the <mask>", "the cat"])


def test_masks_are_read_where_texts_are_literal() -> None:
    free = speaker("bert-tiny", top="words")
    literal = Speaker(free.model, replace(words(), literal=True))
    text = ["<mask> cat sat on a <mask>"]
    assert [mask[0]["token"] for mask in literal.answer(text)[0]["masks"]] == [
        mask[0]["token"] for mask in free.answer(text)[0]["masks"]
    ]


def test_a_classifier_names_its_classes() -> None:
    model = speaker("bert-tiny", top="rows", classes=2)
    labelled = Speaker(model.model, model.tokenizer, labels=["bad", "good"])
    [answer] = labelled.answer(["the cat sat"])
    assert set(answer["probabilities"]) == {"bad", "good"}
    assert answer["output"] == max(answer["probabilities"], key=answer["probabilities"].get)
    assert sum(answer["probabilities"].values()) == pytest.approx(1)


def test_a_tagger_tags_each_token() -> None:
    [answer] = speaker("bert-tiny", top="tokens", classes=3).answer(["the cat sat"])
    assert [token for token, _ in answer["output"]] == ["the", "cat", "sat"]


def test_an_encoder_embeds_rows_as_alone() -> None:
    model = speaker("bert-tiny", top="none")
    texts = ["the cat sat on a mat", "dog", ""]
    together = model.embed(texts)
    assert_close(together.norm(dim=1), torch.ones(3))
    assert_close(together, torch.cat([model.embed([text]) for text in texts]), atol=1e-5, rtol=1e-4)


def test_an_encoder_decoder_writes() -> None:
    torch.manual_seed(0)
    model = build("transformer-tiny", dim=16, heads=4, layers=1, vocab=len(WORDS))
    writer = Speaker(model.eval(), words(), {"decoder_start_token_id": 1})
    texts = ["the cat sat", "a dog"]
    for wish in (Wish(most=6), Wish(Beam(3), most=6)):
        together = writer.answer(texts, wish)
        alone = [writer.answer([text], wish)[0] for text in texts]
        assert [a["tokens"] for a in together] == [a["tokens"] for a in alone]


# ---- real weights


def test_a_story_goes_on(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(shared / "weights" / "llama_stories260k")
    assert cli.main(["run", folder, "Once upon", "--most", "12"]) == 0
    assert capsys.readouterr().out.startswith("Once upon a time, there was a little girl")
    assert cli.main(["run", folder, "", "--json", "--stop", "Lily"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["output"] == "Once upon a time, there was a little girl named "
    assert cli.main(["generate", folder, "Once upon", "--most", "12"]) == 0
    assert capsys.readouterr().out.startswith("Once upon a time, there was a little girl")


def test_lines_are_answered_one_by_one(
    shared: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Once upon a time\nLily saw\n"))
    assert cli.main(["run", str(shared / "weights" / "llama_stories260k"), "--lines", "--json", "--most", "4"]) == 0
    assert [json.loads(line)["input"] for line in capsys.readouterr().out.splitlines()] == [
        "Once upon a time",
        "Lily saw",
    ]


def test_python_runs_what_the_command_runs(shared: Path) -> None:
    loaded = headway.load(shared / "weights" / "llama_stories260k")
    assert loaded.run("Once upon", Wish(most=12))["text"].startswith("Once upon a time, there was a little girl")


def test_a_folder_is_converted_there_and_back(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(shared / "weights" / "llama_stories260k")
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    assert cli.main(["convert", source, ours]) == 0
    assert cli.main(["convert", ours, theirs, "--to", "hf"]) == 0
    told = capsys.readouterr().out
    assert told.count("largest difference of a logit from transformers: 0.0e+00") == 2
    wish = Wish(most=12)
    assert headway.load(theirs).run("Once", wish) == headway.load(source).run("Once", wish)
    assert cli.main(["convert", source, ours]) == 2
    assert "is there already and not empty; name a new folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "nowhere", "text"], "nowhere is not a folder"),
        (["run", "nowhere"], "headway run needs a text; give it as in"),
        (["run", "nowhere", "text", "--beam", "2", "--top-k", "3"], "--beam searches and does not draw"),
        (["run", "nowhere", "text", "--top-p", "2"], "top_p=2"),
        (["convert", "nowhere", "there", "--to", "onnx"], "--to onnx; allowed: headway or hf"),
    ],
)
def test_mistakes_are_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert "Traceback" not in err
