"""What models are for, through the command and through Python: real weights where they lie, tiny ones elsewhere."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.testing import assert_close

import headway
from headway import UserError
from headway.cli import main as cli
from headway.data.order import random_for
from headway.data.tokenizer import Roles, Tokenizer
from headway.data.tokenizer_training import frame
from headway.generate.beam import Beam
from headway.generate.sampling import Greedy, RandomSampler
from headway.generate.speculative import PromptLookup
from headway.model import Model
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.masked_lm import MaskedLM
from headway.tasks.model_parts import named_classes
from headway.tasks.tagging import Tagging
from headway.zoo.build import build, config_of

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


def made(preset: str, settings: dict[str, Any] | None = None, **sizes: Any) -> Model:
    torch.manual_seed(0)
    config = config_of(preset, **sizes)
    return Model(build(config).eval(), config, preset, extra_config=settings or {}, tokenizer=words())


def encoder(preset: str, **sizes: Any) -> Model:
    return made(preset, **{**SIZES, **sizes})


def answers(model: Model, texts: list[str], options: GenerationOptions = GREEDY_OPTIONS) -> list[dict[str, Any]]:
    return [one.to_dict() for one in model.predict(texts, options)]


def test_a_causal_model_goes_on() -> None:
    model = encoder("gpt2")
    [one, two] = answers(model, ["the cat", "a dog ran"], GenerationOptions(max_new_tokens=5))
    assert len(one["tokens"]) <= 5
    assert one["text"] == "the cat" + one["output"]
    [alone] = answers(model, ["a dog ran"], GenerationOptions(max_new_tokens=5))
    assert (alone["tokens"], alone["text"]) == (two["tokens"], two["text"])
    assert answers(model, []) == []


def test_the_same_seed_draws_the_same() -> None:
    model = encoder("gpt2")
    draws = [
        answers(model, ["the cat"], GenerationOptions(RandomSampler(1.5, seed=seed), max_new_tokens=8))[0]["tokens"]
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_a_masked_model_fills() -> None:
    model = encoder("bert-tiny", top="words")
    [answer] = answers(model, ["the <mask> sat on a <mask>"], GenerationOptions(mask_candidates=3))
    assert [len(mask) for mask in answer["masks"]] == [3, 3]
    assert answer["masks"][0][0]["probability"] >= answer["masks"][0][1]["probability"]
    with pytest.raises(UserError, match="'the cat' has no <mask> to fill; put <mask> in"):
        answers(model, ["the <mask>", "the cat"])


def masked(model: Model, text: str) -> list[int]:
    assert isinstance(model.task, MaskedLM)
    return model.task.masked(text)


def test_masks_are_read_where_texts_are_literal() -> None:
    known = words()
    frame(known.backend, ["<s>"], ["</s>"])
    free = replace(encoder("bert-tiny", top="words"), tokenizer=known)
    literal = replace(free, tokenizer=replace(known, literal=True))
    text = ["<mask> cat sat on a <mask>", "the <mask>"]
    assert answers(literal, text) == answers(free, text)
    assert masked(literal, "<s> <mask>")[1:-2] == literal.vocabulary().plain("<s>")  # a text is a text


@pytest.mark.parametrize("text", ["the cat sat on a mat", "dog", "far and far and far"])
def test_a_mask_is_asked_for_as_it_was_learned(text: str) -> None:
    """The ids are those of training, which hides tokens of a text and frames it."""
    known = replace(words(), literal=True)
    model = replace(encoder("bert-tiny", top="words"), tokenizer=known)
    learned = MaskedLM(known, shown=(1.0, 0.0)).hidden(np.array(known.plain(text)), random_for(text))
    shown = " ".join(known.token(id) for id in learned.read[1:-1])
    assert "<mask>" in shown
    assert masked(model, shown) == learned.read.tolist()
    assert (learned.read[0], learned.read[-1]) == (known.bos, known.eos)


def test_a_classifier_names_its_classes() -> None:
    model = encoder("bert-tiny", top="rows", classes=2)
    labelled = replace(model, extra_config=named_classes(["bad", "good"]))
    [answer] = answers(labelled, ["the cat sat"])
    assert set(answer["probabilities"]) == {"bad", "good"}
    assert answer["output"] == max(answer["probabilities"], key=answer["probabilities"].get)
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    assert words().encode("") == []
    [again, nothing] = answers(labelled, ["the cat sat", ""])
    assert again["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)
    assert sum(nothing["probabilities"].values()) == pytest.approx(1)


def test_the_likeliest_classes_are_shown_not_the_first() -> None:
    """In the order of their probabilities, the answer's own first."""
    names = [f"{letter}-class" for letter in "abcdefghi"]
    model = encoder("bert-tiny", top="rows", classes=len(names))
    labelled = replace(model, extra_config=named_classes(names))
    for text in ("the cat sat", "a dog", "on and on"):
        answer = labelled.predict(text)
        first, *shown = answer.to_text().split("  ")
        likeliest = sorted(answer.probabilities, key=lambda name: -answer.probabilities[name])
        assert [first, *(one.split()[0] for one in shown)] == [answer.output, *likeliest[:5]]
        assert shown[0] == f"{answer.output} {answer.probabilities[answer.output]:.3f}"
        assert len(answer.to_dict()["probabilities"]) == len(names)


def test_a_tagger_tags_each_word() -> None:
    """As it was taught: at the word's first piece; what frames a text and what goes on with a word has no tag."""
    labels = ("A", "B", "C")
    tagger = replace(encoder("bert-tiny", top="tokens", classes=3), extra_config=named_classes(labels))
    task, texts = Tagging(tagger.vocabulary(), labels), ["the cat-dog  sat far", "dog", ""]
    assert len(task.tokenizer.plain("cat-dog")) == 3
    for text, answer in zip(texts, answers(tagger, texts), strict=True):
        words = text.split()
        assert [word for word, _ in answer["output"]] == words
        if words:
            [row] = task.encode([(" ".join(words), " ".join(["A"] * len(words)))])
            batch = task.collate([tuple(np.array(part) for part in row)], np.random.default_rng(0))
            assert [[labels.index(tag) for _, tag in answer["output"]]] == batch.likeliest(tagger.model)


def test_an_encoder_embeds_rows_as_alone() -> None:
    model = encoder("bert-tiny", top="none")
    texts = ["the cat sat on a mat", "dog", ""]
    together = model.embed(texts)
    assert_close(together.norm(dim=1), torch.ones(3))
    assert_close(together, torch.cat([model.embed([text]) for text in texts]), atol=1e-5, rtol=1e-4)


def test_an_encoder_decoder_writes() -> None:
    writer = translator()
    texts = ["the cat sat", "a dog"]
    for wish in (GenerationOptions(max_new_tokens=6), GenerationOptions(Beam(3), max_new_tokens=6)):
        together = answers(writer, texts, wish)
        alone = [answers(writer, [text], wish)[0] for text in texts]
        assert [a["tokens"] for a in together] == [a["tokens"] for a in alone]


# ---- writing as it comes, several answers, guesses, and what a checkpoint wants


def translator(**settings: Any) -> Model:
    settings = {"decoder_start_token_id": 1, **settings}
    return made("transformer-tiny", settings, dim=16, heads=4, layers=1, vocab=len(WORDS))


@pytest.mark.parametrize("make", [lambda: encoder("gpt2"), translator], ids=["continues", "answers"])
@pytest.mark.parametrize("how", [Greedy(), RandomSampler(1.5, seed=3)], ids=["greedy", "sample"])
def test_pieces_make_up_the_answer(make: Callable[[], Model], how: Greedy | RandomSampler) -> None:
    """Also where they end before a stop string, of which nothing is shown on the way."""
    model, text = make(), "the cat sat"
    settings = {**model.extra_config, "eos_token_id": None, "suppress_tokens": [0, 1, 2, 3, 4]}
    model = replace(model, extra_config=settings)
    [whole] = answers(model, [text], GenerationOptions(how, max_new_tokens=9))
    letters = whole["output"].strip()
    for stop in ((), (letters[4:7],), (letters[2:9], "never"), (letters[-1],)):
        wish = GenerationOptions(how, max_new_tokens=9, stop=stop)
        [answer] = answers(model, [text], wish)
        shown = list(model.stream(text, wish))
        assert "".join(shown) == answer.get("text", answer["output"])
        assert len(shown) > 1
        assert not any(string in answer["output"] for string in stop)


@pytest.mark.parametrize("make", [lambda: encoder("gpt2"), translator], ids=["continues", "answers"])
def test_a_beam_gives_as_many_as_are_asked_for(make: Callable[[], Model]) -> None:
    model = make()
    [answer] = answers(model, ["the cat"], GenerationOptions(Beam(4, best=3), max_new_tokens=5))
    assert len({tuple(one["tokens"]) for one in answer["best"]}) == 3
    assert [one["score"] for one in answer["best"]] == sorted((one["score"] for one in answer["best"]), reverse=True)
    assert answer["output"] == answer["best"][0]["output"]
    assert "best" not in answers(model, ["the cat"], GenerationOptions(Beam(4), max_new_tokens=5))[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "other"), [(lambda: encoder("gpt2"), translator), (translator, lambda: encoder("gpt2"))]
)
def test_guesses_leave_the_answer_as_it_is(make: Callable[[], Model], other: Callable[[], Model]) -> None:
    model, texts = make(), ["the cat sat on a mat", "a dog"]
    plain = [answer["tokens"] for answer in answers(model, texts, GenerationOptions(max_new_tokens=12))]
    for draft in (PromptLookup(), make().model):
        assert [
            answer["tokens"] for answer in answers(model, texts, GenerationOptions(max_new_tokens=12, draft=draft))
        ] == plain
        assert "".join(model.stream(texts[0], GenerationOptions(max_new_tokens=12, draft=draft))) == "".join(
            model.stream(texts[0], GenerationOptions(max_new_tokens=12))
        )
    with pytest.raises(UserError, match="the draft model"):
        answers(model, texts, GenerationOptions(draft=other().model))
    with pytest.raises(UserError, match="a beam search with a draft"):
        answers(model, texts, GenerationOptions(Beam(2), draft=PromptLookup()))


def test_a_look_up_reads_the_source_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[int, ...]]()
    begin = PromptLookup.begin

    def noted(self: PromptLookup, request: Any) -> Any:
        seen.extend(self.beside)
        return begin(self, request)

    monkeypatch.setattr(PromptLookup, "begin", noted)
    model = translator()
    answers(model, ["the cat sat"], GenerationOptions(max_new_tokens=3, draft=PromptLookup()))
    assert seen == [tuple(model.vocabulary().encode("the cat sat"))]


@pytest.mark.slow
def test_an_answer_heeds_the_models_own_settings() -> None:
    texts, end = ["the cat sat", "a dog"], words().eos
    model = translator(forced_bos_token_id=9, forced_eos_token_id=end, max_length=7, min_length=5, suppress_tokens=[5])
    for wish in (GenerationOptions(), GenerationOptions(Beam(3)), GenerationOptions(RandomSampler(2.0, seed=1))):
        for answer in answers(model, texts, wish):
            assert answer["tokens"][0] == 9
            assert 4 <= len(answer["tokens"]) <= 6
            assert 5 not in answer["tokens"]
            assert answer["tokens"][-1] == end
    endless = translator(max_length=7, eos_token_id=None)
    assert {len(answer["tokens"]) for answer in answers(endless, texts)} == {6}
    assert len(answers(endless, texts, GenerationOptions(max_new_tokens=9))[0]["tokens"]) == 9
    assert len(answers(translator(eos_token_id=None), ["a"])[0]["tokens"]) == 64


@pytest.mark.slow
def test_generate_writes_with_every_model_that_writes(
    tmp_path: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = translator()
    folder = str(tmp_path / "translator")
    replace(model, architecture="transformer").save(folder)
    assert cli.main(["generate", folder, "the cat sat", "--max-new-tokens", "6"]) == 0
    out = capsys.readouterr().out
    assert out == answers(model, ["the cat sat"], GenerationOptions(max_new_tokens=6))[0]["output"] + "\n"
    assert cli.main(["generate", folder, "the cat sat", "--max-new-tokens", "6", "--lookup"]) == 0
    assert cli.main(["generate", folder, "the cat sat", "--max-new-tokens", "6", "--draft", folder]) == 0
    assert capsys.readouterr().out == out * 2
    assert cli.main(["generate", folder, "the cat", "--max-new-tokens", "4", "--beam", "3", "--best", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    story = str(shared / "weights" / "llama_stories260k")
    assert cli.main(["generate", story, "Once upon", "--beam", "2", "--best", "2", "--max-new-tokens", "3"]) == 0
    assert [line[10:19] for line in capsys.readouterr().out.splitlines()] == ["Once upon"] * 2
    assert cli.main(["generate", story, "Once", "--draft", folder]) == 2
    assert "has other tokens; take one with the same tokenizer" in capsys.readouterr().err


# ---- real weights


@pytest.mark.slow
def test_a_story_goes_on(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(shared / "weights" / "llama_stories260k")
    assert cli.main(["run", folder, "Once upon", "--most", "12"]) == 0
    assert capsys.readouterr().out.startswith("Once upon a time, there was a little girl")
    assert cli.main(["run", folder, "", "--json", "--stop", "Lily"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["output"] == "Once upon a time, there was a little girl named "
    assert cli.main(["generate", folder, "Once upon", "--max-new-tokens", "12"]) == 0
    assert capsys.readouterr().out.startswith("Once upon a time, there was a little girl")


def test_lines_are_answered_one_by_one(
    shared: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Once upon a time\nLily saw\n"))
    assert (
        cli.main(["run", str(shared / "weights" / "llama_stories260k"), "--lines", "--json", "--max-new-tokens", "4"])
        == 0
    )
    assert [json.loads(line)["input"] for line in capsys.readouterr().out.splitlines()] == [
        "Once upon a time",
        "Lily saw",
    ]


def test_python_runs_what_the_command_runs(shared: Path) -> None:
    loaded = headway.load(shared / "weights" / "llama_stories260k")
    assert loaded.run("Once upon", GenerationOptions(max_new_tokens=12))["text"].startswith(
        "Once upon a time, there was a little girl"
    )


@pytest.mark.slow
def test_a_folder_is_converted_there_and_back(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(shared / "weights" / "llama_stories260k")
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    assert cli.main(["convert", source, ours]) == 0
    assert cli.main(["convert", ours, theirs, "--to", "hf"]) == 0
    told = capsys.readouterr().out
    assert told.count("largest difference of a logit from transformers: 0.0e+00") == 2
    wish = GenerationOptions(max_new_tokens=12)
    assert headway.load(theirs).run("Once", wish) == headway.load(source).run("Once", wish)
    assert cli.main(["convert", source, ours]) == 2
    assert "is there already and not empty; name a new folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "nowhere", "text"], "nowhere does not exist"),
        (["run", "nowhere"], "headway run needs something to answer; give a text or a file, as in"),
        (["run", "nowhere", "text", "--beam", "2", "--top-k", "3"], "--beam searches and does not draw"),
        (["run", "nowhere", "text", "--top-p", "2"], "--top-p 2; allowed: above 0, up to 1"),
        (["generate", "nowhere", "text", "--best", "2"], "--best is for beams; give --beam too"),
        (["generate", "nowhere", "text", "--length-penalty", "1"], "--length-penalty is for beams"),
        (["generate", "nowhere", "text", "--patient"], "--patient is for beams"),
        (["generate", "nowhere", "text", "--beam", "2", "--best", "3"], "the best 1 to 2"),
        (
            ["generate", "nowhere", "text", "--beam", "2", "--repetition-penalty", "2"],
            "--beam has no --repetition-penalty",
        ),
        (["generate", "nowhere", "text", "--beam", "2", "--lookup"], "cannot guess ahead"),
        (["generate", "nowhere", "text", "--draft", "there", "--lookup"], "both guess what comes next"),
        (["generate", "nowhere", "text", "--max-new-tokens", "0"], "--max-new-tokens is 0; allowed: 1 or more"),
        (["convert", ".", "there", "--to", "tf"], "'tf' for --to; allowed: headway or hf or gguf or onnx"),
    ],
)
def test_mistakes_are_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert "Traceback" not in err
