"""A model as a folder of ONNX files, laid out as Hugging Face Optimum does: graphs, config, tokenizer, preprocessing.

Beside them `onnx.json` says what no graph does: which tokens begin and end a text, how long it may be, what the classes
are called, how far the graphs are from the model; `run.py` is a loop that needs nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import nn

from headway.errors import UserError
from headway.generate.ctc_decoding import first_symbol
from headway.generate.request import LENGTHS, MASKS, begin_of, generation_settings
from headway.generate.sampling import Rules
from headway.generate.session import context_of
from headway.generate.transcribe import Transcriber
from headway.model import WHISPER, Model
from headway.nn.head import Classifier, CTCHead, MLMHead, TokenClassifier, main_head
from headway.nn.towers import FilledTrunk, SigmoidTowers, TwoTowers
from headway.nn.trunk import EncoderDecoder, Forecaster, RereadingClassifier, Trunk
from headway.onnx_export.onnx_files import OnnxDifference, write_graphs
from headway.onnx_export.onnx_graphs import graphs_of, writes
from headway.system import write_json, write_text
from headway.tasks.generation import GREEDY_OPTIONS, first_token, reread_tokens, rules, stop_condition
from headway.tasks.model_parts import class_names
from headway.tasks.text_tasks import context_for

VECTORS = ("image_embeds", "text_embeds", "sentence_embedding", "last_hidden_state")  # the first that a graph gives


def save_onnx(model: Model, folder: Path) -> list[OnnxDifference]:
    """Writes a model as ONNX with all that a program needs to run it, and says how far it is from the model."""
    found = write_graphs(graphs_of(model), folder, model.architecture)
    write_json(folder / "config.json", config_of_folder(model))
    if any(name in model.extra_config for name in ("eos_token_id", "decoder_start_token_id", *LENGTHS, *MASKS)):
        write_json(folder / "generation_config.json", generation_settings(model.extra_config))
    model.save_inputs(folder)
    write_json(folder / "onnx.json", facts(model, found))
    loop = files("headway").joinpath("onnx_export", "onnx_run.py").read_text(encoding="utf-8")
    write_text(folder / "run.py", loop)
    return found


def config_of_folder(model: Model) -> dict[str, Any]:
    """config.json in Hugging Face's layout, or where the model has no place there, in our own."""
    extra = {name: value for name, value in model.extra_config.items() if name not in (*LENGTHS, *MASKS)}
    try:
        return {**extra, **model.family().write_config(model.config)}
    except UserError:
        return model.native_config()


def facts(model: Model, found: list[OnnxDifference]) -> dict[str, Any]:
    """What onnx.json says."""
    body, words = model.model, model.tokenizer
    encoder = body.text if isinstance(body, TwoTowers) else getattr(body, "input_encoder", None)
    told: dict[str, Any] = {
        "architecture": model.architecture,
        "graphs": {one.file: {k: v for k, v in asdict(one).items() if k != "file"} for one in found},
        "answer": answer_of(body),
        "prefix": model.extra_config.get("prefix") or "",
        "max_length": longest(model, encoder),
        "known_tokens": None if words is None else words.known,
        "unknown": None if words is None else words.unk,
        "mask": None if words is None else words.mask,
        "fill": encoder.pad if isinstance(encoder, FilledTrunk) else None,
        "vectors": VECTORS,
    }
    head = head_of(body)
    if isinstance(head, Classifier | TokenClassifier):
        told["labels"] = class_names(model, head.out.out_features)
    if isinstance(head, CTCHead) and words is not None:
        told["first_symbol"] = first_symbol(words, head)
    written = model.target_tokenizer or words
    if told["answer"] in ("continuation", "text") and written is not None:
        told["writing"] = writing(model)
    if isinstance(body, TwoTowers):
        told["scale"] = body.scale.item()
        told["bias"] = body.bias.item() if isinstance(body, SigmoidTowers) else 0.0
    return told


def longest(model: Model, encoder: Any) -> int | None:
    """The tokens that are read of a text; a continued text is cut elsewhere."""
    if isinstance(model.model, Trunk) and writes(model.model):
        return None
    if isinstance(head_of(model.model), Classifier | TokenClassifier):
        return context_for(model)
    return context_of(encoder) if isinstance(encoder, Trunk) and hasattr(encoder.embed, "token") else None


def head_of(model: nn.Module) -> nn.Module | None:
    """The head that a model answers with."""
    body = model.decoder if isinstance(model, RereadingClassifier) else model
    return main_head(body.head) if isinstance(body, Trunk) else None


# which function of run.py answers for a head
ANSWERS: Mapping[type[nn.Module], str] = {
    MLMHead: "filled",
    Classifier: "label",
    TokenClassifier: "tags",
    CTCHead: "transcript",
}


def answer_of(model: nn.Module) -> str:
    if isinstance(model, EncoderDecoder):
        return "text"
    if isinstance(model, Forecaster):
        return "rows"
    if isinstance(model, Trunk) and writes(model):
        return "continuation"
    head = head_of(model)
    return next((answer for kind, answer in ANSWERS.items() if isinstance(head, kind)), "vector")


def writing(model: Model) -> dict[str, Any]:
    """How a model begins and ends a text, as `headway run` has it: greedy, with the rules of its config."""
    words, settings, body = model.target_tokenizer or model.vocabulary(), model.extra_config, model.model
    if model.architecture == WHISPER:
        assert isinstance(body, EncoderDecoder)
        ear = Transcriber.of(body, words, settings)
        language = next(iter(ear.marks.languages), None)
        begin, spoken = ear.marks.prompt(language, "transcribe", timed=False), list(ear.marks.languages.values())
        room = (context_of(body.decoder) or model.config.context) - len(begin)
        return {**shaped(ear.rules), **ended(room, (ear.marks.end,)), "begin": begin, "languages": spoken}
    if isinstance(body, EncoderDecoder):
        stop = stop_condition(words, settings, GREEDY_OPTIONS, begun=1)
        forced, begin = rules(body.decoder, settings, begins=True), [begin_of(settings, words.bos)]
        told = ended(stop.max_new_tokens, stop.tokens, stop.min_new_tokens)
        return {**shaped(forced), **told, "begin": begin, "room": context_of(body.decoder)}
    assert isinstance(body, Trunk)
    stop, first, context = (
        stop_condition(words, settings, GREEDY_OPTIONS),
        first_token(words, settings),
        context_of(body),
    )
    return {
        **shaped(rules(body, settings)),
        **ended(stop.max_new_tokens, stop.tokens, stop.min_new_tokens),
        "begin": [] if first is None else [first],
        "context": context,
        "reread": None if context is None else reread_tokens(context),
    }


def shaped(rules: Rules) -> dict[str, Any]:
    return {name: getattr(rules, name) for name in ("first", "last", "never", "not_first", "no_repeat")}


def ended(most: int, stop: tuple[int, ...], least: int = 0) -> dict[str, Any]:
    return {"max_new_tokens": most, "min_new_tokens": least, "stop": stop}
