"""Suites of models that write: GPT-2, Llama's shape, beam search by Marian's shape, Whisper.

All decode greedily, or by a beam, from the same ids, and write as many tokens: none may end early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from json import dumps, loads
from typing import Any

from headway.bench.answers import TOKENS
from headway.bench.conversions import CT2, gguf_file, to_ctranslate2, to_gguf
from headway.bench.peers import CTRANSLATE2, LLAMA_CPP, TRANSFORMERS, library
from headway.bench.suite import Case, Contender, Run, Suite, Workspace
from headway.bench.weights import random_rows, write_model, write_words

INPUTS = "inputs.json"
SPECIAL = {"unk_token": 0, "bos_token": 1, "eos_token": 2}


# ---- decoders


def write_gpt2(work: Workspace) -> None:
    from headway.zoo import gpt2

    config = gpt2.Config(**work.given("vocab", "context", "dim", "layers", "heads"))
    write_model(work.folder, config, bos_token_id=1, eos_token_id=2)
    write_prompts(work)


def write_llama(work: Workspace) -> None:
    from headway.zoo import llama

    given = work.given("vocab", "context", "dim", "layers", "heads", "kv_heads", "hidden")
    write_model(work.folder, llama.Config(**given, tied=True), bos_token_id=1, eos_token_id=2)
    write_prompts(work)


def write_prompts(work: Workspace) -> None:
    sizes = work.sizes
    rows = random_rows(sizes["batch"], (sizes["prompt"], sizes["prompt"]), (3, sizes["vocab"]))
    (work.folder / INPUTS).write_text(dumps(rows))
    write_words(work.folder, sizes["vocab"], SPECIAL)


def prompts(work: Workspace, case: Case) -> list[list[int]]:
    rows = loads((work.folder / INPUTS).read_text())[: case.sizes["batch"]]
    return [row[: case.sizes["prompt"]] for row in rows]


def decoding_cases(matrices: Callable[[Mapping[str, int]], int]) -> Callable[[Mapping[str, int]], tuple[Case, ...]]:
    """Batch 1 and a larger one; `matrices` counts the weights that every token is multiplied by."""

    def cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
        weights, head = matrices(sizes), sizes["vocab"] * sizes["dim"]

        def case(batch: int, prompt: int, new: int) -> Case:
            products = (weights - head) * prompt + (weights * new if batch > 1 else 0)
            name, work = f"batch {batch}, {prompt} + {new} tokens", {"batch": batch, "prompt": prompt, "new": new}
            return Case(name, batch * new, "token", 2.0 * batch * products, float(weights) * new, work)

        return case(1, sizes["prompt"], sizes["new"]), case(sizes["batch"], sizes["short"], sizes["short"])

    return cases


def gpt2_matrices(sizes: Mapping[str, int]) -> int:
    return 12 * sizes["layers"] * sizes["dim"] ** 2 + sizes["vocab"] * sizes["dim"]


def llama_matrices(sizes: Mapping[str, int]) -> int:
    dim, kv = sizes["dim"], sizes["dim"] * sizes["kv_heads"] // sizes["heads"]
    return sizes["layers"] * (2 * dim * dim + 2 * dim * kv + 3 * dim * sizes["hidden"]) + sizes["vocab"] * dim


def headway_decoder(dtype: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        from headway.generate.decoding import generate
        from headway.generate.request import Stop
        from headway.nn.trunk import Trunk

        model = load_headway(work, dtype)
        assert isinstance(model, Trunk)

        def run(case: Case) -> list[list[int]]:
            stop = Stop(case.sizes["new"], (SPECIAL["eos_token"],), min_new_tokens=case.sizes["new"])
            return [list(one.tokens) for one in generate(model, prompts(work, case), stop=stop)]

        return run

    return prepare


def load_headway(work: Workspace, dtype: str) -> Any:
    """The module of the suite's model, as the commands load it."""
    import torch

    from headway.loading import load
    from headway.system import keep_memory

    keep_memory()
    torch.set_num_threads(work.threads)
    return load(work.folder, dtype=dtype).model


def load_transformers(work: Workspace, name: str) -> Any:
    import torch

    torch.set_num_threads(work.threads)
    return getattr(library("transformers"), name).from_pretrained(work.folder, dtype=torch.float32).eval()


def transformers_decoder(work: Workspace) -> Run:
    import torch

    model = load_transformers(work, "AutoModelForCausalLM")

    def run(case: Case) -> list[list[int]]:
        ids, new = torch.tensor(prompts(work, case)), case.sizes["new"]
        options = {"min_new_tokens": new, "max_new_tokens": new, "do_sample": False, "pad_token_id": 0}
        with torch.inference_mode():
            return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, ids.shape[1] :].tolist()

    return run


def ctranslate2_decoder(precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        options = {"compute_type": {"fp32": "float32"}.get(precision, precision), "intra_threads": work.threads}
        model = library("ctranslate2").Generator(str(work.folder / CT2), device="cpu", **options)

        def run(case: Case) -> list[list[int]]:
            new = case.sizes["new"]
            rows = [[f"w{token}" for token in row] for row in prompts(work, case)]
            lengths = {"min_length": new, "max_length": new, "include_prompt_in_result": False}
            found = model.generate_batch(rows, beam_size=1, sampling_topk=1, **lengths)
            return [one.sequences_ids[0] for one in found]

        return run

    return prepare


def llama_cpp_decoder(kind: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        xllamacpp = library("xllamacpp")
        most = work.sizes["batch"]
        length = work.sizes["prompt"] + work.sizes["new"]
        params = xllamacpp.CommonParams()
        params.model.path = str(gguf_file(work, kind))
        params.n_ctx, params.n_parallel = most * (length + 31), most
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = work.threads
        params.n_gpu_layers, params.warmup, params.verbosity, params.cache_ram_mib = 0, True, -1, 0
        server = xllamacpp.Server(params)

        def ask(new: int, row: list[int]) -> list[int]:
            asked = {"prompt": row, "n_predict": new, "temperature": 0, "samplers": ["top_k"], "top_k": 1}
            found = server.handle_completions({**asked, "ignore_eos": True, "cache_prompt": False})
            return [int(word) for word in found["choices"][0]["text"].split("w")[1:]]

        def run(case: Case) -> list[list[int]]:
            rows = prompts(work, case)
            with ThreadPoolExecutor(len(rows)) as pool:
                return list(pool.map(partial(ask, case.sizes["new"]), rows))

        return run

    return prepare


DECODERS = (
    Contender("headway fp32", headway_decoder("fp32")),
    Contender("headway int8", headway_decoder("int8"), "int8"),
    Contender("transformers", transformers_decoder, peer=TRANSFORMERS),
    *(
        Contender(f"CTranslate2 {name}", ctranslate2_decoder(name), name, CTRANSLATE2, to_ctranslate2)
        for name in ("fp32", "int8")
    ),
    *(
        Contender(f"llama.cpp {name}", llama_cpp_decoder(name), name, LLAMA_CPP, to_gguf(name))
        for name in ("fp32", "q8_0", "q4_0")
    ),
)

TIES = (
    "Logits of random weights are nearly tied, so that greedy tokens part soon where numbers differ a little: in int8, "
    "and in llama.cpp's cache of fp16.  What int8 costs a trained model, `headway eval --dtype int8` tells."
)
LENGTHS = {"prompt": 128, "new": 128, "batch": 8, "short": 32}
TINY_LENGTHS = {"prompt": 5, "new": 4, "batch": 2, "short": 3}

GPT2 = Suite(
    "generate-gpt2",
    "GPT-2, 124 M: greedy continuation",
    write_gpt2,
    decoding_cases(gpt2_matrices),
    DECODERS,
    {**LENGTHS, "vocab": 50_257, "context": 1024, "dim": 768, "layers": 12, "heads": 12},
    {**TINY_LENGTHS, "vocab": 67, "context": 32, "dim": 64, "layers": 2, "heads": 2},
    TOKENS,
    notes=TIES,
)

LLAMA = Suite(
    "generate-llama",
    "Llama's shape, 110 M: greedy continuation",
    write_llama,
    decoding_cases(llama_matrices),
    DECODERS,
    {
        **LENGTHS,
        **{"vocab": 32_000, "context": 2048, "dim": 768, "layers": 12, "heads": 12, "kv_heads": 12, "hidden": 2048},
    },
    {**TINY_LENGTHS, "vocab": 67, "context": 32, "dim": 64, "layers": 2, "heads": 2, "kv_heads": 1, "hidden": 96},
    TOKENS,
    notes=TIES,
)
