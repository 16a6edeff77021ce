"""The kernel that decompresses Zstandard."""

from __future__ import annotations

from pathlib import Path

from kernels.common.constants import constant

SOURCE = Path(__file__).with_suffix(".cu")

THREADS, LANES = constant(SOURCE, "THREADS"), constant(SOURCE.with_name("fse.cuh"), "LANES")
FRAMINGS = ("Zstd",)


def instance(framing: str) -> str:
    """Of one of `FRAMINGS`."""
    return "zstd"


INSTANCES = tuple(map(instance, FRAMINGS))
