"""IDX files and folders of them, as MNIST has them, in every command of `headway inspect` that reads samples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headway.cli.main import main
from tests.data.files import idx, put
from tests.look.readers import loaded

COUNT = 12
COMMANDS = {
    "heads": "heads {model} {file}/3",
    "rollout": "rollout {model} {file}/3",
    "importance": "importance {model} {set} --most 4",
    "probe": "probe {model} {set} --ridge 1",
    "neighbours": "neighbours {model} {file}/3 --among {set} --count 2",
    "direction": "direction {model} {set} {other}",
    "direction of files": "direction {model} {file} {other}",
    "cka": "cka {model} --data {set}",
    "cka of a file": "cka {model} --data {file}",
    "sae": "sae {model} {set} --site 0.out --atoms 8 --top 2 --steps 2 --vectors 300",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model, a set whose classes are those of the model, and images without labels."""
    top = tmp_path_factory.mktemp("idx")
    draw = np.random.default_rng(0)
    model = loaded("vit")
    numbers = {"id2label": {str(at): str(at) for at in range(3)}}
    replace(model, extra_config=numbers).save(top / "model")
    files = {"train-images-idx3-ubyte": idx(draw.integers(0, 255, (COUNT, 20, 28)))}
    files["train-labels-idx1-ubyte"] = idx(np.arange(COUNT) % 3)
    files["t10k-images-idx3-ubyte"] = idx(draw.integers(0, 255, (2, 20, 28)))
    put(top / "set", files)
    put(top / "other", {"train-images-idx3-ubyte": idx(draw.integers(0, 99, (COUNT, 20, 28)))})
    return {"model": top / "model", "set": top / "set", "other": top / "other", "file": top / "set" / next(iter(files))}


@pytest.mark.parametrize("name", COMMANDS)
def test_it_reads_idx(places: dict[str, Path], capsys: pytest.CaptureFixture[str], name: str) -> None:
    code = main(["inspect", *COMMANDS[name].format(**places).split(), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    found = json.loads(out)
    if name == "neighbours":
        assert json.dumps(found).count("train-images-idx3-ubyte") >= 2
