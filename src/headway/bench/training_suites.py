"""Suites of training: texts with small and large vocabularies, masked words, experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.bench.answers import LOSSES
from headway.bench.peers import TORCH, TRANSFORMERS, X_TRANSFORMERS, library
from headway.bench.suite import FP32, Case, Run, Suite, Workspace
from headway.bench.training_steps import built, common_steps, headway_steps, in_both, load_to_train
from headway.bench.weights import write_model

if TYPE_CHECKING:
    from torch import Tensor

SIZES = ("vocab", "context", "dim", "layers", "heads")


def token_cases(matrices: Callable[[Mapping[str, int]], int]) -> Callable[[Mapping[str, int]], tuple[Case, ...]]:
    """One step; six operations for each weight and token."""

    def cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
        tokens = sizes["batch"] * sizes["context"]
        name = f"a step of {sizes['batch']} × {sizes['context']} tokens"
        return (Case(name, tokens, "token", 6.0 * matrices(sizes) * tokens, sizes={"batch": sizes["batch"]}),)

    return cases


def transformer_matrices(sizes: Mapping[str, int]) -> int:
    return 12 * sizes["layers"] * sizes["dim"] ** 2 + sizes["vocab"] * sizes["dim"]


def tokens_of(work: Workspace) -> tuple[Tensor, Tensor]:
    """Random rows to read, and what comes next at each place."""
    import torch

    sizes = work.sizes
    shape = sizes["batch"], sizes["context"] + 1
    ids = torch.randint(5, sizes["vocab"], shape, generator=torch.Generator().manual_seed(0))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


# ---- texts


def gpt_config(work: Workspace) -> Any:
    from headway.zoo import gpt2

    return gpt2.Config(**work.given(*SIZES), dropout=0.0, attention_dropout=0.0, embed_dropout=0.0)


def write_gpt(work: Workspace) -> None:
    write_model(work.folder, gpt_config(work))


def gpt_loss(model: Any, batch: Any) -> Tensor:
    from headway.nn.head import word_head

    return word_head(model.head).loss(model.features(batch.read.ids).flatten(0, 1), batch.wanted)


def headway_gpt(config: Callable[[Workspace], Any], precision: str = FP32) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        from headway.tasks.batches import PackedBatch
        from headway.tasks.causal_lm import CausalBatch

        shown, wanted = tokens_of(work)
        batch = CausalBatch(PackedBatch(shown, None), wanted.flatten())
        return headway_steps(work, built(work, config(work)), gpt_loss, [batch], precision)

    return prepare


def next_token_loss(logits: Tensor, wanted: Tensor) -> Tensor:
    import torch

    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten())


def transformers_gpt(name: str, precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        model, (shown, wanted) = load_to_train(work, name), tokens_of(work)
        return common_steps(work, model, [lambda: next_token_loss(model(shown).logits, wanted)], precision)

    return prepare


def torch_gpt(precision: str) -> Callable[[Workspace], Run]:
    """`nn.TransformerEncoder` with a causal mask, as tutorials have it."""

    def prepare(work: Workspace) -> Run:
        import torch
        from torch import nn

        sizes, (shown, wanted) = work.sizes, tokens_of(work)
        dim, length = sizes["dim"], sizes["context"]
        words, places = nn.Embedding(sizes["vocab"], dim), nn.Embedding(length, dim)
        layer = nn.TransformerEncoderLayer(
            dim, sizes["heads"], 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        body = nn.TransformerEncoder(layer, sizes["layers"], nn.LayerNorm(dim), enable_nested_tensor=False)
        model = nn.ModuleList([words, places, body])
        mask, order = nn.Transformer.generate_square_subsequent_mask(length), torch.arange(length)

        def loss() -> Tensor:
            states = body(words(shown) + places(order), mask=mask, is_causal=True)
            return next_token_loss(nn.functional.linear(states, words.weight), wanted)

        return common_steps(work, model, [loss], precision)

    return prepare


def x_transformers_gpt(precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        xt, sizes, (shown, wanted) = library("x_transformers"), work.sizes, tokens_of(work)
        body = xt.Decoder(dim=sizes["dim"], depth=sizes["layers"], heads=sizes["heads"], attn_flash=True)
        model = xt.TransformerWrapper(
            num_tokens=sizes["vocab"], max_seq_len=sizes["context"], attn_layers=body, tie_embedding=True
        )
        return common_steps(work, model, [lambda: next_token_loss(model(shown), wanted)], precision)

    return prepare


GPTS = (
    *in_both("headway", partial(headway_gpt, gpt_config)),
    *in_both("transformers", partial(transformers_gpt, "GPT2LMHeadModel"), TRANSFORMERS),
    *in_both("nn.TransformerEncoder", torch_gpt, TORCH, same=False),
    *in_both("x-transformers", x_transformers_gpt, X_TRANSFORMERS, same=False),
)
GPT = Suite(
    "train-gpt",
    "Training a GPT of 6 layers of 384, context 256, 65 tokens",
    write_gpt,
    token_cases(transformer_matrices),
    GPTS,
    {"vocab": 65, "context": 256, "dim": 384, "layers": 6, "heads": 6, "batch": 8},
    {"vocab": 65, "context": 16, "dim": 32, "layers": 2, "heads": 2, "batch": 2},
    LOSSES,
    memory=True,
)
GPT_50K = Suite(
    "train-gpt-50k",
    "Training a GPT of 4 layers of 256, context 256, 50,257 tokens",
    write_gpt,
    token_cases(transformer_matrices),
    GPTS,
    {"vocab": 50_257, "context": 256, "dim": 256, "layers": 4, "heads": 4, "batch": 4},
    {"vocab": 99, "context": 16, "dim": 32, "layers": 2, "heads": 2, "batch": 2},
    LOSSES,
    memory=True,
)


# ---- experts


def moe_config(work: Workspace) -> Any:
    from headway.zoo import mixtral

    return mixtral.Config(**work.given(*SIZES, "kv_heads", "hidden", "experts", "top"), tied=False)


def write_moe(work: Workspace) -> None:
    write_model(work.folder, moe_config(work))


def moe_matrices(sizes: Mapping[str, int]) -> int:
    """Of the experts, those that a token meets."""
    dim = sizes["dim"]
    attention = 2 * dim * dim + 2 * dim * dim * sizes["kv_heads"] // sizes["heads"]
    return sizes["layers"] * (attention + 3 * sizes["top"] * dim * sizes["hidden"]) + sizes["vocab"] * dim


MOE = Suite(
    "train-moe",
    "Training a mixture of 8 experts, top 2, 4 layers of 256",
    write_moe,
    token_cases(moe_matrices),
    (
        *in_both("headway", partial(headway_gpt, moe_config)),
        *in_both("transformers", partial(transformers_gpt, "MixtralForCausalLM"), TRANSFORMERS),
    ),
    {
        **{"vocab": 1000, "context": 128, "dim": 256, "layers": 4, "heads": 4, "batch": 8},
        **{"kv_heads": 2, "hidden": 512, "experts": 8, "top": 2},
    },
    {
        **{"vocab": 99, "context": 8, "dim": 32, "layers": 2, "heads": 2, "batch": 2},
        **{"kv_heads": 1, "hidden": 48, "experts": 4, "top": 2},
    },
    LOSSES,
    memory=True,
    notes="headway adds the routers' load-balancing loss, which transformers leaves out unless asked.",
)


# ---- masked words


def mlm_config(work: Workspace) -> Any:
    from headway.zoo import bert

    return bert.Config(**work.given(*SIZES), dropout=0.0, attention_dropout=0.0)


def write_mlm(work: Workspace) -> None:
    write_model(work.folder, mlm_config(work))


def mlm_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    """The head computes 15 % of the tokens."""
    tokens, head = sizes["batch"] * sizes["context"], sizes["vocab"] * sizes["dim"]
    flops = 6.0 * tokens * (12 * sizes["layers"] * sizes["dim"] ** 2 + 0.15 * head)
    return (Case(f"a step of {sizes['batch']} × {sizes['context']} tokens", tokens, "token", flops),)


def masked_tokens(work: Workspace) -> tuple[Tensor, Tensor]:
    """Ids, and where a token is to be predicted."""
    import torch

    ids, _ = tokens_of(work)
    return ids, torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)) < 0.15


def headway_mlm(precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        from headway.nn.head import word_head
        from headway.tasks.batches import PackedBatch
        from headway.tasks.masked_lm import MaskedBatch

        ids, chosen = masked_tokens(work)
        places = chosen.flatten().nonzero()[:, 0]

        def loss(model: Any, batch: MaskedBatch) -> Tensor:
            return word_head(model.head).loss(model.features(batch.read.ids).flatten(0, 1)[batch.chosen], batch.wanted)

        batch = MaskedBatch(PackedBatch(ids, None), places, ids.flatten()[places])
        return headway_steps(work, built(work, mlm_config(work)), loss, [batch], precision)

    return prepare


def transformers_mlm(precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        import torch

        model, (ids, chosen) = load_to_train(work, "BertForMaskedLM"), masked_tokens(work)
        labels = ids.where(chosen, torch.tensor(-100))
        return common_steps(work, model, [lambda: model(ids, labels=labels).loss], precision)

    return prepare


def torch_mlm(precision: str) -> Callable[[Workspace], Run]:
    """`nn.TransformerEncoder`, with logits of every token."""

    def prepare(work: Workspace) -> Run:
        import torch
        from torch import nn

        sizes, (ids, chosen) = work.sizes, masked_tokens(work)
        dim = sizes["dim"]
        words, places = nn.Embedding(sizes["vocab"], dim), nn.Embedding(sizes["context"], dim)
        layer = nn.TransformerEncoderLayer(
            dim, sizes["heads"], 4 * dim, dropout=0.0, activation="gelu", batch_first=True
        )
        body = nn.TransformerEncoder(layer, sizes["layers"], enable_nested_tensor=False)
        model, order = nn.ModuleList([words, places, body]), torch.arange(sizes["context"])
        labels = ids.where(chosen, torch.tensor(-100))

        def loss() -> Tensor:
            states = body(words(ids) + places(order))
            return next_token_loss(nn.functional.linear(states, words.weight), labels)

        return common_steps(work, model, [loss], precision)

    return prepare


MLM = Suite(
    "train-mlm",
    "Training a BERT of 4 layers of 256 by masked words, 30,522 tokens",
    write_mlm,
    mlm_cases,
    (
        *in_both("headway", headway_mlm),
        *in_both("transformers", transformers_mlm, TRANSFORMERS),
        *in_both("nn.TransformerEncoder", torch_mlm, TORCH, same=False),
    ),
    {"vocab": 30_522, "context": 128, "dim": 256, "layers": 4, "heads": 4, "batch": 8},
    {"vocab": 99, "context": 16, "dim": 32, "layers": 2, "heads": 2, "batch": 4},
    LOSSES,
    memory=True,
)
