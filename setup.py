"""The optional library in C; all else about the package stands in pyproject.toml.

Where there is no compiler that knows GNU C, headway is installed without it, and decodes by torch alone.
"""

import runpy
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("src/headway/native")
named = runpy.run_path(str(FOLDER / "library.py"))
print_of_sources = named["fingerprint"]((FOLDER / name).read_bytes() for name in named["SOURCES"])

step = Extension(
    "headway.native._step",
    [str(FOLDER / "step.c")],
    depends=[str(FOLDER / name) for name in named["SOURCES"]],
    define_macros=[("FINGERPRINT", f'"{print_of_sources}"')],
    extra_compile_args=["-std=gnu11", "-O3", "-fno-math-errno", "-fvisibility=hidden", "-pthread", "-Wno-psabi"],
    extra_link_args=["-pthread"],
    libraries=["m"],
    optional=True,
)
setup(ext_modules=[step])
