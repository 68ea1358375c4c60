"""Captioners: the paper's loop, words one by one, maps over the image, and that each way of looking is learned.

Axes:  N images   B captions   T words   S places
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.decoding import generate
from headway.generate.request import Stop
from headway.generate.sampling import GREEDY, Sampler
from headway.nn.context import EMPTY, Context
from headway.nn.recurrent_attention import RecurrentDecoder
from headway.nn.state import State
from headway.nn.trace import Trace, record
from headway.nn.trunk import Captioner, PlacedTrunk
from headway.ops.attention_map import Readable
from headway.ops.losses import Baseline
from headway.tasks.caption_batches import CaptionBatch, caption_batch, caption_predictions, hard_loss, soft_loss
from headway.tasks.inputs import ModelInput
from headway.zoo import beit, captioner, dinov3, vit_captioner
from headway.zoo.build import build

VOCAB, BEGIN, END, N, T = 19, 1, 2, 3, 5
SMALL = {"image": 16, "widths": (8, 16), "dim": 12, "hidden": 10, "align": 6}
VIT = {"image": 16, "patch": 4, "dim": 16, "layers": 1, "heads": 2, "dropout": 0.0}
CONFIGS: dict[str, captioner.Config | vit_captioner.Config] = {
    "soft": captioner.Config(VOCAB, **SMALL),
    "hard": captioner.Config(VOCAB, **SMALL, attention="hard"),
    "gru": captioner.Config(VOCAB, **SMALL, cell="gru"),
    "vit": vit_captioner.Config(VOCAB, **VIT),
    "soft over swin": captioner.Config(VOCAB, **{**SMALL, "image": 28}, encoder="swin-nano"),
}
every = pytest.mark.parametrize("name", CONFIGS)
SITES = {"vit": "decoder.0.cross"}
close = {"atol": 5e-6, "rtol": 1e-5}


def built(name: str) -> Captioner:
    torch.manual_seed(3)
    model = build(CONFIGS[name])
    assert isinstance(model, Captioner)
    for parameter in model.parameters():  # biases that begin at zero, and weights too small to tell places apart
        nn.init.normal_(parameter, std=0.3) if parameter.dim() > 1 else parameter.data.add_(0.1)
    return model.eval()


def images(name: str, count: int = N) -> Tensor:
    side = CONFIGS[name].image
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(4))


def targets() -> Tensor:
    return torch.randint(3, VOCAB, (N, T), generator=torch.Generator().manual_seed(5))


@pytest.mark.slow
@every
def test_word_by_word_is_the_whole(name: str) -> None:
    model, pictures, words = built(name), images(name), targets()
    whole = model(pictures, words)
    ctx = model.remember(pictures, EMPTY, Context(state=State()))
    steps = [model.decoder(words[:, t : t + 1], ctx) for t in range(T)]
    assert whole.shape == (N, T, VOCAB)
    assert_close(torch.cat(steps, 1), whole, **close)


@pytest.mark.slow
@every
def test_images_do_not_see_each_other(name: str) -> None:
    model, pictures, words = built(name), images(name), targets()
    whole = model(pictures, words)
    for row in range(N):
        assert_close(model(pictures[row : row + 1], words[row : row + 1]), whole[row : row + 1], **close)
    assert (whole - model(pictures.flip(0), words)).abs().max() > 1e-4


@pytest.mark.slow
@every
@pytest.mark.parametrize("how", [GREEDY, Beam(3)])
def test_captions_are_written_as_by_hand(name: str, how: Sampler | Beam) -> None:
    model, pictures = built(name), images(name)
    found = generate(model.decoder, [[BEGIN]] * N, how, Stop(6, tokens=(END,)), memory=model.remember(pictures))
    for row, one in enumerate(found):
        read = torch.tensor([[BEGIN, *one.tokens[:-1]]])
        logits = model(pictures[row : row + 1], read)[0].log_softmax(-1)
        picked = logits.gather(1, torch.tensor(one.tokens)[:, None])[:, 0]
        assert_close(torch.tensor(one.logprobs), picked, atol=1e-4, rtol=1e-4)
        if how is GREEDY:
            assert logits.argmax(-1).tolist() == list(one.tokens)


@every
def test_maps_lie_on_the_image_sum_to_one_and_differ_from_word_to_word(name: str) -> None:
    model, pictures, words = built(name), images(name), targets()
    site = SITES.get(name, "decoder.attention")
    with record(model, f"{site}.weights") as trace:
        model(pictures, words)
    weights = trace[f"{site}.weights"]
    assert isinstance(weights, Readable)
    maps = model.maps(weights, pictures)
    assert maps.shape == (N, T, *model.grid(pictures))
    assert_close(maps.sum((-1, -2)), torch.ones(N, T))
    steps = (maps[:, 1:] - maps[:, :-1]).abs().amax((0, 2, 3))
    assert (steps > 1e-4).all()


def test_a_place_of_the_map_is_a_place_of_the_image() -> None:
    """A change in one corner is felt at that corner of the grid, rows down and columns across."""
    model = built("soft")
    plain, spot = torch.zeros(1, 3, 32, 48), torch.zeros(1, 3, 32, 48)
    spot[..., :4, 44:] = 5.0
    grids = []
    for picture in (plain, spot):
        memory = model.remember(picture).memory
        assert memory is not None
        grids.append(memory.unflatten(1, model.grid(picture)))
    changed = (grids[1] - grids[0]).norm(dim=-1)[0]
    assert changed.shape == (8, 12)
    felt = changed.nonzero()
    assert len(felt)
    assert felt[:, 0].max() <= 3  # of eight cells down, as far as the convolutions reach
    assert felt[:, 1].min() >= 8  # of twelve across


def test_maps_of_another_memory_are_told() -> None:
    model = built("vit")
    with record(model, "decoder.0.attn.weights") as trace:
        model(images("vit"), targets())
    with pytest.raises(UserError, match="attention at 5 places for images of 4×4"):
        model.maps(trace.joined("decoder.0.attn"), images("vit"))


def test_a_captioner_is_the_loop_of_the_paper() -> None:
    """α from h, ẑ = β Σ α a, LSTM of [E y; ẑ], L_o(E y + L_h h + L_z ẑ), h and c begun by the mean of the places."""
    model, pictures, words = built("soft"), images("soft"), targets()
    recurrent = model.decoder.stack
    assert isinstance(recurrent, RecurrentDecoder)
    places = model.encoder(pictures)  # N S M
    attention, gate = recurrent.attention.body, recurrent.attention.gate  # type: ignore[attr-defined]
    cell = nn.LSTMCell(12 + 16, 10)
    cell.load_state_dict(recurrent.cell.state_dict())
    h, c = recurrent.first(places.mean(1)).tanh().chunk(2, -1)
    embedded, outs = model.decoder.embed(words), []
    for y in embedded.unbind(1):
        scores = torch.tanh(attention.q(h)[:, None] + attention.k(places)) @ attention.score.v
        seen = gate(h).sigmoid() * (scores.softmax(1)[..., None] * places).sum(1)
        h, c = cell(torch.cat([y, seen], -1), (h, c))
        deep = y + recurrent.readout.state(h) + recurrent.readout.context(seen)  # type: ignore[operator]
        outs.append(model.decoder.head(deep))
    assert_close(model(pictures, words), torch.stack(outs, 1), **close)


@pytest.mark.parametrize("name", ["soft", "vit"])
def test_other_sizes_of_images_go_too(name: str) -> None:
    model = built(name)
    pictures = torch.randn(2, 3, 24, 8)
    assert model.grid(pictures) == (6, 2)
    assert model(pictures, targets()[:2]).isfinite().all()
    assert model.remember(pictures).memory.shape[1] == 12  # type: ignore[union-attr]


def test_odd_sizes_of_images_are_rounded_up() -> None:
    model, pictures = built("soft"), torch.randn(2, 3, 15, 9)
    assert model.grid(pictures) == (4, 3)
    assert model.remember(pictures).memory.shape[1] == 12  # type: ignore[union-attr]


# ---- learning


def batch(name: str) -> CaptionBatch:
    """Two images, three captions of 4, 2 and 5 words."""
    captions = [np.array([5, 6, 7, END]), np.array([8, END]), np.array([5, 9, 9, 4, END])]
    return caption_batch(ModelInput(images(name, 2), EMPTY), [0, 1, 0], captions, [BEGIN])


@pytest.mark.slow
@every
def test_a_batch_is_its_captions(name: str) -> None:
    model, together = built(name), batch(name)
    rows = [np.array([5, 6, 7, END]), np.array([8, END]), np.array([5, 9, 9, 4, END])]
    each = [ModelInput(together.seen.inputs[[i]], EMPTY) for i in (0, 1, 0)]
    alone = [caption_batch(one, [0], [row], [BEGIN]) for one, row in zip(each, rows, strict=True)]
    whole = caption_predictions(model, together)
    assert_close(whole.losses(), torch.cat([caption_predictions(model, one).losses() for one in alone]), **close)
    assert_close(whole.loss(), sum(caption_predictions(model, one).loss() for one in alone), **close)
    if name == "soft":
        parts = torch.stack([soft_loss(model, one, evenness=2.0) for one in alone])
        assert_close(soft_loss(model, together, evenness=2.0), parts.sum(), **close)
        assert soft_loss(model, together, evenness=2.0) > soft_loss(model, together, evenness=0.0) + 1.0
    if name == "hard":  # where it does not learn nothing is drawn
        known = Baseline(-9.0, 0.1, 4)
        losses = [hard_loss(model, one, known, curiosity=0.5)[0] for one in (together, *alone)]
        assert_close(losses[0], torch.stack(losses[1:]).sum(), **close)


def test_soft_attention_learns_from_words_and_from_evenness() -> None:
    model = built("soft").train()
    soft_loss(model, batch("soft")).backward()
    assert [path for path, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0] == []


def test_hard_attention_learns_by_trial() -> None:
    model = built("hard").train()
    torch.manual_seed(0)
    loss, after = hard_loss(model, batch("hard"), Baseline())
    loss.backward()
    assert [path for path, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0] == []
    assert after.batches == 1
    torch.manual_seed(0)
    assert after.value == pytest.approx(float(-caption_predictions(model, batch("hard")).losses().sum() / 3))


def test_a_step_of_hard_attention_is_its_seed_and_baseline() -> None:
    """What resuming needs: nothing is remembered between calls."""
    model, given = built("hard").train(), batch("hard")

    def step(seed: int, baseline: Baseline) -> tuple[float, list[Tensor]]:
        torch.manual_seed(seed)
        loss, _ = hard_loss(model, given, baseline)
        return loss.item(), list(torch.autograd.grad(loss, list(model.parameters())))

    first = step(7, Baseline(-9.0, 0.1, 4))
    step(8, Baseline())
    again = step(7, Baseline(-9.0, 0.1, 4))
    assert again[0] == first[0]
    assert all(map(torch.equal, again[1], first[1]))
    assert step(8, Baseline(-9.0, 0.1, 4))[0] != first[0]


@pytest.mark.parametrize("name", ["soft", "hard", "vit"])
@pytest.mark.slow
def test_two_images_are_told_apart(name: str) -> None:
    """A few dozen steps on two captions, one for each image; then each is written for its own."""
    torch.manual_seed(1)
    model = build(CONFIGS[name], dropout=0.0)
    assert isinstance(model, Captioner)
    pictures = torch.zeros(2, 3, 16, 16)
    pictures[0, 0, :8], pictures[1, 2, :, 8:] = 3.0, 3.0  # red above, blue to the right
    given = caption_batch(
        ModelInput(pictures, EMPTY), [0, 1], [np.array([5, 6, 7, END]), np.array([8, 9, END])], [BEGIN]
    )
    optimiser, baseline = torch.optim.Adam(model.parameters(), 1e-2), Baseline()
    for _ in range(100 if name == "hard" else 60):
        match name:
            case "soft":
                loss = soft_loss(model.train(), given)
            case "hard":
                loss, baseline = hard_loss(model.train(), given, baseline)
            case _:
                loss = caption_predictions(model.train(), given).loss()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    memory = model.eval().remember(given.seen.inputs)
    found = generate(model.decoder, [[BEGIN]] * 2, GREEDY, Stop(6, tokens=(END,)), memory=memory)
    assert [one.tokens for one in found] == [(5, 6, 7, END), (8, 9, END)]


# ---- sizes and mistakes


COUNTS = {
    "captioner": 39_501_609,
    "captioner-small": 4_438_145,
    "captioner-small-hard": 4_438_145,
    "vit-captioner-small": 4_488_576,
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_are_counted(name: str) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in build(name).parameters()) == COUNTS[name]


def test_the_small_captioner_by_hand() -> None:
    ins, outs = (3, 32, 32, 64, 64, 128, 128, 256), (32, 32, 64, 64, 128, 128, 256, 256)
    convs = sum(9 * a * b + 2 * b for a, b in zip(ins, outs, strict=True))
    words, lstm = 4000 * 192 + 192 * 4000 + 4000, 4 * 384 * (192 + 256 + 384) + 2 * 4 * 384
    look, gate = 384 * 192 + 256 * 192 + 192, 384 + 1
    first, output = 256 * 768 + 768, 384 * 192 + 192 + 256 * 192
    assert convs + words + lstm + look + gate + first + output == COUNTS["captioner-small"]


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match="no attention 'harder'; allowed: soft, hard"):
        build("captioner-small", attention="harder")
    with pytest.raises(UserError, match="'gpt2' reads no images"):
        build("captioner-small", encoder="gpt2")
    with pytest.raises(UserError, match=r"widths of \[\]; allowed: one stage or more, each of one channel"):
        build("captioner-small", widths=())
    with pytest.raises(UserError, match=r"widths=\(8, 0\) in a config; allowed: numbers from 1"):
        build("captioner-small", widths=(8, 0))
    with pytest.raises(UserError, match="images are 2×1×16×16; allowed: B 3 H W"):
        built("soft")(torch.zeros(2, 1, 16, 16), targets()[:2])


def test_recordings_belong_to_a_call() -> None:
    model = built("hard")
    trace = Trace(model, "decoder.attention")
    ctx = model.remember(images("hard"), EMPTY, Context(trace=trace))
    model.decoder(targets(), ctx)
    assert {name.rpartition(".")[2] for name in trace.values} >= {"weights", "chosen", "gate", "log_chance", "entropy"}


PLACED = (
    dinov3.Config(16, 3, 4, dim=8, layers=1, heads=2, hidden=8),
    beit.Config(16, 3, 4, dim=8, layers=1, heads=2, hidden=8, top="none"),
)


@pytest.mark.parametrize("eye", PLACED, ids=("dinov3", "beit"))
def test_an_eye_that_knows_where_patches_stand_keeps_it(eye: dinov3.Config | beit.Config) -> None:
    """Its places are those of the encoder alone, behind the tokens that belong to no patch."""
    torch.manual_seed(0)
    model = build(vit_captioner.Config(20, 16, encoder=eye, dim=8, layers=1, heads=2)).eval()
    assert isinstance(model, Captioner)
    images, alone = torch.randn(2, 3, 16, 16), build(eye).eval()
    assert isinstance(alone, PlacedTrunk)
    names = {name: x for name, x in model.encoder.state_dict().items() if not name.startswith("head.")}
    alone.load_state_dict(names, strict=False)
    assert_close(model.remember(images).memory, alone.features(images)[:, -16:])
