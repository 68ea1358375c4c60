"""Translators of many languages: the language to translate from and into is chosen, with transformers' answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

from headway.cli.main import main
from headway.errors import UserError
from headway.loading import load
from tests.interop.cases_more import CASES
from tests.interop.parity import shaken

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ("<s>", "<pad>", "</s>", "<unk>", *LETTERS, *(f"w{at}" for at in range(66)))
SPELLINGS = {"m2m_100": ("__en__", "__fr__", "__de__"), "mbart": ("en_XX", "fr_XX", "de_DE")}


@pytest.fixture(params=SPELLINGS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any, dict[str, int]]:
    """A folder, the model in it, and the tokens of its languages by their names."""
    name, spelled = request.param, SPELLINGS[request.param]
    torch.manual_seed(1)
    theirs = shaken(next(case for case in CASES if case.name == name).make()).eval()
    theirs.generation_config.update(decoder_start_token_id=2, eos_token_id=2)
    theirs.save_pretrained(tmp_path)
    backend = Backend(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([*WORDS[:4], *spelled])
    ids = {one.strip("_"): backend.token_to_id(one) for one in spelled}
    framed = [(spelled[0], ids[spelled[0].strip("_")]), ("</s>", 2)]
    backend.post_processor = processors.TemplateProcessing(single=f"{spelled[0]} $A </s>", special_tokens=framed)
    backend.save(str(tmp_path / "tokenizer.json"))
    roles = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**roles, "tokenizer_class": "PreTrainedTokenizerFast"}))
    return tmp_path, theirs, ids


def expected(theirs: Any, source: list[int], target: int) -> list[int]:
    with torch.no_grad():
        ids = torch.tensor([source])
        given = {"attention_mask": torch.ones_like(ids), "forced_bos_token_id": target, "max_new_tokens": 6}
        return theirs.generate(ids, **given, do_sample=False, num_beams=1)[0].tolist()[1:]


def test_languages_are_those_that_are_asked_for(model: tuple[Path, Any, dict[str, int]]) -> None:
    folder, theirs, ids = model
    english, french, german = ids
    loaded, text = load(folder), "h e l l o"
    words = [WORDS.index(letter) for letter in text.split()]
    for source, target in ((english, french), (english, german), (german, french)):
        found = loaded.predict(text, source_language=source, target_language=target, max_new_tokens=6)
        wanted = expected(theirs, [ids[source], *words, 2], ids[target])
        assert list(found.tokens) == wanted
        assert wanted[0] == ids[target]
    assert loaded.predict(text, max_new_tokens=6).to_text() is not None


def test_a_language_that_is_not_there_is_told(
    model: tuple[Path, Any, dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, ids = model
    known = ", ".join(sorted(ids))
    with pytest.raises(UserError) as caught:
        load(folder).predict("h e", target_language="fra")
    assert str(caught.value).startswith("the tokenizer names no language 'fra'")
    assert f"allowed: {known}" in str(caught.value)
    assert main(["run", str(folder), "h e", "--target-language", next(iter(ids)), "--max-new-tokens", "3"]) == 0
    assert main(["run", str(folder), "h e", "--source-language", "xx"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
