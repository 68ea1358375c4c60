"""DeepSeek-V2 in Hugging Face's layout: experts by softmax, from all groups or from the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options, without_aliases, written_as
from headway.interop.deepseek_v3 import DECODER, EXPERTS, GROUPS, keymap, read, write
from headway.zoo.deepseek import Config, Experts

__all__ = ["keymap", "read_config", "write_config"]

FIELDS = DECODER.with_defaults(
    vocab=102_400, context=2048, dim=4096, layers=32, heads=32, hidden=11_008, dense_layers=0
)
SOME = EXPERTS.with_defaults(experts=64, shared=2, expert_hidden=1407, factor=1.0)
GREEDY, GROUPED = "greedy", "group_limited_greedy"
ALIASES = {"num_experts": "n_routed_experts"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(without_aliases(values, ALIASES, "deepseek_v2"), "deepseek_v2")
    o.expect(norm_topk_prob=False, mlp_bias=False)
    o.require("scoring_func", "softmax", default="softmax")
    o.require("topk_method", GREEDY, GROUPED, default=GREEDY)
    grouped = o.take("topk_method", GREEDY) == GROUPED
    groups = GROUPS.with_defaults(groups=1, kept=1).read(o) if grouped else {"groups": 1, "kept": 1}
    o.ignore("n_group", "topk_group")
    return o.done(read(o, "DeepseekV2", FIELDS, Experts(**SOME.read(o), **groups, routing="softmax"), "pairs"))


def write_config(c: Config) -> dict[str, Any]:
    if c.mixture.routing != "softmax" or c.latent.layout != "pairs":
        said = f"there, a DeepSeek-V2 routes by softmax and turns pairs, and this model {c.mixture.routing}"
        raise UserError(f"{said}, {c.latent.layout}", do=written_as("deepseek_v3"))
    groups = {"topk_method": GREEDY if c.mixture.groups == 1 else GROUPED, **GROUPS.write(c.mixture)}
    return {**write(c, "deepseek_v2", "DeepseekV2"), **groups, "norm_topk_prob": False}
