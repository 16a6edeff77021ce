"""Small ragged inputs for the kernels that make samples of stored bytes: see all.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.stored_samples import PACK, PACKED_BITS, SHUFFLED, THREADS, unpack, unshuffle
from tests.cases.case import RANDOM, Case, same

STEM = "common/stored_samples"


def unpacked(stored: NDArray[np.uint8], bits: int, signed: bool, big: bool) -> NDArray[Any]:
    """Bit by bit: what `unpack` returns."""
    digits = np.unpackbits(stored, bitorder="big" if big else "little").reshape(-1, bits)
    if not big:
        digits = digits[:, ::-1]
    values = digits.astype(np.int64) @ (1 << np.arange(bits)[::-1])
    return (values - (digits[:, 0].astype(np.int64) << bits) if signed else values).astype("i2" if signed else "u2")


def stored_bytes(nbytes: int, seed: int = 0) -> NDArray[np.uint8]:
    """Random ones, after some of ones and some of zeros."""
    data = RANDOM(seed).integers(0, 256, nbytes, dtype=np.uint8)
    data[:40], data[40:60] = 255, 0
    return data


def _unpack(bits: int, signed: bool, big: bool, samples: int, cp: Any) -> None:
    stored = stored_bytes(samples * bits // 8)
    got = unpack(cp.asarray(stored), bits, signed, big)
    assert got.dtype == ("int16" if signed else "uint16")
    same(got, unpacked(stored, bits, signed, big))


def _unshuffle(itemsize: int, items: int, chunks: int, cp: Any) -> None:
    expected = stored_bytes(itemsize * items * chunks, 1)
    shuffled = np.ascontiguousarray(expected.reshape(chunks, items, itemsize).swapaxes(1, 2)).reshape(-1)
    same(unshuffle(cp.asarray(shuffled), itemsize, itemsize * items), expected)


def decode_cases() -> Iterator[Case]:
    """Whole packs and groups after them; less than a pack; one block and two."""
    for bits, signed, big in product(PACKED_BITS, (False, True), (False, True)):
        group = 2 if bits == 12 else 4
        two_blocks = [(THREADS - 1) * PACK + 3 * group] if signed == big else []
        for samples in (group, 4 * PACK - group, *two_blocks):
            what = f"{samples} of {bits} bits, {'big' if big else 'little'}, {'signed' if signed else 'unsigned'}"
            yield Case(STEM, "unpack", what, partial(_unpack, bits, signed, big, samples))
    for itemsize, (items, chunks) in product(SHUFFLED, ((37, 3), (THREADS, 1), (100, 3))):
        check = partial(_unshuffle, itemsize, items, chunks)
        yield Case(STEM, "unshuffle", f"{chunks} chunks of {items} items of {itemsize}", check)
