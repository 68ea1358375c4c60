"""The peak memory of `headway inspect heads` on a long text: `python bench/heads.py TOKENS` prints JSON.

A small model of Llama's kind (4 layers of 4 heads, 256 wide) reads so many random letters.  The command runs in a
process of its own; what is told is the most memory that it ever held, torch itself included.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.letters import LETTERS, reader

DIM, LAYERS, HEADS = 256, 4, 4


def main(tokens: int) -> None:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as place:
        model, text = Path(place, "model"), Path(place, "text.txt")
        reader(tokens, DIM, LAYERS, HEADS).save(model)
        # of the words' own length: characters, of which none is framed
        text.write_text("".join(random.Random(0).choices(LETTERS, k=tokens)), encoding="utf-8")
        command = [sys.executable, "-m", "headway", "inspect", "heads", str(model), "--file", str(text), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    sites = json.loads(done.stdout)["sites"]
    assert len(sites) == LAYERS
    assert sites[0]["queries"] == tokens
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"MiB": used.ru_maxrss / 1024, "CPU s": used.ru_utime + used.ru_stime}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
