"""torch's own `nn.Transformer`, both ways and with either place of the norms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway import Context
from headway.errors import UserError
from headway.interop.keymap import Rule, linear
from headway.interop.torch_transformer import keymap, prefix_of, read_config
from headway.zoo import transformer
from tests.interop.parity import difference, load, shaken

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")

SIZES = {"d_model": 16, "nhead": 4, "num_encoder_layers": 3, "num_decoder_layers": 2, "dim_feedforward": 24}


def made(norm_first: bool, activation: str = "relu") -> nn.Transformer:
    model = nn.Transformer(**SIZES, norm_first=norm_first, activation=activation, batch_first=True)
    assert isinstance(shaken(model), nn.Transformer)
    return model.eval()


def batch() -> tuple[Tensor, Tensor, Tensor]:
    real = torch.arange(7) < torch.tensor([7, 4])[:, None]
    return torch.randn(2, 7, 16), torch.randn(2, 5, 16), real


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_its_numbers_are_ours(norm_first: bool, activation: str) -> None:
    theirs = made(norm_first, activation)
    source, target, real = batch()
    config = read_config(theirs.state_dict(), 4, norm_first=norm_first, act=activation)
    ours, names = transformer.build(config).eval(), keymap(config)
    load(ours, names.load(theirs.state_dict()))
    future = nn.Transformer.generate_square_subsequent_mask(5)
    expected = theirs(
        source, target, tgt_mask=future, src_key_padding_mask=~real, memory_key_padding_mask=~real, tgt_is_causal=True
    )
    found = ours(source, target, Context(keep=real[:, None]))
    assert difference(found, expected) <= 1e-5
    back = names.save(dict(ours.named_parameters()))
    assert_close(back, dict(theirs.state_dict()), atol=0, rtol=0)


class Translator(nn.Module):
    """A model as people write it around `nn.Transformer`."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(30, 16), nn.Embedding(20, 16)
        self.transformer, self.generator = made(norm_first=True), nn.Linear(16, 20)


def test_a_model_around_it_is_read_with_rules_for_the_rest() -> None:
    theirs = Translator().state_dict()
    assert prefix_of(theirs) == "transformer."
    sizes = read_config(theirs, 4, norm_first=True, prefix="transformer.")
    config = transformer.Config(**{**vars(sizes), "vocab": 20, "source_vocab": 30})
    names = keymap(
        config,
        Rule("source.weight", "encoder.embed.token.weight"),
        Rule("target.weight", "decoder.embed.token.weight"),
        *linear("generator", "decoder.head"),
        prefix="transformer.",
    )
    model = transformer.build(config)
    load(model, names.load(theirs))
    assert_close(names.save(dict(model.named_parameters())), dict(theirs), atol=0, rtol=0)


def test_other_weights_are_told() -> None:
    with pytest.raises(UserError, match=r"no encoder\.layers\.0\.linear1\.weight or \.bias; give the prefix"):
        read_config(Translator().state_dict(), 4)
