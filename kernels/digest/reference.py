"""The digest plainly, with NumPy: all chunks side by side, each state as four rows, as BLAKE2's paper draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.digest.partial import KIB, Node, Partial, as_bytes, is_subtree, pack, runs_of

# https://github.com/BLAKE3-team/BLAKE3-specs, section 2: first the fractions of the square roots of eight primes.
KEY = np.array([0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], "u4")
ORDER = np.array([2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8])
TURNED = (np.arange(4) + np.arange(4)[:, None]) % 4  # places of four words that are turned by so many
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8

Words = NDArray[np.uint32]


def digest_reference(samples: NDArray[Any], start: int) -> Partial:
    """Partial of samples in either byte order, shape (n,), the first of which has the index `start` in the content."""
    data = as_bytes(samples).tobytes()
    first = start * samples.dtype.itemsize
    nodes: list[Node] = []
    for begin, length in runs_of(first, len(data)):
        run = data[begin - first : begin - first + length]
        if is_subtree(begin, length):
            nodes += _largest(chunk_values(run, begin // KIB), begin // KIB)
        else:
            nodes.append(Node(begin, length, run))
    return pack(samples.dtype.name, nodes)


def _largest(values: Words, first: int) -> list[Node]:
    """Values of chunks, shape (n, 8), as the largest aligned subtrees, from left to right."""
    nodes, at = [], 0
    while at < len(values):
        place = first + at
        size = place & -place  # the largest that begins there
        while size > len(values) - at:
            size //= 2
        level = values[at : at + size]
        while len(level) > 1:
            level = parent_values(level.reshape(-1, 16))
        nodes.append(Node(place * KIB, size * KIB, level.astype("<u4").tobytes()))
        at += size
    return nodes


def chunk_values(data: bytes, first: int, root: int = 0) -> Words:
    """Chaining values of chunks of 1024 bytes, of which the last may be shorter: shape (n, 8).

    Parameters
    ----------
    data
    first
        Number of the first chunk.
    root
        `ROOT` if it is the only one of the content.
    """
    number = max(1, -(-len(data) // KIB))
    words = np.frombuffer(data.ljust(number * KIB, b"\0"), "<u4").reshape(number, 16, 16)
    last = len(data) - (number - 1) * KIB  # bytes of the last chunk
    values = np.repeat(KEY[None], number, 0)
    places = np.arange(first, first + number, dtype=np.uint64)
    blocks = np.full(number, 16)
    blocks[-1] = max(1, -(-last // 64))
    for block in range(blocks.max()):
        some = blocks > block
        ends = blocks[some] == block + 1
        lengths = np.full(len(ends), 64)
        if some[-1] and ends[-1]:
            lengths[-1] = last - 64 * block
        flags = (CHUNK_START if block == 0 else 0) + ends * (CHUNK_END + root)
        values[some] = compressed(values[some], words[some, block], places[some], lengths, flags)
    return values


def parent_values(pairs: Words, root: int = 0) -> Words:
    """Chaining values of the parents of pairs, shape (n, 16): shape (n, 8)."""
    number = len(pairs)
    places, lengths, flags = np.zeros(number, np.uint64), np.full(number, 64), np.full(number, PARENT + root)
    return compressed(np.repeat(KEY[None], number, 0), pairs, places, lengths, flags)


def compressed(
    values: Words, words: Words, places: NDArray[np.uint64], lengths: NDArray[Any], flags: NDArray[Any]
) -> Words:
    """The compression function: values, shape (n, 8), after blocks, shape (n, 16)."""
    number = len(values)
    tail = np.array([places & 0xFFFFFFFF, places >> 32, lengths, flags], np.uint32)
    a, b = (values.T[4 * row : 4 * row + 4].copy() for row in range(2))
    c, d = np.repeat(KEY[:4, None], number, 1), tail
    m = words.T.astype(np.uint32)
    for _ in range(7):
        for turn, half in ((0, m[:8]), (1, m[8:])):
            b, c, d = (row[TURNED[by * turn]] for by, row in ((1, b), (2, c), (3, d)))  # diagonals as columns
            for word, first, second in ((half[0::2], 16, 12), (half[1::2], 8, 7)):
                a = a + b + word
                d = _right(d ^ a, first)
                c = c + d
                b = _right(b ^ c, second)
            b, c, d = (row[TURNED[-by * turn]] for by, row in ((1, b), (2, c), (3, d)))
        m = m[ORDER]
    return np.concatenate([a ^ c, b ^ d]).T.copy()


def _right(words: Words, bits: int) -> Words:
    return (words >> np.uint32(bits)) | (words << np.uint32(32 - bits))


def root_of(nodes: Sequence[Node]) -> bytes:
    """The digest of the content that these nodes cover, in order.

    Raises
    ------
    ValueError
        If they leave a gap, or the first byte out.
    """
    for node, end in zip(nodes, [0, *(node.end for node in nodes)], strict=False):
        if node.start != end:
            raise ValueError(f"expected the whole content, got a gap from byte {end:,} to {node.start:,}")
    if not nodes or (nodes[0].start == 0 and nodes[0].end == nodes[-1].end):
        return _bytes(chunk_values(nodes[0].payload if nodes else b"", 0, ROOT)[0])
    # Trees from left to right, each smaller than the one before: sizes in chunks, and values, or pairs of values that
    # may be the root.
    trees: list[tuple[int, Words]] = []
    for node in nodes:
        size = max(node.length // KIB, 1)
        value = np.frombuffer(node.payload, "<u4") if node.subtree else chunk_values(node.payload, node.start // KIB)[0]
        while trees and trees[-1][0] == size:
            size, value = 2 * size, _pair(trees.pop()[1], value)
        trees.append((size, value))
    _, last = trees.pop()
    while trees:
        last = _pair(trees.pop()[1], last)
    return _bytes(parent_values(last[None], ROOT)[0])


def _pair(left: Words, right: Words) -> Words:
    """Values of two trees; of pairs, those of their parents."""
    values = (tree if len(tree) == 8 else parent_values(tree[None])[0] for tree in (left, right))
    return np.concatenate(list(values))


def _bytes(value: Words) -> bytes:
    return value.astype("<u4").tobytes()
