"""Copies the samples that a condition keeps, on a GPU: the launch wrapper for the kernel in `compact.cuh`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.cache import cached_source
from kernels.common.checks import blocks_for, check_address, check_array
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES
from kernels.common.memory import empty, zeros
from kernels.select.generated import STORED, condition_text
from kernels.select.mask import kept
from kernels.select.tree import INDEX, SAMPLE
from kernels.select.typed import Typed

SOURCE = Path(__file__).with_suffix(".cu")
KERNEL = SOURCE.with_name("compact.cuh")

THREADS, LOADS = constant(KERNEL, "THREADS"), constant(KERNEL, "LOADS")
TILE_BYTES = THREADS * LOADS * 16
NUMBER = np.uint64(2**62 - 1)  # of a published word, as in compact.cuh

_source = lru_cache(maxsize=64)(cached_source)  # by its text: conditions with 0.0 and -0.0 are equal

INSTANCES = tuple(f"compact<{c_type}>" for c_type in C_TYPES.values())


@dataclass(frozen=True)
class Kept:
    """The samples that are kept.

    Attributes
    ----------
    samples : CuPy array, shape (k,)
        In their order.
    """

    samples: Any
    _condition: Typed
    _values: Mapping[str, Any]
    _indices: range
    _progress: Any

    def place(self, number: int) -> int:
        """Where one of them lies among all samples; asks its tile again, on the host."""
        tile = int(np.searchsorted(self._up_to, number, "right"))
        all_samples = self._values[SAMPLE]
        step = TILE_BYTES // all_samples.itemsize
        start = tile * step - _skipped(all_samples)
        some = slice(max(start, 0), start + step)
        values = {name: value[some].get() for name, value in self._values.items()}
        indices = self._indices[some]
        values[INDEX] = np.arange(indices.start, indices.stop, indices.step, dtype=np.int64)
        earlier = int(self._up_to[tile - 1]) if tile else 0
        return int(some.start + np.flatnonzero(kept(self._condition, values))[number - earlier])

    @cached_property
    def _up_to(self) -> NDArray[np.int64]:
        """How many are kept up to the end of each tile."""
        return (self._progress.get() & NUMBER).view(np.int64)  # type: ignore[no-any-return]


def compact(condition: Typed, samples: Any, indices: range, columns: Mapping[str, Any]) -> Kept:
    """The samples for which a condition holds.

    Parameters
    ----------
    condition
        In the names `SAMPLE`, `INDEX` and those of columns.
    samples : CuPy array, shape (n,), C-contiguous
    indices
        Their indices in the source.
    columns : CuPy arrays, shape (n,), C-contiguous, native byte order
        At least those in the condition, on the device of the samples.

    Raises
    ------
    TypeError, ValueError
        If an array has another dtype, shape or address than a kernel reads.
    MemoryError
        If device memory has no room for as many samples again.
    """
    if len(indices) != len(samples):
        raise ValueError(f"select: expected an index for each of {len(samples)} samples, got {len(indices)}")
    parameters = {SAMPLE: samples.dtype, INDEX: np.dtype(np.int64), **{name: columns[name].dtype for name in columns}}
    source = _source(condition_text(condition, parameters) + '\n#include "select/compact.cuh"\n')
    progress, chosen = launch(source, samples, indices, tuple(columns.values()))
    return Kept(chosen, condition, {SAMPLE: samples, **columns}, indices, progress)


def launch(source: Path, samples: Any, indices: range, columns: tuple[Any, ...]) -> tuple[Any, Any]:
    """Run the kernel with the condition of a source: what its tiles published, and the samples that are kept."""
    check_array("samples", samples, tuple(C_TYPES), 1)
    for column in columns:
        check_array("column", column, tuple(STORED), 1)
        if len(column) != len(samples):
            raise ValueError(f"column: expected a number for each of {len(samples)} samples, got {len(column)}")
    check_address(samples, *columns)
    n, step = len(samples), TILE_BYTES // samples.itemsize
    tiles = blocks_for(n + _skipped(samples), step) if n else 0
    progress, chosen = zeros("select", 1 + tiles, np.uint64), empty("select", n, samples.dtype)
    if n:
        types = ", ".join((C_TYPES[samples.dtype.name], *(STORED[column.dtype.name] for column in columns)))
        scalars = np.int64(n), np.int64(indices.start), np.int64(indices.step)
        arguments = samples, *scalars, chosen, progress, *columns
        nvrtc.load(source, f"compact<{types}>")((tiles,), (THREADS,), arguments)
        chosen = chosen[: int(progress[-1:].get()[0] & NUMBER)]
    return progress[1:], chosen


def _skipped(samples: Any) -> int:
    """Samples between the last multiple of 16 bytes and the first one."""
    return int(samples.data.ptr) % 16 // int(samples.itemsize)
