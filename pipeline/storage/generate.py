"""Writes files of generated samples block by block, so that a file of 100 GiB needs no more memory than a small one.

Seed, distribution and BLOCK determine a file: block b is drawn from the counter-based stream Philox(key=seed,
counter=[0, 0, b, 0]). It uses raw words, not numpy.random.Generator's methods: NumPy guarantees the words of a bit
generator, but may change how the methods use them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError, meant
from pipeline.storage.atomic_file import reserved, told

BLOCK = 2**20  # samples; a different length changes the files of every seed

# dtype: (levels, steps in a level). The largest code, levels * steps - 1, and its quotient by steps are exact in the
# dtype, so no value is ever rounded up to `levels`.
DTYPES: dict[str, tuple[int, int]] = {
    "int8": (128, 1),
    "uint8": (256, 1),
    **{f"{kind}{bits}": (1024, 1) for kind in ("int", "uint") for bits in (16, 32, 64)},
    "float16": (1024, 2),
    "float32": (1024, 2**14),
    "float64": (1024, 2**14),
}

Codes = NDArray[np.integer[Any]]


class Block(NamedTuple):
    """Input of a distribution, which returns the BLOCK codes, 0 to levels * steps - 1, of one block."""

    stream: np.random.Philox
    first: int  # index in the file of the block's first sample
    samples: int  # in the whole file
    levels: int
    steps: int  # 1 for integers

    def draw(self) -> NDArray[np.uint16]:
        """BLOCK words of 16 random bits; always a whole block, so that a shorter file is a prefix of a longer one."""
        return self.stream.random_raw(BLOCK // 4).astype("<u8", copy=False).view("<u2")

    def spread(self, level: NDArray[np.uint16]) -> Codes:
        """Codes of the levels, uniformly spread over the steps within each."""
        if self.steps == 1:
            return level
        return level * np.uint32(self.steps) + (self.draw() & np.uint16(self.steps - 1))


def _quantiles(weights: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Table of 2**16 levels in which level i appears in proportion to weights[i]: index it with 16 random bits."""
    cumulative = np.cumsum(weights)
    centres = (np.arange(2**16) + 0.5) / 2**16
    return np.searchsorted(cumulative / cumulative[-1], centres, side="right").astype(np.uint16)


@lru_cache
def _gaussian_table(levels: int) -> NDArray[np.uint16]:
    sigmas = (np.arange(levels) + 0.5 - levels / 2) / (levels / 8)  # -4 to 4
    return _quantiles(np.exp(-(sigmas**2) / 2))


@lru_cache
def _zipf_table(levels: int) -> NDArray[np.uint16]:
    return _quantiles(1 / np.arange(1.0, levels + 1))


@lru_cache
def _hot_table(levels: int) -> NDArray[np.uint16]:
    weights = np.full(levels, 1 / levels)
    # The middle of each eighth: with 1024 levels all 8 are multiples of 32, in one bank of shared memory.
    weights[levels // 16 :: levels // 8] = 2  # together 16 against 1 for all the others
    return _quantiles(weights)


def _uniform(block: Block) -> Codes:
    return block.spread(block.draw() & np.uint16(block.levels - 1))


def _gaussian(block: Block) -> Codes:
    return block.spread(_gaussian_table(block.levels)[block.draw()])


def _constant(block: Block) -> Codes:
    return np.full(BLOCK, block.levels // 2 * block.steps)


def _sorted(block: Block) -> Codes:
    # Sample i is floor(i * codes / samples). The block's first product may exceed 64 bits, so it is a Python integer;
    # the rest stays below 2**44 + samples.
    codes = block.levels * block.steps
    quotient, remainder = divmod(block.first * codes, block.samples)
    return quotient + (remainder + np.arange(BLOCK, dtype=np.int64) * codes) // block.samples


def _zipf(block: Block) -> Codes:
    return block.spread(_zipf_table(block.levels)[block.draw()])


def _hot(block: Block) -> Codes:
    return _hot_table(block.levels)[block.draw()] * np.uint32(block.steps)


DISTRIBUTIONS: dict[str, Callable[[Block], Codes]] = {
    "uniform": _uniform,
    "gaussian": _gaussian,  # mean in the middle of the range, 4 standard deviations from each end
    "constant": _constant,  # the middle of the range
    "sorted": _sorted,  # increasing over the whole file, each value equally often
    "zipf": _zipf,  # level i in proportion to 1 / (i + 1)
    "hot": _hot,  # about 16 of 17 samples are one of 8 values, the rest uniform
}


def _check(samples: int, dtype: str, distribution: str, seed: int) -> None:
    if samples < 1:
        raise UsageError(f"samples: expected 1 or more, got {samples}; ask for at least one sample")
    if dtype not in DTYPES:
        advice = meant(dtype, DTYPES) or "; choose one of them"
        raise UsageError(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}{advice}")
    if distribution not in DISTRIBUTIONS:
        expected = ", ".join(DISTRIBUTIONS)
        advice = meant(distribution, DISTRIBUTIONS) or "; choose one of them"
        raise UsageError(f"distribution: expected one of {expected}, got {distribution!r}{advice}")
    if not 0 <= seed < 2**64:
        raise UsageError(f"seed: expected 0 to 2**64 - 1, got {seed}; choose a seed in that range")


def _write(file: BinaryIO, samples: int, dtype: str, distribution: str, seed: int) -> None:
    levels, steps = DTYPES[dtype]
    little = np.dtype(dtype).newbyteorder("<")
    for number, first in enumerate(range(0, samples, BLOCK)):
        stream = np.random.Philox(key=seed, counter=[0, 0, number, 0])
        codes = DISTRIBUTIONS[distribution](Block(stream, first, samples, levels, steps))
        values = codes[: samples - first].astype(little)
        if steps > 1:
            values /= steps
        file.write(values.data)


def generate(
    path: str | os.PathLike[str],
    samples: int = 2**25,
    dtype: str = "int32",
    distribution: str = "uniform",
    seed: int = 0,
) -> None:
    """
    Write a file of generated 10-bit samples; the same arguments give the same bytes on every machine.

    The file appears under its name, replacing an existing one, only when all of it is on disk. Memory stays under
    64 MiB whatever `samples` is. Except for `sorted`, a shorter file is a prefix of a longer one.

    Parameters
    ----------
    path : str or os.PathLike
        File to write, in an existing folder. With the suffix `.npy` a NumPy header, shape (samples,), comes first;
        with any other the file is the samples alone, little-endian, without gaps.
    samples : int
        Number of samples, 1 or more.
    dtype : str
        A key of DTYPES. Integers are 0 to 1023 (`uint8`: 0 to 255, `int8`: 0 to 127); floats are in [0, 1024), exact
        multiples of 2**-14 (`float16`: of 1/2).
    distribution : str
        A key of DISTRIBUTIONS.
    seed : int
        0 to 2**64 - 1.

    Raises
    ------
    UsageError
        An argument is outside the values above, or there is no such folder or no permission to write to it; nothing
        was touched.
    PipelineError
        The file cannot be written: not enough free space, not a regular file. A file that was there before is left as
        it was.
    """
    _check(samples, dtype, distribution, seed)
    header = io.BytesIO()
    if os.fspath(path).endswith(".npy"):
        descr = np.dtype(dtype).newbyteorder("<").str
        layout = {"descr": descr, "fortran_order": False, "shape": (samples,)}
        np.lib.format.write_array_header_1_0(header, layout)
    needed = header.tell() + samples * np.dtype(dtype).itemsize

    with reserved(path) as target, target.whole(needed) as file, told(target.path):
        file.write(header.getvalue())
        _write(file, samples, dtype, distribution, seed)
