"""TrOCR: folders both ways, what is refused, and lines of text that are read, learned and looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from headway.cli.main import main
from headway.errors import UserError
from headway.interop.registry import family
from headway.loading import load
from tests.interop.cases_trocr import CASES, model
from tests.interop.folders import both_ways
from tests.interop.parity import Case, shaken

WORDS = ("<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", *(f"w{at}" for at in range(69)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_their_folder_is_read_and_ours_is_read_by_them(case: Case, tmp_path: Path) -> None:
    both_ways(case, tmp_path, unread="pooler")


@pytest.mark.parametrize(
    ("place", "values", "told"),
    [
        (
            "encoder",
            {"model_type": "swin"},
            "an encoder of type 'swin' in a vision-encoder-decoder; allowed: deit",
        ),
        ("decoder", {"model_type": "gpt2"}, "a decoder of type 'gpt2' in a vision-encoder-decoder; allowed: trocr"),
        ("decoder", {"use_learned_position_embeddings": False}, "use_learned_position_embeddings=False"),
        ("decoder", {"cross_attention_hidden_size": None}, "an encoder 16 wide and a decoder 20 wide"),
        ("decoder", {"cross_attention_hidden_size": 8}, "cross_attention_hidden_size=8"),
    ],
)
def test_other_pairs_are_refused_by_name(place: str, values: dict[str, Any], told: str) -> None:
    config = CASES[0].make().config.to_dict()
    with pytest.raises(UserError) as caught:
        family("vision-encoder-decoder").read_config({**config, place: {**config[place], **values}})
    assert told in str(caught.value)


@pytest.mark.long
def test_lines_are_read_learned_and_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import transformers

    torch.manual_seed(1)
    theirs = shaken(model("vit")).eval()
    theirs.generation_config.update(decoder_start_token_id=2, eos_token_id=2, pad_token_id=1)
    folder, picture = tmp_path / "theirs", tmp_path / "line.png"
    theirs.save_pretrained(folder)
    backend = Backend(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([*WORDS[:4]])
    backend.save(str(folder / "tokenizer.json"))
    roles = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**roles, "tokenizer_class": "PreTrainedTokenizerFast"}))
    half = [0.5] * 3
    processor = transformers.ViTImageProcessorPil(size={"height": 12, "width": 12}, image_mean=half, image_std=half)
    processor.save_pretrained(folder)
    pixels = torch.randint(0, 256, (12, 12, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    Image.fromarray(pixels.numpy()).save(picture)
    with torch.no_grad():
        seen = processor(Image.open(picture), return_tensors="pt")
        wanted = theirs.generate(**seen, max_new_tokens=5, num_beams=1, do_sample=False)[0].tolist()[1:]
    found = load(folder).predict(str(picture), max_new_tokens=5)
    assert list(found.tokens) == wanted
    assert main(["run", str(folder), str(picture), "--max-new-tokens", "3"]) == 0
    (tmp_path / "lines").mkdir()
    table = tmp_path / "lines" / "captions.tsv"
    for at in range(6):
        Image.fromarray(pixels.roll(at, 0).numpy()).save(tmp_path / "lines" / f"{at}.png")
    table.write_text("".join(f"{at}.png\tw{at} w{at + 1}\n" for at in range(6)))
    learned = str(tmp_path / "learned")
    assert main(["train", str(table), "--from", str(folder), "--out", learned, "--steps", "2"]) == 0
    assert main(["look", learned, str(picture), "--out", str(tmp_path / "page.html")]) == 0
    assert main(["convert", learned, str(tmp_path / "back"), "--to", "hf"]) == 0
    transformers.VisionEncoderDecoderModel.from_pretrained(tmp_path / "back")
