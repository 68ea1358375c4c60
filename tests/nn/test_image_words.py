"""Images among the words of a text: what is read of an encoder, and where its patches stand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.block import IgnoreContext
from headway.nn.context import Context, PackedLengths
from headway.nn.image_words import Illustrated, PatchProjector, PicturedEmbed, TappedStack
from headway.nn.state import FixedState, State
from headway.nn.trace import record
from headway.zoo import clip_image, llama, llava

IMAGE = 3
WORDS = [[1, IMAGE, IMAGE, 5], [IMAGE, 2, 6, IMAGE], [7, 0, 4, IMAGE]]


def embed() -> PicturedEmbed:
    """Each word's vector is its number, twice; those of patches are 10, 20 … of the first row, 40 … of the second."""
    made = PicturedEmbed(9, 2, image=IMAGE)
    made.token.weight.data = torch.arange(9.0)[:, None].expand(-1, 2).clone()
    return made


MEMORY = 10 * torch.arange(1.0, 10)[:, None].expand(-1, 2).reshape(3, 3, 2)
PLACED = [[1.0, 10, 20, 5], [40, 2, 6, 50], [7, 0, 4, 70]]


def test_image_tokens_are_patches_in_their_order() -> None:
    found = embed()(torch.tensor(WORDS), Context(memory=MEMORY))
    assert found[..., 0].tolist() == found[..., 1].tolist() == PLACED


def test_without_an_image_all_tokens_are_words() -> None:
    assert embed()(torch.tensor(WORDS))[..., 0].tolist() == [[float(id) for id in row] for row in WORDS]


def test_more_image_tokens_than_patches_keep_their_own_vectors() -> None:
    found = embed()(torch.tensor([[IMAGE] * 4]), Context(memory=MEMORY[:1]))
    assert found[0, :, 0].tolist() == [10, 20, 30, IMAGE]


@pytest.mark.parametrize("make", [State, lambda: FixedState(9)], ids=["grows", "fixed"])
def test_calls_go_on_with_the_next_patch_also_behind_padding(make: type[State]) -> None:
    """Padding of the second row stands in front and is spelled as an image, which it is not."""
    tokens = torch.tensor([[1, IMAGE, 2, IMAGE, IMAGE], [IMAGE, IMAGE, 1, IMAGE, IMAGE]])
    keep = torch.ones(2, 1, 9, dtype=torch.bool)
    keep[1, :, :2] = False
    ctx, part = Context(memory=MEMORY[:2], state=make(), keep=keep), embed()
    found = torch.cat([part(piece, ctx) for piece in tokens.split([2, 1, 2], 1)], 1)[..., 0]
    assert found[0].tolist() == [1, 10, 2, 20, 30]
    assert found[1, 2:].tolist() == [1, 40, 50]


def test_beams_share_a_memory() -> None:
    found = embed()(torch.tensor(WORDS[:1] * 2 + WORDS[1:2] * 2), Context(memory=MEMORY[:2]))
    assert found[..., 0].tolist() == [PLACED[0]] * 2 + [PLACED[1]] * 2


def test_packed_rows_have_patches_of_their_own() -> None:
    rows = PackedLengths.of([4, 2, 3])
    tokens = torch.tensor([[*WORDS[0], IMAGE, IMAGE, 8, 1, IMAGE]])
    found = embed()(tokens, Context(memory=MEMORY, rows=rows))
    assert found[0, :, 0].tolist() == [*PLACED[0], 40, 50, 8, 1, 70]


def test_states_after_blocks_stand_side_by_side() -> None:
    def twice() -> nn.Module:
        double = nn.Linear(1, 1, bias=False)
        double.weight.data.fill_(2)
        return IgnoreContext(double)

    never = nn.LayerNorm(1)
    found = TappedStack([twice() for _ in range(4)], never, (3, 0, 1))(torch.ones(1, 2, 1))
    assert found.tolist() == [[[8, 1, 2]] * 2]
    with pytest.raises(UserError, match=r"states after blocks \(5,\) of 4; allowed: 0 to 4"):
        TappedStack([twice() for _ in range(4)], never, (5,))


def test_patches_are_projected_by_two_layers() -> None:
    torch.manual_seed(0)
    part, x = PatchProjector(3, 4, first=1, act=torch.relu), torch.randn(2, 5, 3)
    wanted = torch.relu(x[:, 1:] @ part.inside.weight.T + part.inside.bias) @ part.out.weight.T + part.out.bias
    assert_close(part(x), wanted)


def test_images_and_texts_of_other_numbers_are_refused() -> None:
    with pytest.raises(UserError, match="a memory of 3 images for 2 rows of tokens; allowed: one image for each row"):
        embed()(torch.tensor(WORDS[:2]), Context(memory=MEMORY))


def test_a_token_beyond_the_vocabulary_is_refused() -> None:
    with pytest.raises(UserError, match=r"the token 9 stands for images; allowed: 0 to 8"):
        PicturedEmbed(9, 2, image=9)


def illustrated() -> Illustrated:
    """The last layer of its encoder stands behind the state that is read."""
    torch.manual_seed(0)
    eye = clip_image.Config(image=8, patch=4, dim=8, layers=2, heads=2, top="vector")
    writer = llama.Config(11, 32, 8, layers=1, heads=2, hidden=8)
    return llava.build(llava.Config(11, eye, writer, image_token=3, taps=(1,)))


def test_what_nobody_reads_is_shown_and_changes_nothing() -> None:
    model, images = illustrated().eval(), torch.randn(1, 3, 8, 8)
    with torch.no_grad(), record(model, "encoder.*.attn.weights") as trace:
        found = model.encoder(images)
    assert len(trace.values) == 2
    assert torch.equal(found, model.encoder(images))


def test_only_what_is_read_is_learned() -> None:
    """And an image's size says how many places it takes."""
    model = illustrated()
    images, words = torch.randn(1, 3, 8, 8), torch.tensor([[1, 3, 3, 3, 3, 2]])
    assert model.encoder(images).shape == (1, model.patches((8, 8)), 8)
    model(images, words).sum().backward()
    unread = {name for name, x in model.named_parameters() if x.grad is None}
    assert {name.split(".")[2] for name in unread} == {"blocks", "norm"}
    assert all(name.startswith(("encoder.stack.blocks.1.", "encoder.stack.norm.")) for name in unread)
