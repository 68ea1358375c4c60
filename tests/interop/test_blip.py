"""BLIP: folders both ways, what is refused, and images that are captioned, learned and looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, processors

from headway.cli.main import main
from headway.errors import UserError
from headway.interop.registry import family
from headway.loading import load
from headway.tasks.captioning import Captioning
from headway.zoo import vit
from headway.zoo.blip import Config
from tests.interop.cases_blip import CASES, TOKENS, model
from tests.interop.folders import both_ways
from tests.interop.parity import Case, shaken

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{at}" for at in range(93)))  # and two more that only the model has


def with_tokenizer(folder: Path) -> Path:
    """BERT's, which puts [CLS] and [SEP] around a text and does not know the token that BLIP writes after."""
    backend = Backend(models.WordPiece({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens([*WORDS[:4]])
    ends = [(token, WORDS.index(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    backend.save(str(folder / "tokenizer.json"))
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep")}
    (folder / "tokenizer_config.json").write_text(json.dumps({**roles, "tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


@pytest.mark.parametrize("case", CASES, ids=str)
def test_their_folder_is_read_and_ours_is_read_by_them(case: Case, tmp_path: Path) -> None:
    again, loaded, own = both_ways(case, tmp_path)
    text = again.config.text_config
    assert {name: getattr(text, name) for name in TOKENS} == TOKENS
    for one in (loaded, own, load(tmp_path / "ours")):  # whatever transformers writes beside it
        assert one.extra_config["decoder_start_token_id"] == one.extra_config["bos_token_id"] == 97
        assert one.extra_config["eos_token_id"] == 3


def test_published_tokens_are_taken_where_a_config_is_silent() -> None:
    found = family("blip").read_settings({"model_type": "blip", "text_config": {"eos_token_id": 2}})
    assert found == {
        **{"bos_token_id": 30_522, "decoder_start_token_id": 30_522},
        **{"eos_token_id": 102, "pad_token_id": 0},
    }


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"architectures": ["BlipForQuestionAnswering"]},
            "the architecture 'BlipForQuestionAnswering' is not supported for blip models; "
            "allowed: BlipForConditionalGeneration",
        ),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False is not supported for blip models"),
        ({"text_config": {"is_decoder": False}}, "is_decoder=False is not supported for blip text models"),
        ({"text_config": {"hidden_act": "mish"}}, "hidden_act='mish' is not supported for blip text models"),
        ({"vision_config": {"num_channels": 1}}, "num_channels=1 is not supported for blip vision models"),
        ({"vision_config": {"image_size": [8, 4]}}, "image_size=[8, 4] is not supported for blip vision models"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(values: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as caught:
        family("blip").read_config({"model_type": "blip", **values})
    assert told in str(caught.value)


def test_what_has_no_place_there_is_refused_by_name() -> None:
    known = family("blip")
    for encoder, told in (
        (vit.Config(pool="mean"), "a BLIP has no pool, and this model 'mean'"),
        (vit.Config(biased=False), "a BLIP has no biased, and this model False"),
    ):
        with pytest.raises(UserError) as caught:
            known.write_config(Config(encoder=encoder))
        assert told in str(caught.value)
    with pytest.raises(UserError, match=r"eos_token_id is \[3, 4\], and BLIP has one there"):
        known.write_settings({"text_config": {}, "eos_token_id": [3, 4]})


def test_a_caption_is_learned_behind_the_token_that_stands_in_place_of_cls(tmp_path: Path) -> None:
    """As its authors train it: [DEC] two words [SEP]."""
    model().save_pretrained(tmp_path)
    with_tokenizer(tmp_path)
    parts = load(tmp_path)
    with pytest.raises(UserError, match=r"how images are made fit for blip; add preprocessor_config\.json"):
        assert parts.task
    assert parts.tokenizer is not None
    assert parts.tokenizer.encode("w1 w2") == [2, 5, 6, 3]
    processor(tmp_path)
    task = Captioning.from_model(load(tmp_path))
    assert isinstance(task, Captioning)
    assert task.start_token == 97
    assert task.written(["w1 w2", "w0"]) == ([5, 6, 3, 4, 3], [3, 2])
    with pytest.raises(UserError, match="the model writes about images and is asked nothing; leave prompt= out"):
        task.opening("what is it?")


def processor(folder: Path) -> Any:
    import transformers

    made = transformers.BlipImageProcessorPil(size={"height": 12, "width": 12})
    made.save_pretrained(folder)
    return made


@pytest.mark.long
def test_images_are_captioned_learned_and_looked_at(tmp_path: Path) -> None:
    import transformers

    torch.manual_seed(1)
    theirs = shaken(model()).eval()
    folder, picture = tmp_path / "theirs", tmp_path / "image.png"
    theirs.save_pretrained(folder)
    with_tokenizer(folder)
    pixels = np.random.default_rng(1).integers(0, 256, (15, 18, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(picture)
    with torch.no_grad():
        seen = processor(folder)(Image.open(picture), return_tensors="pt")
        wanted = theirs.generate(**seen, max_new_tokens=9, num_beams=1, do_sample=False)[0].tolist()
    found = load(folder).predict(str(picture), max_new_tokens=9)
    assert [97, *found.tokens] == wanted
    assert main(["run", str(folder), str(picture), "--max-new-tokens", "3"]) == 0
    (tmp_path / "images").mkdir()
    table = tmp_path / "images" / "captions.tsv"
    for at in range(6):
        Image.fromarray(np.roll(pixels, at, 0)).save(tmp_path / "images" / f"{at}.png")
    table.write_text("".join(f"{at}.png\tw{at} w{at + 1}\n" for at in range(6)))
    learned = str(tmp_path / "learned")
    assert main(["train", str(table), "--from", str(folder), "--out", learned, "--steps", "2"]) == 0
    assert main(["look", learned, str(picture), "--out", str(tmp_path / "page.html")]) == 0
    assert main(["convert", learned, str(tmp_path / "back"), "--to", "hf"]) == 0
    again = transformers.BlipForConditionalGeneration.from_pretrained(tmp_path / "back")
    assert again.config.text_config.bos_token_id == 97
