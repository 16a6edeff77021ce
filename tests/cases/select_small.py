"""Small ragged inputs for the kernel that copies the samples that are kept: see all.py.

The condition is that of `kernels/select/condition.cuh`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.select.gpu import NUMBER, SOURCE, THREADS, TILE_BYTES, launch
from tests.cases.case import RANDOM, Case, same

STEM = "select/gpu"
OWN, SUM = 2**62, 2**63  # as in compact.cuh
PATTERNS = ("none", "all", "alternating", "random")


def samples_of(pattern: str, dtype: str, size: int) -> NDArray[Any]:
    """Samples of which none, all, every other one or some are kept by their own value."""
    wanted = RANDOM(size).random(size) < 0.3 if pattern == "random" else np.resize(pattern != "none", size)
    if pattern == "alternating":
        wanted[1::2] = False
    kept = np.resize(np.array([0, 1, 2, 3, 99, 50, 8, 6]), size)
    others = np.resize(np.array([100, 7, 127] if np.dtype(dtype).kind != "f" else [100, np.nan, np.inf, 7]), size)
    return np.where(wanted, kept, others).astype(dtype)


def kept_by(samples: NDArray[Any], indices: range, *columns: NDArray[Any]) -> NDArray[np.bool_]:
    """The condition, by NumPy."""
    mask = (samples < 100) & (samples != 7) & (np.arange(indices.start, indices.stop, indices.step) != 5)
    return np.logical_and.reduce([mask, *(column != 0 for column in columns)])


def _kept(pattern: str, dtype: str, size: int, start: int, columns: tuple[tuple[str, int], ...], cp: Any) -> None:
    samples, indices = samples_of(pattern, dtype, size + start)[start:], range(2, 2 + 3 * size, 3)
    on_device = cp.asarray(samples_of(pattern, dtype, size + start))[start:]
    beside = [(RANDOM(7).random(size + at) < 0.8).astype(name) for name, at in columns]
    given = tuple(cp.asarray(column)[at:] for column, (_, at) in zip(beside, columns, strict=True))
    progress, got = launch(SOURCE, on_device, indices, given)
    mask = kept_by(samples, indices, *(column[at:] for column, (_, at) in zip(beside, columns, strict=True)))
    same(got, samples[mask])
    tile, skipped = TILE_BYTES // samples.itemsize, on_device.data.ptr % 16 // samples.itemsize
    ends = np.minimum(tile * np.arange(1, len(progress) + 1) - skipped, size)
    assert (progress.get() & NUMBER).tolist() == np.cumsum(mask)[ends - 1].tolist()


def _look_back(before: int, sums: int, pattern: str, own_of_first: int, cp: Any) -> None:
    """The last tile and a bit, after so many tiles, the nearest `sums` of which published only what is their own."""
    of_tile, more = TILE_BYTES // 8, 40
    samples = samples_of(pattern, "float64", (before + 1) * of_tile + more)
    indices = range(len(samples))
    own = RANDOM(before).integers(0, of_tile, before).astype(np.uint64)
    own[0] += np.uint64(own_of_first)
    words = own | np.uint64(OWN)
    words[: before - sums] = np.cumsum(own)[: before - sums] | np.uint64(SUM)
    progress = cp.asarray(np.concatenate([np.array([before], np.uint64), words, np.zeros(2, np.uint64)]))
    chosen, on_device = cp.zeros(len(samples), np.float64), cp.asarray(samples)
    scalars = np.int64(len(samples)), np.int64(0), np.int64(1)
    nvrtc.load(SOURCE, "compact<double>")((2,), (THREADS,), (on_device, *scalars, chosen, progress))
    first = int(own.sum())
    expected = samples[before * of_tile :][kept_by(samples, indices)[before * of_tile :]]
    got = chosen.get()
    np.testing.assert_array_equal(got[first : first + len(expected)], expected)
    assert np.count_nonzero(got) == np.count_nonzero(expected)
    assert int(progress.get()[-1]) == SUM + first + len(expected)


def select_cases() -> Iterator[Case]:
    """Of every width; tiles of which a sample is missing or too much; addresses beside multiples of 16 bytes."""
    doubles, floats = TILE_BYTES // 8, TILE_BYTES // 4
    for pattern, dtype, size, start, columns in (
        ("all", "float64", doubles + 1, 0, ()), ("random", "float64", 2 * doubles - 1, 1, ()),
        ("none", "int64", doubles, 0, ()), ("all", "uint64", 31, 1, (("float16", 0),)),
        ("alternating", "int32", floats, 0, (("uint8", 1),)), ("random", "uint32", floats - 1, 3, ()),
        ("random", "float32", floats + 33, 1, (("uint8", 3), ("float64", 1))), ("all", "float32", 32, 0, ()),
        ("alternating", "int16", 33, 3, ()), ("random", "float16", 1000, 0, (("int64", 0),)),
        ("random", "uint16", 4 * doubles, 0, (("uint16", 0),)), ("all", "int8", 1, 5, ()),
        ("random", "uint8", 8 * doubles + 7, 15, (("bool", 15),)), ("random", "int8", 8 * doubles, 0, (("bool", 0),)),
    ):  # fmt: skip
        what = f"{pattern} of {size} {dtype} from {start}{''.join(f', {name} from {at}' for name, at in columns)}"
        yield Case(STEM, "compact", what, partial(_kept, pattern, dtype, size, start, columns))
    for before, sums in ((1, 0), (1, 1), (40, 31), (40, 32), (40, 33), (70, 64), (70, 70)):
        check = partial(_look_back, before, sums, "random", 0)
        yield Case(STEM, "compact", f"after {before} tiles, of {sums} no sum", check)
    yield Case(STEM, "compact", "after 2^33 that are kept", partial(_look_back, 2, 2, "none", 2**33))
