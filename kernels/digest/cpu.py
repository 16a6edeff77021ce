"""Digests samples on the CPU, and combines partials: by `cpu.cpp`, or by NumPy where there is no compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.digest.partial import KIB, VALUE_BYTES, Node, Partial, as_bytes, is_subtree, pack, runs_of, unpack

SOURCE = Path(__file__).with_suffix(".cpp")

# BLAKE3, section 2.2: https://github.com/BLAKE3-team/BLAKE3-specs
IV = np.array([0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], "u4")
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
MIXED = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
         (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))  # fmt: skip
ROUNDS, BLOCK = 7, 64
FIRST, LAST, PARENT = 1, 2, 4
MOST_NODES = 128  # subtrees of a run
STEP = 2**12  # leaves that NumPy hashes at a time

Words = NDArray[np.uint32]


def digest_cpu(samples: NDArray[Any], start: int) -> Partial:
    """Partial of samples on the CPU.

    Parameters
    ----------
    samples : array of any integer or float dtype in either byte order, shape (n,)
    start
        Index in the content of the first of them.

    Returns
    -------
    int64 array
        As `kernels.digest.partial` describes it.
    """
    data = as_bytes(samples)
    first = start * samples.dtype.itemsize
    nodes: list[Node] = []
    for begin, length in runs_of(first, len(data)):
        run = data[begin - first : begin - first + length]
        nodes += subtrees(run, begin // KIB) if is_subtree(begin, length) else [Node(begin, length, run.tobytes())]
    return pack(samples.dtype.name, nodes)


def combine(a: Partial, b: Partial) -> Partial:
    """The partial of both runs of samples; neighbours are joined."""
    dtype, left = unpack(a)
    right = unpack(b)[1]
    if left and right and left[0] > right[0]:
        left, right = right, left
    apart = not (left and right) or left[-1].end <= right[0].start
    joined, others = (left, right) if apart else ([], sorted(left + right))
    for number, node in enumerate(others, 1):
        joined.append(node)
        before = len(joined)
        while len(joined) > 1 and (both := _joined(*joined[-2:])):
            joined[-2:] = [both]
        if apart and len(joined) == before:
            return pack(dtype, joined + others[number:])  # which were joined with each other before
    return pack(dtype, joined)


def _joined(a: Node, b: Node) -> Node | None:
    """Both as one node; None if they are no neighbours, or no node holds both."""
    if a.end != b.start or a.subtree != b.subtree:
        return None
    length = a.length + b.length
    if a.subtree:
        siblings = a.length == b.length and a.start % length == 0
        return Node(a.start, length, parents(a.payload + b.payload)) if siblings else None
    if a.start // KIB != (b.end - 1) // KIB:
        return None
    node = Node(a.start, length, a.payload + b.payload)
    return next(subtrees(np.frombuffer(node.payload, np.uint8), a.start // KIB)) if node.subtree else node


def subtrees(data: NDArray[np.uint8], first: int) -> Iterator[Node]:
    """The largest aligned subtrees over whole leaves, the first of which is leaf `first` >= 1 of the content."""
    number = len(data) // KIB
    if (functions := _functions()) is None:
        yield from _paired(_leaves(data.reshape(number, KIB), first), first)
        return
    starts, sizes = np.empty((2, MOST_NODES), np.int64)
    values = np.empty((MOST_NODES, VALUE_BYTES), np.uint8)
    where = starts.ctypes.data, sizes.ctypes.data, values.ctypes.data
    count = functions.subtrees(data.ctypes.data, first, number, *where)
    for start, size, value in zip(starts[:count].tolist(), sizes[:count].tolist(), values, strict=False):
        yield Node(KIB * start, KIB * size, value.tobytes())


def parents(pair: bytes) -> bytes:
    """Chaining value of the parent of two nodes."""
    if (functions := _functions()) is None:
        return _bytes(_parents(np.frombuffer(pair, "<u4").reshape(1, 16)))
    value = ctypes.create_string_buffer(VALUE_BYTES)
    functions.parents(pair, 1, value)
    return value.raw


@cache
def _functions() -> ctypes.CDLL | None:
    if library := cxx.library(SOURCE):
        pointer, word = ctypes.c_void_p, ctypes.c_size_t
        library.parents.argtypes, library.parents.restype = (ctypes.c_char_p, word, pointer), None
        library.subtrees.argtypes, library.subtrees.restype = (pointer, ctypes.c_uint64, word, *(pointer,) * 3), word
    return library


# --- NumPy ------------------------------------------------------------------------------------------------------------


def _paired(values: Words, first: int) -> Iterator[Node]:
    """The largest aligned subtrees over leaves with these chaining values, shape (n, 8)."""
    late: list[Node] = []
    low, size = first, KIB
    while len(values):
        if low % 2:
            yield Node(low * size, size, _bytes(values[0]))
            low, values = low + 1, values[1:]
        if len(values) % 2:
            late.append(Node((low + len(values) - 1) * size, size, _bytes(values[-1])))
            values = values[:-1]
        low, size, values = low // 2, 2 * size, _parents(values.reshape(-1, 16))
    yield from reversed(late)


def _leaves(data: NDArray[np.uint8], first: int) -> Words:
    """Chaining values of leaves, shape (n, 1024): shape (n, 8)."""
    return np.concatenate([_some_leaves(data[at : at + STEP], first + at) for at in range(0, len(data), STEP)])


def _some_leaves(data: NDArray[np.uint8], first: int) -> Words:
    counters = np.arange(first, first + len(data), dtype=np.uint64)
    values: Words = np.repeat(IV[:, None], len(data), 1)
    for block in range(0, KIB, BLOCK):
        flags = FIRST * (block == 0) | LAST * (block == KIB - BLOCK)
        values = _compressed(values, data[:, block : block + BLOCK].copy().view("<u4").T, counters, flags)
    return values.T


def _parents(pairs: Words) -> Words:
    """Chaining values of pairs of them, shape (n, 16): shape (n, 8)."""
    return _compressed(np.repeat(IV[:, None], len(pairs), 1), pairs.T, np.zeros(len(pairs), np.uint64), PARENT).T


def _compressed(values: Words, block: Words, counters: NDArray[np.uint64], flags: int) -> Words:
    """Chaining values after a block of each lane: words along the first axis, lanes along the second."""
    v, m = np.empty((16, len(counters)), np.uint32), list(block.astype(np.uint32))
    v[:8], v[8:12] = values, IV[:4, None]
    v[12], v[13], v[14], v[15] = counters.astype(np.uint32), counters >> 32, BLOCK, flags
    for _ in range(ROUNDS):
        for number, (a, b, c, d) in enumerate(MIXED):
            for word, first, second in ((m[2 * number], 16, 12), (m[2 * number + 1], 8, 7)):
                v[a] += v[b] + word
                v[d] = _rotated(v[d] ^ v[a], first)
                v[c] += v[d]
                v[b] = _rotated(v[b] ^ v[c], second)
        m = [m[word] for word in PERMUTATION]
    return v[:8] ^ v[8:]


def _rotated(words: Words, by: int) -> Words:
    return words >> np.uint32(by) | words << np.uint32(32 - by)


def _bytes(value: Words) -> bytes:
    return value.astype("<u4").tobytes()
