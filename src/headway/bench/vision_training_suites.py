"""Suites of training on images, and of attention alone against its length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.bench.answers import LOSSES, VECTORS
from headway.bench.peers import TIMM, TORCH, TRANSFORMERS, library
from headway.bench.suite import Case, Contender, Run, Suite, Workspace
from headway.bench.training_steps import built, common_steps, headway_steps, in_both, load_to_train
from headway.bench.weights import write_model

if TYPE_CHECKING:
    from torch import Tensor


class ImageBatch(NamedTuple):
    """B Ch H W, and the class of each."""

    pixels: Tensor
    classes: Tensor

    @property
    def tokens(self) -> int:
        return len(self.pixels)

    @property
    def targets(self) -> int:
        return len(self.pixels)


def image_batch(work: Workspace) -> ImageBatch:
    import torch

    sizes, generator = work.sizes, torch.Generator().manual_seed(0)
    pixels = torch.randn(sizes["batch"], 3, sizes["image"], sizes["image"], generator=generator)
    return ImageBatch(pixels, torch.randint(0, sizes["classes"], (sizes["batch"],), generator=generator))


def class_loss(logits: Tensor, classes: Tensor, reduction: str = "mean") -> Tensor:
    import torch

    return torch.nn.functional.cross_entropy(logits.float(), classes, reduction=reduction)


def headway_images(config: Callable[[Workspace], Any], precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        def loss(model: Any, batch: ImageBatch) -> Tensor:
            return class_loss(model(batch.pixels), batch.classes, "sum")

        return headway_steps(work, built(work, config(work)), loss, [image_batch(work)], precision)

    return prepare


def transformers_images(name: str, precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        model, batch = load_to_train(work, name), image_batch(work)
        return common_steps(work, model, [lambda: class_loss(model(batch.pixels).logits, batch.classes)], precision)

    return prepare


def timm_images(model_of: Callable[[Mapping[str, int]], Any], precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        model, batch = model_of(work.sizes), image_batch(work)
        return common_steps(work, model, [lambda: class_loss(model(batch.pixels), batch.classes)], precision)

    return prepare


def image_contenders(
    config: Callable[[Workspace], Any], name: str, model_of: Callable[[Mapping[str, int]], Any]
) -> tuple[Contender, ...]:
    return (
        *in_both("headway", partial(headway_images, config)),
        *in_both("transformers", partial(transformers_images, name), TRANSFORMERS),
        *in_both("timm", partial(timm_images, model_of), TIMM, same=False),
    )


# ---- ViT


def vit_config(work: Workspace) -> Any:
    from headway.zoo import vit

    return vit.Config(**work.given("image", "patch", "dim", "layers", "heads", "classes"))


def timm_vit_of(sizes: Mapping[str, int]) -> Any:
    given = {"img_size": sizes["image"], "patch_size": sizes["patch"], "num_classes": sizes["classes"]}
    body = {"embed_dim": sizes["dim"], "depth": sizes["layers"], "num_heads": sizes["heads"]}
    return library("timm").create_model("vit_tiny_patch16_224", **given, **body)


def vit_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    tokens = (sizes["image"] // sizes["patch"]) ** 2 + 1
    flops = 6.0 * 12 * sizes["layers"] * sizes["dim"] ** 2 * tokens * sizes["batch"]
    return (Case(f"a step of {sizes['batch']} images", sizes["batch"], "image", flops),)


TRAIN_VIT = Suite(
    "train-vit",
    "Training ViT-Ti on images of 32 × 32 in patches of 4",
    lambda work: write_model(work.folder, vit_config(work)),
    vit_cases,
    image_contenders(vit_config, "ViTForImageClassification", timm_vit_of),
    {"image": 32, "patch": 4, "dim": 192, "layers": 12, "heads": 3, "classes": 100, "batch": 16},
    {"image": 16, "patch": 8, "dim": 32, "layers": 2, "heads": 2, "classes": 7, "batch": 2},
    LOSSES,
    memory=True,
)


# ---- Swin

DEPTHS = {2: (2, 2), 4: (2, 2, 6, 2)}  # by the number of stages


def swin_config(work: Workspace) -> Any:
    from headway.zoo import swin

    sizes, stages = work.sizes, work.sizes["stages"]
    heads = tuple(sizes["heads"] * 2**stage for stage in range(stages))
    given = work.given("image", "patch", "dim", "classes")
    return swin.Config(**given, layers=DEPTHS[stages], heads=heads, windows=(7,) * stages, depth_dropout=0.0)


def timm_swin_of(sizes: Mapping[str, int]) -> Any:
    stages = sizes["stages"]
    given = {"img_size": sizes["image"], "patch_size": sizes["patch"], "num_classes": sizes["classes"]}
    heads = tuple(sizes["heads"] * 2**stage for stage in range(stages))
    body = {"embed_dim": sizes["dim"], "depths": DEPTHS[stages], "num_heads": heads, "window_size": 7}
    return library("timm").create_model("swin_tiny_patch4_window7_224", **given, **body, drop_path_rate=0.0)


def swin_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    """Each stage has a quarter of the tokens and twice the width of the one before."""
    side, dim, flops = sizes["image"] // sizes["patch"], sizes["dim"], 0.0
    for stage, depth in enumerate(DEPTHS[sizes["stages"]]):
        flops += 6.0 * 12 * depth * (dim * 2**stage) ** 2 * (side // 2**stage) ** 2 * sizes["batch"]
    return (Case(f"a step of {sizes['batch']} images", sizes["batch"], "image", flops),)


TRAIN_SWIN = Suite(
    "train-swin",
    "Training Swin-T on images of 224 × 224",
    lambda work: write_model(work.folder, swin_config(work)),
    swin_cases,
    image_contenders(swin_config, "SwinForImageClassification", timm_swin_of),
    {"image": 224, "patch": 4, "dim": 96, "stages": 4, "heads": 3, "classes": 100, "batch": 4},
    {"image": 28, "patch": 2, "dim": 24, "stages": 2, "heads": 3, "classes": 7, "batch": 2},
    LOSSES,
    memory=True,
)


# ---- attention alone


def attention_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    """Causal: half of the pairs of positions count."""
    dim = sizes["heads"] * sizes["head_dim"]

    def case(length: int) -> Case:
        flops = 2.0 * length * (4 * dim * dim + length * dim)
        return Case(f"N = {length:,}", length, "token", flops, 0.0, {"length": length})

    return tuple(case(sizes[name]) for name in ("short", "medium", "long"))


def attention_module(work: Workspace) -> tuple[Any, dict[int, Tensor]]:
    """Causal self-attention with random weights, and its inputs by their lengths."""
    import torch

    from headway.nn.attention import SelfAttention
    from headway.ops.pattern import Causal

    torch.set_num_threads(work.threads)
    torch.manual_seed(0)
    heads, lengths = work.sizes["heads"], [case.sizes["length"] for case in attention_cases(work.sizes)]
    dim = heads * work.sizes["head_dim"]
    model = SelfAttention(dim, heads, pattern=Causal()).eval()
    return model, {length: torch.randn(1, length, dim) for length in lengths}


def summary(states: Tensor) -> list[list[float]]:
    """The last state of all, as the answer."""
    return [states[0, -1].tolist()]


def headway_attention(work: Workspace) -> Run:
    import torch

    model, inputs = attention_module(work)

    def run(case: Case) -> list[list[float]]:
        with torch.inference_mode():
            return summary(model(inputs[case.sizes["length"]]))

    return run


def torch_attention(explicit: bool) -> Callable[[Workspace], Run]:
    """The same projections, with torch's fused kernel or with the matrix of scores."""

    def prepare(work: Workspace) -> Run:
        import torch
        from torch import nn

        model, inputs = attention_module(work)
        heads, normalise, fused = work.sizes["heads"], nn.Softmax(-1), nn.functional.scaled_dot_product_attention

        def run(case: Case) -> list[list[float]]:
            x = inputs[case.sizes["length"]]
            with torch.inference_mode():
                q, k, v = (part(x).unflatten(2, (heads, -1)).transpose(1, 2) for part in (model.q, model.k, model.v))
                if explicit:
                    hide = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
                    y = normalise((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hide, -torch.inf)) @ v
                else:
                    y = fused(q, k, v, is_causal=True)
                return summary(model.out(y.transpose(1, 2).flatten(2)))

        return run

    return prepare


def multihead_attention(work: Workspace) -> Run:
    import torch
    from torch import nn

    _, inputs = attention_module(work)
    heads = work.sizes["heads"]
    model = nn.MultiheadAttention(heads * work.sizes["head_dim"], heads, batch_first=True).eval()

    def run(case: Case) -> list[list[float]]:
        x = inputs[case.sizes["length"]]
        with torch.inference_mode():
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            return summary(model(x, x, x, attn_mask=mask, need_weights=False, is_causal=True)[0])

    return run


SHORT = ("N = 16", "N = 1,024", "N = 4,096")  # a matrix of scores of 8,192 would take 2 GiB, and twice

ATTENTION = Suite(
    "attention",
    "Causal self-attention, forward, 8 heads of 64: time and memory against the length",
    lambda work: None,
    attention_cases,
    (
        Contender("headway", headway_attention),
        Contender("torch, fused kernel", torch_attention(explicit=False), peer=TORCH),
        Contender("torch, matrix of scores", torch_attention(True), peer=TORCH, cases=SHORT),
        Contender(
            "nn.MultiheadAttention",
            multihead_attention,
            peer=TORCH,
            cases=SHORT,
            same_weights=False,
        ),
    ),
    {"heads": 8, "head_dim": 64, "short": 1024, "medium": 4096, "long": 8192},
    {"heads": 2, "head_dim": 8, "short": 16, "medium": 32, "long": 64},
    VECTORS,
    memory=True,
)
