"""A model as a folder of CTranslate2: a specification of its own classes, filled from the parts of the model.

What is written follows from the parts alone, not from the name of an architecture: a Transformer that translates, with
norms before or behind its sublayers, or a decoder that continues texts, with learned, sinusoidal or rotary positions.
A part that CTranslate2 computes otherwise, or not at all, is refused by its name before anything is written.

Axes:  C width   N positions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.request import begin_of
from headway.generate.session import context_of
from headway.model import Model
from headway.nn.attention import Attention, CrossAttention, SelfAttention
from headway.nn.block import Block, Identity, Residual, Stack
from headway.nn.embed import LearnedPosition, NoPosition, SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN, Activation, GatedFFN
from headway.nn.head import LMHead
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.attend import DOT
from headway.ops.pattern import Causal, Full, Positions
from headway.ops.rotary import HALVES, UNSCALED, Rotary

MAX_SINUSOIDS = 2048  # positions of a table that is written
CHECKED = 12  # random tokens, as far as the model has positions for them
TOLERANCE = 1e-4  # of a logarithm of a probability


def save_ctranslate2(model: Model, folder: Path) -> str:
    """Writes a model with its tokenizer, and says how far CTranslate2's numbers are from its own."""
    try:
        specs, library = import_module("ctranslate2.specs"), import_module("ctranslate2")
    except ImportError:
        raise UserError("CTranslate2 is not installed", do="pip install 'headway[ctranslate2]'") from None
    if model.tokenizer is None:
        raise UserError(
            "the model has no tokenizer, and CTranslate2 wants the names of tokens",
            do="put tokenizer.json beside the weights",
        )
    net, source, target = model.model, model.tokenizer, model.target_tokenizer or model.tokenizer
    if type(net) is EncoderDecoder and type(net.encoder) is Trunk and type(net.decoder) is Trunk:
        spec = specs.TransformerSpec(encoder_spec(specs, net.encoder), decoder_spec(specs, net.decoder, cross=True))
        spec.register_source_vocabulary(names_of(source, net.encoder))
        spec.register_target_vocabulary(names_of(target, net.decoder))
        spec.config.decoder_start_token = target.token(begin_of(model.extra_config, target.bos))
        spec.config.add_source_bos = spec.config.add_source_eos = False  # the tokenizer frames a text
    elif type(net) is Trunk and type(net.head) is LMHead:
        spec = specs.TransformerDecoderModelSpec(decoder_spec(specs, net, cross=False))
        spec.register_vocabulary(names_of(target, net))
    else:
        refuse(f"a model of {model.architecture}")
    stacks = [part for part in net.modules() if isinstance(part, Stack)]
    spec.config.layer_norm_epsilon = epsilon_of(stacks)
    roles = {"unk": target.unk, "bos": target.bos, "eos": target.eos}
    known = next((id for id in (*roles.values(), 0) if id is not None), 0)
    for role, id in roles.items():
        setattr(spec.config, f"{role}_token", target.token(known if id is None else id))
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    model.save_inputs(folder)
    found = difference(library, model, folder)
    if found > TOLERANCE:
        raise UserError(
            f"CTranslate2 computes this model otherwise: the log-probability of a token differs by {found:.1e}",
            do="please report it; use to=onnx meanwhile",
        )
    return f"largest difference of a token's log-probability from CTranslate2: {found:.1e}"


def refuse(what: str) -> NoReturn:
    raise UserError(f"{what} has no place in CTranslate2's specifications", do="use to=onnx")


# ---- trunks


def encoder_spec(specs: Any, trunk: Trunk) -> Any:
    attn, ffn, how = shape_of(specs, trunk)
    if attn.pattern != Full():
        refuse(f"an encoder with the pattern {attn.pattern}")
    spec = specs.TransformerEncoderSpec(len(blocks_of(trunk)), attn.heads, **how)
    fill_trunk(spec, spec.embeddings[0], trunk)
    for layer, block in zip(spec.layer, blocks_of(trunk), strict=True):
        fill_block(layer, block, attn, ffn)
    return spec


def decoder_spec(specs: Any, trunk: Trunk, *, cross: bool) -> Any:
    attn, ffn, how = shape_of(specs, trunk)
    if attn.pattern != Causal():
        refuse(f"a decoder with the pattern {attn.pattern}")
    if type(trunk.head) is not LMHead or trunk.head.multiplier.factor != 1.0:
        refuse(f"{type(trunk.head).__name__}, as this model has it,")
    spec = specs.TransformerDecoderSpec(len(blocks_of(trunk)), attn.heads, with_encoder_attention=cross, **how)
    fill_trunk(spec, spec.embeddings, trunk)
    spec.projection.weight = numbers(trunk.head.weight)
    if trunk.head.bias is not None:
        spec.projection.bias = numbers(trunk.head.bias)
    for layer, block in zip(spec.layer, blocks_of(trunk), strict=True):
        fill_block(layer, block, attn, ffn)
    return spec


def shape_of(specs: Any, trunk: Trunk) -> tuple[Attention, FFN, dict[str, Any]]:
    """The self-attention and feed-forward layer of the first block, and the options of CTranslate2 that they follow."""
    blocks = blocks_of(trunk)
    names = [name for name, _ in blocks[0].named_children()]
    if any(type(block) is not Block for block in blocks) or names not in (["attn", "ffn"], ["attn", "cross", "ffn"]):
        refuse(f"a {type(blocks[0]).__name__} of {', '.join(names)}")
    attn, ffn = (residual(blocks[0], name).body for name in ("attn", "ffn"))
    if type(attn) is not SelfAttention:
        refuse(type(attn).__name__)
    if not isinstance(ffn, FFN) or type(ffn) not in (FFN, GatedFFN):
        refuse(type(ffn).__name__)
    pre = not isinstance(residual(blocks[0], "attn").before, Identity)
    norm = residual(blocks[0], "attn").before if pre else residual(blocks[0], "attn").after
    assert isinstance(trunk.stack, Stack)
    rms, final = type(norm) is nn.RMSNorm, trunk.stack.norm
    if isinstance(final, Identity) == pre or type(norm) not in (nn.LayerNorm, nn.RMSNorm):
        refuse(f"this order of norms ({type(norm).__name__})")
    how: dict[str, Any] = {"pre_norm": pre, "rms_norm": rms, "ffn_glu": type(ffn) is GatedFFN}
    how["activation"] = activation_of(specs.common_spec.Activation, ffn.act)
    how["layernorm_embedding"] = not isinstance(embed_of(trunk).norm, nn.Identity)
    if attn.kv_heads != attn.heads:
        how["num_heads_kv"] = attn.kv_heads
    if attn.heads * attn.head_dim != attn.q.in_features:
        how["head_dim"] = attn.head_dim
    if attn.rotary is not None:
        rotary = attn.rotary
        if type(rotary) is not Rotary or rotary.scaling != UNSCALED:
            refuse("this form of rotary positions")
        interleaved = rotary.layout != HALVES
        how |= {"rotary_dim": rotary.width, "rotary_base": rotary.base, "rotary_interleave": interleaved}
    return attn, ffn, how


def blocks_of(trunk: Trunk) -> list[nn.Module]:
    if type(trunk.stack) is not Stack or not len(trunk.stack.blocks):
        refuse(f"a {type(trunk.stack).__name__} of layers")
    return list(trunk.stack.blocks)


def residual(block: nn.Module, name: str) -> Residual:
    """A sublayer with nothing but a norm before or behind it."""
    found = getattr(block, name)
    plain = isinstance(found, Residual) and type(found) is Residual
    if not plain or not all(isinstance(part, Identity) for part in (found.inside, found.skip, found.scale)):
        refuse(f"a sublayer ({name}) with more than a norm before or behind it")
    return found


def embed_of(trunk: Trunk) -> TokenEmbed:
    embed = trunk.embed
    if type(embed) is not TokenEmbed or embed.segment is not None or not isinstance(embed.project, nn.Identity):
        refuse(f"{type(embed).__name__}, as this model has it,")
    return embed


def fill_trunk(spec: Any, embeddings: Any, trunk: Trunk) -> None:
    embed = embed_of(trunk)
    weight, factor = embed.token.weight, embed.scale.factor
    spec.scale_embeddings = factor != 1.0 and abs(factor - weight.shape[1] ** 0.5) < 1e-9 * factor
    embeddings.weight = numbers(weight if spec.scale_embeddings or factor == 1.0 else factor * weight)
    if hasattr(spec, "position_encodings"):
        spec.position_encodings.encodings = numbers(positions_of(embed, weight.shape[1]))
    if hasattr(spec, "layernorm_embedding"):
        fill_norm(spec.layernorm_embedding, embed.norm)
    if hasattr(spec, "layer_norm"):
        assert isinstance(trunk.stack, Stack)
        fill_norm(spec.layer_norm, trunk.stack.norm)


def positions_of(embed: TokenEmbed, width: int) -> Tensor:
    """What is added to the tokens at each position, N C."""
    match embed.position:
        case LearnedPosition() as learned:
            return learned.marks(Positions.run(0, learned.room, torch.device("cpu")))[0]
        case SinusoidalPosition() as waves:
            return waves.marks(Positions.run(0, MAX_SINUSOIDS, torch.device("cpu")))[0]
        case NoPosition():
            return torch.zeros(MAX_SINUSOIDS, width)
        case other:
            refuse(type(other).__name__)


# ---- layers


def fill_block(spec: Any, block: nn.Module, first: Attention, like: FFN) -> None:
    """The weights of a block, which has to be like the first of its stack."""
    attn, ffn = residual(block, "attn"), residual(block, "ffn")
    fill_attention(spec.self_attention, attn, first, SelfAttention)
    if hasattr(block, "cross"):
        fill_attention(spec.attention, residual(block, "cross"), first, CrossAttention)
    if type(ffn.body) is not type(like) or ffn.body.act is not like.act:
        refuse(f"{type(ffn.body).__name__} among {type(like).__name__}")
    if not isinstance(ffn.body.middle, Identity):
        refuse("a feed-forward layer of three")
    fill_norm(spec.ffn.layer_norm, norm_of(ffn))
    fill_linear(spec.ffn.linear_0, ffn.body.gate if isinstance(ffn.body, GatedFFN) else ffn.body.up)
    if isinstance(ffn.body, GatedFFN):
        fill_linear(spec.ffn.linear_0_noact, ffn.body.up)
    fill_linear(spec.ffn.linear_1, ffn.body.down)


def fill_attention(spec: Any, sublayer: Residual, first: Attention, kind: type[Attention]) -> None:
    attn = sublayer.body
    if not isinstance(attn, kind) or type(attn) is not kind:
        refuse(type(attn).__name__)
    plain = isinstance(attn.q_norm, Identity) and isinstance(attn.k_norm, Identity) and attn.score == DOT
    if not plain or attn.logit_bias is not None:
        refuse("attention with another score than the scaled product of queries and keys")
    like = kind is SelfAttention and (attn.rotary, attn.pattern) == (first.rotary, first.pattern)
    if isinstance(attn, CrossAttention):
        like = not attn.is_ordered()
    if not like or shape_of_heads(attn) != shape_of_heads(first):
        refuse("a stack whose layers attend in different ways")
    fill_norm(spec.layer_norm, norm_of(sublayer))
    if kind is SelfAttention:
        fill_linear(spec.linear[0], attn.q, attn.k, attn.v)
    else:
        fill_linear(spec.linear[0], attn.q)
        fill_linear(spec.linear[1], attn.k, attn.v)
    fill_linear(spec.linear[-1], attn.out)


def shape_of_heads(attn: Attention) -> tuple[int, int, int]:
    return attn.heads, attn.kv_heads, attn.head_dim


def norm_of(sublayer: Residual) -> nn.Module:
    return sublayer.after if isinstance(sublayer.before, Identity) else sublayer.before


def fill_norm(spec: Any, norm: nn.Module) -> None:
    if type(norm) not in (nn.LayerNorm, nn.RMSNorm) or hasattr(spec, "beta") != (type(norm) is nn.LayerNorm):
        refuse(type(norm).__name__)
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = numbers(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = numbers(torch.zeros_like(norm.weight) if norm.bias is None else norm.bias)  # pyright: ignore[reportUnnecessaryComparison]


def fill_linear(spec: Any, *layers: nn.Module) -> None:
    """One layer, or several of one input, one below the other."""
    found = [layer for layer in layers if type(layer) is nn.Linear]
    assert len(found) == len(layers), layers
    spec.weight = numbers(torch.cat([layer.weight for layer in found]))
    biases = [getattr(layer, "bias", None) for layer in found]
    if any(bias is not None for bias in biases):
        filled = (
            torch.zeros(layer.out_features) if bias is None else bias for layer, bias in zip(found, biases, strict=True)
        )
        spec.bias = numbers(torch.cat(list(filled)))


def activation_of(kinds: Any, act: Activation) -> Any:
    """The activation by CTranslate2's number."""
    known: Sequence[tuple[Activation, Any]] = ((F.relu, kinds.RELU), (F.gelu, kinds.GELU), (F.silu, kinds.SWISH))
    found = next((kind for one, kind in known if one is act), None)
    if isinstance(act, partial) and act.func is F.gelu and act.keywords == {"approximate": "tanh"}:
        found = kinds.GELUTanh
    if found is None:
        refuse(f"the activation {getattr(act, '__name__', act)}")
    return found


def epsilon_of(stacks: Sequence[Stack]) -> float:
    """The one that all norms have."""
    norms = [part for stack in stacks for part in stack.modules() if isinstance(part, nn.LayerNorm | nn.RMSNorm)]
    found = {norm.eps for norm in norms}
    if len(found) != 1 or None in found:
        refuse(f"norms with several epsilons ({', '.join(map(str, found))})")
    return float(next(iter(found)) or 0.0)


def names_of(tokenizer: Tokenizer, trunk: Trunk) -> list[str]:
    """The names of tokens by their ids; rows of a table behind them have names of their own."""
    rows = embed_of(trunk).token.num_embeddings
    by_id: Mapping[int, str] = {id: token for token, id in tokenizer.backend.get_vocab().items()}
    return [by_id.get(id, f"<unused {id}>") for id in range(rows)]


def numbers(tensor: Tensor) -> Any:
    return tensor.detach().float().cpu().contiguous().numpy()


# ---- the check


@torch.inference_mode()
def difference(library: Any, model: Model, folder: Path) -> float:
    """The largest between the log-probabilities of some random tokens, here and there."""
    draw, net = torch.Generator().manual_seed(0), model.model
    target = model.target_tokenizer or model.tokenizer
    assert target is not None
    assert model.tokenizer is not None
    options = {"device": "cpu", "compute_type": "float32", "intra_threads": torch.get_num_threads()}
    trunks = [part for part in net.modules() if isinstance(part, Trunk)]
    count = min([CHECKED, *(room - 1 for trunk in trunks if (room := context_of(trunk)) is not None)])
    if not isinstance(net, EncoderDecoder):
        assert isinstance(net, Trunk)
        ids = torch.randint(0, target.vocab, (1, count), generator=draw)
        batch = [[target.token(id) for id in ids[0].tolist()]]
        logits = library.Generator(str(folder), **options).forward_batch(batch)
        theirs = torch.from_numpy(np.array(logits)).log_softmax(-1)
        return float((theirs - net(ids).log_softmax(-1)).abs().max())
    source, wanted = (torch.randint(0, one.vocab, (1, count), generator=draw) for one in (model.tokenizer, target))
    names = [[one.token(id) for id in ids[0].tolist()] for one, ids in ((model.tokenizer, source), (target, wanted))]
    [theirs] = library.Translator(str(folder), **options).score_batch(names[:1], names[1:])
    begin = torch.tensor([[begin_of(model.extra_config, target.bos)]])
    found = net(source, torch.cat([begin, wanted], 1)).log_softmax(-1)[0]
    end = [] if len(theirs.log_probs) == count else [target.eos]  # which CTranslate2 writes behind
    ours = [found[at, id].item() for at, id in enumerate([*wanted[0].tolist(), *end])]
    return max(abs(one - other) for one, other in zip(ours, theirs.log_probs, strict=True))
