"""An architecture of your own out of headway's parts, with weights from and for Hugging Face: GPT of 2018.

Radford et al. 2018: a causal decoder, post-norm, GELU, learned positions, output tied to the embedding.
"""

import random
from functools import partial

import torch
from torch import nn

import headway
from headway.interop.keymap import KeyMap, Rule, Split, Transpose
from headway.interop.weights import fill
from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk, tensors_of
from headway.ops.pattern import Causal
from headway.zoo.choices import activation


def build(vocab: int, context: int = 32, dim: int = 32, layers: int = 2, heads: int = 2) -> Trunk:
    norm = partial(nn.LayerNorm, dim)

    def block() -> Block:
        return Block(
            attn=Residual(SelfAttention(dim, heads, pattern=Causal()), after=norm()),
            ffn=Residual(FFN(dim, 4 * dim, act=activation("gelu_tanh")), after=norm()),
        )

    embed = TokenEmbed(vocab, dim, position=LearnedPosition(context, dim))
    return Trunk(embed, Stack([block() for _ in range(layers)]), LMHead(dim, vocab, tied=embed.token))


def keymap() -> KeyMap:
    """Their names, ours, and what is done to a tensor between them; it is read in both directions."""
    block, turned, split = "stack.blocks.*", Transpose(), Split(3)
    qkv = [f"{block}.attn.body.{part}" for part in "qkv"]
    rules = [Rule("tokens_embed.weight", "embed.token.weight")]
    rules += [Rule("positions_embed.weight", "embed.position.table.weight")]
    rules += [Rule("h.*.attn.c_attn.weight", tuple(f"{name}.weight" for name in qkv), (turned, split))]
    rules += [Rule("h.*.attn.c_attn.bias", tuple(f"{name}.bias" for name in qkv), (split,))]
    pairs = {"attn.c_proj": "attn.body.out", "mlp.c_fc": "ffn.body.up", "mlp.c_proj": "ffn.body.down"}
    for theirs, ours in {**pairs, "ln_1": "attn.after", "ln_2": "ffn.after"}.items():
        rules += [Rule(f"h.*.{theirs}.weight", f"{block}.{ours}.weight", (turned,) if theirs in pairs else ())]
        rules += [Rule(f"h.*.{theirs}.bias", f"{block}.{ours}.bias")]
    rules += [Rule("lm_head.weight", "head.weight", outside=True)]
    return KeyMap(tuple(rules), prefixes=("transformer.", ""), ties={"lm_head.weight": "tokens_embed.weight"})


def main() -> None:
    import transformers

    config = transformers.OpenAIGPTConfig(vocab_size=300, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    theirs = transformers.OpenAIGPTLMHeadModel(config).eval()
    ours, ids = build(300).eval(), torch.arange(20)[None]
    fill(ours, keymap().load(theirs.state_dict()), torch.float32)
    print("largest difference of a logit:", (ours(ids) - theirs(ids).logits).abs().max().item())
    assert torch.allclose(ours(ids), theirs(ids).logits, atol=1e-5)

    draw = random.Random(0)
    texts = [(" ".join(draw.choices(["red", "blue", "green"], k=12)) + ".",) for _ in range(200)]
    settings = {"steps": 60, "lr": 3e-3, "tokenizer": "words", "max_length": 32}
    model = headway.train(texts, task="causal-lm", model=ours, out="gpt", quiet=True, **settings)
    print(model.predict("red blue", max_new_tokens=12, temperature=0.5, seed=1).to_text())
    theirs.load_state_dict(keymap().save(tensors_of(model.model)), strict=False)  # the head is tied
    assert torch.allclose(model.model(ids), theirs(ids).logits, atol=1e-4)


if __name__ == "__main__":
    main()
