"""References for the counts of `cpu.py` and `gpu.py`: by sorting, without keys."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def positions(samples: NDArray[Any]) -> NDArray[np.uint64]:
    """Where samples are in the order of all values of their dtype, as `kernels.quantile.keys` counts them.

    Parameters
    ----------
    samples : array of any integer or float dtype, either byte order
    """
    size = samples.dtype.itemsize
    half = 2 ** (8 * size - 1)
    if samples.dtype.kind != "f":
        least = int(np.iinfo(samples.dtype).min)
        return np.array([int(x) - least for x in samples.tolist()], np.uint64)
    # Between a float and the one above are no others: its place is counted in steps from zero.
    values = samples.astype(samples.dtype.newbyteorder("="))
    steps = np.abs(values).view(f"u{size}").astype(np.uint64)
    places = np.where(values < 0, np.uint64(half) - steps, np.uint64(half) + steps)
    return np.where(np.isnan(values), np.uint64(2 ** (8 * size) - 1), places)


def cells_reference(
    samples: NDArray[Any], firsts: NDArray[np.uint64], bits: NDArray[np.uint64], slot_bits: int, gathered: int
) -> NDArray[np.int64]:
    """Count samples in the slots of cells, as `kernels.quantile.cpu.count_cells` does.

    Parameters
    ----------
    samples : array of any integer or float dtype, either byte order, shape (n,)
    firsts, bits, slot_bits, gathered
        As of `kernels.quantile.cells.Cells`.
    """
    ordered = np.sort(positions(samples))
    counts = np.zeros((len(firsts), 2**slot_bits), np.int64)
    keys = []
    for number, (first, wide) in enumerate(zip(firsts.tolist(), bits.tolist(), strict=True)):
        width = max(wide - slot_bits, 0)
        slots = 2 ** (wide - width)
        starts = np.arange(slots, dtype=np.uint64) * np.uint64(2**width) + np.uint64(first)
        before = np.searchsorted(ordered, starts)
        end = np.searchsorted(ordered, np.uint64(first + 2**wide - 1), "right")
        counts[number, :slots] = np.diff(np.append(before, end))
        keys.append(ordered[before[0] : end])
    if not gathered:
        return counts.ravel()
    inside = np.concatenate(keys)
    partial = np.full(1 + gathered, 2**64 - 1, np.uint64)
    partial[1 : 1 + len(inside)] = inside
    partial[0] -= np.uint64(len(inside))
    return partial.astype(np.int64)


def around_reference(samples: NDArray[Any], values: NDArray[Any]) -> NDArray[np.int64]:
    """Count samples around values, as `kernels.quantile.cpu.count_around` does around their keys.

    Parameters
    ----------
    samples : array of any integer or float dtype, either byte order, shape (n,)
    values : array of that dtype, native byte order, ascending, without NaN
    """
    native = samples.astype(values.dtype)
    ordered = np.sort(native[native == native])
    less, upto = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    ends = np.column_stack((less, upto)).ravel()
    return np.diff(ends, prepend=0, append=[len(ordered), len(native)]).astype(np.int64)
