"""The table of models that the laws are tried on.  An architecture that joins it inherits every law it claims.

A subject says how to make a small model and which laws it obeys, as traits.  It is called with (inputs, ctx).

Axes:  B batch   T tokens   S memory   C width
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import settings
from torch import Tensor, nn

from headway.nn.attention import UNBIASED, Attention, CrossAttention, SelfAttention
from headway.nn.bias import Alibi, T5Bias, TransformerXLBias
from headway.nn.block import Block, LayerScale, Parallel, Repeat, Residual, Stack
from headway.nn.context import EMPTY, Context, to_front
from headway.nn.convnet import CausalConv, ConvModule, ConvPosition, SequenceConv
from headway.nn.embed import LearnedPosition, SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN, GatedFFN
from headway.nn.frames import ConvEmbed
from headway.nn.head import LMHead
from headway.nn.learned_score import AdditiveScore, BilinearScore, CosineScore
from headway.nn.moe import MoE
from headway.nn.recurrent import BidirectionalEncoder, Cell, GRUCell, LSTMCell, RecurrentEncoder, RNNCell
from headway.nn.recurrent_attention import Alignment, FixedContext, RecurrentDecoder
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.pattern import Causal, Chunked, Global, Pattern, Window
from headway.ops.relative import t5_bucket_backward
from headway.ops.rotary import HALVES, Rotary
from headway.zoo import albert as albert_zoo
from headway.zoo import bart as bart_zoo
from headway.zoo import bert as bert_zoo
from headway.zoo import blip as blip_zoo
from headway.zoo import bloom as bloom_zoo
from headway.zoo import captioner as captioner_zoo
from headway.zoo import clip_image as clip_image_zoo
from headway.zoo import clip_text as clip_text_zoo
from headway.zoo import conformer as conformer_zoo
from headway.zoo import deberta as deberta_zoo
from headway.zoo import deepseek as deepseek_zoo
from headway.zoo import forecaster as forecaster_zoo
from headway.zoo import gemma as gemma_zoo
from headway.zoo import gpt2 as gpt2_zoo
from headway.zoo import gpt_neox as gpt_neox_zoo
from headway.zoo import gpt_oss as gpt_oss_zoo
from headway.zoo import led as led_zoo
from headway.zoo import llama as llama_zoo
from headway.zoo import llava as llava_zoo
from headway.zoo import longformer as longformer_zoo
from headway.zoo import mbart as mbart_zoo
from headway.zoo import mixtral as mixtral_zoo
from headway.zoo import modernbert as modernbert_zoo
from headway.zoo import olmo as olmo_zoo
from headway.zoo import olmo2 as olmo2_zoo
from headway.zoo import qwen2_moe as qwen2_moe_zoo
from headway.zoo import rnn as rnn_zoo
from headway.zoo import seq2seq as seq2seq_zoo
from headway.zoo import siglip as siglip_zoo
from headway.zoo import t5 as t5_zoo
from headway.zoo import t5gemma as t5gemma_zoo
from headway.zoo import text_classifier as text_classifier_zoo
from headway.zoo import transformer as transformer_zoo
from headway.zoo import trocr as trocr_zoo
from headway.zoo import vit as vit_zoo
from headway.zoo import vit_captioner as vit_captioner_zoo
from headway.zoo import wav2vec2 as wav2vec2_zoo
from headway.zoo import wav2vec2_conformer as wav2vec2_conformer_zoo
from headway.zoo import whisper as whisper_zoo
from headway.zoo import workbench as workbench_zoo
from headway.zoo import xlnet as xlnet_zoo
from headway.zoo.choices import normal

DIM, HEADS, VOCAB, CONTEXT = 16, 4, 23, 24
PARTLY = llama_zoo.Frequencies(part=0.5)  # as in Phi-3's small models
CONSTANTS = llama_zoo.Multipliers(2.0, 0.5, 0.3, 3.0)
GEMMA2 = {"window": 4, "local_layers": (0,), "score_cap": 0.7, "logit_cap": 2.0}


class Trait(Enum):
    CAUSAL = auto()  # no output depends on a later input
    CACHED = auto()  # may be called in chunks with a state
    REWINDS = auto()  # and its state can be set back
    PADDED = auto()  # takes `keep` for padding on either side
    PACKED = auto()  # takes packed rows
    ORDERLESS = auto()  # permuting the inputs permutes the outputs
    ORDERED = auto()  # and here it does more than that
    SHIFTS = auto()  # only differences of positions matter
    CAPTURED = auto()  # torch.compile(fullgraph=True)
    ATTENDS = auto()  # has attention sites to read and edit
    OF_ROWS = auto()  # has one output for a whole row, not one for each token


SEQUENCE = frozenset({Trait.PADDED, Trait.PACKED, Trait.CAPTURED, Trait.ATTENDS})
DECODER = SEQUENCE | {Trait.CAUSAL, Trait.CACHED, Trait.REWINDS, Trait.ORDERED}
ENCODER = SEQUENCE | {Trait.ORDERED}
CLASSIFIER = ENCODER | {Trait.OF_ROWS}


@dataclass(frozen=True)
class Subject:
    name: str
    make: Callable[[], nn.Module]
    traits: frozenset[Trait]
    sample: Callable[[int, int], Tensor]
    context: Callable[[int], Context] = lambda batch: EMPTY

    def build(self) -> nn.Module:
        torch.default_generator.manual_seed(1)
        model = self.make().eval()
        for parameter in model.parameters():  # biases and tables that start at zero would hide their defects
            if parameter.dim() and parameter.abs().max() == 0:
                nn.init.normal_(parameter, std=0.3)
        return model

    def with_memory(self, batch: int, ctx: Context = EMPTY) -> Context:
        given = self.context(batch)
        return replace(ctx, memory=given.memory, memory_keep=given.memory_keep)

    def __str__(self) -> str:
        return self.name


def cases(few: int) -> settings:
    """How many random cases a law is tried on; `make proof` asks for more."""
    return settings(max_examples=int(os.environ.get("HEADWAY_CASES", few)))


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(0, VOCAB, (batch, length), generator=torch.Generator().manual_seed(7))


def vectors(batch: int, length: int) -> Tensor:
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(7))


def changed(x: Tensor) -> Tensor:
    """Other inputs of the same kind, different at every place."""
    return x + 1.0 if x.is_floating_point() else (x + 1) % VOCAB


def memory(batch: int) -> Context:
    draw = torch.Generator().manual_seed(9)
    keep = torch.ones(batch, 1, 5, dtype=torch.bool)
    keep[batch // 2 :, :, 3:] = False
    return Context(memory=torch.randn(batch, 5, DIM, generator=draw), memory_keep=keep)


# ---- the assemblies


def stack(attention: Callable[[], nn.Module], ffn: Callable[[], nn.Module], norm: Callable[[], nn.Module]) -> Stack:
    """Two pre-norm blocks and a final norm."""
    blocks = [Block(attn=Residual(attention(), before=norm()), ffn=Residual(ffn(), before=norm())) for _ in range(2)]
    return Stack(blocks, norm())


layer_norm = partial(nn.LayerNorm, DIM)
rms_norm = partial(nn.RMSNorm, DIM)
plain_ffn = partial(FFN, DIM, 2 * DIM)


def attention_only(**options: object) -> Stack:
    return stack(lambda: SelfAttention(DIM, HEADS, **options), plain_ffn, layer_norm)  # type: ignore[arg-type]


def gpt() -> nn.Module:
    embed = TokenEmbed(VOCAB, DIM, position=LearnedPosition(CONTEXT, DIM))
    return Trunk(embed, attention_only(pattern=Causal()), LMHead(DIM, VOCAB, tied=embed.token))


def llama(pattern: Pattern = Causal()) -> nn.Module:
    def attention() -> Attention:
        return SelfAttention(DIM, HEADS, kv_heads=2, bias=UNBIASED, pattern=pattern, rotary=Rotary(DIM // HEADS))

    body = stack(attention, lambda: GatedFFN(DIM, 2 * DIM, bias=False), rms_norm)
    return Trunk(TokenEmbed(VOCAB, DIM), body, LMHead(DIM, VOCAB))


def mixture() -> nn.Module:
    def experts() -> MoE:
        return MoE(lambda: GatedFFN(DIM, DIM), DIM, 4, top=2)

    return stack(lambda: SelfAttention(DIM, HEADS, pattern=Causal(), rotary=Rotary(4)), experts, rms_norm)


def parallel() -> nn.Module:
    def block() -> Block:
        attention = SelfAttention(DIM, HEADS, pattern=Causal(), rotary=Rotary(4, turned=2))
        return Block(both=Residual(Parallel(attn=attention, ffn=plain_ffn()), before=layer_norm()))

    return Stack([block() for _ in range(2)], layer_norm())


def bert() -> nn.Module:
    def block() -> Block:
        attention = Residual(SelfAttention(DIM, HEADS), after=layer_norm(), drop=0.1)
        return Block(attn=attention, ffn=Residual(plain_ffn(), after=layer_norm(), drop=0.1))

    position = LearnedPosition(CONTEXT, DIM)
    embed = TokenEmbed(VOCAB, DIM, position=position, segments=2, norm=layer_norm(), dropout=0.1)
    return Trunk(embed, Stack([block() for _ in range(2)]))


def sandwich() -> nn.Module:
    def block() -> Block:
        attention = SelfAttention(DIM, HEADS, head_dim=DIM, qk_norm=nn.RMSNorm, pattern=Causal(), rotary=Rotary(DIM))
        return Block(
            attn=Residual(attention, before=rms_norm(), inside=rms_norm(), scale=LayerScale(DIM, 0.5)),
            ffn=Residual(plain_ffn(layers=3), before=rms_norm(), inside=rms_norm(), scale=0.5),
        )

    return Stack([block() for _ in range(2)])


def shared() -> nn.Module:
    position = SinusoidalPosition(DIM)
    embed = TokenEmbed(VOCAB, DIM, position=position, scale=DIM**0.5)
    block = Block(attn=Residual(SelfAttention(DIM, HEADS, pattern=Causal()), before=layer_norm()))
    return Trunk(embed, Repeat(block, 3))


def t5_encoder() -> nn.Module:
    bias = T5Bias(HEADS, buckets=8, longest=12)  # one for all layers
    return attention_only(bias=UNBIASED, logit_bias=bias)


def t5_decoder() -> nn.Module:
    bias = T5Bias(HEADS, buckets=8, longest=12, bucket=t5_bucket_backward)

    def block() -> Block:
        attention = SelfAttention(DIM, HEADS, bias=UNBIASED, pattern=Causal(), logit_bias=bias)
        return Block(
            attn=Residual(attention, before=rms_norm()),
            cross=Residual(CrossAttention(DIM, HEADS, bias=UNBIASED), before=rms_norm()),
            ffn=Residual(FFN(DIM, 2 * DIM, act=F.relu), before=rms_norm()),
        )

    return Trunk(TokenEmbed(VOCAB, DIM), Stack([block() for _ in range(2)], rms_norm()), LMHead(DIM, VOCAB))


def conformer() -> nn.Module:
    def half_step(**after: nn.Module) -> Residual:
        return Residual(plain_ffn(act=F.silu), before=layer_norm(), scale=0.5, **after)

    def block() -> Block:
        attention = SelfAttention(DIM, HEADS, logit_bias=TransformerXLBias(HEADS, DIM // HEADS, DIM))
        return Block(
            ffn_in=half_step(),
            attn=Residual(attention, before=layer_norm()),
            conv=Residual(ConvModule(DIM, kernel=3), before=layer_norm()),
            ffn_out=half_step(after=layer_norm()),
        )

    return Stack([block() for _ in range(2)])


def zoo_transformer() -> EncoderDecoder:
    return transformer_zoo.build(transformer_zoo.Config(VOCAB, dim=DIM, layers=2, heads=HEADS))


def zoo_t5(ffn: str) -> EncoderDecoder:
    sizes = {"dim": DIM, "layers": 2, "heads": HEADS, "head_dim": 6, "hidden": 2 * DIM, "buckets": 8, "longest": 12}
    model = lively(t5_zoo.build(t5_zoo.Config(VOCAB, **sizes, ffn=ffn)))
    assert isinstance(model, EncoderDecoder)
    return model


def zoo_bart() -> EncoderDecoder:
    sizes = {"layers": 1, "heads": HEADS, "hidden": DIM, "decoder_heads": HEADS, "decoder_hidden": 2 * DIM}
    model = bart_zoo.build(bart_zoo.Config(VOCAB, CONTEXT, DIM, decoder_layers=2, **sizes))
    normal(model, 0.3)
    return model


def recurrent_decoder(attention: Alignment | FixedContext, cell: type[Cell]) -> nn.Module:
    decoder = RecurrentDecoder(DIM, DIM, DIM, attention=attention, cell=cell)
    return Trunk(TokenEmbed(VOCAB, DIM), decoder, LMHead(2 * DIM, VOCAB))


def lively(model: nn.Module) -> nn.Module:
    """Weights as large as wide models make of published beginnings; N(0, 0.02²) would hide most defects here."""
    normal(model, 0.3)
    return model


def zoo_bert() -> nn.Module:
    return lively(bert_zoo.build(bert_zoo.Config(VOCAB, CONTEXT, DIM, layers=2, heads=HEADS, first=2)))


def zoo_vit() -> Trunk:
    return vit_zoo.build(vit_zoo.Config(image=8, patch=4, dim=DIM, layers=2, heads=HEADS, top="none"))


def zoo_albert() -> nn.Module:
    sizes = {"layers": 4, "groups": 2, "inner": 2, "heads": HEADS}
    return lively(albert_zoo.build(albert_zoo.Config(VOCAB, CONTEXT, width=8, dim=DIM, **sizes)))


def zoo_mpnet() -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "first": 2, "segments": 0, "buckets": 8, "width": 6}
    return lively(bert_zoo.build(bert_zoo.Config(VOCAB, CONTEXT, DIM, **sizes)))


def zoo_deberta(distances: str = "shared") -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "buckets": 4, "farthest": 9, "distances": distances}
    return lively(deberta_zoo.build(deberta_zoo.Config(VOCAB, CONTEXT, DIM, **sizes)))  # type: ignore[arg-type]


def zoo_modernbert() -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "hidden": 2 * DIM, "window": 2, "local_layers": (1,)}
    return lively(modernbert_zoo.build(modernbert_zoo.Config(VOCAB, CONTEXT, DIM, **sizes)))


def zoo_mbart() -> EncoderDecoder:
    sizes = {"layers": 1, "heads": HEADS, "hidden": DIM, "decoder_heads": HEADS, "decoder_hidden": 2 * DIM}
    model = mbart_zoo.build(mbart_zoo.Config(VOCAB, CONTEXT, DIM, decoder_layers=2, **sizes))
    normal(model, 0.3)
    return model


def zoo_gpt2(top: str = "words") -> nn.Module:
    return lively(gpt2_zoo.build(gpt2_zoo.Config(VOCAB, CONTEXT, DIM, layers=2, heads=HEADS, top=top)))


def zoo_gpt_neo() -> nn.Module:
    local = {"window": 4, "local_layers": (1,), "score": 1.0, "biases": "out", "first": 2}
    return lively(gpt2_zoo.build(gpt2_zoo.Config(VOCAB, CONTEXT, DIM, layers=2, heads=HEADS, **local)))  # type: ignore[arg-type]


def zoo_opt() -> nn.Module:
    narrow = {"first": 2, "order": "post", "width": 6}
    return lively(gpt2_zoo.build(gpt2_zoo.Config(VOCAB, CONTEXT, DIM, layers=2, heads=HEADS, **narrow)))  # type: ignore[arg-type]


def zoo_forecaster() -> nn.Module:
    return lively(forecaster_zoo.build(forecaster_zoo.Config(DIM, 4, DIM, layers=2, heads=HEADS)))


def zoo_llama(**options: Any) -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "kv_heads": 2, "hidden": 2 * DIM}
    return lively(llama_zoo.build(llama_zoo.Config(VOCAB, CONTEXT, DIM, **sizes, **options)))


def zoo_gemma(**options: Any) -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "kv_heads": 2, "head_dim": 8, "hidden": 2 * DIM}
    return lively(gemma_zoo.build(gemma_zoo.Config(VOCAB, CONTEXT, DIM, **sizes, **options)))


def zoo_t5gemma() -> EncoderDecoder:
    sizes = {"layers": 2, "heads": HEADS, "kv_heads": 2, "head_dim": 8, "hidden": 2 * DIM}
    other = gemma_zoo.Config(VOCAB, CONTEXT, DIM, **{**sizes, "layers": 1}, **GEMMA2)  # type: ignore[arg-type]
    model = t5gemma_zoo.build(t5gemma_zoo.Config(VOCAB, CONTEXT, DIM, **sizes, **GEMMA2, decoder=other))  # type: ignore[arg-type]
    lively(model)
    return model


def zoo_olmo2(**options: Any) -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "kv_heads": 2, "hidden": 2 * DIM}
    return lively(olmo2_zoo.build(olmo2_zoo.Config(VOCAB, CONTEXT, DIM, **sizes, **options)))


def zoo_gpt_neox(**options: Any) -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "hidden": 2 * DIM, "rotary": PARTLY}
    return lively(gpt_neox_zoo.build(gpt_neox_zoo.Config(VOCAB, CONTEXT, DIM, **sizes, **options)))


def zoo_olmo() -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "kv_heads": 2, "hidden": 2 * DIM, "clip": 0.5}
    return lively(olmo_zoo.build(olmo_zoo.Config(VOCAB, CONTEXT, DIM, **sizes)))  # type: ignore[arg-type]


def zoo_bloom() -> nn.Module:
    return lively(bloom_zoo.build(bloom_zoo.Config(VOCAB, CONTEXT, DIM, layers=2, heads=HEADS)))


def zoo_led() -> EncoderDecoder:
    sizes = {"layers": 2, "heads": HEADS, "hidden": DIM, "decoder_heads": HEADS, "decoder_hidden": 2 * DIM, "window": 2}
    model = led_zoo.build(led_zoo.Config(VOCAB, CONTEXT, 2 * CONTEXT, DIM, decoder_layers=2, **sizes))  # type: ignore[arg-type]
    lively(model)
    return model


def zoo_longformer(top: str) -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "hidden": 2 * DIM, "window": (1, 3), "top": top}
    return lively(longformer_zoo.build(longformer_zoo.Config(VOCAB, CONTEXT, DIM, **sizes)))  # type: ignore[arg-type]


def zoo_xlnet(top: str) -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "hidden": 2 * DIM, "top": top}
    return lively(xlnet_zoo.build(xlnet_zoo.Config(VOCAB, DIM, **sizes)))  # type: ignore[arg-type]


def zoo_bart_classes() -> nn.Module:
    sizes = {"layers": 1, "heads": HEADS, "hidden": DIM, "decoder_heads": HEADS, "decoder_hidden": 2 * DIM}
    return lively(bart_zoo.build(bart_zoo.Config(VOCAB, CONTEXT, DIM, decoder_layers=2, classes=3, **sizes)))


def zoo_text_classifier() -> nn.Module:
    return lively(text_classifier_zoo.build(text_classifier_zoo.Config(VOCAB, CONTEXT, DIM, layers=2, heads=HEADS)))


def zoo_mixtral() -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "kv_heads": 2, "hidden": 2 * DIM, "experts": 4}
    return lively(mixtral_zoo.build(mixtral_zoo.Config(VOCAB, CONTEXT, DIM, **sizes)))


def zoo_gpt_oss() -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "kv_heads": 2, "head_dim": 4, "hidden": DIM, "experts": 4, "top": 2}
    local = {"window": 4, "local_layers": (0,), "rotary": llama_zoo.Frequencies()}
    return lively(gpt_oss_zoo.build(gpt_oss_zoo.Config(VOCAB, CONTEXT, DIM, **sizes, **local)))  # type: ignore[arg-type]


def zoo_deepseek(routing: str) -> nn.Module:
    latent = deepseek_zoo.Latent(latent=6, plain=3, turned=4, value=5, rank=7)
    mixture = deepseek_zoo.Experts(6, top=2, expert_hidden=DIM, groups=3, kept=2, routing=routing)
    sizes = {"layers": 2, "heads": HEADS, "hidden": 2 * DIM, "dense_layers": 1}
    config = deepseek_zoo.Config(VOCAB, CONTEXT, DIM, **sizes, latent=latent, mixture=mixture)  # type: ignore[arg-type]
    return lively(deepseek_zoo.build(config))


def zoo_qwen2_moe() -> nn.Module:
    sizes = {"layers": 2, "heads": HEADS, "kv_heads": 2, "hidden": DIM, "dense_layers": (0,), "experts": 4, "top": 2}
    widths = {"expert_hidden": DIM // 2, "shared_hidden": DIM, "window": 4, "local_layers": (1,)}
    return lively(qwen2_moe_zoo.build(qwen2_moe_zoo.Config(VOCAB, CONTEXT, DIM, **sizes, **widths)))  # type: ignore[arg-type]


def zoo_rnn() -> nn.Module:
    return rnn_zoo.build(rnn_zoo.Config(VOCAB, dim=DIM, hidden=DIM // 2, align=6, readout=5)).decoder


def zoo_seq2seq() -> nn.Module:
    return seq2seq_zoo.build(seq2seq_zoo.Config(VOCAB, None, DIM, hidden=DIM // 4, layers=2)).decoder


def zoo_captioner(attention: str) -> nn.Module:
    sizes = {"widths": (8, DIM), "dim": 12, "hidden": DIM // 2, "align": 6}
    return captioner_zoo.build(captioner_zoo.Config(VOCAB, image=16, attention=attention, **sizes)).decoder


EYE = vit_zoo.Config(image=8, patch=4, dim=DIM, layers=1, heads=2, top="none")
WRITER = {"dim": DIM, "decoder_layers": 2, "decoder_heads": HEADS, "decoder_hidden": 2 * DIM}


def zoo_trocr() -> nn.Module:
    return lively(trocr_zoo.build(trocr_zoo.Config(VOCAB, CONTEXT, EYE, **WRITER)).decoder)


def zoo_blip() -> nn.Module:
    return lively(blip_zoo.build(blip_zoo.Config(VOCAB, CONTEXT, EYE, **WRITER)).decoder)


def zoo_llava() -> nn.Module:
    eye = clip_image_zoo.Config(image=8, patch=4, dim=DIM, layers=1, heads=2, top="vector")
    writer = llama_zoo.Config(VOCAB, CONTEXT, DIM, layers=2, heads=HEADS, kv_heads=2, hidden=2 * DIM)
    return lively(llava_zoo.build(llava_zoo.Config(VOCAB, eye, writer, image_token=3, taps=(1,))).decoder)


def zoo_vit_captioner() -> nn.Module:
    sizes = {"image": 16, "patch": 8, "layers": 1, "decoder_layers": 2, "heads": HEADS}
    return vit_captioner_zoo.build(vit_captioner_zoo.Config(VOCAB, dim=DIM, **sizes)).decoder


def zoo_clip_vector() -> Trunk:
    """Its texts end where their rows do: no token of theirs is the end."""
    return clip_text_zoo.build(clip_text_zoo.Config(VOCAB, VOCAB, CONTEXT, DIM, layers=2, heads=HEADS, width=5))


def zoo_clip_text() -> nn.Module:
    tower = zoo_clip_vector()
    return Trunk(tower.embed, tower.stack)


def zoo_siglip_text() -> Trunk:
    sizes = {"dim": DIM, "layers": 2, "heads": HEADS, "image_dim": 5}
    return siglip_zoo.text_tower(siglip_zoo.Config(VOCAB, 3, CONTEXT, **sizes))


class Unmoved(nn.Module):
    """An encoder that moves each row's real frames to its front, seen as one that leaves them where they stand."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        y, real = self.body(x, ctx), None if ctx.rows is not None else ctx.real(x.shape[1])
        return y if real is None else torch.zeros_like(y).scatter(1, to_front(real)[..., None].expand_as(y), y)


def zoo_whisper() -> EncoderDecoder:
    """Its convolutions keep the number of frames here, so that an encoder's laws can be told of each."""
    sizes = {"heads": HEADS, "decoder_heads": HEADS, "hidden": 2 * DIM, "decoder_hidden": 2 * DIM}
    config = whisper_zoo.Config(VOCAB, CONTEXT, DIM, dim=DIM, layers=2, decoder_layers=2, **sizes)
    model = whisper_zoo.build(config)
    model.encoder.embed = ConvEmbed(DIM, DIM, strides=(1, 1), position=SinusoidalPosition(DIM, layout=HALVES, steps=7))
    normal(model, 0.3)
    return model


def zoo_conformer() -> EncoderDecoder:
    sizes = {"layers": 2, "heads": HEADS, "hidden": 2 * DIM, "kernel": 5, "decoder_layers": 2}
    model = lively(conformer_zoo.build(conformer_zoo.Config(6, DIM, vocab=VOCAB, top="decoder", **sizes)))
    assert isinstance(model, EncoderDecoder)
    return model


def zoo_wav2vec2_conformer() -> Trunk:
    sizes = {"channels": (4,), "kernels": (3,), "strides": (2,), "hidden": 2 * DIM, "kernel": 5}
    config = wav2vec2_conformer_zoo.Config(VOCAB, DIM, layers=2, heads=HEADS, **sizes)
    return wav2vec2_conformer_zoo.build(config)


def zoo_wavlm() -> Trunk:
    sizes = {"channels": (4,), "kernels": (3,), "strides": (2,), "hidden": 2 * DIM, "kernel": 5, "groups": 2}
    config = wav2vec2_zoo.Config(VOCAB, DIM, layers=2, heads=HEADS, **sizes, buckets=8, longest=9)
    model = lively(wav2vec2_zoo.build(config))
    assert isinstance(model, Trunk)
    return model


def bench(**choices: object) -> Callable[[], nn.Module]:
    config = workbench_zoo.Config(VOCAB, CONTEXT, DIM, layers=2, heads=HEADS, hidden=2 * DIM)
    return lambda: lively(workbench_zoo.build(replace(config, **choices)))  # type: ignore[arg-type]


def scored(score: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: attention_only(pattern=Causal(), rotary=Rotary(4), score=score())


RELATIVE, SEEING = frozenset({Trait.SHIFTS}), frozenset({Trait.ATTENDS})
RECURRENT = DECODER - {Trait.REWINDS} | RELATIVE  # order is all they know of positions

SUBJECTS = [
    Subject("gpt", gpt, DECODER, tokens),
    Subject("llama", llama, DECODER | RELATIVE, tokens),
    Subject("window", lambda: llama(Causal(window=4)), DECODER | RELATIVE, tokens),
    Subject("chunks", lambda: llama(Causal() & Chunked(5)), DECODER, tokens),
    Subject("sinks", lambda: llama(Causal(window=3) | (Causal() & Global(1))), DECODER, tokens),
    Subject("mixture", mixture, DECODER | RELATIVE, vectors),
    Subject("parallel", parallel, DECODER | RELATIVE, vectors),
    Subject("sandwich", sandwich, DECODER | RELATIVE, vectors),
    Subject("shared", shared, DECODER, tokens),
    Subject("alibi", lambda: attention_only(pattern=Causal(), logit_bias=Alibi(HEADS)), DECODER | RELATIVE, vectors),
    Subject("t5 decoder", t5_decoder, DECODER | RELATIVE, tokens, memory),
    Subject("additive", scored(lambda: AdditiveScore(4)), DECODER, vectors),
    Subject("bilinear", scored(lambda: BilinearScore(4, 4)), DECODER, vectors),
    Subject("cosine", scored(lambda: CosineScore(HEADS)), DECODER | RELATIVE, vectors),
    Subject("bert", bert, ENCODER, tokens),
    Subject("set", attention_only, SEQUENCE | {Trait.ORDERLESS}, vectors),
    Subject("set window", lambda: attention_only(pattern=Window(2), rotary=Rotary(4)), ENCODER | RELATIVE, vectors),
    Subject("longformer", lambda: attention_only(pattern=Window(1) | Global(1)), ENCODER, vectors),
    Subject("t5 encoder", t5_encoder, ENCODER | RELATIVE, vectors),
    Subject("conformer", conformer, ENCODER | RELATIVE, vectors),
    Subject(
        "rnnsearch", lambda: recurrent_decoder(Alignment.additive(DIM, DIM, 8), GRUCell), RECURRENT, tokens, memory
    ),
    Subject("luong", lambda: recurrent_decoder(Alignment.bilinear(DIM, DIM), LSTMCell), RECURRENT, tokens, memory),
    Subject("rnnenc", lambda: recurrent_decoder(FixedContext(), RNNCell), RECURRENT - SEEING, tokens, memory),
    Subject("gru", lambda: RecurrentEncoder(DIM, DIM, layers=2), RECURRENT - SEEING, vectors),
    Subject("convolution", lambda: CausalConv(DIM, 3), RECURRENT - SEEING, vectors),
    Subject("convolution of both sides", lambda: SequenceConv(DIM, 3), ENCODER - SEEING | RELATIVE, vectors),
    Subject("convolution of positions", lambda: ConvPosition(DIM, 4, 2), ENCODER - SEEING | RELATIVE, vectors),
    Subject("zoo gpt2", zoo_gpt2, DECODER, tokens),
    Subject("zoo opt, post-norm, narrow", zoo_opt, DECODER, tokens),
    Subject("zoo forecaster", zoo_forecaster, DECODER | RELATIVE, vectors),
    Subject("zoo llama", zoo_llama, DECODER | RELATIVE, tokens),
    Subject("zoo mistral", lambda: zoo_llama(window=4), DECODER | RELATIVE, tokens),
    Subject(
        "zoo granite, normed, some layers local and some unplaced",
        lambda: zoo_llama(window=4, local_layers=(0,), unplaced_layers=(1,), qk_norm="heads", multipliers=CONSTANTS),
        DECODER | RELATIVE,
        tokens,
    ),
    Subject("zoo gpt-neo", zoo_gpt_neo, DECODER, tokens),
    Subject("zoo gemma", lambda: zoo_gemma(qk_norm=True, local_rotary=PARTLY, **GEMMA2), DECODER | RELATIVE, tokens),
    Subject("zoo olmo2", lambda: zoo_olmo2(window=4, local_layers=(1,)), DECODER | RELATIVE, tokens),
    Subject("zoo gpt-neox", zoo_gpt_neox, DECODER | RELATIVE, tokens),
    Subject(
        "zoo falcon",
        lambda: zoo_gpt_neox(order="parallel, one norm", kv_heads=1, norm="affine, queries and keys", layout="pairs"),
        DECODER | RELATIVE,
        tokens,
    ),
    Subject("zoo olmo, clipped", zoo_olmo, DECODER | RELATIVE, tokens),
    Subject("zoo bloom", zoo_bloom, DECODER | RELATIVE, tokens),
    Subject("zoo mixtral", zoo_mixtral, DECODER | RELATIVE, tokens),
    Subject("zoo qwen2-moe", zoo_qwen2_moe, DECODER | RELATIVE, tokens),
    Subject("zoo gpt-oss", zoo_gpt_oss, DECODER | RELATIVE, tokens),
    Subject("zoo deepseek-v2", lambda: zoo_deepseek("softmax"), DECODER | RELATIVE, tokens),
    Subject("zoo deepseek-v3", lambda: zoo_deepseek("sigmoid"), DECODER | RELATIVE, tokens),
    Subject("zoo bert", zoo_bert, ENCODER, tokens),
    Subject("zoo albert", zoo_albert, ENCODER, tokens),
    Subject("zoo mpnet, narrow", zoo_mpnet, ENCODER, tokens),
    Subject("zoo deberta 1", lambda: zoo_deberta("own"), ENCODER | RELATIVE, tokens),
    Subject("zoo longformer", lambda: zoo_longformer("words"), ENCODER, tokens),
    Subject("zoo deberta", zoo_deberta, ENCODER | RELATIVE, tokens),
    Subject("zoo modernbert", zoo_modernbert, ENCODER | RELATIVE, tokens),
    Subject("zoo xlnet", lambda: zoo_xlnet("words"), ENCODER | RELATIVE, tokens),
    Subject("zoo mbart decoder", lambda: zoo_mbart().decoder, DECODER, tokens, memory),
    Subject("zoo vit blocks", lambda: zoo_vit().stack, SEQUENCE | {Trait.ORDERLESS}, vectors),
    Subject("zoo transformer decoder", lambda: zoo_transformer().decoder, DECODER, tokens, memory),
    Subject("zoo t5 decoder", lambda: zoo_t5("plain").decoder, DECODER | RELATIVE, tokens, memory),
    Subject("zoo t5 encoder", lambda: zoo_t5("gated").encoder, ENCODER | RELATIVE, tokens),
    Subject("zoo t5gemma decoder", lambda: zoo_t5gemma().decoder, DECODER | RELATIVE, tokens, memory),
    Subject("zoo t5gemma encoder", lambda: zoo_t5gemma().encoder, ENCODER | RELATIVE, tokens),
    Subject("zoo led encoder", lambda: zoo_led().encoder, ENCODER, tokens),
    Subject("zoo led decoder", lambda: zoo_led().decoder, DECODER, tokens, memory),
    Subject("zoo bart decoder", lambda: zoo_bart().decoder, DECODER, tokens, memory),
    Subject("zoo rnnsearch decoder", zoo_rnn, RECURRENT, tokens, memory),
    Subject("zoo seq2seq decoder", zoo_seq2seq, RECURRENT - SEEING, tokens, memory),
    Subject("zoo captioner decoder", lambda: zoo_captioner("soft"), RECURRENT, tokens, memory),
    Subject("zoo captioner decoder, hard", lambda: zoo_captioner("hard"), RECURRENT, tokens, memory),
    Subject("zoo trocr decoder", zoo_trocr, DECODER, tokens, memory),
    Subject("zoo blip decoder", zoo_blip, DECODER, tokens, memory),
    Subject("zoo llava decoder", zoo_llava, DECODER, tokens, memory),
    Subject("zoo vit captioner decoder", zoo_vit_captioner, DECODER, tokens, memory),
    Subject("zoo clip text", zoo_clip_text, DECODER, tokens),
    Subject("zoo longformer classes", lambda: zoo_longformer("rows"), CLASSIFIER, tokens),
    Subject("zoo xlnet classes", lambda: zoo_xlnet("rows"), CLASSIFIER | RELATIVE, tokens),
    Subject("zoo gpt2 classes", lambda: zoo_gpt2("rows"), CLASSIFIER, tokens),
    Subject("zoo llama classes", lambda: zoo_llama(top="rows"), CLASSIFIER | RELATIVE, tokens),
    Subject("zoo mistral classes", lambda: zoo_llama(top="rows", window=4), CLASSIFIER | RELATIVE, tokens),
    Subject("zoo qwen2 classes", lambda: zoo_llama(top="rows", biases="qkv"), CLASSIFIER | RELATIVE, tokens),
    Subject("zoo phi3 classes", lambda: zoo_llama(top="rows", rotary=PARTLY), CLASSIFIER | RELATIVE, tokens),
    Subject("zoo bart classes", zoo_bart_classes, CLASSIFIER, tokens),
    Subject("zoo text classifier", zoo_text_classifier, CLASSIFIER | RELATIVE, tokens),
    Subject("zoo clip text, projected", zoo_clip_vector, CLASSIFIER, tokens),
    Subject("zoo siglip text", zoo_siglip_text, CLASSIFIER, tokens),
    Subject("zoo whisper decoder", lambda: zoo_whisper().decoder, DECODER, tokens, memory),
    Subject("zoo whisper encoder", lambda: Unmoved(zoo_whisper().encoder), ENCODER, vectors),
    # what makes tokens of frames moves padding to the end of a row: tests/zoo/test_conformer.py
    Subject("zoo conformer blocks", lambda: zoo_conformer().encoder.stack, ENCODER | RELATIVE, vectors),
    Subject("zoo conformer decoder", lambda: zoo_conformer().decoder, DECODER, tokens, memory),
    Subject("zoo wavlm blocks", lambda: zoo_wavlm().stack, ENCODER | RELATIVE, vectors),
    Subject("zoo wav2vec2-conformer blocks", lambda: zoo_wav2vec2_conformer().stack, ENCODER | RELATIVE, vectors),
    Subject("bench alibi", bench(positions="alibi", ffn="swiglu", arrangement="sandwich"), DECODER | RELATIVE, tokens),
    Subject("bench gru", bench(positions="none", mixer="gru", norm="layer"), RECURRENT - SEEING, tokens),
    Subject(
        "bench marked", bench(positions="sinusoidal", ffn="geglu", arrangement="post", sight="full"), ENCODER, tokens
    ),
    Subject("bench window", bench(positions="t5", ffn="relu", sight="full", window=3), ENCODER | RELATIVE, tokens),
    Subject("both ways", lambda: BidirectionalEncoder(DIM, DIM, cell=LSTMCell), ENCODER - SEEING, vectors),
]


def having(*traits: Trait) -> list[Subject]:
    return [subject for subject in SUBJECTS if set(traits) <= subject.traits]
