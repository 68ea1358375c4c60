"""Runs the model in this folder with onnxruntime, numpy and tokenizers alone.

    python run.py "Once upon a time"           a text to continue, translate, fill, classify or embed
    python run.py pixels.npy                   prepared numbers, as preprocessor_config.json says, without a batch axis

onnx.json beside it says what the graphs read and give, which tokens begin and end a text, and what the classes are.
Texts are written greedily.  Read it, and take from it what you need.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

Arrays = dict[str, Any]


class OnnxFolder:
    """The graphs of a folder, its tokenizers, and what onnx.json says."""

    def __init__(self, folder: Path):
        self.folder, self.told = folder, json.loads((folder / "onnx.json").read_text(encoding="utf-8"))
        self.graphs = {name: ort.InferenceSession(str(folder / name)) for name in self.told["graphs"]}
        self.source = read_tokenizer(folder)
        self.target = read_tokenizer(folder / "target") or self.source

    def run(self, name: str, given: Arrays) -> Arrays:
        """The outputs of a graph by name; what it does not read is left out."""
        graph = self.graphs[name]
        known = {one.name for one in graph.get_inputs()}
        outputs = [one.name for one in graph.get_outputs()]
        return dict(zip(outputs, graph.run(outputs, {k: v for k, v in given.items() if k in known}), strict=True))

    def inputs(self, given: str, graph: str) -> Arrays:
        """One input as a batch of one: a text in tokens, or the numbers in a file."""
        first = self.graphs[graph].get_inputs()[0]
        if given.endswith(".npy"):
            x = np.load(given)[None].astype(np.float32)
            return {first.name: x, "attention_mask": np.ones(x.shape[:2], np.int64)}
        ids = self.encode(given)
        if isinstance(first.shape[1], int):  # a text that is filled up to one length
            ids = ids[: first.shape[1]] + [self.told["fill"]] * (first.shape[1] - len(ids))
        return read([ids])

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, its last one kept where it is cut."""
        assert self.source is not None, "this folder has no tokenizer"
        longest, known = self.told["max_length"], self.told["known_tokens"]
        ids = self.source.encode(self.told["prefix"] + text).ids
        ids = ids if known is None else [one if one < known else self.told["unknown"] for one in ids]
        return ids if longest is None or len(ids) <= longest else [*ids[: longest - 1], ids[-1]]

    # ---- what models answer

    def answer(self, given: str) -> str:
        return getattr(self, self.told["answer"])(given)

    def continuation(self, text: str) -> str:
        """The text, and what follows it."""
        writing, context = self.told["writing"], self.told["writing"].get("context")
        prompt = self.encode(text) or writing["begin"]
        if context is not None and len(prompt) > context:
            prompt = prompt[-writing["reread"] :]
        new, first, done, past = list[int](), 0, 0, self.no_past("model.onnx", 1)
        while True:
            ids = [*prompt, *new][first:]
            if context is not None and len(ids) > context:  # it reads the last tokens again
                first, done, past = first + len(ids) - writing["reread"], 0, self.no_past("model.onnx", 1)
                ids = ids[-writing["reread"] :]
            found = self.run("model.onnx", {**read([ids]), "input_ids": np.array([ids[done:]]), **past})
            done, past = len(ids), as_past(found)
            if self.ended(new, found["logits"][0, -1], prompt):
                break
        return text + self.decoded([*prompt, *stripped(new, writing)])[len(self.decoded(prompt)) :]

    def text(self, given: str) -> str:
        """What is written from a source: the encoder once, then the decoder token by token."""
        source = self.inputs(given, "encoder_model.onnx")
        encoded = self.run("encoder_model.onnx", source)
        mask = encoded.get("encoder_attention_mask", source.get("attention_mask"))
        memory = {"encoder_hidden_states": encoded["last_hidden_state"], "encoder_attention_mask": mask}
        writing, decoder = self.told["writing"], "decoder_model_merged.onnx"
        nothing = {**memory, **self.no_past(decoder, 1), "use_cache_branch": np.array([False])}
        begin, new = list(writing["begin"]), list[int]()
        if writing.get("languages"):  # Whisper hears which is spoken
            logits = self.run(decoder, {**nothing, "input_ids": np.array([begin[:1]])})["logits"][0, -1]
            begin[1] = max(writing["languages"], key=logits.__getitem__)
        found = self.run(decoder, {**nothing, "input_ids": np.array([begin])})
        while not self.ended(new, found["logits"][0, -1], begin):
            step = {**memory, **as_past(found), "use_cache_branch": np.array([True])}
            found = self.run(decoder, {**step, "input_ids": np.array([new[-1:]])})
        written = self.decoded(stripped(new, writing))
        return written.strip() if "languages" in writing else written

    def ended(self, new: list[int], logits: Any, prompt: list[int]) -> bool:
        """Chooses the next token by its logits, and says whether it is the last."""
        writing, most = self.told["writing"], self.told["writing"]["max_new_tokens"]
        room = writing.get("room")
        most = most if room is None else min(most, room - len(prompt) + 1)
        never = [*writing["never"], *(writing["not_first"] if not new else ())]
        never += writing["stop"] if len(new) < writing["min_new_tokens"] else []
        never += repeated([*prompt, *new], writing["no_repeat"])
        forced = writing["last"] if writing["last"] and len(new) == most - 1 else writing["first"] if not new else []
        logits = logits.copy()
        logits[never] = -np.inf
        new.append(int(max(forced, key=logits.__getitem__) if forced else logits.argmax()))
        return new[-1] in writing["stop"] or len(new) >= most

    def filled(self, text: str) -> str:
        """The text with the likeliest token in the place of each mask."""
        assert self.source is not None
        self.source.encode_special_tokens = False
        ids, mask = self.encode(text), self.told["mask"]
        logits = self.run("model.onnx", read([ids]))["logits"][0]
        return self.decoded([int(row.argmax()) if one == mask else one for one, row in zip(ids, logits, strict=True)])

    def label(self, given: str) -> str:
        """The likeliest class and its probability."""
        logits = self.run("model.onnx", self.inputs(given, "model.onnx"))["logits"][0]
        best, odds = int(logits.argmax()), np.exp(logits - logits.max())
        return f"{self.told['labels'][best]} {odds[best] / odds.sum():.3f}"

    def tags(self, given: str) -> str:
        """The class of each token."""
        assert self.source is not None
        inputs = self.inputs(given, "model.onnx")
        best = self.run("model.onnx", inputs)["logits"][0].argmax(-1)
        tokens = [self.source.id_to_token(int(one)) for one in inputs["input_ids"][0]]
        return " ".join(f"{token}/{self.told['labels'][k]}" for token, k in zip(tokens, best, strict=True))

    def transcript(self, given: str) -> str:
        """The likeliest symbol of each frame; what repeats is one, and 0 is the blank."""
        best = self.run("model.onnx", self.inputs(given, "model.onnx"))["logits"][0].argmax(-1).tolist()
        symbols = [one for at, one in enumerate(best) if one and (at == 0 or one != best[at - 1])]
        return self.decoded([one - self.told["first_symbol"] for one in symbols])

    def vector(self, given: str) -> str:
        """A vector of length 1."""
        graph = "vision_model.onnx" if given.endswith(".npy") else "text_model.onnx"
        graph = graph if graph in self.graphs else "model.onnx"
        found = self.run(graph, self.inputs(given, graph))
        x = next(found[name] for name in self.told["vectors"] if name in found)[0]
        x = x if x.ndim == 1 else x.reshape(-1, x.shape[-1]).mean(0)
        return " ".join(f"{one:.5f}" for one in x / np.linalg.norm(x))

    def rows(self, given: str) -> str:
        """The row of numbers behind those in a file."""
        return " ".join(
            map(str, self.run("model.onnx", self.inputs(given, "model.onnx"))["prediction"][0, -1].tolist())
        )

    # ---- small things

    def decoded(self, ids: Sequence[int]) -> str:
        assert self.target is not None, "this folder has no tokenizer"
        return self.target.decode(list(ids), skip_special_tokens=True)

    def no_past(self, graph: str, batch: int) -> Arrays:
        """The past before the first token: tensors of no length."""
        types = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
        past = [one for one in self.graphs[graph].get_inputs() if one.name.startswith("past_")]
        sizes = {one.name: [batch, *(n if isinstance(n, int) else 0 for n in one.shape[1:])] for one in past}
        return {one.name: np.zeros(sizes[one.name], types[one.type]) for one in past}


def read(rows: list[list[int]]) -> Arrays:
    """Tokens as a model reads them; padding would be 0 in the mask."""
    ids = np.array(rows, np.int64).reshape(len(rows), -1)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def as_past(found: Arrays) -> Arrays:
    """What one call keeps, as the next reads it."""
    return {f"past_key_values{k.removeprefix('present')}": v for k, v in found.items() if k.startswith("present.")}


def repeated(ids: list[int], size: int) -> list[int]:
    """The tokens that would complete a run of `size` tokens that is there already."""
    begun = ids[len(ids) - size + 1 :]
    runs = [ids[at : at + size] for at in range(len(ids) - size + 1)] if size else []
    return [run[-1] for run in runs if run[:-1] == begun]


def stripped(new: list[int], writing: dict[str, Any]) -> list[int]:
    """Tokens without the one that ends them."""
    return new[:-1] if new[-1] in writing["stop"] else new


def read_tokenizer(folder: Path) -> Tokenizer | None:
    if not (folder / "tokenizer.json").is_file():
        return None
    found = Tokenizer.from_file(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    found.encode_special_tokens = bool(settings.get("split_special_tokens"))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Runs the model in this folder.")
    parser.add_argument("inputs", nargs="+", help="texts, or .npy files of prepared numbers")
    model = OnnxFolder(Path(sys.argv[0]).parent)
    for one in parser.parse_args().inputs:
        print(model.answer(one))
