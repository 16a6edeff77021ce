"""Keeps data on the device for later uses in a run, while there is room, so that it need not cross the bus again.

Blocks of a chunk, for the next pass; parts of input arrays, for other regions that need them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from threading import Lock
from typing import Any

Place = tuple[int, int, int]  # device, first sample, number of samples

FREE = 1 / 4  # of the memory of a device: what is kept leaves so much to all others

_lock = Lock()
_run = ""  # of which all this is
_keeps = True  # False once its memory was needed
_blocks: dict[Place, list[Any]] = {}
_parts: dict[Hashable, Future[Any]] = {}


def kept(run: str, place: Place) -> list[Any] | None:
    """The blocks of a chunk, if an earlier pass of this run kept them."""
    with _lock:
        return _blocks.get(place) if run == _run else None


def keeping(run: str, place: Place, blocks: Iterator[Any]) -> Iterator[Any]:
    """The blocks of a chunk, which are copied as they pass, as long as there is room; those of other runs are freed."""
    with _lock:
        _begin(run)
    copies: list[Any] | None = []
    for block in blocks:
        if copies is not None:
            copies = [*copies, block.copy()] if _room(block.nbytes) else None
        yield block
    if copies is not None:
        with _lock:
            if run == _run:
                _blocks[place] = copies


def part(run: str, place: Hashable, nbytes: int, load: Callable[[], Any]) -> tuple[Any, bool]:
    """A part of an array: loaded by who asks first and, if there is room, kept for all others of the run.

    Parameters
    ----------
    run
    place
        Device, array and region.
    nbytes
    load
        Returns the part once the device has it.

    Returns
    -------
    The part, and whether it is kept. Whoever uses one that is keeps a reference until no kernel reads it any more: its
    memory belongs to the stream of who loaded it, which may get it back before.
    """
    with _lock:
        _begin(run)
        coming = _parts.get(place)
        if not coming and _keeps and _room(nbytes):
            _parts[place] = own = Future[Any]()
        else:
            own = None
    if own is None:
        if coming and coming.exception() is None:  # waits
            return coming.result(), True
        return load(), False
    try:
        own.set_result(loaded := load())
    except BaseException as error:
        with _lock:
            if _parts.get(place) is own:
                del _parts[place]
        own.set_exception(error)  # who waits for it loads it again
        raise
    return loaded, True


def forget() -> bool:
    """Free what is kept, if anything is."""
    with _lock:
        was = bool(_blocks or _parts)
        _blocks.clear()
        _parts.clear()
    if was:
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
    return was


def make_room() -> bool:
    """Free what is kept, if anything is, and keep no more parts in this run."""
    global _keeps
    with _lock:
        _keeps = False
    return forget()


def _begin(run: str) -> None:
    global _run, _keeps
    if run != _run:
        _blocks.clear()
        _parts.clear()
        _run, _keeps = run, True


def _room(nbytes: int) -> bool:
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return bool(free - nbytes >= FREE * total)
