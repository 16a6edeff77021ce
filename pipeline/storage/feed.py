"""Feeds the samples of a chunk to checks: byte runs of files in C++, so that all cores check without the GIL.

With a call from Python per block, 16 threads on 16 cores checked 11 GB/s of int32: they waited for the GIL.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.compiled_check import CompiledCheck, calls_of
from pipeline.storage.blocks import AHEAD_BYTES, read_blocks
from pipeline.storage.chunks import Chunk, Region
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import fill, open_planned
from pipeline.storage.scratch import aligned_empty
from pipeline.timeline import Timeline
from workflows.aggregation import Check

SOURCE = Path(__file__).with_suffix(".cpp")
BLOCK_BYTES = 2**19  # still in the second-level cache when it is checked

# (descriptor, piece, first byte of it, number of bytes, index of the first sample)
Give = Callable[[int, Piece, int, int, int], None]


def feed(chunk: Chunk, checks: Sequence[Check], copied: Region) -> NDArray[Any]:
    """Give every sample to every check.

    Returns
    -------
    array of ``chunk.dtype``, shape (copied.samples,)
        A copy of the samples in a region.

    Raises
    ------
    PipelineError
        If a file cannot be read, is no longer the one that was planned, or cannot be decoded.
    """
    give = feeder(checks, chunk.dtype, AHEAD_BYTES) if chunk.runs else None
    if give is None:
        return _feed(chunk, checks, copied)
    index = 0
    for piece in chunk.pieces:
        assert isinstance(piece, Piece)
        with open_planned(piece) as fd:
            give(fd, piece, 0, piece.nbytes, index)
        index += piece.nbytes // chunk.dtype.itemsize
    blocks = read_blocks(chunk.part(copied), Timeline())
    return np.concatenate([np.empty(0, chunk.dtype), *(samples.copy() for samples in blocks)], dtype=chunk.dtype)


def feeder(checks: Sequence[Check], dtype: np.dtype[Any], ahead: int) -> Give | None:
    """A function that gives samples of a dtype, in any byte order, to compiled checks; None if not all are compiled.

    It reads them from a descriptor; so many bytes ahead are requested, unless `ahead` is 0.
    """
    compiled = [check for check in checks if isinstance(check, CompiledCheck)]
    library = _library() if len(compiled) == len(checks) else None
    if library is None:
        return None
    calls, itemsize = calls_of(compiled), dtype.itemsize
    block = aligned_empty(BLOCK_BYTES // itemsize * itemsize)
    settings = itemsize, not dtype.isnative, block.ctypes.data, len(block), ahead, calls, len(calls)

    def give(fd: int, piece: Piece, start: int, nbytes: int, index: int) -> None:
        end = start + nbytes
        while start < end:
            got = library.feed(fd, piece.offset + start, end - start, index, *settings)
            start, index = start + got, index + got // itemsize
            if not got:  # this read succeeds, or tells why not
                part = block[: end - start]
                fill(fd, part.data, piece, start)
                for check in compiled:
                    check.add(part.view(dtype), index)
                start, index = start + len(part), index + len(part) // itemsize

    return give


def _library() -> ctypes.CDLL | None:
    if library := cxx.library(SOURCE):
        word, pointer = ctypes.c_size_t, ctypes.c_void_p
        index = ctypes.c_int64
        types = ctypes.c_int, index, word, index, word, ctypes.c_int, pointer, word, word, pointer, word
        library.feed.argtypes, library.feed.restype = types, word
    return library


def _feed(chunk: Chunk, checks: Sequence[Check], copied: Region) -> NDArray[Any]:
    start, copies = 0, [np.empty(0, chunk.dtype)]
    for samples in read_blocks(chunk, Timeline()):
        for check in checks:
            check.add(samples, start)
        first = max(copied.start - start, 0)
        copies.append(samples[first : max(copied.start + copied.samples - start, first)].copy())
        start += len(samples)
        del samples  # of which the next ones may have all the memory
    return np.concatenate(copies, dtype=chunk.dtype)
