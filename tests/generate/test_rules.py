"""What may come next: by hand, and as `transformers` reads the same settings."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.decoding import generate
from headway.generate.request import Stop, begin_of, max_new_tokens, min_new_tokens, rules_of
from headway.generate.sampling import FREE, RandomSampler, Rules, repeated_ngrams
from headway.generate.session import encode_sources
from headway.generate.speculative import PromptLookup
from headway.loading import load
from headway.nn.trunk import EncoderDecoder, Trunk
from tests.generate.models import PROMPTS, beam_search, built, subject, told

EVERYTHING = torch.tensor([[-1, 0, 1, 0], [1, 2, 1, 2]])


def barred(rules: Rules, length: int, room: int) -> list[list[int]]:
    """The tokens of four that may not follow EVERYTHING."""
    masked = rules.masked(torch.zeros(2, 4), length, [room, room], EVERYTHING)
    return [row.isneginf().nonzero()[:, 0].tolist() for row in masked]


def test_each_rule_at_its_place() -> None:
    assert barred(FREE, 0, 5) == [[], []]
    assert barred(Rules(never=(1, 3)), 2, 5) == [[1, 3], [1, 3]]
    assert barred(Rules(not_first=(2,)), 0, 5) == [[2], [2]]
    assert barred(Rules(not_first=(2,)), 1, 5) == [[], []]
    assert barred(Rules(first=(2,)), 0, 5) == [[0, 1, 3], [0, 1, 3]]
    assert barred(Rules(first=(2,)), 1, 5) == [[], []]
    assert barred(Rules(last=(0, 3)), 4, 5) == [[1, 2], [1, 2]]
    assert barred(Rules(last=(0,)), 3, 5) == [[], []]
    assert barred(Rules(no_repeat=1), 1, 5) == [[0, 1], [1, 2]]
    assert barred(Rules(no_repeat=2), 1, 5) == [[1], [1]]
    assert barred(Rules(no_repeat=3), 1, 5) == [[], [1]]
    assert barred(Rules(no_repeat=9), 1, 5) == [[], []]
    forced = Rules(first=(2,), last=(0,), never=(3,), prefix=(3, 1, 1, 1, 1))  # above all others
    assert [barred(forced, length, 5)[0] for length in (0, 1, 4)] == [[0, 1, 2], [0, 2, 3], [0, 2, 3]]
    assert barred(forced, 5, 9) == [[3], [3]]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 4))
def test_a_run_that_was_there_is_barred(ids: list[int], size: int) -> None:
    runs = [ids[at : at + size] for at in range(len(ids) - size + 1)]
    expected = [token for token in range(4) if [*ids[len(ids) - size + 1 :], token] in runs]
    if len(ids) < size:
        return
    assert repeated_ngrams(torch.tensor([ids]), size, 4)[0].nonzero()[:, 0].tolist() == expected


@pytest.mark.parametrize("how", [Beam(3, best=3), RandomSampler(seed=1)], ids=["beam", "sample"])
def test_rules_hold_however_tokens_are_chosen(how: Beam | RandomSampler) -> None:
    rules = Rules(first=(7,), last=(9,), never=(16, 10, 12), no_repeat=2)
    model, stop = built(subject("llama")), Stop(12)
    if isinstance(how, Beam):
        many = beam_search(model, PROMPTS, how, stop, rules=rules)
    else:
        many = [generate(model, [prompt], how, stop, rules=rules, draft=PromptLookup()) for prompt in PROMPTS]
    for prompt, found in zip(PROMPTS, many, strict=True):
        for one in found:
            ids = [*prompt, *one.tokens]
            pairs = list(pairwise(ids))
            assert (one.tokens[0], one.tokens[-1]) == (7, 9)
            assert not {16, 10, 12} & set(one.tokens)
            assert len(pairs[len(prompt) - 1 : -1]) == len(set(pairs[len(prompt) - 1 : -1]))


def test_a_forced_token_costs_a_beam_nothing() -> None:
    model, rules = built(subject("llama")), Rules(first=(7,), last=(9,))
    (one,) = beam_search(model, [[1, 2]], Beam(2, alpha=0.0), Stop(4), rules=rules)[0][:1]
    assert one.score == pytest.approx(sum(one.logprobs[1:-1]))


def test_impossible_rules_are_told() -> None:
    with pytest.raises(UserError, match="no_repeat=-1"):
        Rules(no_repeat=-1)
    with pytest.raises(UserError, match=r"forced_bos_token_id is 'x'; allowed: a token's number"):
        rules_of({"forced_bos_token_id": "x"}, 9, begins=True)
    with pytest.raises(UserError, match=r"min_length is -2"):
        min_new_tokens({"min_length": -2}, 1, 9)


def test_where_a_text_begins() -> None:
    assert begin_of({"decoder_start_token_id": 0, "bos_token_id": 4}, 5) == 0
    assert begin_of({"decoder_start_token_id": None, "bos_token_id": 4}, 5) == 4
    assert begin_of({"bos_token_id": None}, 0) == 0
    with pytest.raises(UserError, match="with which token it begins to write"):
        begin_of({}, None)


def test_settings_are_read() -> None:
    told = {"forced_bos_token_id": 4, "forced_eos_token_id": [2, 3], "suppress_tokens": [-1, 5, 99]}
    assert rules_of(told, 9, begins=True) == Rules(first=(4,), last=(2, 3), never=(5,))
    assert rules_of(told, 9, begins=False) == Rules(last=(2, 3), never=(5,))
    assert (
        max_new_tokens({"max_length": 20}, 1, 64),
        max_new_tokens({}, 1, 64),
        max_new_tokens({"max_new_tokens": 5}, 1, 64),
    ) == (
        19,
        64,
        5,
    )
    assert (
        min_new_tokens({"min_length": 20}, 1, 64),
        min_new_tokens({"min_length": 20}, 1, 9),
        min_new_tokens({}, 1, 9),
    ) == (19, 9, 0)


# ---- as transformers does it

END = 21  # a token that the model below would soon write
SETTINGS: list[dict[str, Any]] = [
    {},
    {"forced_bos_token_id": 7},
    {"forced_eos_token_id": END, "min_length": 11},
    {"forced_bos_token_id": 5, "forced_eos_token_id": END, "min_length": 6},
    {"suppress_tokens": [17, 13], "begin_suppress_tokens": [12]},
    {"no_repeat_ngram_size": 2, "min_length": 9},
    {"no_repeat_ngram_size": 1, "min_length": 5, "suppress_tokens": [10, 12]},
    {"max_length": 4, "forced_eos_token_id": END},
]
SOURCE = [[4, 9, 13, 6, 2]]


def bart(folder: Path, **settings: Any) -> Any:
    from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig

    torch.manual_seed(3)
    sizes = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("ffn_dim", 32))}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(vocab_size=24, d_model=16, max_position_embeddings=32, init_std=0.6, **sizes, **heads)
    for name in ("forced_eos_token_id", "forced_bos_token_id"):
        setattr(config, name, None)
    theirs = BartForConditionalGeneration(config).eval()
    plain = {"decoder_start_token_id": 2, "eos_token_id": END, "bos_token_id": 0, "pad_token_id": 1}
    theirs.generation_config = GenerationConfig(**plain, **settings)
    theirs.save_pretrained(folder)
    return theirs


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda told: "+".join(told) or "none")
@pytest.mark.parametrize("beams", [1, 4])
def test_settings_mean_what_they_mean_to_transformers(settings: dict[str, Any], beams: int, tmp_path: Path) -> None:
    """A beam is compared by sums alone: lengths are weighed in another way here."""
    theirs, loaded = bart(tmp_path, **settings), load(tmp_path)
    most = settings.get("max_length", 13) - 1
    given = {"num_beams": beams, "do_sample": False, "length_penalty": 0.0, "early_stopping": beams > 1}
    made = theirs.generate(torch.tensor(SOURCE), max_new_tokens=most, **given)[0, 1:].tolist()
    model, kept = loaded.model, loaded.extra_config
    assert isinstance(model, EncoderDecoder)
    stop = Stop(max_new_tokens(kept, 1, most), (END,), min_new_tokens=min_new_tokens(kept, 1, most))
    how: Any = Beam(beams, alpha=0.0) if beams > 1 else RandomSampler(temperature=0.0)
    rules = rules_of(kept, 24, begins=True)
    found = generate(model.decoder, [[2]], how, stop, memory=encode_sources(model, SOURCE), rules=rules)
    assert list(found[0].tokens) == made


@pytest.mark.slow
def test_a_folder_keeps_its_settings(tmp_path: Path) -> None:
    from transformers import BartForConditionalGeneration

    bart(tmp_path / "theirs", max_length=9, no_repeat_ngram_size=2, forced_bos_token_id=5)
    load(tmp_path / "theirs").save(tmp_path / "ours")
    load(tmp_path / "ours").save_hf(tmp_path / "back")
    assert "max_length" not in json.loads((tmp_path / "back" / "config.json").read_text())
    back = BartForConditionalGeneration.from_pretrained(tmp_path / "back").generation_config
    assert (back.max_length, back.no_repeat_ngram_size, back.forced_bos_token_id) == (9, 2, 5)


@pytest.mark.parametrize("settings", [SETTINGS[4], SETTINGS[5], {"no_repeat_ngram_size": 3}])
def test_a_continuation_obeys_them_too(settings: dict[str, Any], tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=24, n_embd=16, n_layer=1, n_head=2, n_positions=64, initializer_range=0.6)
    theirs = GPT2LMHeadModel(config).eval()
    prompt = torch.tensor([[1, 5, 6, 1, 5]])
    made = theirs.generate(prompt, max_new_tokens=14, do_sample=False, eos_token_id=None, pad_token_id=0, **settings)
    theirs.save_pretrained(tmp_path)
    model = load(tmp_path).model
    assert isinstance(model, Trunk)
    found = generate(model, prompt, stop=Stop(14), rules=rules_of(settings, 24, begins=False))
    assert told(found) == [tuple(made[0, 5:].tolist())]
