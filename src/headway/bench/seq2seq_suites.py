"""Suites of models that write from a source: beam search by Marian's shape, and Whisper's tiny shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json import dumps, loads
from typing import Any

from headway.bench.answers import TOKENS
from headway.bench.conversions import CT2, to_ctranslate2
from headway.bench.decoding_suites import INPUTS, load_headway, load_transformers
from headway.bench.peers import CTRANSLATE2, FASTER_WHISPER, TRANSFORMERS, library
from headway.bench.suite import Case, Contender, Run, Suite, Workspace
from headway.bench.weights import random_rows, write_model, write_words

EOS = 0
BEAMS = 4


# ---- translation by a beam


def write_marian(work: Workspace) -> None:
    import torch

    from headway.zoo import marian

    sizes = work.sizes
    pad, layers, heads, hidden = sizes["vocab"] - 1, sizes["layers"], sizes["heads"], sizes["hidden"]
    config = marian.Config(
        vocab=sizes["vocab"],
        dim=sizes["dim"],
        layers=layers,
        decoder_layers=layers,
        heads=heads,
        decoder_heads=heads,
        hidden=hidden,
        decoder_hidden=hidden,
    )

    def zero_padding(module: Any) -> None:
        with torch.no_grad():
            module.decoder.embed.token.weight[pad] = 0.0  # as Marian's: the decoder starts from it

    write_model(work.folder, config, zero_padding, eos_token_id=EOS, forced_eos_token_id=None, pad_token_id=pad)
    write_words(
        work.folder, sizes["vocab"], {"eos_token": EOS, "unk_token": 1, "pad_token": pad}, {pad: "<pad>", EOS: "</s>"}
    )
    rows = random_rows(sizes["sentences"], (8, sizes["longest"]), (3, pad))
    (work.folder / INPUTS).write_text(dumps([[*row, EOS] for row in rows]))


def translation_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    dim, hidden, layers, new, rows = (sizes[name] for name in ("dim", "hidden", "layers", "new", "sentences"))
    encoder = layers * (4 * dim * dim + 2 * dim * hidden)
    decoder = layers * (6 * dim * dim + 2 * dim * hidden) + sizes["vocab"] * dim
    source = sum(len(row) + 1 for row in random_rows(rows, (8, sizes["longest"]), (3, sizes["vocab"] - 1)))
    flops = 2.0 * (encoder * source + 2 * layers * dim * dim * source + decoder * rows * BEAMS * new)
    given = f"{rows} sentences, {new} tokens each"
    return (Case(given, rows * new, "token", flops, float(decoder) * new, {"new": new}),)


def sources(work: Workspace) -> list[list[int]]:
    return loads((work.folder / INPUTS).read_text())


def headway_translator(dtype: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        from headway.generate.beam import Beam
        from headway.generate.decoding import generate
        from headway.generate.request import Stop
        from headway.generate.sampling import Rules
        from headway.generate.session import encode_sources

        model, rows, pad = load_headway(work, dtype), sources(work), work.sizes["vocab"] - 1

        def run(case: Case) -> list[list[int]]:
            memory = encode_sources(model, rows)
            stop, rules = Stop(case.sizes["new"]), Rules(never=(EOS, pad))
            found = generate(model.decoder, [[pad]] * len(rows), Beam(BEAMS), stop, memory=memory, rules=rules)
            return [list(one.tokens) for one in found]

        return run

    return prepare


def transformers_translator(work: Workspace) -> Run:
    import torch

    model, rows, pad = load_transformers(work, "MarianMTModel"), sources(work), work.sizes["vocab"] - 1
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])

    def run(case: Case) -> list[list[int]]:
        new = case.sizes["new"]
        options = {"min_new_tokens": new, "max_new_tokens": new, "num_beams": BEAMS, "do_sample": False}
        with torch.inference_mode():
            found = model.generate(ids, attention_mask=(ids != pad).long(), bad_words_ids=[[pad]], **options)
        return found[:, 1:].tolist()

    return run


def ctranslate2_translator(precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        options = {"compute_type": {"fp32": "float32"}.get(precision, precision), "intra_threads": work.threads}
        model = library("ctranslate2").Translator(str(work.folder / CT2), device="cpu", **options)
        rows = [["</s>" if token == EOS else f"w{token}" for token in row] for row in sources(work)]

        def run(case: Case) -> list[list[int]]:
            new = case.sizes["new"]
            found = model.translate_batch(
                rows, beam_size=BEAMS, min_decoding_length=new, max_decoding_length=new, max_input_length=0
            )
            return [[int(word.removeprefix("w")) for word in one.hypotheses[0]] for one in found]

        return run

    return prepare


TRANSLATE = Suite(
    "translate-beam4",
    "Marian's shape (6 + 6 layers of 512): translation with 4 beams",
    write_marian,
    translation_cases,
    (
        Contender("headway fp32", headway_translator("fp32")),
        Contender("headway int8", headway_translator("int8"), "int8"),
        Contender("transformers", transformers_translator, peer=TRANSFORMERS),
        *(
            Contender(f"CTranslate2 {name}", ctranslate2_translator(name), name, CTRANSLATE2, to_ctranslate2)
            for name in ("fp32", "int8")
        ),
    ),
    {"vocab": 32_000, "dim": 512, "layers": 6, "heads": 8, "hidden": 2048, "sentences": 16, "longest": 40, "new": 24},
    {"vocab": 67, "dim": 32, "layers": 2, "heads": 2, "hidden": 64, "sentences": 3, "longest": 12, "new": 4},
    TOKENS,
)


# ---- Whisper

EOT, SOT, NO_TIMESTAMPS = 50_257, 50_258, 50_363  # of the multilingual vocabulary
MARKS = {
    EOT: "<|endoftext|>",
    SOT: "<|startoftranscript|>",
    NO_TIMESTAMPS: "<|notimestamps|>",
    50_362: "<|nocaptions|>",
}
PROMPT = [SOT, 50_259, 50_359, NO_TIMESTAMPS]  # English, transcribe


def write_whisper(work: Workspace) -> None:
    import torch
    from safetensors.torch import save_file

    from headway.zoo import whisper

    sizes, given = work.sizes, work.given("dim", "layers", "heads", "hidden", "mels", "vocab")
    decoder = {f"decoder_{name}": value for name, value in work.given("layers", "heads", "hidden").items()}
    config = whisper.Config(**given, **decoder, source_context=sizes["frames"] // 2)
    tokens: dict[str, Any] = {
        "bos_token_id": EOT,
        "eos_token_id": EOT,
        "pad_token_id": EOT,
        "decoder_start_token_id": SOT,
    }
    write_model(work.folder, config, **tokens, suppress_tokens=[], begin_suppress_tokens=[])
    write_words(
        work.folder, sizes["vocab"], {"unk_token": EOT, "eos_token": EOT, "bos_token": SOT, "pad_token": EOT}, MARKS
    )
    frames = torch.randn(1, sizes["mels"], sizes["frames"], generator=torch.Generator().manual_seed(0))
    save_file({"frames": frames}, work.folder / "frames.bin")


def whisper_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    dim, hidden, layers, new, frames = (sizes[name] for name in ("dim", "hidden", "layers", "new", "frames"))
    encoder = layers * (6 * dim * dim + 2 * dim * hidden)  # with the keys and values that the decoder reads
    decoder = layers * (6 * dim * dim + 2 * dim * hidden) + sizes["vocab"] * dim
    flops = 2.0 * (encoder * frames / 2 + 3 * dim * (sizes["mels"] * frames + dim * frames / 2))
    attention = 4.0 * layers * dim * (frames / 2) ** 2
    return (Case(f"a window, {new} tokens", 1, "window", flops + attention, float(decoder) * new, {"new": new}),)


def window(work: Workspace) -> Any:
    """The log-mel frames, 1 M T."""
    from safetensors.torch import load_file

    return load_file(work.folder / "frames.bin")["frames"]


def headway_whisper(dtype: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        import torch

        from headway.generate.decoding import generate
        from headway.generate.request import Stop
        from headway.generate.sampling import Rules

        model, frames = load_headway(work, dtype), window(work).transpose(1, 2)

        def run(case: Case) -> list[list[int]]:
            with torch.inference_mode():
                memory = model.remember(frames)
            stop, rules = Stop(case.sizes["new"]), Rules(never=(EOT,))
            return [
                list(one.tokens) for one in generate(model.decoder, [PROMPT], stop=stop, memory=memory, rules=rules)
            ]

        return run

    return prepare


def transformers_whisper(work: Workspace) -> Run:
    import torch

    model, frames = load_transformers(work, "WhisperForConditionalGeneration"), window(work)
    generate = library("transformers").GenerationMixin.generate  # without the rules of long sounds

    def run(case: Case) -> list[list[int]]:
        new = case.sizes["new"]
        options = {"min_new_tokens": new, "max_new_tokens": new, "do_sample": False}
        with torch.inference_mode():
            found = generate(model, input_features=frames, decoder_input_ids=torch.tensor([PROMPT]), **options)
        return found[:, len(PROMPT) :].tolist()

    return run


def ctranslate2_whisper(precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        ctranslate2 = library("ctranslate2")
        options = {"compute_type": {"fp32": "float32"}.get(precision, precision), "intra_threads": work.threads}
        model = ctranslate2.models.Whisper(str(work.folder / CT2), device="cpu", **options)
        frames = ctranslate2.StorageView.from_array(window(work).numpy())

        def run(case: Case) -> list[list[int]]:
            options = {"beam_size": 1, "suppress_blank": False, "suppress_tokens": [EOT]}
            length = 2 * case.sizes["new"]  # of which it writes the half
            return [model.generate(frames, [PROMPT], max_length=length, **options)[0].sequences_ids[0]]

        return run

    return prepare


WHISPER = Suite(
    "transcribe-whisper",
    "Whisper's tiny shape: one window of 30 seconds, from its mel frames",
    write_whisper,
    whisper_cases,
    (
        Contender("headway fp32", headway_whisper("fp32")),
        Contender("headway int8", headway_whisper("int8"), "int8"),
        Contender("transformers", transformers_whisper, peer=TRANSFORMERS),
        *(
            Contender(f"faster-whisper {name}", ctranslate2_whisper(name), name, FASTER_WHISPER, to_ctranslate2)
            for name in ("fp32", "int8")
        ),
    ),
    {"vocab": 51_865, "dim": 384, "layers": 4, "heads": 6, "hidden": 1536, "mels": 80, "frames": 3000, "new": 48},
    {"vocab": 51_865, "dim": 16, "layers": 2, "heads": 2, "hidden": 32, "mels": 8, "frames": 3000, "new": 3},
    TOKENS,
    notes="faster-whisper's model is called as its `transcribe` calls it, by CTranslate2, on the same frames.",
)
