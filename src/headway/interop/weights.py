"""Weight files: safetensors, whole or in shards; PyTorch pickles only on request, and then without running code."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor, nn

from headway.errors import UserError, going_on, listed
from headway.system import CHECKPOINTS, gibibytes, memory_limit, read_json, regular, write_whole
from headway.zoo.build import ParameterCountError, on_meta

Tensors = dict[str, Tensor]

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
CHUNK_BYTES = 2**20  # written at a time: still in the cache when read back
MAX_HEADER_BYTES = 2**24  # of a safetensors file
GGUF_SUFFIX = ".gguf"
OPENAI = ".pt"  # the file of a Whisper as OpenAI publishes it


def read_weights(folder: Path, *, unsafe: bool = False) -> Tensors:
    """All tensors of a model folder, by the names they have there."""
    for name, read in ((SAFE, read_safetensors), (PICKLED, read_pickled)):
        whole, index = folder / name, folder / f"{name}.index.json"
        if (whole.exists() or index.exists()) and name == PICKLED:
            check_asked(f"{folder} holds its weights as a PyTorch pickle, {PICKLED}", unsafe)
        if whole.exists():
            return read(regular(whole))
        if index.exists():
            return read_shards(index, read)
    raise no_weights(folder)


def no_weights(folder: Path) -> UserError:
    """What is said of a folder without weights that are read here."""
    if (folder / CHECKPOINTS).is_dir():
        do = f"wait for its training, or go on with {going_on(folder)}"
        return UserError(f"{folder} holds no weights yet", do=do)
    allowed = f"{SAFE}, or {SAFE}.index.json with its shards"
    return foreign(folder) or UserError(f"{folder} holds no weights", allowed=allowed)


EXPORTED = f"fetch the model that it was made from, with {SAFE}"
REWRITE = "write it for PyTorch with transformers 4: AutoModel.from_pretrained(FOLDER, {}=True).save_pretrained(TARGET)"
# files that hold a model otherwise: {pattern: (what it is, what to do)}
FOREIGN = {
    f"*{GGUF_SUFFIX}": ("GGUF, the format of llama.cpp", "name the file itself: {}"),
    "*.onnx": ("an ONNX graph", EXPORTED),
    "onnx/*.onnx": ("an ONNX graph", EXPORTED),
    "openvino_model.xml": ("an OpenVINO graph", EXPORTED),
    "flax_model*.msgpack": ("weights of Flax", REWRITE.format("from_flax")),
    "tf_model*.h5": ("weights of TensorFlow", REWRITE.format("from_tf")),
    "*.ckpt.index": ("a TensorFlow checkpoint", REWRITE.format("from_tf")),
    "model_index.json": ("a diffusers pipeline of several models", "give the folder of one of them"),
    "*.safetensors": ("weights under another name", f"if they are the whole model, rename the file to {SAFE}"),
    f"*{OPENAI}": ("a PyTorch file", "if it is a Whisper of OpenAI's, name the file itself: {}"),
}


def foreign(place: Path) -> UserError | None:
    """What a folder holds, or a file is, in place of weights that are read here."""
    for pattern, (what, do) in FOREIGN.items():
        found = [place] if place.is_file() and place.match(pattern) else sorted(place.glob(pattern))
        if found:
            said = f"{place} holds {what}" + (f", {found[0].name}, and no weights" if place.is_dir() else "")
            return UserError(said, do=do.format(found[0]))
    return None


def read_shards(index: Path, read: Callable[[Path], Tensors]) -> Tensors:
    """The tensors of an index, each from the file that it names in the same folder."""
    places = index_places(index)
    shards = {file: read(file) for file in sorted(set(places.values()))}
    absent = sorted(name for name, file in places.items() if name not in shards[file])
    if absent:
        raise UserError(f"{index} names {len(absent)} tensors that are not in their files: {listed(absent)}")
    return {name: shards[file][name] for name, file in places.items()}


class DescribedTensors(Mapping[str, Tensor]):
    """Tensors by name whose shapes and dtypes are known before one of them is read."""

    described: Mapping[str, tuple[Sequence[int], torch.dtype]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.described)

    def __len__(self) -> int:
        return len(self.described)


def described(tensors: Mapping[str, Tensor]) -> Mapping[str, tuple[Sequence[int], torch.dtype]]:
    """Shapes and dtypes."""
    if isinstance(tensors, DescribedTensors):
        return tensors.described
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


class StoredTensors(DescribedTensors):
    """The tensors of safetensors files, each read when it is asked for; together they may not fit into memory."""

    def __init__(self, files: Mapping[str, Path]):
        from safetensors import safe_open

        self.files = files
        self.opened = {file: safe_open(file, "pt") for file in sorted(set(files.values()))}
        names = {name: self.opened[file].get_slice(name) for name, file in files.items()}
        dtypes = {word: dtype for dtype, word in DTYPES.items()}
        self.described = {name: (one.get_shape(), dtypes[one.get_dtype()]) for name, one in names.items()}

    @staticmethod
    def of(index: Path) -> StoredTensors:
        """Those of an index, each in the file of the same folder that it names."""
        from safetensors import SafetensorError

        try:
            places = index_places(index)
            for file in sorted({*places.values()}):
                check_header(file)
            return StoredTensors(places)
        except (SafetensorError, KeyError) as error:
            said = f"{index} and the files that it names do not fit together: {error}"
            raise UserError(said, do="fetch or write them again") from None

    def __getitem__(self, name: str) -> Tensor:
        return self.opened[self.files[name]].get_tensor(name)


def index_places(index: Path) -> dict[str, Path]:
    """The file of each tensor, by an index."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, Mapping) or not all(isinstance(x, str) for pair in places.items() for x in pair):
        raise UserError(f"{index} has no weight_map from tensors to files")
    return {name: beside(index, file) for name, file in places.items()}


def beside(index: Path, file: str) -> Path:
    """A file that an index names: in its own folder and nowhere else."""
    path = index.parent / file
    if Path(file).name != file or file in ("", ".", ".."):
        raise UserError(f"{index} names {file!r}", allowed="files in its own folder, by their names alone")
    if not path.is_file():
        raise UserError(f"{index} names {file!r}, which is not there", do="fetch the missing shard")
    return path


def read_safetensors(path: Path) -> Tensors:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    check_header(path)
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is not a whole safetensors file: {error}", do="fetch or write it again") from None
    except UnicodeEncodeError:
        raise UserError(f"{path}: the name has bytes that are no UTF-8", do="rename the file or its folder") from None


def check_header(path: Path) -> None:
    """Refuses a header of more tensors than any model has, before the package makes an object of each."""
    with regular(path).open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if MAX_HEADER_BYTES < size <= path.stat().st_size:
        said = f"{path} has a header of {size:,} bytes"
        raise UserError(said, allowed=f"{MAX_HEADER_BYTES:,} bytes, enough for 100,000 tensors")


def read_pickled(path: Path) -> Tensors:
    loaded = unpickled(path)
    if not isinstance(loaded, Mapping) or not all(isinstance(x, Tensor) for x in loaded.values()):
        raise UserError(f"{path} holds more than a mapping from names to tensors")
    return dict(loaded)


def unpickled(path: Path) -> object:
    """What a PyTorch file holds, read without running code; ask with `check_asked` first."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of what is broken, which is told below
            # files of before PyTorch 1.6 are no zip archives, and cannot be mapped
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipfile(path))
    except OSError:
        raise
    except Exception as error:  # of a broken file: IndexError, KeyError, struct.error and more
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"{path} is not a PyTorch file of plain tensors: {reason}") from None


def check_asked(said: str, unsafe: bool) -> None:
    """Refuses to read a pickle unless it was asked for."""
    if not unsafe:
        do = "convert it to safetensors, or allow it with unsafe=True"
        raise UserError(f"{said}, which is not read unasked", do=do)


def write_weights(folder: Path, tensors: Mapping[str, Tensor], name: str = SAFE) -> None:
    """One safetensors file, whole or not there."""

    def write(part: Path) -> None:
        with part.open("wb") as file:
            for chunk in safetensors_chunks(tensors):
                file.write(chunk)

    write_whole(folder / name, write)


# the model of a config is not made if it has so many times the numbers of its weights: some parts are made and replaced
# by others, and some files leave out what others are tied to
MAX_TIMES = 4


def model_for(config: object, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The model of a config on the meta device, unless these tensors are by far too few numbers for it.

    A config of many layers takes long to build even without memory, and is found out after the first of them.
    """
    storages = (tensor.untyped_storage() for tensor in tensors.values())  # what is expanded holds less than its shape
    held = sum({one.data_ptr(): one.nbytes() for one in storages}.values())
    held //= min((tensor.element_size() for tensor in tensors.values()), default=1)
    try:
        return on_meta(config, MAX_TIMES * held)
    except ParameterCountError as error:
        said = f"config.json describes {error.count:,} parameters or more, and the weights hold {held:,} numbers"
        raise UserError(said, do="use the config.json that was written with these weights") from None


def check_weights_fit(model: nn.Module, dtype: torch.dtype) -> None:
    """Refuses weights that do not fit into memory; files are not in it yet."""
    weights, limit = sum(weight.numel() for weight in model.parameters()) * dtype.itemsize, memory_limit()
    needed = weights + sum(tensor.numel() * tensor.element_size() for tensor in model.buffers())
    if limit is not None and needed > limit:
        said = f"the weights of this model take {gibibytes(needed)} of memory, and there are {gibibytes(limit)}"
        raise UserError(said, do="use a smaller model")


COUNT = ".num_batches_tracked"  # of a batch norm, which old files leave out and nothing here computes with


def fill(model: nn.Module, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Gives a model that was built without memory its tensors; parameters with several names stay one parameter."""
    check_weights_fit(model, dtype)
    groups = aliases(model)
    tensors = {**{name: torch.zeros((), dtype=torch.long) for [name, *_] in groups if name.endswith(COUNT)}, **tensors}
    check_names(groups, tensors)
    meant = model.state_dict(keep_vars=True)
    for names in groups:
        tensor, expected = next(tensors[name] for name in names if name in tensors), meant[names[0]]
        if tensor.shape != expected.shape:
            said = f"{names[0]} is {tuple(tensor.shape)} in the file and {tuple(expected.shape)} by the config"
            raise UserError(said, do="use the config.json that was written with these weights")
        filled = tensor.to(dtype if expected.is_floating_point() else expected.dtype)
        if isinstance(expected, nn.Parameter):
            filled = nn.Parameter(filled, expected.requires_grad)
        for name in names:
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, filled)


def check_names(groups: list[list[str]], tensors: Mapping[str, Tensor]) -> None:
    missing = sorted(names[0] for names in groups if not any(name in tensors for name in names))
    unknown = sorted(set(tensors) - {name for names in groups for name in names})
    told = [
        f"{len(missing)} tensors are missing: {listed(missing)}" if missing else "",
        f"{len(unknown)} have no place: {listed(unknown)}" if unknown else "",
    ]
    if missing or unknown:
        raise UserError(f"the weights do not fit the config: {' and '.join(filter(None, told))}")


def aliases(model: nn.Module) -> list[list[str]]:
    """The names of each parameter, and of what batch norms have gathered; tied ones have several."""
    groups: dict[int, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


# Safetensors: eight bytes of length, a header in JSON, then the bytes of the tensors.  Written here because the
# library's writer can neither be hashed on the way nor be interrupted between two writes, and tells of a full disk in
# an error of its own; the library reads it.


def safetensors_chunks(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """The bytes of a safetensors file, in order; at most one tensor is copied at a time."""
    # Widest first, so that each tensor begins at a multiple of its width, which memory mapping needs.
    ordered = sorted(tensors.items(), key=lambda pair: (-pair[1].element_size(), pair[0]))
    yield memoryview(safetensors_header(ordered))
    for _, tensor in ordered:
        data = bytes_of(tensor)
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]


def safetensors_header(ordered: list[tuple[str, Tensor]]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, tensor in ordered:
        if tensor.dtype not in DTYPES or name in entries:
            raise UserError(f"a tensor {name!r} of {tensor.dtype} cannot be stored in a checkpoint")
        end = start + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def bytes_of(tensor: Tensor) -> memoryview:
    assert sys.byteorder == "little", "safetensors is little-endian"
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
