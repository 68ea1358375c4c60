"""All suites by name, in the order in which they run."""

from __future__ import annotations

from headway.bench.decoding_suites import GPT2, LLAMA
from headway.bench.encoding_suites import BERT, MINILM, VIT
from headway.bench.seq2seq_suites import TRANSLATE, WHISPER
from headway.bench.suite import Suite

SUITES: dict[str, Suite] = {suite.name: suite for suite in (GPT2, LLAMA, TRANSLATE, BERT, MINILM, VIT, WHISPER)}
