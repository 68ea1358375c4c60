"""LLaVA: folders both ways, what is refused, prompts, and images that are written about, learned and looked at."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors
from torch.testing import assert_close

from headway.cli.main import main
from headway.data.tokenizer import Roles, Tokenizer
from headway.data.tokenizer_readers import load_tokenizer
from headway.errors import UserError
from headway.interop.registry import family
from headway.loading import load
from headway.nn.context import EMPTY
from headway.tasks.caption_batches import caption_batch, caption_predictions
from headway.tasks.captioning import Captioning
from headway.tasks.image_prompt import ImagePrompt
from headway.tasks.inputs import ModelInput
from headway.zoo import clip_image, llama, llava
from tests.interop.cases_llava import CASES, model
from tests.interop.folders import both_ways
from tests.interop.parity import Case, shaken

WORDS = (
    *("<unk>", "<s>", "</s>", "USER", ":", "ASSISTANT", "Describe", "the", "image", "."),
    *(f"w{at}" for at in range(80)),
    "<image>",
    *(f"w{at}" for at in range(80, 88)),
)
PLAIN = [1, 3, 4, 90, 90, 6, 7, 8, 9, 5, 4]  # <s> USER : and two patches, the request, ASSISTANT :


def backend() -> Backend:
    """Llama's way: <s> in front of a text and nothing behind."""
    made = Backend(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens([*WORDS[:3], WORDS[90]])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


def words(template: str | None = None) -> Tokenizer:
    return Tokenizer(backend(), Roles(bos="<s>", eos="</s>", unk="<unk>"), chat_template=template)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_their_folder_is_read_and_ours_is_read_by_them(case: Case, tmp_path: Path) -> None:
    again, *_ = both_ways(case, tmp_path)
    assert again.config.image_seq_length == 10 if "whole" in case.name else 9
    assert again.config.text_config.eos_token_id == 2


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"text_config": {"model_type": "mistral"}}, "a text_config of type 'mistral' in a llava; allowed: llama"),
        ({"vision_config": {"model_type": "siglip_vision_model"}}, "a vision_config of type 'siglip_vision_model' in"),
        ({"vision_feature_select_strategy": "cls"}, "vision_feature_select_strategy='cls' is not supported for llava"),
        ({"vision_feature_layer": 25}, "vision_feature_layer=25 of a tower of 24 layers; allowed: whole numbers from"),
        ({"vision_feature_layer": "last"}, "vision_feature_layer='last' of a tower of 24 layers"),
        ({"architectures": ["LlavaModel"]}, "the architecture 'LlavaModel' is not supported for llava models"),
        ({"projector_hidden_act": "mish"}, "projector_hidden_act='mish' is not supported for llava models"),
        ({"text_config": {"hidden_act": "mish"}}, "hidden_act='mish' is not supported for llama models"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(values: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as caught:
        family("llava").read_config({"model_type": "llava", **values})
    assert told in str(caught.value)


def test_states_are_told_by_their_places_from_either_end() -> None:
    read = family("llava").read_config
    for given, taps in ((None, (23,)), (-1, (24,)), (24, (24,)), (0, (0,)), ([-2, 5], (23, 5))):
        assert read({"model_type": "llava", "vision_feature_layer": given}).taps == taps
    assert read({"image_token_id": 7}).image_token == read({"image_token_index": 7}).image_token == 7
    assert read({"tie_word_embeddings": True}).decoder.tied


def test_what_has_no_place_there_is_refused_by_name() -> None:
    write = family("llava").write_config
    with pytest.raises(UserError, match="a LLaVA leaves out 1 token or none, and this model 2"):
        write(llava.Config(first=2))
    for decoder in (replace(llava.WRITER, window=5), replace(llava.WRITER, biases="qkv")):
        with pytest.raises(UserError, match="has a Llama for its words"):
            write(llava.Config(decoder=decoder))
    assert write(llava.Config(decoder=llama.Config(biases="all")))["text_config"]["mlp_bias"]


TEMPLATE = (
    "{{ bos_token }}{% for one in messages %}USER: {% for part in one.content %}{% if part.type == 'text' %}"
    "{{ part.text }}{% else %}<image>{% endif %}{% endfor %}{% endfor %} ASSISTANT:"
)


def test_a_request_is_put_as_the_chat_template_has_it(tmp_path: Path) -> None:
    prompt = ImagePrompt(image=90, patches=2)
    assert prompt.ids(words()) == prompt.ids(words(TEMPLATE)) == PLAIN
    assert prompt.ids(words(TEMPLATE), "w0 w1")[5:] == [10, 11, 5, 4]
    backend().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATE}))  # of older folders
    assert load_tokenizer(tmp_path).chat_template == TEMPLATE
    with pytest.raises(UserError, match="the prompt has 2 tokens '<image>' that stand for an image; allowed: 1"):
        prompt.ids(words(), "what is <image> ?")
    with pytest.raises(UserError, match="the prompt has 0 tokens '<image>'"):
        prompt.ids(words("{{ messages[0].role }}"))


def folder_of(place: Path) -> tuple[Any, Any]:
    """A model of transformers' and its processor, in a folder."""
    import transformers

    torch.manual_seed(1)
    theirs = shaken(model({"bos_token_id": 1, "eos_token_id": 2})).eval()
    theirs.save_pretrained(place)
    backend().save(str(place / "tokenizer.json"))
    roles = {f"{role}_token": token for role, token in (("bos", "<s>"), ("eos", "</s>"), ("unk", "<unk>"))}
    (place / "tokenizer_config.json").write_text(json.dumps({**roles, "tokenizer_class": "PreTrainedTokenizerFast"}))
    seen = transformers.CLIPImageProcessorPil(size={"shortest_edge": 12}, crop_size={"height": 12, "width": 12})
    seen.save_pretrained(place)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(place)
    sizes = {"patch_size": 4, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"}
    return theirs, transformers.LlavaProcessor(seen, tokenizer, **sizes)


def test_a_caption_is_learned_behind_the_request(tmp_path: Path) -> None:
    folder_of(tmp_path)
    task = Captioning.from_model(load(tmp_path))
    assert isinstance(task, Captioning)
    assert task.written(["w1 w2", "w0"]) == ([11, 12, 2, 10, 2], [3, 2])
    assert task.opening() == [*PLAIN[:3], *[90] * 9, *PLAIN[5:]]


def test_only_the_caption_is_learned_behind_its_own_image() -> None:
    """Captions of different lengths in a batch, two of them of one image: as each alone, from the last word asked."""
    torch.manual_seed(0)
    eye = clip_image.Config(image=8, patch=4, dim=8, layers=1, heads=2, top="vector")
    writer = llama.Config(context=32, dim=8, layers=1, heads=2, hidden=8)
    ours = llava.build(llava.Config(17, eye, writer, image_token=3, taps=(1,))).eval()
    images, begin = torch.randn(2, 3, 8, 8), [1, 3, 3, 3, 3, 5, 6]
    captions, owners = [np.array([7, 8, 2]), np.array([9, 2]), np.array([10, 11, 12, 2])], [1, 0, 1]
    batch = caption_batch(ModelInput(images, EMPTY), owners, captions, begin)
    with torch.no_grad():
        found = caption_predictions(ours, batch)
        losses = found.losses().split([len(caption) for caption in captions])
        for owner, caption, mine in zip(owners, captions, losses, strict=True):
            logits = ours(images[owner : owner + 1], torch.tensor([[*begin, *caption[:-1]]]))[0, len(begin) - 1 :]
            wanted = torch.nn.functional.cross_entropy(logits, torch.from_numpy(caption), reduction="none")
            assert_close(mine, wanted)


@pytest.mark.long
def test_images_are_written_about_learned_and_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import transformers

    folder, picture = tmp_path / "theirs", tmp_path / "image.png"
    folder.mkdir()
    theirs, processor = folder_of(folder)
    pixels = np.random.default_rng(1).integers(0, 256, (15, 18, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(picture)
    loaded = load(folder)
    for request, how in (("Describe the image.", {}), ("w4 w7", {"prompt": "w4 w7"})):
        text = f"USER: <image>\n{request} ASSISTANT:"
        with torch.no_grad():
            seen = processor(images=Image.open(picture), text=text, return_tensors="pt")
            wanted = theirs.generate(**seen, max_new_tokens=9, num_beams=1, do_sample=False)[0].tolist()
        found = loaded.predict(str(picture), max_new_tokens=9, **how)
        assert [*seen["input_ids"][0].tolist(), *found.tokens] == wanted
    assert loaded.predict(str(picture), max_new_tokens=9, beam=2).text
    assert main(["run", str(folder), str(picture), "--max-new-tokens", "3", "--prompt", "w4 w7"]) == 0
    (tmp_path / "images").mkdir()
    table = tmp_path / "images" / "captions.tsv"
    for at in range(6):
        Image.fromarray(np.roll(pixels, at, 0)).save(tmp_path / "images" / f"{at}.png")
    table.write_text("".join(f"{at}.png\tw{at} w{at + 1}{' w3' * (at % 2)}\n" for at in range(6)))
    learned = str(tmp_path / "learned")
    assert main(["train", str(table), "--from", str(folder), "--out", learned, "--steps", "2"]) == 0
    assert main(["look", learned, str(picture), "--out", str(tmp_path / "page.html")]) == 0
    assert main(["convert", learned, str(tmp_path / "back"), "--to", "hf"]) == 0
    again = transformers.LlavaForConditionalGeneration.from_pretrained(tmp_path / "back")
    assert again.config.text_config.eos_token_id == 2
    ours = transformers.AutoProcessor.from_pretrained(tmp_path / "back")
    assert torch.equal(ours(images=Image.open(picture), text=text, return_tensors="pt")["input_ids"], seen["input_ids"])
    capsys.readouterr()
    assert main(["run", learned, "--prompt", "w4", "--temperature", "1", "--beam", "2", str(picture)]) == 2
