"""Texts that find mistakes, and a small corpus to learn from."""

from __future__ import annotations

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
