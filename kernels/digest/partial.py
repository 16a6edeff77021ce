"""What a partial of a digest holds, and in which order: nodes of BLAKE3's tree, and bytes that are not in one yet.

A node is a run of the content, from byte `start` on, with its payload:

- a subtree of 1024 * 2^k bytes, aligned to its size, that does not begin the content: its chaining value of 32 bytes;
- otherwise a run within one KiB, as its bytes: the ends of what was cut anywhere, and the first KiB. That one may be
  the root, whose flag enters its hash, so it is hashed in the end; for the same reason no subtree begins at 0.

Neighbours are joined wherever these rules allow it, so equal content has equal partials, however it was cut.

The partial is an int64 array, shape (2 + 2 * nodes + words of the payloads,): code of the dtype, number of nodes, their
starts and lengths in bytes, and the payloads in order, each padded with zeros to whole words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DTYPES = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
)  # fmt: skip
KIB = 1024  # bytes of a leaf
VALUE_BYTES = 32  # of a chaining value
HEADER = 2  # words

Partial = NDArray[np.int64]


class Node(NamedTuple):
    """A run of the content: where it begins, its bytes, and its chaining value or the bytes themselves."""

    start: int
    length: int
    payload: bytes

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + self.length

    @property
    def subtree(self) -> bool:
        """Whether the payload is a chaining value."""
        return is_subtree(self.start, self.length)


def is_subtree(start: int, length: int) -> bool:
    """Whether a run is held by its chaining value."""
    return start > 0 and length >= KIB


def pack(dtype: str, nodes: Sequence[Node]) -> Partial:
    """The partial that holds these nodes, in ascending order."""
    header = [DTYPES.index(dtype), len(nodes), *(node.start for node in nodes), *(node.length for node in nodes)]
    payloads = b"".join([node.payload + bytes(-len(node.payload) % 8) for node in nodes])
    return np.concatenate([np.array(header, np.int64), np.frombuffer(payloads, "<i8")])


def unpack(partial: Partial) -> tuple[str, list[Node]]:
    """Dtype and nodes of a partial.

    Raises
    ------
    ValueError
        If it is none.
    """
    words = partial[:HEADER].tolist()
    if len(words) < HEADER or not 0 <= words[0] < len(DTYPES) or not 0 <= words[1] <= len(partial):
        raise ValueError(f"a partial of a digest begins with a dtype and a number of nodes: got {words}")
    number = words[1]
    starts, lengths = partial[HEADER : HEADER + 2 * number].reshape(2, -1).tolist()
    content, at, nodes = partial[HEADER + 2 * number :].astype("<i8").tobytes(), 0, []
    for start, length in zip(starts, lengths, strict=True):
        nbytes = VALUE_BYTES if is_subtree(start, length) else length
        if not (start >= 0 and 0 < nbytes <= KIB):
            raise ValueError(f"a node of a digest has bytes: got {length} from {start} on")
        nodes.append(Node(start, length, content[at : at + nbytes]))
        at += -(-nbytes // 8) * 8
    if at != len(content):
        raise ValueError(f"nodes of a digest have {at} bytes: got {len(content)}")
    return DTYPES[words[0]], nodes


def runs_of(start: int, nbytes: int) -> Iterable[tuple[int, int]]:
    """Start and length of the runs that a run of the content is cut into: ends that are not whole KiB, and the rest.

    What is whole KiB is one run: all but the first KiB of the content, which is on its own.
    """
    end = start + nbytes
    first = max(KIB, -(-start // KIB) * KIB)
    last = max(end // KIB * KIB, first)
    for low, high in ((start, min(first, end)), (first, min(last, end)), (last, end)):
        if low < high:
            yield low, high - low


def as_bytes(samples: NDArray[Any]) -> NDArray[np.uint8]:
    """Samples in either byte order as little-endian bytes, shape (nbytes,)."""
    little = samples.astype(samples.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8)
