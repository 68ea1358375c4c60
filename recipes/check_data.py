"""Check a copy of the recipes' data sets: `python recipes/check_data.py DIR [NAME …]`.

DIR holds one folder for each data set; recipes/README.md says where each can be had.  Files are compared by the size
and SHA-256 of their content; a .gz file is unpacked first, since its own bytes depend on who packed it.  Of a folder
of recordings the digest is that of `sha256sum *.wav | sha256sum`.  Needs nothing but Python.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = 2**20


@dataclass(frozen=True)
class Content:
    """Bytes, unpacked, and their SHA-256."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Recordings:
    """All WAV files of a folder: how many there are, their bytes, and the SHA-256 of their list."""

    files: int
    content: Content


@dataclass(frozen=True)
class DataSet:
    """A data set as the recipes read it; `prepared` says what was done to the files that its publisher offers."""

    title: str
    publisher: str
    source: str
    licence: str
    files: Mapping[str, Content] = field(default_factory=dict[str, Content])
    recordings: Mapping[str, Recordings] = field(default_factory=dict[str, Recordings])
    prepared: str = ""


def main() -> int:
    words = ArgumentParser(description="Check a copy of the data sets that the recipes train on.")
    words.add_argument("dir", type=Path, help="the folder that holds them, one folder each")
    words.add_argument("name", nargs="*", help=f"which of {', '.join(DATA_SETS)}; all unless given")
    given = words.parse_args()
    if unknown := [name for name in given.name if name not in DATA_SETS]:
        words.error(f"no data set {unknown[0]!r}; allowed: {', '.join(DATA_SETS)}")
    if not given.dir.is_dir():
        words.error(f"{given.dir} is not a folder")
    failed = 0
    for name in given.name or DATA_SETS:
        found = list(problems(given.dir / name, DATA_SETS[name]))
        failed += bool(found)
        print("\n".join(f"{name}: {problem}" for problem in found) if found else f"{name}: complete")
        if found:
            print(f"  {DATA_SETS[name].title}: {DATA_SETS[name].source}.  {DATA_SETS[name].prepared}".rstrip())
    return min(failed, 1)


def problems(folder: Path, known: DataSet) -> Iterator[str]:
    """A sentence for everything that is missing or different."""
    if not folder.is_dir():
        yield f"the folder {folder} is missing"
        return
    for name, expected in known.files.items():
        file = folder / name
        if not file.is_file():
            yield f"{name} is missing"
        else:
            yield from differences(name, content(file), expected)
    for name, expected in known.recordings.items():
        files = sorted((folder / name).glob("*.wav"), key=lambda file: file.name)
        if len(files) != expected.files:
            yield f"{name}/*.wav: {len(files):,} files instead of {expected.files:,}"
        else:
            yield from differences(f"{name}/*.wav", listing(files), expected.content)


def differences(name: str, found: Content | None, expected: Content) -> Iterator[str]:
    if found is None:
        yield f"{name} cannot be unpacked; download it again"
    elif found.bytes != expected.bytes:
        yield f"{name} has {found.bytes:,} bytes instead of {expected.bytes:,}"
    elif found.sha256 != expected.sha256:
        yield f"{name} has other content: SHA-256 {found.sha256[:12]}… instead of {expected.sha256[:12]}…"


def content(file: Path) -> Content | None:
    """The size and digest of a file, unpacked; None: it cannot be unpacked."""
    size, digest = 0, hashlib.sha256()
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            while block := stream.read(BLOCK):
                size += len(block)
                digest.update(block)
    except (gzip.BadGzipFile, EOFError):
        return None
    return Content(size, digest.hexdigest())


def listing(files: list[Path]) -> Content:
    """The size of all files, and the digest of the list that `sha256sum` prints."""
    lines = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    return Content(sum(file.stat().st_size for file in files), hashlib.sha256(lines.encode()).hexdigest())


DATA_SETS = {
    "multi30k": DataSet(
        "Multi30k, English, German and French",
        "Elliott, Frank, Sima'an and Specia 2016",
        "the repository multi30k/dataset on GitHub, data/task1/raw",
        "research, non-commercial",
        {
            "train.en.gz": Content(1_801_238, "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"),
            "train.de.gz": Content(2_110_398, "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"),
            "train.fr.gz": Content(2_111_303, "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d"),
            "val.en.gz": Content(63_297, "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"),
            "val.de.gz": Content(75_981, "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"),
            "val.fr.gz": Content(73_924, "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc"),
            "test_2016_flickr.en.gz": Content(
                62_076, "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"
            ),
            "test_2016_flickr.de.gz": Content(
                70_649, "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"
            ),
            "test_2016_flickr.fr.gz": Content(
                72_261, "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6"
            ),
        },
    ),
    "fashion_mnist": DataSet(
        "Fashion-MNIST",
        "Zalando Research",
        "the repository zalandoresearch/fashion-mnist on GitHub, data/fashion",
        "MIT",
        {
            "train-images-idx3-ubyte.gz": Content(
                47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
            ),
            "train-labels-idx1-ubyte.gz": Content(
                60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
            ),
            "t10k-images-idx3-ubyte.gz": Content(
                7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
            ),
            "t10k-labels-idx1-ubyte.gz": Content(
                10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
            ),
        },
    ),
    "tinyshakespeare": DataSet(
        "Tiny Shakespeare",
        "Karpathy 2015",
        "the repository karpathy/char-rnn on GitHub, data/tinyshakespeare/input.txt",
        "public domain",
        {"input.txt": Content(1_115_394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed")},
    ),
    "sentence_polarity": DataSet(
        "Sentence polarity dataset v1.0",
        "Pang and Lee 2005, Cornell University",
        "the movie review data page of Cornell's computer science department, rt-polaritydata",
        "CC BY 4.0",
        {
            "train.tsv": Content(1_189_823, "0fb14081e0a9adde9fed33c06747cc28b5e9892eadf6cf21f27fd3a2b7449c93"),
            "test.tsv": Content(134_935, "f938535f7de767516bab5c6ebbad65abc4ebf89146b30de128a1fba6fb9cd10f"),
        },
        prepared="As tables with the header `text`, `label`, 9,595 sentences to train on and 1,067 to test on; another"
        " split can be trained on, but its scores differ.",
    ),
    "flickr8k": DataSet(
        "Flickr8k",
        "Hodosh, Young and Hockenmaier 2013, University of Illinois",
        "on request from its publisher",
        "research and education only",
        {
            "train.tar": Content(50_155_520, "2eb9ceda120b6b4140a199bdcfbb827d539de5ef0ed042049f4b66ba35d8f7df"),
            "train.jsonl": Content(2_239_501, "472d43ca73bba03f7f8943c0d92ff14fbe32d62f73b9b3140e1bfebe0fd3150d"),
            "dev.tar": Content(8_386_560, "9527f8d774debb721e3f0191319044b925b9b4e1fd896f2907da1c20a7dc9188"),
            "dev.jsonl": Content(376_706, "60e349467090da8ad05bef2014f2caa38d2e99041ae25352c7693f4a0b0256c3"),
        },
        prepared="JPEG files resized to a short side of 128 pixels, in one tar for each split, and beside it a line"
        ' {"image": name, "captions": [five]} for each image; copies that were resized elsewhere have other bytes and'
        " can be trained on.",
    ),
    "fsdd": DataSet(
        "Free Spoken Digit Dataset",
        "Jackson and others",
        "the repository Jakobovski/free-spoken-digit-dataset on GitHub, recordings",
        "CC BY-SA 4.0",
        recordings={
            "recordings": Recordings(
                3000, Content(21_128_848, "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959")
            )
        },
    ),
    "yesno": DataSet(
        "YesNo",
        "OpenSLR, resource 1",
        "openslr.org, SLR1: waves_yesno.tar.gz",
        "free",
        recordings={
            ".": Recordings(60, Content(5_885_360, "169bfe3c6c5e7c3eabbd6ad391d76f10cbdca1100b56e8085d35ee6ba81c5f77"))
        },
    ),
    "cmudict": DataSet(
        "The CMU Pronouncing Dictionary 0.7a",
        "Carnegie Mellon University",
        "Carnegie Mellon's speech group, cmudict",
        "unrestricted",
        {"cmudict.tsv.gz": Content(3_252_409, "80d2d847245a2c772ff008f5e169a7a5da1493279fbc1df4fd210a00cedeb6ab")},
        prepared="As a table without a header: lower-case word, tab, phonemes; one pronunciation for each word.",
    ),
}

if __name__ == "__main__":
    sys.exit(main())
