"""The library under the address and undefined-behaviour sanitizers: random programs and products of awkward sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from headway.native.library import source_fingerprint

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "headway" / "native" / "step.c"
COMPILER = which("cc") or which("gcc") or which("clang")
FLAGS = ["-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

RUN = """
import sys
from pathlib import Path
import pytest
import torch
from headway.generate import lowering
from headway.native import int8_linear, sequence_attention
from headway.native.library import NativeLibrary, open_library
from tests.native import decoders, test_int8, test_residual_sublayers, test_sequence_attention, test_step

library = open_library(Path(sys.argv[1]))
assert isinstance(library, NativeLibrary), library
decoders.LIBRARY = library
lowering.native_library = int8_linear.native_library = sequence_attention.native_library = lambda: library
for seed in range(100, 104):
    torch.set_num_threads(1 + seed % 2)
    test_step.test_random_decoders_over_ragged_rows(seed)
    test_step.test_tokens_of_beams_stay_where_they_are_stored(seed)
test_step.test_threads_share_the_work(3)
for rows in (1, 4, 13):
    test_step.test_products_of_float32((130, 1040), rows)
    test_step.test_products_of_float32((70, 21), rows)
for sizes in (*test_int8.SIZES, *test_int8.MANY):
    test_int8.test_every_set_gives_the_bits_of_the_definition(sizes, True)
test_int8.test_nothing_saturates(-1, (-128, 0))
test_int8.test_an_activation_in_the_same_call(decoders.ACTS[0])
test_int8.test_rows_of_zeros_and_of_no_numbers()
for sizes in test_sequence_attention.SIZES:
    for masked in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            test_sequence_attention.test_every_set_gives_the_definition(sizes, masked, masked, patch)
test_sequence_attention.test_packed_rows_give_the_bits_of_their_padded_view()
test_sequence_attention.test_threads_give_the_same_bits()
test_residual_sublayers.test_sublayers_in_turn_give_the_bits_of_their_layers()
for centred in (False, True):
    test_residual_sublayers.test_norms_before(centred)
    test_residual_sublayers.test_norms_after(centred)
test_residual_sublayers.test_threads_give_the_same_bits()
print("clean")
"""


def compiled(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    assert COMPILER is not None
    command = [COMPILER, *FLAGS, *SANITIZERS, *more, str(SOURCE), "-o", str(folder / "_step.so"), "-lm"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def runtime(name: str) -> str:
    """Where the compiler has a library that must be loaded before Python is."""
    assert COMPILER is not None
    found = subprocess.run([COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


@pytest.mark.long
@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_random_programs_are_clean(tmp_path: Path) -> None:
    made = compiled(tmp_path, f'-DFINGERPRINT="{source_fingerprint()}"')
    address = runtime("libasan.so")
    if (made.returncode and "asan" in made.stderr) or not Path(address).is_file():
        pytest.skip("the C compiler has no sanitizers")
    assert made.returncode == 0, made.stderr
    options = {"LD_PRELOAD": address, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-c", RUN, str(tmp_path / "_step.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **options})
    assert (done.stdout, done.returncode) == ("clean\n", 0), done.stderr[-4000:]
