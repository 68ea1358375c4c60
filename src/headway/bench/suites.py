"""All suites by name, in the order in which they run."""

from __future__ import annotations

from headway.bench.decoding_suites import GPT2, LLAMA
from headway.bench.encoding_suites import BERT, MINILM, VIT
from headway.bench.growth import GROWTH
from headway.bench.pair_training_suites import RNN, SEQ2SEQ
from headway.bench.process_suites import LOAD, STARTUP, TOKENISE
from headway.bench.process_training_suite import TRAIN_PROCESSES
from headway.bench.seq2seq_suites import TRANSLATE, WHISPER
from headway.bench.serving_suite import SERVE
from headway.bench.suite import Suite
from headway.bench.training_suites import GPT, GPT_50K, MLM, MOE
from headway.bench.vision_training_suites import ATTENTION, TRAIN_SWIN, TRAIN_VIT

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        *(GPT2, LLAMA, TRANSLATE, BERT, MINILM, VIT, WHISPER, SERVE),
        *(GPT, GPT_50K, SEQ2SEQ, MLM, RNN, MOE, TRAIN_VIT, TRAIN_SWIN),
        *(TRAIN_PROCESSES, ATTENTION, STARTUP, LOAD, TOKENISE),
        *GROWTH,
    )
}
