"""Instances of the kernel that decompresses deflate and gzip."""

from __future__ import annotations

from pathlib import Path

from kernels.common.constants import constant

SOURCE = Path(__file__).with_suffix(".cu")

THREADS, LANES = constant(SOURCE, "THREADS"), constant(SOURCE, "LANES")
FRAMINGS = ("Zlib", "Gzip")


def instance(framing: str) -> str:
    """Of one of `FRAMINGS`."""
    return f"inflate<{framing}>"


INSTANCES = tuple(map(instance, FRAMINGS))
