"""The Transformer from the ground up, in the structure and the names that courses teach it with; to and from the zoo.

    model = make_model(37_000, 37_000)                     # 101,009,544 parameters
    features = model(source, target, source_mask, target_mask)
    log_probabilities = model.generator(features)          # B T V
    same = to_zoo(model)                                   # the weights in headway.zoo.transformer: equal logits

Everything is written out here with torch alone.  It repeats formulas that stand elsewhere in headway, on purpose: two
texts of one model check each other (`tests/test_lecture.py`), and this one can be read from top to bottom beside the
slides.  Models to train and to use are those of the zoo.

What differs from the paper, as in most teaching code: the norm stands before each sublayer, not after it, with one more
at the end of each stack; it divides by the unbiased deviation plus ε, where torch's has the root of the biased variance
plus ε (`norm=` takes another).  Dropout is applied to embeddings, to attention weights, inside the feed-forward layers
and to each sublayer's output, at one rate.

Axes:  B batch   T target tokens, queries   S source tokens, keys   C width   H heads   D head width   V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.interop.keymap import KeyMap, Rule, linear
from headway.nn.trunk import EncoderDecoder as ZooModel
from headway.zoo import transformer

Norm = Callable[[int], nn.Module]


def make_model(
    src_vocab: int,
    tgt_vocab: int,
    N: int = 6,
    d_model: int = 512,
    d_ff: int = 2048,
    h: int = 8,
    dropout: float = 0.1,
    norm: Norm | None = None,
) -> EncoderDecoder:
    """N layers on each side, every matrix initialised by Xavier's rule."""
    norm = LayerNorm if norm is None else norm
    attn = MultiHeadedAttention(h, d_model, dropout)
    ff = PositionwiseFeedForward(d_model, d_ff, dropout)
    position = PositionalEncoding(d_model, dropout)
    model = EncoderDecoder(
        Encoder(EncoderLayer(d_model, deepcopy(attn), deepcopy(ff), dropout, norm), N, norm),
        Decoder(DecoderLayer(d_model, deepcopy(attn), deepcopy(attn), deepcopy(ff), dropout, norm), N, norm),
        nn.Sequential(Embeddings(d_model, src_vocab), deepcopy(position)),
        nn.Sequential(Embeddings(d_model, tgt_vocab), deepcopy(position)),
        Generator(d_model, tgt_vocab),
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model


class EncoderDecoder(nn.Module):
    """The features of each target token, B T C; every decoder layer reads the output of the last encoder layer."""

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        src_embed: nn.Sequential,
        tgt_embed: nn.Sequential,
        generator: Generator,
    ):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.src_embed, self.tgt_embed = src_embed, tgt_embed
        self.generator = generator

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None) -> Tensor:
        """B S, B T and their masks, B 1 S and B T T, False where a key is hidden → B T C"""
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory: Tensor, src_mask: Tensor | None, tgt: Tensor, tgt_mask: Tensor | None) -> Tensor:
        return self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask)


class Generator(nn.Module):
    """Log-probabilities of the next token: B T C → B T V"""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.proj(x), dim=-1)


def clones(module: nn.Module, N: int) -> nn.ModuleList:
    """N copies, each with parameters of its own."""
    return nn.ModuleList(deepcopy(module) for _ in range(N))


class Encoder(nn.Module):
    def __init__(self, layer: EncoderLayer, N: int, norm: Norm):
        super().__init__()
        self.layers, self.norm = clones(layer, N), norm(layer.size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Decoder(nn.Module):
    def __init__(self, layer: DecoderLayer, N: int, norm: Norm):
        super().__init__()
        self.layers, self.norm = clones(layer, N), norm(layer.size)

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward layer."""

    def __init__(self, size: int, self_attn: MultiHeadedAttention, feed_forward: nn.Module, dropout: float, norm: Norm):
        super().__init__()
        self.size, self.self_attn, self.feed_forward = size, self_attn, feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout, norm), 2)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        def attend(y: Tensor) -> Tensor:
            return self.self_attn(y, y, y, mask)

        x = self.sublayer[0](x, attend)
        return self.sublayer[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention to the memory, then the feed-forward layer."""

    def __init__(
        self,
        size: int,
        self_attn: MultiHeadedAttention,
        src_attn: MultiHeadedAttention,
        feed_forward: nn.Module,
        dropout: float,
        norm: Norm,
    ):
        super().__init__()
        self.size, self.self_attn, self.src_attn, self.feed_forward = size, self_attn, src_attn, feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout, norm), 3)

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None) -> Tensor:
        def attend(y: Tensor) -> Tensor:
            return self.self_attn(y, y, y, tgt_mask)

        def attend_source(y: Tensor) -> Tensor:
            return self.src_attn(y, memory, memory, src_mask)

        x = self.sublayer[0](x, attend)
        x = self.sublayer[1](x, attend_source)
        return self.sublayer[2](x, self.feed_forward)


class SublayerConnection(nn.Module):
    """x + dropout(sublayer(norm(x))): pre-norm, where the paper's formula is norm(x + dropout(sublayer(x)))."""

    def __init__(self, size: int, dropout: float, norm: Norm):
        super().__init__()
        self.norm, self.dropout = norm(size), nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))


class LayerNorm(nn.Module):
    """a · (x − mean) / (std + ε) + b, with the unbiased standard deviation."""

    def __init__(self, features: int, eps: float = 1e-6):
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class MultiHeadedAttention(nn.Module):
    """Four matrices: of queries, keys, values and the output."""

    def __init__(self, h: int, d_model: int, dropout: float = 0.1):
        super().__init__()
        if d_model % h:
            raise UserError(f"h={h} does not divide d_model={d_model}", do="choose a number of heads that does")
        self.h, self.d_k = h, d_model // h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """B T C, B S C, B S C and B T S → B T C"""
        *projections, output = self.linears
        q, k, v = (
            project(x).unflatten(-1, (self.h, self.d_k)).transpose(1, 2)  # B H T D
            for project, x in zip(projections, (query, key, value), strict=True)
        )
        seen, _ = attention(q, k, v, None if mask is None else mask.unsqueeze(1), self.dropout)
        return output(seen.transpose(1, 2).flatten(2))


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: nn.Module | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √D) v and the weights; keys where the mask is False get −10⁹ and so the weight 0."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = scores.softmax(dim=-1)
    weights = weights if dropout is None else dropout(weights)
    return weights @ value, weights


def subsequent_mask(size: int) -> Tensor:
    """1 T T, True where a key is not later than the query."""
    return torch.ones(1, size, size, dtype=torch.bool).tril()


class PositionwiseFeedForward(nn.Module):
    """max(0, x W₁ + b₁) W₂ + b₂, with dropout between the two."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.1):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.dropout(self.w_1(x).relu()))


class Embeddings(nn.Module):
    """A row of the table, times √C."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.lut, self.d_model = nn.Embedding(vocab, d_model), d_model

    def forward(self, x: Tensor) -> Tensor:
        return self.lut(x) * math.sqrt(self.d_model)


class PositionalEncoding(nn.Module):
    """x + sin and cos of position / 10000^(2i/C), positions from 0, with powers computed as exponentials of logs."""

    pe: Tensor  # 1 max_len C

    def __init__(self, d_model: int, dropout: float, max_len: int = 5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        position = torch.arange(max_len).unsqueeze(1)
        frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(position * frequency)
        pe[:, 1::2] = torch.cos(position * frequency)
        self.register_buffer("pe", pe.unsqueeze(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > self.pe.shape[1]:
            said = f"{x.shape[1]} tokens, and positions for {self.pe.shape[1]}"
            raise UserError(said, do="shorten the input, or make the encoding with a larger max_len")
        return self.dropout(x + self.pe[:, : x.shape[1]])


# ---- to and from the zoo


def to_zoo(model: EncoderDecoder) -> ZooModel:
    """The same weights as a `headway.zoo.transformer`: its logits' log-softmax is the generator's output."""
    config = zoo_config(model)
    made = transformer.build(config)
    made.load_state_dict(key_map(config.norm).load(model.state_dict()))
    return made.train(model.training)


def zoo_config(model: EncoderDecoder) -> transformer.Config:
    """The config of the zoo that `to_zoo` builds."""
    first, norm = cast(EncoderLayer, model.encoder.layers[0]), model.encoder.norm
    ffn = cast(PositionwiseFeedForward, first.feed_forward)
    definition = next((name for name, kind in DEFINITIONS.items() if type(norm) is kind), None)
    if definition is None:
        said = f"the norm {type(norm).__name__} has no counterpart in headway.zoo.transformer"
        raise UserError(said, allowed="this module's LayerNorm and torch's")
    source, target = (cast(Embeddings, side[0]).lut.num_embeddings for side in (model.src_embed, model.tgt_embed))
    return transformer.Config(
        vocab=target,
        source_vocab=source,
        dim=first.size,
        layers=len(model.encoder.layers),
        heads=first.self_attn.h,
        hidden=ffn.w_1.out_features,
        norm=definition,
        eps=cast(LayerNorm, norm).eps,
        dropout=cast(SublayerConnection, first.sublayer[0]).dropout.p,
        attention_dropout=first.self_attn.dropout.p,
        act_dropout=ffn.dropout.p,
    )


DEFINITIONS: dict[str, type[LayerNorm | nn.LayerNorm]] = {
    "unbiased": LayerNorm,
    "layer": nn.LayerNorm,
}  # by the zoo's names
AS_TAUGHT = {"norms": "pre", "act": "relu", "tied": "none", "layout": "pairs", "steps": None, "first": 0}


def from_zoo(model: ZooModel, config: transformer.Config) -> EncoderDecoder:
    """The weights of a `headway.zoo.transformer` in the course's structure; refuses by name what that has not."""
    for name, value in AS_TAUGHT.items():
        if (given := getattr(config, name)) != value:
            said = f"a transformer with {name}={given!r} has no counterpart in headway.lecture"
            raise UserError(said, allowed=f"{name}={value!r}")
    if not config.vocab or config.decoder_layers not in (None, config.layers):
        said = f"a transformer with vocab={config.vocab} and decoder_layers={config.decoder_layers}"
        raise UserError(said, allowed="a vocabulary, and as many layers on both sides")
    made = make_model(
        config.vocab if config.source_vocab is None else config.source_vocab,
        config.vocab,
        config.layers,
        config.dim,
        4 * config.dim if config.hidden is None else config.hidden,
        config.heads,
        config.dropout,
        partial(DEFINITIONS[config.norm], eps=config.eps),
    )
    for part in made.modules():
        if isinstance(part, MultiHeadedAttention):
            part.dropout.p = config.attention_dropout
        if isinstance(part, PositionwiseFeedForward):
            part.dropout.p = config.act_dropout
    made.load_state_dict(key_map(config.norm).save(model.state_dict()))
    return made.train(model.training)


def key_map(norm: str) -> KeyMap:
    """Between the names here and in the zoo, for a norm of this definition."""
    scale, shift = ("a_2", "b_2") if norm == "unbiased" else ("weight", "bias")

    def normed(there: str, here: str) -> tuple[Rule, Rule]:
        return Rule(f"{there}.{scale}", f"{here}.weight"), Rule(f"{there}.{shift}", f"{here}.bias")

    def side(name: str, attentions: dict[str, str]) -> list[Rule]:
        there, here = f"{name}.layers.*", f"{name}.stack.blocks.*"
        rules = [*normed(f"{name}.norm", f"{name}.stack.norm")]
        for theirs, ours in attentions.items():
            for at, part in enumerate(("q", "k", "v", "out")):
                rules += linear(f"{there}.{theirs}.linears.{at}", f"{here}.{ours}.body.{part}")
        for theirs, ours in (("w_1", "up"), ("w_2", "down")):
            rules += linear(f"{there}.feed_forward.{theirs}", f"{here}.ffn.body.{ours}")
        for at, ours in enumerate((*attentions.values(), "ffn")):
            rules += normed(f"{there}.sublayer.{at}.norm", f"{here}.{ours}.before")
        return rules

    return KeyMap(
        (
            Rule("src_embed.0.lut.weight", "encoder.embed.token.weight"),
            Rule("tgt_embed.0.lut.weight", "decoder.embed.token.weight"),
            *side("encoder", {"self_attn": "attn"}),
            *side("decoder", {"self_attn": "attn", "src_attn": "cross"}),
            *linear("generator.proj", "decoder.head"),
        )
    )
