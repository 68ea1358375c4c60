"""The whole model as it ran, for every kind of model: what is in the tree, in which order, and how large."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headway.look.module_flow import module_flow
from headway.look.run_data import flow_to_json
from headway.nn.block import Residual
from tests.look.readers import READERS, read


@pytest.mark.parametrize("name", READERS)
def test_the_tree_has_every_site_of_attention(name: str) -> None:
    recording = read(name)
    root = module_flow(recording)
    nodes = list(root.walk())
    sites = [node.site for node in nodes if node.site]
    assert set(sites) == {
        site.partition("@")[0] for site in recording.sites if site in recording.sources and "@" not in site
    }
    assert len({node.path for node in nodes}) == len(nodes)
    for node in nodes:
        firsts = [child.first for child in node.children if child.first is not None]
        assert firsts == sorted(firsts)
        assert node.calls > 0 or node.children or node.site or (node in root.children and node is root.children[-1])


def test_a_tower_that_is_not_used_is_told() -> None:
    image, text = module_flow(read("clip")).children
    assert (image.name, text.name, text.calls, text.size, text.children) == ("image", "text", 0, None, [])
    assert text.parameters > 0


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "vit", "swin", "transformer", "captioner, soft", "conformer, ctc", "clip"])
def test_sizes_are_those_of_outputs(name: str) -> None:
    """Measured here by other means: a hook on one module at a time."""
    recording = read(name)
    found = {node.path: node for node in module_flow(recording).walk()}
    model = recording.run.model
    checked = 0
    for path, part in model.named_modules():
        if not isinstance(part, Residual) or checked == 3:
            continue
        told: list[tuple[Tensor, Tensor]] = []
        hook = part.register_forward_hook(lambda module, given, out, told=told: told.append((given[0], out)))
        recording.run.call()
        hook.remove()
        node = found[path]
        x, y = told[-1]
        assert node.size == pytest.approx(y.double().pow(2).mean().sqrt().item(), rel=1e-4)
        if x.shape == y.shape:
            assert node.before == pytest.approx(x.double().pow(2).mean().sqrt().item(), rel=1e-4)
            assert node.added == pytest.approx((y - x).double().pow(2).mean().sqrt().item(), rel=1e-4)
        assert node.shape == tuple(y.shape)
        checked += 1
    assert checked > 0 or name == "captioner, soft"


def test_the_head_of_a_language_model_comes_last() -> None:
    root = module_flow(read("llama"))
    assert [child.name for child in root.children] == ["embed", "0", "1", "norm", "head"]
    assert [child.name for child in root.children[1].children] == ["attn", "ffn"]
    attn = root.children[1].children[0]
    assert (attn.kind, attn.site) == ("SelfAttention", "0.attn")
    assert flow_to_json(attn)["site"] == "0.attn"


def test_a_run_leaves_no_hook() -> None:
    recording = read("gpt2")
    module_flow(recording)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in recording.run.model.modules())  # pyright: ignore[reportPrivateUsage]
    assert isinstance(recording.run.model, nn.Module)
