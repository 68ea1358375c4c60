"""`headway convert`: a model folder in another layout, checked against the other library where that is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import UserError
from headway.files import read_json

if TYPE_CHECKING:
    from headway.checkpoint import Loaded

LAYOUTS = ("headway", "hf")


def convert(source: Path, target: Path, to: str, *, unsafe: bool) -> str:
    """What was written where, and by how much the numbers differ."""
    from headway.checkpoint import load

    if to not in LAYOUTS:
        raise UserError(f"--to {to}", allowed=" or ".join(LAYOUTS))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} is there already and not empty", do="name a new folder")
    loaded = load(source, unsafe=unsafe)
    save = loaded.save if to == "headway" else loaded.save_hf
    save(target)
    count = sum(parameter.numel() for parameter in loaded.model.parameters())
    lines = [f"{source} → {target} ({to}): {loaded.architecture}, {count:,} parameters"]
    theirs = source if "headway" not in read_json(source / "config.json") else target if to == "hf" else None
    return "\n".join([*lines, checked(loaded, theirs)])


def checked(loaded: Loaded, theirs: Path | None) -> str:
    if theirs is None:
        return "nothing to compare with: neither folder is in Hugging Face's layout"
    if find_spec("transformers") is None:
        return "not compared: transformers is not installed"
    return f"largest difference of a logit from transformers: {difference(loaded, theirs):.1e}"


def difference(loaded: Loaded, folder: Path) -> float:
    """Between our numbers and those that transformers computes from its own folder, on 16 random tokens."""
    import torch
    import transformers

    from headway.nn.model import EncoderDecoder

    name = read_json(folder / "config.json").get("architectures", ["AutoModel"])[0]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    theirs = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.randint(0, theirs.config.vocab_size, (1, 16), generator=torch.Generator().manual_seed(0))
    paired = isinstance(loaded.model, EncoderDecoder)
    with torch.no_grad():
        expected = theirs(input_ids=ids, **({"decoder_input_ids": ids} if paired else {}))[0]
        found = loaded.model(ids, ids) if paired else loaded.model(ids)
    return float((found - expected).abs().max())
