"""The samples that a condition keeps in many rows at once: a line is the number left out, then the job's line."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.select.check import KeptCheck
from kernels.select.mask import kept
from kernels.transpose.cpu import transpose_cpu
from workflows.aggregation import Aggregation, Lines
from workflows.columns import Columns
from workflows.rows import Stretch
from workflows.selection_check import values_to_check
from workflows.selection_result import SelectedColumns, selected_result

Table = NDArray[np.int64]


def compute_rows(
    job: Aggregation[Any], selection: Any, block: Any, options: tuple[Any, ...], stretch: Stretch, indices: range
) -> Table | None:  # fmt: skip
    """Lines of the rows of a stretch, with positions in the source; None where rows are long, or the job has none.

    Samples of a block on a device are copied to the host, as the jobs do that.
    """
    if stretch.long or job.compute_rows is None or job.lines is None:
        return None
    samples = block if isinstance(block, np.ndarray) else block.get()
    mask = kept(selection.typed(samples.dtype), selection.values(samples, indices)).view(np.uint8)
    if stretch.bounds is None:  # a column for each row, the first of which has the first sample
        turns = -(-len(samples) // stretch.number)
        bounds = turns * np.arange(stretch.number + 1)
        samples, mask = (stretch.one_after_another(array, transpose_cpu)[0] for array in (samples, mask))
    else:
        turns, bounds = 0, stretch.bounds
    numbers = np.flatnonzero(mask)
    ends = np.searchsorted(numbers, bounds)
    some = Stretch(slice(0, len(numbers)), stretch.row, stretch.number, 0, ends)
    lines = job.compute_rows(samples[numbers], options, some)
    if lines is None:
        return None
    numbers = numbers % turns * stretch.number + numbers // turns if turns else numbers
    found = _placed(job.lines, lines, ends[:-1], indices.start + numbers)
    counts = np.diff(ends)
    if turns:
        found, counts = found[stretch.firsts()], counts[stretch.firsts()]
    return _beside(stretch.samples() - counts, found)


def _check_rows(
    job: Aggregation[Any], selection: Any, samples: NDArray[Any], stretch: Stretch, indices: range, options: Any
) -> Table | None:  # fmt: skip
    """The same for verification: samples are sorted by their rows; None without a compiler."""
    native = samples.astype(samples.dtype.newbyteorder("="), copy=False)
    keeps = KeptCheck.of(selection.typed(native.dtype))
    if keeps is None or job.lines is None:
        return None
    numbers = keeps.numbers(values_to_check(selection, native, indices))
    if stretch.bounds is None:
        rows = (stretch.first + numbers) % stretch.number
    else:
        rows = np.searchsorted(stretch.bounds, numbers, "right") - 1
    numbers = numbers[np.argsort(rows.astype(np.min_scalar_type(stretch.number)), kind="stable")]
    counts = np.bincount(rows, minlength=stretch.number)
    ends = np.cumsum(counts)
    lines = job.lines.check(native.take(numbers), ends - counts, ends, options)
    if lines is None:
        return None
    return _beside(stretch.samples() - counts, _placed(job.lines, lines, ends - counts, indices.start + numbers))


def _placed(own: Lines[Any], lines: Table, begins: NDArray[np.int64], places: NDArray[np.int64]) -> Table:
    """Lines whose positions count the samples that are kept, with the places of these; each row has its first."""
    if own.relocate is None or not len(places):
        return lines
    return own.relocate(lines, lambda positions: places.take(begins[:, None] + positions, mode="clip"))


def _beside(excluded: NDArray[np.int64], lines: Table) -> Table:
    return np.concatenate((excluded.reshape(-1, 1), lines), axis=1)


def lines_of(job: Aggregation[Any], selection: Any) -> Lines[Any] | None:
    """How lines of selected samples are treated; None if those of the job are not."""
    if (own := job.lines) is None:
        return None
    relocate, alike = own.relocate, own.alike

    def results(lines: Table, options: Any) -> Any:
        found = own.results(lines[:, 1:], options)
        if isinstance(found, Columns):
            return SelectedColumns(found, lines[:, 0].tolist(), selection.asked)
        return [selected_result(*one, selection.asked) for one in zip(found, lines[:, 0].tolist(), strict=True)]

    def broken(lines: Table, samples: NDArray[np.int64]) -> int | None:
        wrong = (lines[:, 0] < 0) | (lines[:, 0] > samples)
        return int(wrong.argmax()) if wrong.any() else own.broken(lines[:, 1:], samples - lines[:, 0])

    return Lines(
        results=results,
        combine=lambda a, b: _beside(a[:, 0] + b[:, 0], own.combine(a[:, 1:], b[:, 1:])),
        broken=broken,
        check=partial(_check_rows, job, selection),
        relocate=relocate and (lambda lines, index: _beside(lines[:, 0], relocate(lines[:, 1:], index))),
        alike=alike and (lambda parts: [_beside(part[:, 0], lines) for part, lines in
                                        zip(parts, alike([part[:, 1:] for part in parts]), strict=True)]),
        lines=lambda partials: _beside(partials[:, 0], own.lines(partials[:, 1:])),
        partials=lambda lines: _beside(lines[:, 0], own.partials(lines[:, 1:])),
    )  # fmt: skip
