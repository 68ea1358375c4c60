"""Texts that find mistakes, and a small corpus to learn from."""

from __future__ import annotations

import random

from hypothesis import strategies as st

VARIED = [
    "",
    " ",
    "Hello, world!",
    "  two  spaces ",
    "tab\tnew\nline\r\n\n",
    "naïve café Ångström İstanbul ẞ",
    "你好，世界",
    "😀👩‍👩‍👧 family 🏳️‍🌈",
    "مرحبا بالعالم שלום",
    "e\u0301 combining \u0344",
    "\x00\x01\x7f control \u200b\u200f\ufeff",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "It's 123456 we'll $%^&*()_+ ©",
    "ﬁ ﬂ Ⅷ ㎏ \u3000wide \ufffd",
    "<pad> <s> </s> <unk> <mask> [MASK] [CLS] <|endoftext|> <0x41> \u2581 @@ </w> ##x",
    "snowman ☃ and 𝕬",
]
CORPUS = [
    "The cat sat on the mat, and the dog sat by the cat.",
    "A woman, a plan: to be, or not to be, that is the question!",
    "the quick brown fox jumps over the lazy dog 0123456789 times",
    "naïve café, e\u0301tude; 你好 世界",
    "She sells sea shells\non the sea shore\tdaily.",
] * 3

# everything that UTF-8 can write, with the spellings of special and byte tokens thrown in
anything = st.text(st.characters(exclude_categories=("Cs",)))
spellings = st.lists(st.sampled_from([*VARIED, *"<>/s0xFA▁ "]) | anything, max_size=6).map("".join)

SPACES = ["\n", " \n", "\n ", "\n\n  ", "\t", "   ", "\u00a0", "\u2003", "\u3000", "\u2028", "\r\n", "\r", "\x85"]
INVISIBLE = ["\u200b", "\u200d", "\u200c", "\ufeff", "\u00ad", "\u200e", "\x00", "\x01", "\x07", "\x1b", "\x7f"]
COMBINED = ["e\u0301", "a\u0308\u0304", "\u0301", "o\u0323\u0302", "\u1100\u1161\u11a8", "\u0915\u093c", "か\u3099"]
COMPATIBLE = ["\uff76\uff9e", "\ufdfa", "\u212b", "ａ\u0301", *"ﬁⅧ㎏①½ſ𝕬Ａ１…각"]
SCRIPTS = ["مرحبا", "שָׁלוֹם", "עברית", "你好", "，", "日本語", "한국어", "ไทย", "русский", "Ελληνικά", "हिन्दी", *"ßẞİı"]
EMOJI = ["😀", "👩\u200d👩\u200d👧", "🏳️\u200d🌈", "👍🏽", "🇩🇪", "☃", "☃️"]
SPELLED = ["<|endoftext|>", "</s>", "<s>", "<pad>", "<unk>", "<mask>", "[MASK]", "[CLS]", "[SEP]", "[PAD]", "[UNK]"]
SPELLED += ["<0x41>", "<0x0A>", "<extra_id_0>", "<extra_id_99>", "[INST]", "[/INST]", "[control_8]", "▁", "▁▁", "##x"]
SPELLED += ["@@", "</w>", ">>de<<", ">>xx<<", "<|startoftranscript|>", "<|startoftext|>", "<s>NOTUSED", "Ġ", "Ċ", "Ã©"]
WORDS = "The cat sat on the mat, question café naïve It's we'll DON'T 0 123456 3.14 1,000 9, http://a.b/c?d=e !!! `` ''"
WORDS = [*WORDS.split(), "x" * 210, "ab" * 40, "$%^&*()_+", "“”", "def f(x):\n    return"]


def nasty_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of what tokenizers differ in, the same for every run."""
    draw = random.Random(seed)
    units = [*SPACES, *INVISIBLE, *COMBINED, *COMPATIBLE, *SCRIPTS, *EMOJI, *SPELLED, *WORDS]
    texts = ["", " ", "\n", "  ", " \n ", " a", "a ", *VARIED]
    while len(texts) < count:
        parts = [draw.choice(units) + " " * (draw.random() < 0.45) for _ in range(draw.randint(1, 8))]
        any_letter = chr(draw.choice([draw.randrange(1, 0xD7FF), draw.randrange(0xE000, 0x110000)]))
        texts.append("".join(parts) + any_letter * (draw.random() < 0.2))
    return texts
