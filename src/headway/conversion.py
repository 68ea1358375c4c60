"""A model folder in another layout or dtype, compared with the other library where that is installed.

What a dtype costs in quality is measured on data that is given for it, and kept in the model card.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch

from headway.data.gguf_tokenizer import gguf_tokenizer
from headway.dtype import FP32, INT8, check_dtype
from headway.errors import UserError
from headway.evaluation import DtypeComparison, EvalQuery, compare_dtypes
from headway.interop.gguf_blocks import BLOCKS
from headway.interop.gguf_file import write_gguf
from headway.interop.gguf_models import written_model
from headway.interop.torch_transformer import keymap, reference
from headway.interop.weights import GGUF_SUFFIX
from headway.loading import load
from headway.model import Model
from headway.nn.trunk import EncoderDecoder, tensors_of
from headway.system import read_json, write_text

HEADWAY, HF, GGUF, ONNX, CT2 = "headway", "hf", "gguf", "onnx", "ctranslate2"
LAYOUTS = (HEADWAY, HF, GGUF, ONNX, CT2)
ONNX_SUFFIX = ".onnx"
# the blocks of ggml that matrices are stored in, and llama.cpp's number of such a file
GGUF_TYPES = {FP32: ("F32", 0), "fp16": ("F16", 1), "bf16": ("BF16", 32), INT8: ("Q8_0", 7)}


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
    dtype: str = FP32

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "source": str(self.source), "target": str(self.target)}

    @property
    def form(self) -> str:
        return self.layout if self.dtype == FP32 else f"{self.layout}, {self.dtype}"

    def to_text(self) -> str:
        lines = [
            f"{self.source} → {self.target} ({self.form}): {self.architecture}, {self.parameters:,} parameters",
            *(f"note: {note}" for note in self.notes),
            f"taken as usual, since the tensors do not show it: {self.assumed}" if self.assumed else "",
            self.comparison,
        ]
        return "\n".join(filter(None, lines))


def convert(
    source: str | Path,
    target: str | Path,
    to: str | None = None,
    *,
    dtype: str | None = None,
    data: str | Path | Sequence[str | Path] = (),
    query: Mapping[str, Any] | None = None,
    heads: int | None = None,
    unsafe: bool = False,
) -> Conversion:
    """Writes the model in `source` to `target` in another layout, and compares.

    `to` is headway, hf (Hugging Face's), onnx (a folder as Optimum's), ctranslate2 or gguf (a file for llama.cpp); by
    default what the name of the target tells.  A `dtype` other than fp32 is that of the written weights; int8 is Q8_0
    in a GGUF.  The loss of quality is measured on `data`; `query` says more about it, as for `headway.evaluate`.
    """
    source, target = Path(source), Path(target)
    dtype, to = dtype or FP32, to or (GGUF if target.suffix == GGUF_SUFFIX else HEADWAY)
    check_dtype(dtype)
    if dtype != FP32 and to == HF:
        raise UserError(f"a model in {dtype} is written in headway's layout alone, or as GGUF", do="use to=headway")
    if dtype != FP32 and to == ONNX:
        do = "leave dtype= out, and quantise the files with onnxruntime.quantization"
        raise UserError(f"ONNX is written in fp32, and not in {dtype}", do=do)
    if dtype != FP32 and to == CT2:
        do = f"leave dtype= out, and give compute_type={dtype!r} where CTranslate2 loads it"
        raise UserError(f"CTranslate2's layout is written in fp32, and not in {dtype}", do=do)
    if dtype == FP32 and data:
        raise UserError("fp32 loses nothing that data could show", do="leave data= out, or give dtype=int8")
    if to not in LAYOUTS:
        raise UserError(f"there is no layout {to!r} for to=", allowed=" or ".join(LAYOUTS))
    if target.suffix == ONNX_SUFFIX:
        do = f"name a folder, as in headway convert MODEL {target.stem} --to {ONNX}"
        raise UserError(f"{target}: ONNX is written as a folder of graphs, a config and a tokenizer", do=do)
    if (to == GGUF) != (target.suffix == GGUF_SUFFIX):
        do = f"name a file such as {target.name}{GGUF_SUFFIX}" if to == GGUF else f"use to={GGUF}, or name a folder"
        raise UserError(f"{target} as the target of to={to}", do=do)
    if target.exists() and (to == GGUF or not target.is_dir() or any(target.iterdir())):
        raise UserError(
            f"{target} is there already and not empty", do=f"name a new {'file' if to == GGUF else 'folder'}"
        )
    asked = EvalQuery.of(data, **(query or {})) if data else None
    loaded = load(source, heads=heads, unsafe=unsafe, dtype=FP32)
    count = sum(parameter.numel() for parameter in loaded.model.parameters())
    told = partial(Conversion, source, target, to, loaded.architecture, count, loaded.assumed)
    if to == GGUF:
        with complete_file(target) as part:
            save_gguf(loaded, part, dtype)
            return told(compared_again(loaded, part, dtype, asked, source), loaded.notes, dtype)
    if dtype != FP32:
        low, named = load(source, heads=heads, unsafe=unsafe, dtype=dtype), f"the model in {source}"
        with complete(target) as part:
            low.save(part)
            found = None if asked is None else compare_dtypes(load(part), loaded, dtype, asked, named=named)
            write_text(part / "README.md", dtype_card(low, source, count, found))
        return told(comparison_text(found), low.notes, dtype)
    if to == ONNX:
        from headway.onnx_export.onnx_folder import save_onnx  # late: the other layouts do without

        with complete(target) as part:
            found = save_onnx(loaded, part)
            return told("\n".join(one.to_text() for one in found), loaded.notes)
    if to == CT2:
        from headway.ctranslate2_export import save_ctranslate2

        with complete(target) as part:
            return told(save_ctranslate2(loaded, part), loaded.notes)
    save = loaded.save if to == HEADWAY else loaded.save_hf
    config = source / "config.json"
    with complete(target) as part:
        save(part)
        theirs = source if config.exists() and "headway" not in read_json(config) else part if to == HF else None
        return told(compared(loaded, theirs), loaded.notes)


def save_gguf(loaded: Model, path: Path, dtype: str = FP32) -> None:
    """Writes a language model as one file of llama.cpp's, with its tokenizer and chat template."""
    if loaded.tokenizer is None:
        raise UserError(
            "the model has no tokenizer, and llama.cpp wants one", do="put tokenizer.json beside the weights"
        )
    blocks, number = GGUF_TYPES[dtype]
    family = loaded.family()
    config = family.write_config(loaded.config)
    values, tensors = written_model(config, family.keymap(loaded.config).save(tensors_of(loaded.model)))
    file = {"general.file_type": number, "general.quantization_version": 2}
    words = gguf_tokenizer(loaded.tokenizer, loaded.config.vocab)
    kind = next(one for one in BLOCKS.values() if one.name == blocks)
    write_gguf(path, {**values, **file, **words}, tensors, kind)


def compared_again(loaded: Model, written: Path, dtype: str, asked: EvalQuery | None, source: Path) -> str:
    """What was written, read again: how far its logits are from the model's own, or what `asked` data shows."""
    again = load(written)
    if asked is not None:
        return comparison_text(compare_dtypes(again, loaded, dtype, asked, named=f"the model in {source}"))
    ids = torch.randint(0, loaded.config.vocab, (1, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        difference = float((again.model(ids) - loaded.model(ids)).abs().max())
    return f"largest difference of a logit, read again: {difference:.1e}"


def comparison_text(found: DtypeComparison | None) -> str:
    return NOT_MEASURED if found is None else f"{found.low.extra['data']}\n\n{found.to_text()}"


WEIGHTS = {
    INT8: "Its linear layers compute in int8, with a scale for each output channel of the weights and each row of the "
    "activations; embeddings, norms, softmax, convolutions and biases are float32.",
    "bf16": "Its weights are stored in bfloat16.",
    "fp16": "Its weights are stored in float16.",
}
NOT_MEASURED = "the loss of quality was not measured: no data was given for it (--data FILE)"


def dtype_card(model: Model, source: Path, parameters: int, found: DtypeComparison | None) -> str:
    """The model card of a folder in another dtype."""
    name = model.model_type or model.architecture
    blocks = [f"# {name} in {model.dtype}", f"{parameters:,} parameters, converted with headway from `{source}`."]
    blocks += [WEIGHTS[model.dtype], "## Loss of quality"]
    if found is None:
        return "\n\n".join([*blocks, f"{NOT_MEASURED[0].upper()}{NOT_MEASURED[1:]}."]) + "\n"
    heads, *rows = found.rows()
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    data = str(found.low.extra["data"]).partition(", so ")[0]  # and not what it is for
    return "\n\n".join([*blocks, f"On {data} ({found.basis}):", table]) + "\n"


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


@contextmanager
def complete_file(target: Path) -> Generator[Path]:
    """The same for a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.stem}.{os.getpid()}.part{target.suffix}")
    try:
        yield part
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)


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
    transformers = import_module("transformers")  # late; type checkers need a quarter of their time for its names

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
