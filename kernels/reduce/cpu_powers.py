"""Sums of third and fourth powers on the CPU: by compiled C++, or by NumPy where there is no compiler."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.reduce.cpu import MOST, reduce_cpu
from kernels.reduce.exact_sum import from_words
from kernels.reduce.partial import DTYPES, Partial
from kernels.reduce.powers import CUBE_BITS, CUBE_WORDS, FOURTH_BITS, FOURTH_WORDS, POWERS, extended

SOURCE = Path(__file__).with_suffix(".cpp")


def reduce_cpu_with_powers(samples: NDArray[Any], parts: int) -> Partial:
    """`kernels.reduce.cpu.reduce_cpu`, with sums of powers if the parts include POWERS."""
    moments = reduce_cpu(samples, parts & ~POWERS)
    if not parts & POWERS:
        return moments
    return extended(moments, *(power_sums_compiled(samples) or power_sums_numpy(samples)))


def power_sums_compiled(samples: NDArray[Any]) -> tuple[int, int] | None:
    """Sums of the cubes and of the fourth powers of finite samples, in their units; None without a compiler."""
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    samples = np.require(samples, requirements=["C", "A"])
    code = DTYPES.index(samples.dtype.name)
    functions.buckets_bytes.restype = ctypes.c_size_t
    function = functions.sum_powers
    function.argtypes = (ctypes.c_int, *(ctypes.c_void_p, ctypes.c_size_t), *(ctypes.c_void_p,) * 2)
    function.restype = None
    cubes = fourths = 0
    for start in range(0, len(samples), MOST):
        part = samples[start : start + MOST]
        words = np.empty(CUBE_WORDS + FOURTH_WORDS, np.int64)
        # Pages of zeros, of which only those of exponents that samples have are written; at a multiple of 16 bytes.
        buckets = np.zeros(functions.buckets_bytes(code) // 16, np.complex128)
        function(code, part.ctypes.data, len(part), buckets.ctypes.data, words.ctypes.data)
        cubes += from_words(words[:CUBE_WORDS])
        fourths += from_words(words[CUBE_WORDS:])
    return cubes, fourths


def power_sums_numpy(samples: NDArray[Any]) -> tuple[int, int]:
    """The same, by arrays of Python's integers."""
    if samples.dtype.kind != "f":
        return tuple(int((samples.astype(object) ** k).sum()) << bits for k, bits in ((3, CUBE_BITS), (4, FOURTH_BITS)))  # type: ignore[return-value]
    with np.errstate(invalid="ignore"):  # converting a signalling NaN would warn
        wide = samples.astype(np.float64)
    fractions, exponents = np.frexp(wide[np.isfinite(wide)])
    # A number is an integer of 53 bits, or fewer if it is subnormal, times a power of two.
    integers, cubes, fourths = (fractions * 2.0**53).astype(np.int64), 0, 0
    for exponent in np.unique(exponents).tolist():
        chosen = integers[exponents == exponent].astype(object)
        third = chosen**3
        place = exponent - 53
        cubes += _shifted(int(third.sum()), CUBE_BITS + 3 * place)
        fourths += _shifted(int((third * chosen).sum()), FOURTH_BITS + 4 * place)
    return cubes, fourths


def _shifted(value: int, places: int) -> int:
    """To the left, or to the right where the bits that leave are zeros."""
    return value << places if places >= 0 else value >> -places
