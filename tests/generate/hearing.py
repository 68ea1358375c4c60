"""A Whisper of a few thousand weights that transformers and we both hold, and words for it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headway.data.tokenizer import Roles, Tokenizer
from headway.data.tokenizer_training import characters
from headway.data.whisper_tokenizer import END
from headway.generate.transcribe import Transcriber
from headway.interop.registry import family
from headway.nn.trunk import EncoderDecoder
from tests.interop.parity import load

LETTERS = "abcdefghijklmnopqrstuvwxyz ,.ABCDEFGHIJK"  # 40
LANGUAGES = ("en", "de", "fr")
SPECIAL = [
    *(END, "<|startoftranscript|>"),
    *(f"<|{code}|>" for code in LANGUAGES),
    *("<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
]
STEPS = 10  # of time in a window
WINDOW, MELS, CONTEXT = 2 * STEPS, 5, 24
FIRST_TIME = len(LETTERS) + len(SPECIAL)
ID = {token: len(LETTERS) + at for at, token in enumerate(SPECIAL)}
SETTINGS: dict[str, Any] = {
    "suppress_tokens": [3, 7, ID["<|startoftranscript|>"], *range(ID["<|translate|>"], ID["<|notimestamps|>"])],
    "begin_suppress_tokens": [LETTERS.index(" "), ID[END]],
    "max_initial_timestamp_index": 3,
    "is_multilingual": True,
}
NAMED = {
    "lang_to_id": {f"<|{code}|>": ID[f"<|{code}|>"] for code in LANGUAGES},
    "task_to_id": {task: ID[f"<|{task}|>"] for task in ("translate", "transcribe")},
    "no_timestamps_token_id": ID["<|notimestamps|>"],
    "max_length": CONTEXT,
}


class Pair(NamedTuple):
    theirs: Any
    ours: Transcriber


def words() -> Tokenizer:
    backend = characters({letter: id for id, letter in enumerate(LETTERS)}, None)
    backend.add_special_tokens(SPECIAL)
    return Tokenizer(backend, Roles(eos=END))


@lru_cache
def pair(seed: int, steps: int = STEPS, mels: int = MELS) -> Pair:
    """The same model twice; its weights are large, so that what it writes depends on what it hears."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(seed)
    ends = {"eos_token_id": ID[END], "pad_token_id": ID[END], "bos_token_id": ID[END]}
    config = WhisperConfig(
        vocab_size=FIRST_TIME + steps + 1,
        num_mel_bins=mels,
        max_source_positions=steps,
        max_target_positions=CONTEXT,
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        decoder_start_token_id=ID["<|startoftranscript|>"],
        **ends,
    )
    theirs: Any = WhisperForConditionalGeneration(config).eval()
    for parameter in theirs.parameters():
        if parameter.requires_grad and parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.5)
    start = {"decoder_start_token_id": ID["<|startoftranscript|>"]}
    for name, value in (SETTINGS | NAMED | ends | start).items():
        setattr(theirs.generation_config, name, value)
    known = family("whisper")
    here = known.read_config(config.to_dict())
    ours = known.build(here).eval()
    load(ours, known.keymap(here).load(theirs.state_dict()))
    assert isinstance(ours, EncoderDecoder)
    return Pair(theirs, Transcriber.of(ours, words(), SETTINGS, 2 * steps))


def frames(seed: int, count: int) -> Tensor:
    """T M"""
    return torch.randn(count, MELS, generator=torch.Generator().manual_seed(seed))
