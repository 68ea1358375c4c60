"""DeBERTa in Hugging Face's layout: the first version, whose distances have projections of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop import deberta_v2
from headway.interop.config_reader import Options
from headway.interop.deberta_v2 import keymap, settle
from headway.zoo.deberta import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

ARCHITECTURES = {name.replace("DebertaV2", "Deberta"): top for name, top in deberta_v2.ARCHITECTURES.items()}
FIELDS = deberta_v2.FIELDS.without("buckets").with_defaults(vocab=50_265, dim=768, layers=12, heads=12, hidden=3072)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "deberta")
    o.expect(talking_head=False, z_steps=0)
    return o.done(deberta_v2.read(o, ARCHITECTURES, FIELDS, "own"))


def write_config(c: Config) -> dict[str, Any]:
    """A DeBERTa's config; a DeBERTa 2's where distances are projected as queries and keys."""
    if c.distances == "shared":
        return deberta_v2.write_config(c)
    return deberta_v2.write(c, ARCHITECTURES, FIELDS, "deberta")
