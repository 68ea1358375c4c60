"""Published configs: as many parameters as in transformers, and back again."""

from __future__ import annotations

import json

import pytest
import torch

from headway.interop.keymap import matched
from headway.interop.registry import family
from headway.zoo.build import on_meta
from tests.interop import published_configs, published_images

CONFIGS = {
    name: one.COMMON | values for one in (published_configs, published_images) for name, values in one.CONFIGS.items()
}


@pytest.mark.long
@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_has_its_parameters(name: str) -> None:
    """As many as in transformers' own class, where both are built without memory, but for what is of training alone."""
    import transformers

    values = CONFIGS[name]
    known = family(values["model_type"])
    read = known.read_config(values)
    names, ours = known.keymap(read), on_meta(read)
    config = transformers.AutoConfig.for_model(**values)
    with torch.device("meta"):
        theirs = getattr(transformers, values["architectures"][0])(config)
    bias = {name: x for name, x in theirs.named_buffers() if name == "final_logits_bias"}  # a parameter here
    kept = names.bare({**dict(theirs.named_parameters()), **bias})
    left = [x.numel() for key, x in kept.items() if not any(matched(one, key) for one in names.ignored)]
    assert sum(p.numel() for p in ours.parameters()) == sum(left)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_comes_back(name: str) -> None:
    values = CONFIGS[name]
    known = family(values["model_type"])
    written = known.write_config(known.read_config(values))
    assert known.write_config(known.read_config(json.loads(json.dumps(written)))) == written


@pytest.mark.parametrize("name", published_configs.UNTIED)
def test_flan_and_ul2_have_a_head_of_words_of_their_own(name: str) -> None:
    import transformers

    values = published_configs.COMMON | published_configs.UNTIED[name]
    ours = on_meta(family("t5").read_config(values))
    with torch.device("meta"):
        theirs = transformers.T5ForConditionalGeneration(transformers.AutoConfig.for_model(**values))
    head = values["vocab_size"] * values["d_model"]
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters()) + head
