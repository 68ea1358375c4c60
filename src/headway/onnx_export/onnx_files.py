"""ONNX files: a graph traced by torch, two graphs as the branches of one file, and what ONNX Runtime makes of them.

Weights of more than 2 GB lie in a file of their own beside the graph's; weights that several parts of a model share,
and those of both branches, are stored once.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.errors import UserError
from headway.onnx_export.graph_modules import Axes
from headway.onnx_export.onnx_graphs import OnnxGraph

MAX_BYTES = 2**31 - 2**24  # of a file; protocol buffers end at 2 GiB
CACHED, FIRST = "cached.", "first."  # before the names inside a branch
BRANCH = "use_cache_branch"
NEEDED = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-4  # of the largest value that the model gives


def library(name: str) -> Any:
    """A package of the extra `onnx`."""
    try:
        return import_module(name)
    except ImportError:
        said = f"{name}, which ONNX files are written or checked with, is not installed"
        raise UserError(said, do="pip install 'headway[onnx]'") from None


@dataclass(frozen=True)
class OnnxDifference:
    """The largest difference between ONNX Runtime and torch of any output, over so many sets of inputs."""

    file: str
    largest: float
    scale: float  # the largest value that torch gives there
    shapes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def to_text(self) -> str:
        by = "1 set of shapes" if self.shapes == 1 else f"{self.shapes} sets of shapes"
        return f"{self.file}: largest difference from torch {self.largest:.1e} (values up to {self.scale:.2g}; {by})"


def write_graphs(graphs: Sequence[OnnxGraph], folder: Path, architecture: str) -> list[OnnxDifference]:
    """Writes the graphs of a model and checks each file; refuses one that differs from the model."""
    for name in NEEDED:
        library(name)
    found = list[OnnxDifference]()
    for file in dict.fromkeys(graph.file for graph in graphs):
        parts = [graph for graph in graphs if graph.file == file]
        protos = [traced(graph, architecture) for graph in parts]
        save(protos[0] if len(protos) == 1 else merged(*protos), folder / f"{file}.onnx")
        found.append(compared(parts, folder / f"{file}.onnx"))
    return found


@contextmanager
def quiet() -> Generator[None]:
    """Without what torch's exporter says of packages and of its own future."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


@torch.no_grad()
def traced(graph: OnnxGraph, architecture: str) -> Any:
    """A graph as ONNX has it, traced on the first of its sizes."""
    given = graph.draw(graph.sizes[0], torch.Generator().manual_seed(0))
    axes = [
        {at: torch.export.Dim.DYNAMIC for at, axis in enumerate(one) if isinstance(axis, str)}
        for one in graph.inputs.values()
    ]
    try:
        with quiet():
            program = torch.onnx.export(
                graph.module,
                (given,),
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_shapes=(axes,),
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        proto = program.model_proto
    except UserError:
        raise
    except Exception as error:  # whatever torch says of a model that it cannot write
        reason = re.sub(r"\x1b\[[\d;]*m", "", str(getattr(error, "__cause__", None) or error)).strip()
        said = f"torch cannot write this {architecture} as ONNX: {reason.partition(chr(10))[0]:.200}"
        raise UserError(said) from error
    tidy(proto.graph, graph.inputs)
    return proto


def tidy(graph: Any, inputs: Mapping[str, Axes]) -> None:
    """Axes of any length by their names, in place of torch's symbols; and without the lines of code, and their files,
    that each node was traced in."""
    names = dict[str, str]()
    for value in graph.input:
        for dim, axis in zip(value.type.tensor_type.shape.dim, inputs[value.name], strict=True):
            if dim.dim_param and isinstance(axis, str):
                names.setdefault(dim.dim_param, axis)
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = re.sub(r"\w+", lambda found: names.get(found[0], found[0]), dim.dim_param)
    del graph.value_info[:], graph.metadata_props[:]  # in the old names, and nobody needs them
    for one in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        del one.metadata_props[:]
        one.doc_string = ""


def save(proto: Any, path: Path, limit: int = MAX_BYTES) -> None:
    """Writes a graph; its weights into a file beside it where it would be larger than ONNX allows."""
    onnx = library("onnx")
    beside = sum(len(tensor.raw_data) for tensor in proto.graph.initializer) > limit
    location = {"save_as_external_data": True, "location": f"{path.name}_data"} if beside else {}
    onnx.save(proto, str(path), **location)


# ---- two branches of one file


def merged(first: Any, later: Any) -> Any:
    """One graph that takes the branch `later` where `use_cache_branch` is true, and else `first`."""
    onnx = library("onnx")
    helper, shared = onnx.helper, dict[bytes, Any]()
    branches = [branch(one.graph, prefix, shared) for one, prefix in ((later, CACHED), (first, FIRST))]
    flag = helper.make_tensor_value_info(BRANCH, onnx.TensorProto.BOOL, [1])
    inputs = {value.name: value for one in (later, first) for value in one.graph.input}
    outputs = list(later.graph.output)
    nodes = [
        helper.make_node("Squeeze", [BRANCH], ["whether"]),
        helper.make_node(
            "If", ["whether"], [value.name for value in outputs], then_branch=branches[0], else_branch=branches[1]
        ),
    ]
    graph = helper.make_graph(nodes, "merged", [*inputs.values(), flag], outputs, list(shared.values()))
    for value in graph.output:  # as long as the branch makes it
        for at, dim in enumerate(value.type.tensor_type.shape.dim):
            if at and dim.dim_param:
                dim.dim_param = ""
    return helper.make_model(graph, opset_imports=later.opset_import, ir_version=later.ir_version)


def branch(graph: Any, prefix: str, shared: dict[bytes, Any]) -> Any:
    """A graph as a branch: names of its own, no inputs, and its weights among the `shared`, by what they hold."""
    onnx = library("onnx")
    names = {value.name: value.name for value in graph.input}
    for tensor in graph.initializer:
        key = sha256(f"{tensor.data_type} {tuple(tensor.dims)}".encode() + tensor.raw_data).digest()
        if not tensor.raw_data:  # stored in another field
            key = sha256(tensor.SerializeToString()).digest()
        if key not in shared:
            copy = onnx.TensorProto()
            copy.CopyFrom(tensor)
            copy.name = f"weight.{len(shared)}.{tensor.name}"
            shared[key] = copy
        names[tensor.name] = shared[key].name
    nodes = renamed(graph.node, names, prefix)
    outputs = list[Any]()
    for value in graph.output:
        out = onnx.ValueInfoProto()
        out.CopyFrom(value)
        out.name = f"{prefix}{value.name}.out"
        nodes.append(onnx.helper.make_node("Identity", [names[value.name]], [out.name]))
        outputs.append(onnx.helper.make_tensor_value_info(out.name, value.type.tensor_type.elem_type, None))
    return onnx.helper.make_graph(nodes, prefix.strip("."), [], outputs)


def renamed(nodes: Sequence[Any], names: dict[str, str], prefix: str) -> list[Any]:
    """Nodes whose values have other names, `names` of those so far; graphs inside them, too."""
    onnx = library("onnx")
    found = list[Any]()
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = f"{prefix}{node.name}"
        copy.input[:] = [names.get(name, name) for name in node.input]
        for name in node.output:
            names[name] = f"{prefix}{name}" if name else ""
        copy.output[:] = [names[name] for name in node.output]
        for attribute in copy.attribute:
            if attribute.HasField("g"):
                inner = dict(names)
                for value in (*attribute.g.input, *attribute.g.initializer):
                    inner[value.name] = value.name = f"{prefix}{value.name}"
                body = renamed(attribute.g.node, inner, prefix)
                del attribute.g.node[:]
                attribute.g.node.extend(body)
                for value in attribute.g.output:
                    value.name = inner[value.name]
        found.append(copy)
    return found


# ---- the check


@torch.no_grad()
def compared(graphs: Sequence[OnnxGraph], path: Path) -> OnnxDifference:
    """Runs a file on other shapes than it was traced on; refuses one that is not the model."""
    session = opened(path)
    largest = scale = 0.0
    count = 0
    names = [one.name for one in session.get_inputs()]
    for graph in graphs:
        for sizes in graph.sizes:
            given = graph.draw(sizes, torch.Generator().manual_seed(count))
            wanted = graph.module(given)
            try:
                found = session.run(list(graph.outputs), fed(session, graph, given, sizes))
            except Exception as error:  # of a class of its own for each kind of failure
                said = f"ONNX Runtime stops in {path.name} on inputs of {shapes_text(graph.inputs, given)}"
                raise UserError(f"{said}: {str(error).partition(chr(10))[0]:.200}") from error
            for name, ours, theirs in zip(graph.outputs, found, wanted, strict=True):
                near, most = distance(torch.from_numpy(ours), theirs)
                largest, scale = max(largest, near), max(scale, most)
                if not near <= TOLERANCE * max(most, 1.0):
                    said = (
                        f"{path.name} differs from the model by {near:.1e} in {name}, where values go up to {most:.2g}"
                    )
                    raise UserError(
                        f"{said}, on inputs of {shapes_text(graph.inputs, given)}", allowed=f"{TOLERANCE:g} of that"
                    )
            count += 1
    return OnnxDifference(path.name, largest, scale, count, tuple(names), tuple(graphs[0].outputs))


def opened(path: Path) -> Any:
    runtime = library("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # its errors are raised besides
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of a class of its own for each kind of failure
        raise UserError(f"ONNX Runtime cannot read the graph: {str(error).partition(chr(10))[0]:.200}") from error


def fed(session: Any, graph: OnnxGraph, given: Sequence[Tensor], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Inputs by name; the branch without a past is given an empty one."""
    found = {name: x.numpy() for name, x in zip(graph.inputs, given, strict=True)}
    if graph.cached is not None:
        found[BRANCH] = torch.tensor([graph.cached]).numpy()
        for one in session.get_inputs():
            if one.name not in found:
                shape = [sizes.get(dim, 0) if isinstance(dim, str) else dim for dim in one.shape]
                found[one.name] = torch.zeros(shape, dtype=TYPES[one.type]).numpy()
    return found


TYPES = {"tensor(float)": torch.float32, "tensor(int64)": torch.int64}


def distance(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """The largest difference, and the largest value; equal infinities differ by nothing."""
    if ours.shape != theirs.shape:
        return float("inf"), 0.0
    if not theirs.numel():
        return 0.0, 0.0
    apart = torch.where(ours == theirs, 0.0, (ours.double() - theirs.double()).abs())
    finite = theirs[theirs.isfinite()].double().abs()
    return float(apart.max().nan_to_num(nan=float("inf"))), float(finite.max()) if finite.numel() else 0.0


def shapes_text(inputs: Mapping[str, Axes], given: Sequence[Tensor]) -> str:
    return ", ".join(f"{name} {'×'.join(map(str, x.shape))}" for name, x in zip(inputs, given, strict=True))
