"""Blocks that stay on the device from one pass of a run to the next, where there is room, so that it costs no bus."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

Place = tuple[int, int, int]  # device, first sample, number of samples

FREE = 1 / 4  # of the memory of a device: what is kept leaves so much to all others

_lock = Lock()
_run = ""  # whose blocks are kept
_blocks: dict[Place, list[Any]] = {}


def kept(run: str, place: Place) -> list[Any] | None:
    """The blocks of a chunk, if an earlier pass of this run kept them."""
    with _lock:
        return _blocks.get(place) if run == _run else None


def keeping(run: str, place: Place, blocks: Iterator[Any]) -> Iterator[Any]:
    """The blocks of a chunk, which are copied as they pass, as long as there is room; those of other runs are freed."""
    global _run
    with _lock:
        if run != _run:
            _blocks.clear()
            _run = run
    copies: list[Any] | None = []
    for block in blocks:
        if copies is not None:
            copies = [*copies, block.copy()] if _room(block.nbytes) else None
        yield block
    if copies is not None:
        with _lock:
            if run == _run:
                _blocks[place] = copies


def forget() -> bool:
    """Free what is kept, if anything is."""
    with _lock:
        was = bool(_blocks)
        _blocks.clear()
    if was:
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
    return was


def _room(nbytes: int) -> bool:
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return bool(free - nbytes >= FREE * total)
