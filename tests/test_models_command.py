"""What `headway list` and `headway cost` print."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headway.cli.main import main
from headway.cli.preset_tables import binary, cost, list_presets, short
from headway.errors import UserError
from headway.zoo.presets import PRESETS

pytestmark = pytest.mark.slow


def test_the_list_names_every_preset_once() -> None:
    lines = list_presets().splitlines()
    assert [line.split()[0] for line in lines[1 : len(PRESETS) + 1]] == list(PRESETS)
    assert lines[0].split() == ["preset", "architecture", "dim", "layers", "heads", "hidden"]
    cells = [line.split() for line in lines]
    assert ["gpt2-xl", "gpt2", "1600", "48", "25"] in cells
    assert ["swin-s", "swin", "96", "2+2+18+2", "3–24"] in cells  # layers and heads of its stages
    assert ["simmim-b16", "simmim", "768", "12", "12"] in cells  # those of its encoder
    assert max(map(len, lines)) <= 80


def test_the_list_as_json_has_all_sizes() -> None:
    told = {row["name"]: row for row in json.loads(list_presets(json=True))}
    assert list(told) == list(PRESETS)
    assert told["gpt3"]["sizes"] == {"dim": 12_288, "layers": 96, "heads": 96, "context": 2048}
    assert told["mixtral-8x7b"]["architecture"] == "mixtral"


def test_cost_tells_each_number_and_its_unit() -> None:
    told = cost("gpt2-xl")
    for line in (
        "gpt2-xl (gpt2): batch 1, length 1024, numbers of 32 bits",
        "parameters                   1 557 611 200      1.56 G",
        "bytes of weights             6 230 444 800    5.80 GiB",
        "bytes of KV cache              629 145 600  600.00 MiB",
        "0 to 47, each     30 740 800      64.72 M   12.50 MiB  100.00 MiB",
    ):
        assert line in told.splitlines()
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize("name", ["t5-small", "rnnsearch-50", "mixtral-8x7b", "albert-base"])
def test_cost_is_narrow_for_every_kind_of_model(name: str) -> None:
    assert max(map(len, cost(name, batch=64, length=128).splitlines())) <= 80


def test_cost_as_json() -> None:
    told = json.loads(cost("gpt2-xl", json=True))
    assert told["preset"] == "gpt2-xl"
    assert told["parameters"] == 1_557_611_200
    assert told["flops_training_per_token"] == 3 * told["flops_forward_per_token"]
    assert set(told["bytes"]) == {"weights", "gradients", "optimizer", "kv_cache", "attention"}
    layers = told["layers"]
    assert sum(row["parameters"] for row in layers) == told["parameters"]
    assert sum(row["attention"] for row in layers) == told["bytes"]["attention"]
    assert json.loads(cost("gpt2-xl", 4, 512, True))["flops_forward"] > 0


def test_sizes_and_bits_are_the_slides() -> None:
    """Attention of 100,000 tokens and 64 heads in 16 bits; of a ViT with 48 layers of 16 heads and 14×14 patches."""
    one = json.loads(cost("llama-65b", length=100_000, bits=16, sizes={"layers": 1}, json=True))
    assert one["bytes"]["attention"] == 1_280_000_000_000
    assert one["sizes"] == {"layers": 1}
    told = cost("vit-l16", sizes={"pool": "mean", "layers": 48})
    assert "with pool=mean, layers=48" in told.splitlines()
    assert "bytes of attention               118 013 952  112.55 MiB" in told.splitlines()
    with pytest.raises(UserError, match=r"a config has no field 'lyers'; .*did you mean 'layers'"):
        cost("gpt2", sizes={"lyers": 2})


@pytest.mark.long
def test_a_whole_training_run_is_counted() -> None:
    told = json.loads(cost("gpt3", tokens=300e9, json=True))
    assert told["training_run"] == {"tokens": 300e9, "flops": 300_000_000_000 * told["flops_training_per_token"]}
    assert "training on 3e+11 tokens: 3.186e+23 FLOPs" in cost("gpt3", tokens=300e9).splitlines()
    with pytest.raises(UserError, match="tokens=0; allowed: 1 or more"):
        cost("gpt2", tokens=0)


def test_stages_are_told_with_their_resolution_and_channels() -> None:
    found = json.loads(cost("swin-t", json=True))["stages"]
    assert [tuple(stage.values()) for stage in found] == [
        *(("embed", 56, 56, 96), ("0", 56, 56, 96), ("1", 28, 28, 192), ("2", 14, 14, 384), ("3", 7, 7, 768))
    ]
    assert "2           14×14      1024" in cost("resnet-50").splitlines()
    assert "stages" not in json.loads(cost("vit-nano", json=True))


def test_the_command_takes_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "gpt-nano", "--model.layers", "2", "--bits", "16", "--tokens", "1e6", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["sizes"], told["bits"], told["training_run"]["tokens"]) == ({"layers": 2}, 16, 1e6)


def test_a_mistyped_preset_is_told_without_torch() -> None:
    with pytest.raises(UserError, match=r"no preset 'gpt-2'; .*did you mean 'gpt2'\?"):
        cost("gpt-2")
    told = (
        "import sys\nfrom headway.cli.preset_tables import cost, list_presets\n"
        "list_presets(); list_presets(json=True)\n"
        "try: cost('gpt-2')\nexcept ValueError: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_numbers_for_people() -> None:
    assert [short(n) for n in (0, 999, 1500, 1_557_611_200)] == ["0", "999", "1.50 k", "1.56 G"]
    assert [binary(n) for n in (0, 1023, 1024, 1_280_000_000_000)] == ["0 B", "1023 B", "1.00 KiB", "1.16 TiB"]
