"""CamemBERT in Hugging Face's layout: RoBERTa under another name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.roberta import keymap, read, settle, write
from headway.zoo.bert import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]


def read_config(values: Mapping[str, Any]) -> Config:
    return read(values, "camembert", "Camembert", vocab=30_522)


def write_config(c: Config) -> dict[str, Any]:
    return write(c, "camembert", "Camembert")
