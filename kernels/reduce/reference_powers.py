"""Reference implementation of sums of powers: digits of 24 bits, multiplied as on paper; plain and slow.

It shares the layout of a partial with `cpu_powers`, `gpu_powers` and `check_powers`, but no arithmetic.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.reduce.partial import Partial
from kernels.reduce.powers import CUBE_BITS, FOURTH_BITS, POWERS, extended
from kernels.reduce.reference import reduce_reference

PART = 2**12  # samples at a time: sums of as many columns of digits stay below 2**64
DIGIT, DIGITS = 24, 3

Digits = list[NDArray[np.uint64]]


def reduce_reference_with_powers(samples: NDArray[Any], parts: int) -> Partial:
    """`kernels.reduce.reference.reduce_reference`, with sums of powers if the parts include POWERS."""
    moments = reduce_reference(samples, parts & ~POWERS)
    if not parts & POWERS:
        return moments
    native = np.ascontiguousarray(samples, samples.dtype.newbyteorder("="))
    cubes = fourths = 0
    for start in range(0, len(native), PART):
        part = native[start : start + PART]
        third, fourth = _of_floats(part) if part.dtype.kind == "f" else _of_integers(part)
        cubes, fourths = cubes + third, fourths + fourth
    return extended(moments, cubes, fourths)


def _of_integers(part: NDArray[Any]) -> tuple[int, int]:
    minus = part < 0
    # Negated as unsigned numbers, where the least integer has its magnitude, too.
    bits = part.astype(np.int64).view(np.uint64) if part.dtype.kind == "i" else part.astype(np.uint64)
    sizes = np.where(minus, ~bits + np.uint64(1), bits)
    (_, third, fourth), (_, below, more) = (
        next(_sums(sizes[chosen], np.zeros(int(chosen.sum()), np.int64)), (0, 0, 0)) for chosen in (~minus, minus)
    )
    return third - below << CUBE_BITS, fourth + more << FOURTH_BITS


def _of_floats(part: NDArray[Any]) -> tuple[int, int]:
    """A sample is sign * integer * 2**(place - digits of the smallest subnormal number)."""
    info = np.finfo(part.dtype)
    bits = part.view(f"u{part.itemsize}").astype(np.uint64)
    exponent = (bits >> np.uint64(info.nmant)).astype(np.int64)
    biased = exponent & (2**info.nexp - 1)
    sizes = (bits & np.uint64(2**info.nmant - 1)) + ((biased > 0).astype(np.uint64) << np.uint64(info.nmant))
    finite = biased < 2**info.nexp - 1
    cubes = fourths = 0
    for key, third, fourth in _sums(sizes[finite], exponent[finite]):
        place = max(key & (2**info.nexp - 1), 1) - 1 + info.minexp - info.nmant
        cubes += (-third if key >> info.nexp else third) << CUBE_BITS + 3 * place
        fourths += fourth << FOURTH_BITS + 4 * place
    return cubes, fourths


def _sums(sizes: NDArray[np.uint64], keys: NDArray[np.int64]) -> Any:
    """Sums of cubes and of fourth powers of all numbers with one key: (key, sum, sum), for each that comes up."""
    if not len(sizes):
        return
    order = np.argsort(keys, kind="stable")
    keys, sizes = keys[order], sizes[order]
    starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    digits = [(sizes >> np.uint64(DIGIT * i)) & np.uint64(2**DIGIT - 1) for i in range(DIGITS)]
    squares = _carried(_product(digits, digits))
    sums = [
        np.stack([np.add.reduceat(column, starts).astype(object) << DIGIT * i for i, column in enumerate(columns)])
        for columns in (_product(squares, digits), _product(squares, squares))
    ]
    yield from zip(keys[starts].tolist(), *(columns.sum(axis=0).tolist() for columns in sums), strict=True)


def _product(a: Digits, b: Digits) -> Digits:
    """Columns of digits, without carries: below 2**51."""
    columns = [np.zeros_like(a[0]) for _ in range(len(a) + len(b) - 1)]
    for (i, one), (j, other) in product(enumerate(a), enumerate(b)):
        columns[i + j] += one * other
    return columns


def _carried(columns: Digits) -> Digits:
    """Digits below 2**24."""
    carry, digits = np.zeros_like(columns[0]), []
    for column in [*columns, np.zeros_like(columns[0])]:
        total = column + carry
        digits.append(total & np.uint64(2**DIGIT - 1))
        carry = total >> np.uint64(DIGIT)
    return digits
