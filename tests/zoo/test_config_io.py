"""Configs to plain data and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from headway.errors import UserError
from headway.ops.rotary import UNSCALED, Llama3, Scaling, Yarn
from headway.zoo import gpt2
from headway.zoo.build import from_plain, to_plain


@dataclass(frozen=True)
class Example:
    dim: int = 4
    eps: float = 1e-5
    hidden: int | None = None
    tied: bool = True
    scaling: Scaling = UNSCALED
    act: str = "gelu"


@pytest.mark.parametrize(
    "config",
    [Example(), Example(dim=8, hidden=3, tied=False), Example(scaling=Llama3(8.0, 1.0, 4.0, 64)), gpt2.Config()],
)
def test_a_config_comes_back_from_json(config: Any) -> None:
    assert from_plain(type(config), json.loads(json.dumps(to_plain(config)))) == config


def test_a_nested_value_says_its_kind() -> None:
    assert to_plain(Example(scaling=Yarn(2.0, 64)))["scaling"]["kind"] == "Yarn"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"dmi": 3}, "a config has no field 'dmi'; allowed: act, dim, eps, hidden, scaling, tied; did you mean 'dim'?"),
        ({"dim": "big"}, "dim='big' in a config; allowed: int"),
        ({"dim": True}, "dim=True in a config; allowed: int"),
        ({"hidden": 1.5}, "hidden=1.5 in a config; allowed: int or NoneType"),
        ({"scaling": {"kind": "os.system"}}, "scaling of kind 'os.system' is not known"),
    ],
)
def test_what_does_not_fit_is_told(values: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as caught:
        from_plain(Example, values)
    assert str(caught.value) == told
