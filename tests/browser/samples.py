"""Bundles made up of random numbers, as the page is told them, so that it can be tried without a model.

Weights follow from queries and keys as in a model, so what the page computes from a detail must give the map again.

Axes:  H heads   T queries   S keys   D head width   C width
"""

from __future__ import annotations

import gzip
import io
import wave
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from headway.figures import COLOURS
from headway.look.principal_plane import plane_to_json, principal_plane
from headway.look.tiles import THUMB_LEVELS, TILE, TiledMap, row_facts
from headway.look.weight_codes import CLASSES
from headway.ops.attention_map import Weights

Floats = NDArray[np.float32]
Plain = dict[str, Any]

WORDS = [
    "The",
    "cat",
    "that",
    "sat",
    "on",
    "the",
    "mat",
    "looked",
    "at",
    "the",
    "dog",
    "and",
    "so",
    "went",
    "home",
    ".",
]


@dataclass
class Sample:
    """A bundle under construction: JSON data, blobs, and the weights that it tells, by run and site."""

    data: Plain
    blobs: dict[str, str] = field(default_factory=dict)
    weights: dict[tuple[int, str], Floats] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def put(self, id: str, data: bytes) -> str:
        self.blobs[id] = b64encode(gzip.compress(data, 6, mtime=0)).decode("ascii")
        return id

    def run(self, title: str, given: str, axes: Mapping[str, Plain], outcome: Plain, **more: object) -> Plain:
        told = {"title": title, "architecture": "sample", "parameters": 1_234_567, "input": given, "outcome": outcome}
        media = {"picture": None, "sound": None, "effects": None, "follows": None}
        read = {"written": len(outcome["steps"]) if outcome["kind"] in ("next", "written", "heard") else 0}
        run = told | read | media | {"id": len(self.data["runs"]), "axes": dict(axes), "sites": []} | more
        self.data["runs"].append(run)
        return run

    def site(self, name: str, rows: str, columns: str, heads: int, *, causal: bool = False, sharp: float = 2.5) -> None:
        """A site whose weights follow from random queries and keys, with all the numbers behind them."""
        axes = self.data["runs"][-1]["axes"]
        T, S, D = count(axes[rows]), count(axes[columns]), 16
        q, k, v = (self.random.normal(size=(heads, n, D)).astype(np.float16) for n in (T, S, S))
        q = (q * sharp).astype(np.float16)
        bias = np.where(np.tri(T, S, dtype=bool), 0, -np.inf)[None].astype(np.float16) if causal else None
        logits = np.einsum("htd,hsd->hts", q.astype(np.float32), k.astype(np.float32)) * 0.25
        w = softmax(logits if bias is None else logits + bias.astype(np.float32))
        x, out = (self.random.normal(size=s).astype(np.float16) for s in ((T, 32), (32, heads * D)))
        exact = {"q": q, "k": k, "bias": bias, "additive": None}
        exact = {key: None if part is None else part.astype(np.float32) for key, part in exact.items()}
        parts = exact | {"x": x, "v": v, "out": out}
        id = self.put(f"{self.prefix}.d", b"".join(part.tobytes() for part in parts.values() if part is not None))
        layout = {key: None if part is None else list(part.shape) for key, part in parts.items()}
        told = {"blob": id, "score": "dot", "scale": 0.25, "layout": layout}
        self.given(name, rows, columns, w, detail=told, causal=causal)

    def given(
        self,
        name: str,
        rows: str,
        columns: str,
        w: Floats,
        *,
        detail: Plain | None = None,
        derived: bool = False,
        causal: bool = False,
    ) -> None:
        """A site of given weights, H T S."""
        T, S = w.shape[1:]
        entropy = -(w * np.log(np.maximum(w, 1e-9))).sum(-1).mean(-1)
        near = np.abs(np.arange(T)[:, None] - np.arange(S)[None])
        distance = (w * near).sum(-1).mean(-1).tolist() if rows == columns else None
        stats = {"entropy": entropy.tolist(), "distance": distance, "effect": None}
        self.weights[len(self.data["runs"]) - 1, name] = w
        told = {"name": name, "label": name.replace(".", " "), "derived": derived, "rows": rows, "columns": columns}
        told["plane"] = None if derived else self.plane(T, len(self.data["runs"][-1]["sites"]))
        keep = torch.ones(1, T, S, dtype=torch.bool).tril() if causal else None
        self.tiled(told | {"stats": stats, "detail": detail}, Weights(torch.from_numpy(w)[None], keep))

    def plane(self, points: int, seed: int = 0) -> Plain:
        vectors = np.random.default_rng([points, seed]).normal(size=(points, 8))
        return plane_to_json(principal_plane(torch.from_numpy(vectors)))

    def cloud(self, points: int, classes: Sequence[str] = (), layers: int = 3) -> None:
        """A cloud of so many samples, in classes by turns."""
        labels = [f"sample {at}" for at in range(points)]
        named = [{"name": f"{at}.out", **self.plane(points, at)} for at in range(layers)]
        turns = [classes[at % len(classes)] for at in range(points)] if classes else []
        told = {"title": f"{points} samples of data.tsv", "noun": "samples", "labels": labels, "classes": turns}
        self.data["clouds"].append(told | {"axis": "", "active": [], "layers": named})

    def tiled(self, told: Plain, map: Weights, fine: Sequence[tuple[int, int]] | None = None) -> None:
        """A site of given weights; of the finest level, only tiles `fine`."""
        prefix = self.prefix
        _, heads, T, S = map.shape
        tiled, facts = TiledMap(map, TILE), row_facts(map)
        levels = [
            self.level(prefix, tiled, number, fine if number == 0 else None) for number in range(len(tiled.levels))
        ]
        thumbs = {"blob": self.put(f"{prefix}.t", tiled.thumbs.tobytes()), "shape": list(tiled.thumbs_shape)}
        rows = {"entropy": self.put(f"{prefix}.e", facts.entropy_bytes()), "peaks": facts.peak.tolist()}
        strongest = self.put(f"{prefix}.s", facts.strongest_bytes()) if len(levels) > 1 else None
        shape = {"heads": heads, "shape": [T, S], "levels": levels, "thumbs": thumbs, "strongest": strongest}
        self.data["runs"][-1]["sites"].append({"hard": False, "opens": None, "plane": None} | told | shape | rows)

    @property
    def prefix(self) -> str:
        runs = self.data["runs"]
        return f"{len(runs) - 1}.{len(runs[-1]['sites'])}"

    def level(self, prefix: str, tiled: TiledMap, number: int, wanted: Sequence[tuple[int, int]] | None) -> Plain:
        level, blobs = tiled.levels[number], dict[str, str]()
        for i, j in level.places() if wanted is None else wanted:
            tile = tiled.tile(number, i, j)
            for head in ["*"] if tiled.whole else range(tiled.heads):
                id = f"{prefix}.m{level.scale}.{head}.{i}.{j}"
                blobs[f"{head}/{i}/{j}"] = self.put(id, (tile if tiled.whole else tile.head(int(head))).to_bytes())
        return {"scale": level.scale, "tile": TILE, "shape": list(level.shape), "blobs": blobs}

    def effects(self) -> None:
        """Every head of every site of the last run, edited in each way, with made-up outcomes."""
        run = self.data["runs"][-1]
        run["effects"] = []
        for site in (one for one in run["sites"] if not one["derived"]):
            totals = self.random.normal(-1, 0.4, size=(site["heads"], 3))
            site["stats"]["effect"] = [float(total) for total in totals[:, 0]]
            for head in range(site["heads"]):
                for how, total in zip(("off", "uniform", "only"), totals[head], strict=True):
                    changed = run["outcome"] | {"text": f"{how} {head}", "total": run["outcome"]["total"] + total}
                    run["effects"].append({"site": site["name"], "head": head, "how": how, "outcome": changed})


def begun(site: str, head: int = 0, seed: int = 0) -> Sample:
    codes = {"classes": CLASSES, "thumbs": THUMB_LEVELS}
    focus = {"run": 0, "site": site, "head": head}
    page = {"format": 2, "live": False, "focus": focus, "codes": codes, "colours": COLOURS}
    return Sample({**page, "runs": [], "clouds": []}, seed=seed)


def text(labels: Sequence[str], special: Sequence[int] = (), words: Sequence[int] = ()) -> Plain:
    told = {"words": list(words)} if words else {}
    return {"kind": "text", "labels": list(labels), "special": list(special), "count": len(labels)} | told


def grid(rows: int, columns: int, first: int = 0) -> Plain:
    labels = ["[CLS]"][:first]
    told = {"kind": "grid", "grid": [rows, columns], "first": first, "labels": labels, "special": list(range(first))}
    return told | {"count": rows * columns + first}


def frames(length: int, seconds: float) -> Plain:
    return {"kind": "frames", "count": length, "seconds": seconds, "special": []}


def items(labels: Sequence[str]) -> Plain:
    return {"kind": "items", "labels": list(labels), "special": [], "count": len(labels)}


def outcome(kind: str, words: Sequence[str], first: int | None = 0) -> Plain:
    """`first` is the row of the first word said; None where words have no rows."""
    steps = [
        {"at": None if first is None else first + at, "said": word, "logprob": -0.1 * (at + 1),
         "top": [[word, 0.6], ["other", 0.2], ["日本", 0.1], ["שלום", 0.05]]}
        for at, word in enumerate(words)
    ]  # fmt: skip
    return {"kind": kind, "text": " ".join(words), "total": sum(s["logprob"] for s in steps), "steps": steps}


def count(axis: Plain) -> int:
    return int(axis["count"])


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


def picture(size: int = 224) -> Plain:
    """A round thing on a meadow, under a sky."""
    y, x = np.mgrid[0:size, 0:size] / size
    sky = np.stack([0.45 + 0.3 * y, 0.65 + 0.2 * y, 0.9 - 0.1 * y], -1)
    meadow = np.stack([0.25 + 0.1 * x, 0.5 + 0.1 * np.sin(9 * x) ** 2, 0.2 + 0 * x], -1)
    scene = np.where((y > 0.62)[..., None], meadow, sky)
    scene[(x - 0.42) ** 2 + (y - 0.55) ** 2 < 0.05] = (0.85, 0.35, 0.2)
    return {"src": f"data:image/png;base64,{png(scene)}", "width": size, "height": size}


def sound(seconds: float = 2.4, rate: int = 8000) -> Plain:
    t = np.arange(int(seconds * rate)) / rate
    samples = (np.sin(2 * np.pi * (300 + 200 * t) * t) * np.hanning(len(t)) * 20000).astype("<i2")
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    y, x = np.mgrid[0:64, 0:240] / [[[64]], [[240]]]
    power = np.exp(-((y - 0.8 + 0.4 * x) ** 2) * 90) + 0.5 * np.exp(-((y - 0.45 + 0.3 * x) ** 2) * 200)
    drawn = np.repeat(np.clip(power, 0, 1)[..., None], 3, -1)
    src = f"data:audio/wav;base64,{b64encode(held.getvalue()).decode('ascii')}"
    return {"src": src, "seconds": seconds, "spectrogram": f"data:image/png;base64,{png(drawn)}"}


def png(pixels: NDArray[np.float64]) -> str:
    held = io.BytesIO()
    Image.fromarray((pixels * 255).astype(np.uint8)).save(held, "PNG")
    return b64encode(held.getvalue()).decode("ascii")
