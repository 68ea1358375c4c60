"""A model folder in another layout, compared with the other library where that is installed."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch

from headway.errors import UserError
from headway.interop.torch_transformer import keymap, reference
from headway.model import Model, load
from headway.nn.trunk import EncoderDecoder
from headway.system import read_json

LAYOUTS = ("headway", "hf")


@dataclass(frozen=True)
class Conversion:
    """What was written where; `assumed` is what no file says, and `comparison` how the numbers differ."""

    source: Path
    target: Path
    layout: str
    architecture: str
    parameters: int
    assumed: str
    comparison: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "source": str(self.source), "target": str(self.target)}

    def to_text(self) -> str:
        lines = [
            f"{self.source} → {self.target} ({self.layout}): {self.architecture}, {self.parameters:,} parameters",
            *(f"note: {note}" for note in self.notes),
            f"taken as usual, since the tensors do not show it: {self.assumed}" if self.assumed else "",
            self.comparison,
        ]
        return "\n".join(filter(None, lines))


def convert(
    source: str | Path, target: str | Path, to: str = "headway", *, heads: int | None = None, unsafe: bool = False
) -> Conversion:
    """Writes the model in `source` to `target` in headway's layout or in Hugging Face's ("hf"), and compares."""
    source, target = Path(source), Path(target)
    if to not in LAYOUTS:
        raise UserError(f"there is no layout {to!r} for to=", allowed=" or ".join(LAYOUTS))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} is there already and not empty", do="name a new folder")
    loaded = load(source, heads=heads, unsafe=unsafe)
    save = loaded.save if to == "headway" else loaded.save_hf
    count = sum(parameter.numel() for parameter in loaded.model.parameters())
    config = source / "config.json"
    with complete(target) as part:
        save(part)
        theirs = source if config.exists() and "headway" not in read_json(config) else part if to == "hf" else None
        comparison = compared(loaded, theirs)
    return Conversion(source, target, to, loaded.architecture, count, loaded.assumed, comparison, loaded.notes)


@contextmanager
def complete(target: Path) -> Generator[Path]:
    """A folder to fill beside the target, which takes its place in the end; after an error nothing is left of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        part.mkdir()
        yield part
        if target.is_dir():
            target.rmdir()  # it is empty
        part.rename(target)
    finally:
        rmtree(part, ignore_errors=True)


def compared(loaded: Model, theirs: Path | None) -> str:
    if loaded.architecture == "transformer" and loaded.config.vocab == 0:
        return f"largest difference of a value from nn.Transformer: {vector_difference(loaded):.1e}"
    if theirs is None:
        return "nothing to compare with: neither folder is in Hugging Face's layout"
    if find_spec("transformers") is None:
        return "not compared: transformers is not installed"
    try:
        name = loaded.family().write_config(loaded.config).get("architectures", [""])[0]
    except UserError as error:  # a model that is read, and cannot be written there
        return f"not compared: {error}"
    c = loaded.config
    if hasattr(c, "image") and name.endswith("ForImageClassification"):
        difference = image_difference
    elif any(hasattr(c, field) for field in ("image", "mels", "features", "strides")):
        return "not compared: it neither reads words alone nor names classes of images in transformers' layout"
    else:
        difference = word_difference
    try:
        found = difference(loaded.model, their_model(theirs, name))
    except Exception as error:  # whatever the other library says of a config that is read here
        return f"not compared: transformers stopped with {type(error).__name__}: {error!s:.100}"
    return f"largest difference of a logit from transformers: {found:.1e}"


def their_model(folder: Path, name: str) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = getattr(transformers, name, transformers.AutoModel)
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def image_difference(ours: Any, theirs: Any) -> float:
    """On an image of random pixels."""
    c = theirs.config
    side = c.image_size if hasattr(c, "image_size") else 64
    image = torch.randn(1, c.num_channels, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return float((ours(image) - theirs(pixel_values=image).logits).abs().max())


def word_difference(ours: Any, theirs: Any) -> float:
    """On 16 random tokens."""
    words, padding = theirs.config.vocab_size, getattr(theirs.config, "pad_token_id", None)
    ids = torch.randint(0, words, (1, 16), generator=torch.Generator().manual_seed(0))
    if padding is not None:
        ids = torch.where(ids == padding, (ids + 1) % words, ids)  # RoBERTa does not count it as a position
    if hasattr(theirs, "classification_head"):  # BART's reads the end of a text
        ids[:, -1] = theirs.config.eos_token_id
    paired = isinstance(ours, EncoderDecoder)
    with torch.no_grad():
        out = theirs(input_ids=ids, **({"decoder_input_ids": ids} if paired else {}))
        expected = torch.stack([out.start_logits, out.end_logits], -1) if "start_logits" in out else out[0]
        found = ours(ids, ids) if paired else ours(ids)
    return float((found - expected).abs().max())


def vector_difference(loaded: Model) -> float:
    """Between our numbers and those of torch's own model with the same weights, on 16 random vectors a side."""
    theirs = reference(loaded.config).eval()
    theirs.load_state_dict(keymap(loaded.config).save(dict(loaded.model.named_parameters())))
    given = torch.randn(2, 1, 16, loaded.config.dim, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs(*given, tgt_mask=theirs.generate_square_subsequent_mask(16), tgt_is_causal=True)
        return float((loaded.model(*given) - expected).abs().max())
