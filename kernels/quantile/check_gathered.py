"""Keys of few samples for verification: numbers are sorted, and counted from the least one of their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.row_places import as_matrix


def places(numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """How many values of the dtype are less than each number, both zeros counted as one; the greatest place for NaN."""
    bits = 8 * numbers.itemsize
    half = np.uint64(2 ** (bits - 1))
    if numbers.dtype.kind == "u":
        return numbers.astype(np.uint64)
    if numbers.dtype.kind == "i":
        return numbers.astype(np.int64).astype(np.uint64) + half  # modulo 2**64, and then of the bits
    steps = np.abs(numbers).view(f"u{numbers.itemsize}").astype(np.uint64)
    found = np.where(numbers < 0, half - steps, half + steps)
    return np.where(np.isnan(numbers), np.uint64(2**bits - 1), found)


def check_gathered(
    samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], gathered: int
) -> NDArray[np.int64]:  # fmt: skip
    """Lines as of `kernels.quantile.rows.gather_rows`, of samples in either byte order."""
    native = samples.astype(samples.dtype.newbyteorder("="), copy=False)
    last = np.nan if native.dtype.kind == "f" else np.iinfo(native.dtype).max
    matrix, inside = as_matrix(native, begins, ends, last)
    ordered = places(np.sort(matrix, axis=1))
    ordered[~inside] = 2**64 - 1
    lines = np.full((len(begins), 1 + gathered), 2**64 - 1, np.uint64)
    lines[:, 0] -= inside.sum(axis=1).astype(np.uint64)
    lines[:, 1 : 1 + ordered.shape[1]] = ordered
    return lines.view(np.int64)


def check_counted(samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lines as of `kernels.quantile.rows.count_keys`: samples are counted one after another."""
    lengths = ends - begins
    offsets = np.repeat(begins - np.cumsum(lengths) + lengths, lengths)
    counts = np.zeros((len(begins), 256), np.int64)
    rows = np.repeat(np.arange(len(begins)), lengths)
    np.add.at(counts, (rows, places(samples[np.arange(len(offsets)) + offsets]) % np.uint64(256)), 1)
    return counts


class GatheredCheck:
    """Keys of the samples of a row.

    Parameters
    ----------
    gathered
        Room for them.
    """

    def __init__(self, gathered: int) -> None:
        self._gathered = gathered
        self._samples: list[NDArray[Any]] = []

    def add(self, samples: NDArray[Any], first: int) -> None:
        """Add samples; their order does not matter."""
        self._samples.append(samples.copy())

    def partial(self) -> NDArray[np.int64]:
        """Their number and their keys, as `kernels.quantile.cells.Cells` describes it."""
        together = np.concatenate(self._samples)
        begin, room = np.zeros(1, np.int64), max(self._gathered, len(together))
        return check_gathered(together, begin, begin + len(together), room)[0, : 1 + self._gathered]
