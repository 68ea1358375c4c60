"""Suites of what comes before the first token: starting, loading a model, tokenising texts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from random import Random

from headway.bench.answers import TOKENS, VECTORS
from headway.bench.conversions import CT2, to_ctranslate2
from headway.bench.decoding_suites import GPT2, load_headway, load_transformers, write_gpt2, write_llama
from headway.bench.peers import CTRANSLATE2, TOKENIZERS, TRANSFORMERS, library
from headway.bench.suite import Case, Contender, Run, Suite, Workspace

TEXT = "w5 w6 w7"


def in_process(words: Callable[[Workspace], list[str]]) -> Callable[[Workspace], Run]:
    """A command, whose CPU time is that of a whole process."""

    def prepare(work: Workspace) -> Run:
        def run(case: Case) -> list[list[int]]:
            done = subprocess.run([sys.executable, *words(work)], capture_output=True, text=True, check=True)
            return [[int(word.removeprefix("w")) for word in done.stdout.split()[-1:]]]

        return run

    return prepare


def headway_command(work: Workspace) -> list[str]:
    return ["-m", "headway", "run", str(work.folder), TEXT, "--max-new-tokens", "1"]


def transformers_script(work: Workspace) -> list[str]:
    """The least that does the same: no pipeline, only what is needed is imported."""
    code = (
        "import sys; from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast; "
        "tokenizer = PreTrainedTokenizerFast.from_pretrained(sys.argv[1]); "
        "model = AutoModelForCausalLM.from_pretrained(sys.argv[1]); "
        "ids = tokenizer(sys.argv[2], return_tensors='pt').input_ids; "
        "out = model.generate(ids, max_new_tokens=1, do_sample=False, pad_token_id=0); "
        "print(tokenizer.decode(out[0, ids.shape[1]:]))"
    )
    return ["-c", code, str(work.folder), TEXT]


STARTUP = Suite(
    "startup",
    "A command from its start to the first token of a Llama of 260 k",
    write_llama,
    lambda sizes: (Case("first token", 1, "start"),),
    (
        Contender("headway fp32", in_process(headway_command)),
        Contender("transformers", in_process(transformers_script), peer=TRANSFORMERS),
    ),
    {
        **{"vocab": 512, "context": 512, "dim": 64, "layers": 5, "heads": 8, "kv_heads": 4, "hidden": 172},
        **{"prompt": 3, "batch": 1},
    },
    {
        **{"vocab": 67, "context": 32, "dim": 16, "layers": 1, "heads": 2, "kv_heads": 1, "hidden": 24},
        **{"prompt": 3, "batch": 1},
    },
    TOKENS,
)


# ---- loading


def headway_load(dtype: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        def run(case: Case) -> list[list[float]]:
            return [load_headway(work, dtype).embed.token.weight[0].tolist()]

        run(Case("first", 1, "model"))  # modules that are imported late
        return run

    return prepare


def transformers_load(work: Workspace) -> Run:
    tokenizers = library("transformers").AutoTokenizer

    def run(case: Case) -> list[list[float]]:
        tokenizers.from_pretrained(work.folder)
        return [load_transformers(work, "AutoModelForCausalLM").get_input_embeddings().weight[0].tolist()]

    return run


def ctranslate2_load(precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        ctranslate2 = library("ctranslate2")
        options = {"compute_type": {"fp32": "float32"}.get(precision, precision), "intra_threads": work.threads}

        def run(case: Case) -> list[list[float]]:
            ctranslate2.Generator(str(work.folder / CT2), device="cpu", **options)
            return []

        return run

    return prepare


def load_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    return (Case("GPT-2", 1, "model"),)


LOAD = Suite(
    "load",
    "Loading GPT-2, 124 M, and its tokenizer, in a process that has its library loaded",
    write_gpt2,
    load_cases,
    (
        Contender("headway fp32", headway_load("fp32")),
        Contender("headway int8", headway_load("int8"), "int8"),
        Contender("transformers", transformers_load, peer=TRANSFORMERS),
        *(
            Contender(
                f"CTranslate2 {name}", ctranslate2_load(name), name, CTRANSLATE2, to_ctranslate2, same_weights=False
            )
            for name in ("fp32", "int8")
        ),
    ),
    GPT2.sizes,
    GPT2.tiny,
    VECTORS,
    notes="CTranslate2 loads no tokenizer.  int8 is made of fp32 weights while loading.  headway and transformers leave"
    " weights in fp32 in their file, and read them when they are first used.",
)


# ---- tokens


def write_corpus(work: Workspace) -> None:
    """Words of random syllables, in documents; a byte-level BPE learned on the first of them."""
    from headway.data.tokenizer_training import train_bpe

    random, sizes = Random(0), work.sizes
    syllables = [a + b + c for a in "bdfgklmnprstvw" for b in "aeiou" for c in ("", "n", "r", "s")]
    words = ["".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(sizes["words"])]
    documents = [" ".join(random.choices(words, k=sizes["length"])) for _ in range(sizes["documents"])]
    (work.folder / "corpus.txt").write_text("\n".join(documents), encoding="utf-8")
    train_bpe(documents[: sizes["documents"] // 4], sizes["vocab"]).save(work.folder)


def documents_of(work: Workspace) -> list[str]:
    return (work.folder / "corpus.txt").read_text(encoding="utf-8").splitlines()


def corpus_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    count = sizes["documents"]
    return (Case(f"{count} documents of {sizes['length']} words", count * sizes["length"], "word"),)


def headway_tokens(work: Workspace) -> Run:
    from headway.data.tokenizer_readers import read_tokenizers

    tokenizer, documents = read_tokenizers(work.folder, None)[0], documents_of(work)
    assert tokenizer is not None
    return lambda case: tokenizer.plain_batch(documents)


def transformers_tokens(work: Workspace) -> Run:
    kind, documents = library("transformers").PreTrainedTokenizerFast, documents_of(work)
    tokenizer = kind(tokenizer_file=str(work.folder / "tokenizer.json"))
    return lambda case: tokenizer(documents, add_special_tokens=False).input_ids


def plain_tokens(work: Workspace) -> Run:
    backend = library("tokenizers").Tokenizer.from_file(str(work.folder / "tokenizer.json"))
    documents = documents_of(work)
    return lambda case: [one.ids for one in backend.encode_batch(documents, add_special_tokens=False)]


TOKENISE = Suite(
    "tokenise",
    "Tokenising documents by byte-level BPE, 8,000 tokens",
    write_corpus,
    corpus_cases,
    (
        Contender("headway", headway_tokens),
        Contender("transformers", transformers_tokens, peer=TRANSFORMERS),
        Contender("tokenizers", plain_tokens, peer=TOKENIZERS),
    ),
    {"words": 20_000, "length": 500, "documents": 200, "vocab": 8000},
    {"words": 50, "length": 20, "documents": 8, "vocab": 300},
    TOKENS,
)
