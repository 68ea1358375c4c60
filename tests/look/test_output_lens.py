"""What layers would say, what was added to a logit, and other temperatures: each against its definition."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from headway.generate.sampling import RandomSampler, apply_temperature
from headway.look.head_edits import HeadEdit
from headway.look.output_lens import EMBEDDING, TEMPERATURES, OutputLens, output_lens
from headway.look.page_data import PageData
from headway.look.recording import Recording
from headway.nn.trace import Off, record
from headway.tasks.tracing import Choices
from tests.look.readers import READERS, read

WRITERS = ["gpt2", "llama", "bert", "transformer", "bart", "t5", "captioner, vit", "conformer, decoder", "whisper"]
SUMS = ["gpt2", "llama", "transformer", "t5", "captioner, vit", "whisper"]  # pre-norm, with one matrix as their head


def lens_of(name: str) -> tuple[Recording, OutputLens, Choices]:
    recording = read(name)
    lens = output_lens(recording)
    assert lens is not None
    assert isinstance(recording.run.reader, Choices)
    return recording, lens, recording.run.reader


@pytest.mark.parametrize("name", WRITERS)
def test_the_last_layer_says_what_the_model_says(name: str) -> None:
    recording, lens, _ = lens_of(name)
    steps = recording.outcome.steps[lens.first :]
    assert lens.layers[0] == EMBEDDING
    for step, layers in zip(steps, lens.choices, strict=True):
        assert len(layers) == len(lens.layers)
        last = layers[-1]
        assert [p for _, p in last.top] == pytest.approx([p for _, p in step.top[:3]], abs=1e-6)
        assert last.said == pytest.approx(torch.tensor(step.logprob).exp().item(), abs=1e-6)
        assert (last.rank == 0) == (step.top[0][1] <= last.said + 1e-6)


@torch.no_grad()
def test_a_layer_is_read_by_the_last_norm_and_the_head() -> None:
    recording, lens, reader = lens_of("llama")
    model = recording.run.model
    with record(model, "0.out") as trace:
        recording.run.call()
    x = trace["0.out"]
    assert isinstance(x, torch.Tensor)
    logits = reader.head(model.get_submodule("stack").get_submodule("norm")(x[0]))
    chances = logits.softmax(-1)
    assert reader.said is not None
    for at, (step, said) in enumerate(zip(lens.choices, reader.said, strict=True)):
        assert step[1].said == pytest.approx(chances[at, said].item(), rel=1e-4)
        assert step[1].rank == int((chances[at] > chances[at, said]).sum())
        assert step[1].top[0][0] == reader.label(int(chances[at].argmax()))


@pytest.mark.parametrize("name", SUMS)
def test_parts_of_a_logit_sum_to_the_logit(name: str) -> None:
    recording, lens, reader = lens_of(name)
    assert lens.parts is not None
    logits = reader.head(recording.run.call().detach())[lens.first :].double()
    assert reader.said is not None
    said = torch.tensor(reader.said[lens.first :])
    centred = logits.gather(-1, said[:, None])[:, 0] - logits.mean(-1)
    assert_close(torch.tensor(lens.parts.total, dtype=torch.float64), centred, rtol=0, atol=1e-5)
    sums = torch.tensor(lens.parts.values, dtype=torch.float64).sum(-1)
    assert_close(sums, centred, rtol=1e-4, atol=1e-4)
    heads = {name: site.heads for name, site in recording.sites.items() if f"{name}".split(".")[0] != "encoder"}
    assert {
        site: sum(1 for each, head in lens.parts.names if each == site and head is not None) for site in heads
    } == heads


@torch.no_grad()
def test_the_part_of_a_head_is_missing_when_it_is_off() -> None:
    """In the last layer nothing but the head's own part changes in the stream; the MLP after it changes too."""
    recording, lens, _ = lens_of("llama")
    assert lens.parts is not None
    site, reader = "1.attn", recording.run.reader
    stream: list[torch.Tensor] = []
    part = recording.run.model.get_submodule("stack.blocks.1.attn")
    hook = part.register_forward_hook(lambda module, given, out: stream.append(out))
    try:
        recording.run.call()
        with recording.editing([HeadEdit(site, 1, Off())]):
            recording.run.call()
    finally:
        hook.remove()
    whole, without = stream
    assert isinstance(reader, Choices)
    assert reader.said is not None
    found = recording.run.call()
    norm = recording.run.model.get_submodule("stack.norm")
    last = []
    hook = norm.register_forward_hook(lambda module, given, out: last.append(given[0]))
    recording.run.call()
    hook.remove()
    factor = (last[0][0].square().mean(-1, keepdim=True) + norm.eps).sqrt()  # pyright: ignore
    gone = (whole - without)[0] / factor * norm.weight  # pyright: ignore
    logits = reader.head(gone)
    said = torch.tensor(reader.said)
    expected = logits.gather(-1, said[:, None])[:, 0] - logits.mean(-1)
    column = lens.parts.names.index((site, 1))
    assert_close(torch.tensor([step[column] for step in lens.parts.values]), expected, rtol=1e-3, atol=1e-4)
    assert len(found) == len(reader.said)


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_a_logit_behind_norms_is_no_sum(name: str) -> None:
    """Norms inside the stream: nothing is told rather than something that does not sum."""
    assert lens_of(name)[1].parts is None


@pytest.mark.parametrize(
    "name", [name for name in READERS if READERS[name].kind not in ("next", "written", "fill", "tags")]
)
def test_other_models_have_no_lens(name: str) -> None:
    assert output_lens(read(name)) is None


@pytest.mark.parametrize("name", WRITERS)
def test_probabilities_at_other_temperatures_follow(name: str) -> None:
    """As a sampler computes them from all logits."""
    recording, lens, reader = lens_of(name)
    logits = reader.head(recording.run.call().detach())[lens.first :]
    for at, step in enumerate(recording.outcome.steps[lens.first :][:3]):
        for temperature, partition in zip(TEMPERATURES, lens.partitions[at], strict=True):
            expected = RandomSampler().probabilities(apply_temperature(logits[at], temperature)).topk(3).values
            found = [torch.tensor(p).double().log() / temperature - partition for _, p in step.top[:3]]
            assert_close(torch.stack(found).exp(), expected, rtol=1e-3, atol=1e-5)


def test_a_page_has_the_lens_of_the_last_steps() -> None:
    data = PageData(read("gpt2"), 0, 256).to_json(None, {}, lambda id: id)
    assert data["lens"]["layers"] == [EMBEDDING, "0"]
    assert all(len(step["partitions"]) == len(TEMPERATURES) for step in data["outcome"]["steps"])
    assert len(data["lens"]["steps"]) == len(data["outcome"]["steps"])
    assert len(data["lens"]["parts"]["names"]) == len(data["lens"]["parts"]["values"][0])


def test_steps_fit_a_budget_that_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    recording, lens, _ = lens_of("llama")
    monkeypatch.setattr("headway.look.output_lens.MAX_FLOPS", 1)
    few = output_lens(replace(recording))
    assert few is not None
    assert few.first == len(recording.outcome.steps) - 1
    assert [one.rank for one in few.choices[0]] == [one.rank for one in lens.choices[-1]]
    assert [one.said for one in few.choices[0]] == pytest.approx([one.said for one in lens.choices[-1]], rel=1e-4)
