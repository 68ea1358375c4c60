"""What one model wrote, read by another: the same rows, the same words, each model's own numbers."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway import UserError
from headway.look.bundle import check_comparable
from headway.look.head_edits import HeadEdit
from headway.look.page_session import branch_prefix
from headway.model import Model
from headway.nn.trace import Off
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.tasks.generation import GenerationOptions
from headway.tasks.tracing import ForcedText
from headway.zoo import gpt2, transformer
from tests.cli.folders import made, sizes, words
from tests.look.readers import READERS, TEXT, loaded, other, read

WRITERS = [name for name, reader in READERS.items() if reader.kind in ("next", "written")]
every_writer = pytest.mark.parametrize("name", WRITERS)


# ---- laws, tried on every kind of model that writes


@pytest.mark.slow
@every_writer
def test_both_have_the_same_rows_and_words(name: str) -> None:
    given, first = READERS[name].given(), read(name)
    second = other(name).attend(given, said=first)
    check_comparable(first, second)
    assert list(second.sites) == list(first.sites)
    for site in first.sites.values():
        assert second[site.name].shape == site.map.shape
    assert [(step.at, step.said) for step in second.outcome.steps] == [(s.at, s.said) for s in first.outcome.steps]
    assert second.outcome.total != first.outcome.total
    assert second.outcome.text == other(name).attend(given).outcome.text
    assert first.followed_text is None
    assert second.followed_text is not None
    assert second.followed_text.by == first.title
    assert first.outcome.text.endswith(second.followed_text.text.strip())


@pytest.mark.slow
@every_writer
def test_a_model_that_reads_its_own_words_reads_as_ever(name: str) -> None:
    first = read(name)
    again = loaded(name).attend(READERS[name].given(), said=first)
    assert again.outcome == first.outcome
    for site in first.sites:
        assert_close(again[site].full(), first[site].full(), rtol=0, atol=0)


@pytest.mark.slow
@every_writer
def test_edits_score_the_words_that_were_read(name: str) -> None:
    second = other(name).attend(READERS[name].given(), said=read(name))
    assert second.edited() == second.outcome
    site = READERS[name].sites[-1]
    off = second.edited(HeadEdit(site, 0, Off()))
    assert [step.said for step in off.steps] == [step.said for step in read(name).outcome.steps]
    assert second.effect(HeadEdit(site, 0, Off())) == off.total - second.outcome.total != 0


@pytest.mark.slow
@every_writer
def test_a_branch_goes_on_from_another_token(name: str) -> None:
    """What was written before stays; its own first choice gives what it wrote itself."""
    first = read(name)
    text = first.forced_text
    assert text is not None
    step = len(first.outcome.steps) - len(text.pieces) // 2 - 1
    said = [one.said for one in first.outcome.steps]
    rank = 1 if first.outcome.steps[step].top[1][0] != said[step] else 2
    prefix = branch_prefix(first, step, rank)
    branch = loaded(name).attend(READERS[name].given(), prefix=prefix)
    told = [one.said for one in branch.outcome.steps]
    assert told[: step + 1] == [*said[:step], first.outcome.steps[step].top[rank][0]]
    assert branch.run.prefix == prefix
    assert branch.outcome.steps[step].logprob == pytest.approx(log(first.outcome.steps[step].top[rank][1]), abs=1e-4)
    again = loaded(name).attend(READERS[name].given(), prefix=branch_prefix(first, step, 0))
    if first.outcome.steps[step].top[0][0] == said[step]:  # no rule forbade it
        assert [one.said for one in again.outcome.steps][: len(said)] == said


def test_what_cannot_be_branched_is_refused() -> None:
    for name, step, rank in [("bert", 0, 1), ("gpt2", 0, 1), ("gpt2", 999, 1), ("transformer", 0, 10)]:
        with pytest.raises(UserError, match=r"writes no text|no token was written"):
            branch_prefix(read(name), step, rank)
    with pytest.raises(UserError, match="the model has no token 5000"):
        loaded("transformer").attend(TEXT, prefix=[5000])
    with pytest.raises(UserError, match="the model has no token -1"):
        loaded("whisper").attend(READERS["whisper"].given(), prefix=[-1])


# ---- by hand


def scored(logits: Tensor, ids: list[int]) -> list[float]:
    """The log-probability of each id by the logits of its row, N V."""
    return logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


@torch.no_grad()
def test_a_translator_scores_the_words_of_another() -> None:
    first, model = loaded("transformer").run(TEXT), other("transformer")
    assert model.run(TEXT)["output"] != first["output"]  # else nothing is forced
    assert isinstance(model.model, EncoderDecoder)
    assert model.tokenizer is not None
    target, source = [model.extra_config["decoder_start_token_id"], *first["tokens"]], model.tokenizer.encode(TEXT)
    logits = model.model.decoder(torch.tensor([target[:-1]]), model.model.remember(torch.tensor([source])))[0]
    steps = model.attend(TEXT, said=read("transformer")).outcome.steps
    assert [step.logprob for step in steps] == pytest.approx(scored(logits, target[1:]), abs=1e-4)
    assert [step.top[0][1] for step in steps] == pytest.approx(logits.softmax(-1).amax(-1).tolist(), abs=1e-5)


@torch.no_grad()
def test_a_language_model_scores_the_continuation_of_another() -> None:
    given = READERS["llama"].given()
    first, model = loaded("llama").run(given, GenerationOptions(max_new_tokens=16)), other("llama")
    assert model.run(given, GenerationOptions(max_new_tokens=16))["text"] != first["text"]  # else nothing is forced
    assert isinstance(model.model, Trunk)
    ids = [*model.vocabulary().encode(given), *first["tokens"]]
    steps = model.attend(given, said=read("llama")).outcome.steps
    assert [step.logprob for step in steps] == pytest.approx(
        scored(model.model(torch.tensor([ids[:-1]]))[0], ids[1:]), abs=1e-4
    )


# ---- who reads whom


def test_words_stay_those_of_whoever_wrote_them() -> None:
    first = replace(read("transformer"), title="one")
    second = other("transformer").attend(TEXT, said=first)
    third = loaded("transformer").attend(TEXT, said=replace(second, title="two"))
    assert third.followed_text == second.followed_text == first.forced_text
    assert first.forced_text is not None
    assert first.forced_text.by == "one"
    assert third.outcome == first.outcome


@pytest.mark.parametrize("name", ["bert", "text classes", "tags", "text vectors"])
def test_a_model_that_writes_nothing_reads_its_input(name: str) -> None:
    given = READERS[name].given()
    found = loaded(name).attend(given, said=read("llama"))
    assert (found.forced_text, found.followed_text) == (None, None)
    assert found.outcome == read(name).outcome
    assert loaded("llama").attend(TEXT, said=found).outcome == read("llama").outcome


# ---- what cannot be read


def lettered() -> Model:
    known = words("characters", after=True)
    kept = {"decoder_start_token_id": known.bos, "eos_token_id": known.eos}
    return made("transformer", transformer.Config(vocab=known.vocab, **sizes), known, kept)


def test_other_tokens_are_refused() -> None:
    with pytest.raises(UserError) as caught:
        lettered().attend(TEXT, said=read("transformer"))
    first = next(step.said for step in read("transformer").outcome.steps if len(step.said.strip()) > 1)
    told = f"transformer wrote {first!r}, for which the model that shall read it has no token; "
    assert str(caught.value) == f"{told}take models with the same tokens"


def test_tokens_that_read_otherwise_are_refused() -> None:
    """Both have an a and a b; but a b of letters goes on with the word."""
    letters = words("characters")
    assert ForcedText(("a", "b"), "ab", "one").ids(letters, None) == (letters.id("a"), letters.id("b"))
    with pytest.raises(UserError, match=r"one wrote 'a b', and the model that shall read it spells 'ab' so; take"):
        ForcedText(("a", "b"), "a b", "one").ids(letters, None)


def test_a_token_without_a_name_goes_by_its_number() -> None:
    letters = words("characters")
    beyond = letters.vocab + 3
    said = ForcedText.of([letters.id("a"), beyond], letters)
    assert said.pieces == ("a", beyond)
    assert said.ids(letters, beyond + 1) == (letters.id("a"), beyond)
    for pieces in ((beyond,), (letters.vocab - 1,)):  # no row for it; a number that is another's name here
        with pytest.raises(UserError, match=f"one wrote {pieces[0]}, for which the model that shall read it"):
            ForcedText(pieces, "", "one").ids(letters, beyond)


def test_more_than_a_model_can_read_is_told() -> None:
    known = words("characters")
    kept = {"bos_token_id": known.bos, "eos_token_id": known.eos}
    long, short = (made("gpt2", gpt2.Config(vocab=known.vocab, context=n, **sizes), known, kept) for n in (64, 16))
    first = long.attend("the cat")
    read_up_to = len(first.sites["0.attn"].rows)
    assert read_up_to > 16, "it ended early: nothing is tried"
    with pytest.raises(UserError) as caught:
        short.attend("the cat", said=first)
    told = f"what gpt2 wrote is read up to token {read_up_to}, and the model has a context of 16; "
    assert str(caught.value) == f"{told}shorten the input, or let less be written"
    fits = long.attend("the cat", most=10)  # the last token is never read
    assert len(short.attend("the cat", said=fits).sites["0.attn"].rows) == 16
