"""A library that is absent, foreign or stale is recognised and not called; `headway doctor` says so."""

from __future__ import annotations

import _ctypes
from pathlib import Path

import pytest

from headway import doctor
from headway.native import library as module
from headway.native.library import SOURCES, NativeLibrary, Unusable, fingerprint, native_library, open_library
from tests.native.decoders import library, needs_library

FOLDER = Path(__file__).parent.parent.parent / "src" / "headway" / "native"


def reason(found: NativeLibrary | Unusable) -> str:
    assert isinstance(found, Unusable)
    return found.reason


def test_absent(tmp_path: Path) -> None:
    assert "not built" in reason(open_library(tmp_path / "_step.so"))


def test_no_library_at_all(tmp_path: Path) -> None:
    (tmp_path / "_step.so").write_text("a library of another machine")
    assert "_step.so is not a library for this machine" in reason(open_library(tmp_path / "_step.so"))


def test_foreign() -> None:
    assert "is not a library for this machine" in reason(open_library(Path(_ctypes.__file__)))


@needs_library
def test_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(library().handle._name)
    assert isinstance(open_library(path), NativeLibrary)
    monkeypatch.setattr(module, "source_fingerprint", lambda: "0123456789abcdef")
    assert "was built from other sources" in reason(open_library(path))


@needs_library
def test_what_torch_may_not_use_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(library().handle._name)
    for permitted, count in (("default", 1), ("avx2", 2), ("avx512", 9)):
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", permitted)
        found = open_library(path)
        assert isinstance(found, NativeLibrary)
        assert found.sets == library().sets[:count]
        assert found.missing == library().missing
        held = "(ATEN_CPU_CAPABILITY=" in doctor.native_step().found
        assert held == (count < 9)


def test_every_source_counts() -> None:
    texts = [(FOLDER / name).read_bytes() for name in SOURCES]
    assert {file.name for file in FOLDER.iterdir() if file.suffix in (".c", ".h")} == set(SOURCES)
    found = {fingerprint(texts), *(fingerprint([*texts[:i], b"", *texts[i + 1 :]]) for i in range(len(texts)))}
    assert len(found) == 1 + len(texts)


@needs_library
def test_doctor_names_the_instructions() -> None:
    check = doctor.native_step()
    assert check.ok
    assert check.found.startswith(library().sets[-1])
    assert all(name in check.found for name in library().missing)


def test_doctor_says_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "native_library", lambda: Unusable("not built"))
    check = doctor.native_step()
    assert (check.ok, check.needed) == (False, False)
    assert "slower" in check.found
    assert "gcc" in (check.fix or "")


@needs_library
def test_a_processor_without_a_set_takes_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = NativeLibrary(library().handle, ("portable",), ("avx2", "avx512"))
    monkeypatch.setattr(doctor, "native_library", lambda: poor)
    assert doctor.native_step().found == ("portable, for decoding on the CPU; this processor has no avx2 and no avx512")
    assert poor.best == 0


@needs_library
def test_the_library_is_loaded_once() -> None:
    assert native_library() is library()
