"""`headway demo`: a translator of dates, made of the parts, trained here and now, and looked into.

Five styles of writing a date in English go to ISO 8601, letter by letter.  The model is the encoder–decoder
Transformer; the letters that each output letter looked at are read off its cross-attention.

Axes:  B batch   S source letters   T target letters   C width
"""

from __future__ import annotations

import time
from datetime import date, timedelta
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.context import Context
from headway.nn.embed import SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.model import EncoderDecoder, Trunk
from headway.nn.state import FixedState
from headway.nn.trace import record
from headway.ops.pattern import Causal

STYLES = ("%A, %d %B %Y", "%B %d, %Y", "%d %b %Y", "%d.%m.%Y", "%m/%d/%y")
LETTERS = " ,./-0123456789abcdefghijklmnopqrstuvwxyz"
PAD, START = len(LETTERS), len(LETTERS) + 1
VOCAB, ISO = len(LETTERS) + 2, 10
DIM, HEADS, LAYERS, BATCH, STEPS = 64, 4, 2, 64, 600


def demo() -> None:
    torch.manual_seed(0)
    model = build()
    print(f"A Transformer of {sum(p.numel() for p in model.parameters()):,} parameters learns to read dates.\n")
    started = time.perf_counter()
    train(model)
    print(f"\ntrained in {time.perf_counter() - started:.0f} s; on dates it has never seen:\n")
    show_answers(model)
    show_alignment(model, "Sunday, 15 November 2026")


def build() -> EncoderDecoder:
    def norm() -> nn.Module:
        return nn.LayerNorm(DIM)

    def attention() -> Residual:
        return Residual(SelfAttention(DIM, HEADS), before=norm())

    def ffn() -> Residual:
        return Residual(FFN(DIM, 4 * DIM), before=norm())

    def embed() -> TokenEmbed:
        return TokenEmbed(VOCAB, DIM, position=SinusoidalPosition(DIM), scale=DIM**0.5)

    def decoder_block() -> Block:
        causal = Residual(SelfAttention(DIM, HEADS, pattern=Causal()), before=norm())
        return Block(attn=causal, cross=Residual(CrossAttention(DIM, HEADS), before=norm()), ffn=ffn())

    encoder = Trunk(embed(), Stack([Block(attn=attention(), ffn=ffn()) for _ in range(LAYERS)], norm()))
    decoder = Trunk(embed(), Stack([decoder_block() for _ in range(LAYERS)], norm()), LMHead(DIM, VOCAB))
    model = EncoderDecoder(encoder, decoder)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model


def train(model: EncoderDecoder) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=STEPS)
    random = Random(0)
    for step in range(1, STEPS + 1):
        pairs = [example(random) for _ in range(BATCH)]
        source, keep = encoded([text for text, _ in pairs])
        target, _ = encoded([iso for _, iso in pairs])
        shown = F.pad(target[:, :-1], (1, 0), value=START)  # the decoder sees the letters before the one it predicts
        logits = model(source, shown, Context(keep=keep))  # B T V
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step:4}   loss {loss.item():.4f}")


@torch.no_grad()
def translate(model: EncoderDecoder, texts: list[str]) -> list[str]:
    """The likeliest letter at each step; the state keeps the keys and values of the letters before."""
    source, keep = encoded(texts)
    ctx = model.remember(source, Context(keep=keep), Context(state=FixedState(ISO)))
    letters, found = torch.full((len(texts), 1), START), list[Tensor]()
    for _ in range(ISO):
        letters = model.decoder(letters, ctx).argmax(-1)
        found.append(letters)
    return [decoded(row) for row in torch.cat(found, 1)]


def show_answers(model: EncoderDecoder) -> None:
    unseen = [example(Random(seed)) for seed in range(10_000, 10_500)]
    answers = translate(model, [text for text, _ in unseen])
    right = sum(answer == iso for answer, (_, iso) in zip(answers, unseen, strict=True))
    for (text, iso), answer in list(zip(unseen, answers, strict=True))[:6]:
        print(f"  {text:28} → {answer}  {'' if answer == iso else f'(should be {iso})'}")
    print(f"\n{right} of {len(unseen)} right.\n")


def show_alignment(model: EncoderDecoder, text: str) -> None:
    """Which letters of the source each letter of the answer looked at, in the last layer, as shades."""
    with record(model, f"decoder.{LAYERS - 1}.cross.weights") as trace:
        (answer,) = translate(model, [text])
    amap = trace.joined(f"decoder.{LAYERS - 1}.cross")
    weights = amap.full()[0].mean(0)  # T S
    print(f"{text} → {answer}: what each letter of the answer looked at (the last layer's mean over heads)\n")
    print(f"    {text}")
    for letter, row in zip(answer, weights, strict=True):
        print(f"  {letter} " + "".join(shade(weight) for weight in row.tolist()))


def shade(weight: float) -> str:
    return " ·░▒▓█"[min(5, int(weight * 10 + 0.5))]


def example(random: Random) -> tuple[str, str]:
    """A date between 1930 and 2029 in some style, and in ISO 8601."""
    day = date(1930, 1, 1) + timedelta(days=random.randrange(36_500))
    return day.strftime(random.choice(STYLES)), day.isoformat()


def encoded(texts: list[str]) -> tuple[Tensor, Tensor]:
    """Letters as numbers, B S, and the mask of those that are not padding, B 1 S."""
    rows = [torch.tensor([LETTERS.index(letter) for letter in text.lower()]) for text in texts]
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return padded, (padded != PAD)[:, None]


def decoded(row: Tensor) -> str:
    return "".join((LETTERS + "??")[letter] for letter in row.tolist())
