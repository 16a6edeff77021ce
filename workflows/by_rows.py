"""A job that runs another aggregation on every row of the samples by itself."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.arrays import array_module
from workflows.aggregation import Aggregation, Invariant, Lines, Survey
from workflows.rows import RowsOptions, split
from workflows.rows_check import check_of_rows, of_run, placed_lines
from workflows.rows_partial import Part, combined, decoded, encoded, encoded_lines, encoded_rows, headed, lined
from workflows.rows_result import stacked

COMPARED_ROWS = 2**9  # of which checks and references are compared, in each chunk

OF_FILES = 16  # samples of a frame of rows that are files, so that those of many small ones are computed together


def by_rows(workflow: Aggregation[Any]) -> Aggregation[RowsOptions]:
    """The job that runs another one on each row.

    Its partials are those of the rows that samples belong to, as `workflows.rows_partial.encoded` puts them together;
    the other job's have to be int64 arrays of one dimension.
    """
    made: Aggregation[RowsOptions] = Aggregation(
        name=workflow.name,
        summary=workflow.summary,
        options=RowsOptions,
        compute=lambda block, options, indices: _computed(workflow, block, options, indices),
        combine=lambda a, b: combined(workflow, a, b),
        finalize=lambda partial, options: stacked(_finalized(workflow, partial, options), options.rows),
        reference=lambda block, options, indices: _reference(workflow, block, options, indices),
        invariants=(every_sample_in_a_row, _of_each_row(workflow)),
        label=lambda position, options: f"entry {position}",
        differences=lambda got, expected, options: _differences(workflow, got, expected, options),
        check=lambda options, dtype: check_of_rows(workflow, options, dtype),
        compared=_compared,
        located=True,
        c_order=workflow.c_order,
        frame=lambda options: max(options.rows.inner, min(OF_FILES, sum(options.rows.sizes))),
        empty=(lambda dtype, options: encoded({})) if workflow.empty else None,
        cpu_source=workflow.cpu_source,
        survey=None if workflow.survey is None else _survey(workflow.survey),
        formats=workflow.formats,
        kernel=workflow.kernel,
        dtypes=workflow.dtypes,
        rounding=lambda dtype, samples, options: workflow.rounding(dtype, samples, options.of(0)),
        asked=workflow.asked,
    )
    within = workflow.within and (lambda got, expected: _within(workflow, got, expected))
    return replace(made, within=within)


def _compared(options: RowsOptions) -> int:
    """About the number of samples of `COMPARED_ROWS` rows: the reference takes each row by itself."""
    rows = options.rows
    if rows.inner > 1:
        return COMPARED_ROWS if rows.inner > COMPARED_ROWS else sys.maxsize
    length = sum(rows.sizes) // len(rows.sizes) if rows.sizes else rows.length
    return sys.maxsize if length is None else COMPARED_ROWS * max(length, 1)


def _computed(workflow: Aggregation[Any], block: Any, options: RowsOptions, indices: range) -> NDArray[np.int64]:
    """On the device that holds the block; the partials of all rows are copied to the host together."""
    if (together := _together(workflow, block, options, indices)) is not None:
        return together
    samples: dict[int, int] = {}
    partials: dict[int, Any] = {}
    for row, places, run in split(options.rows, block, indices.start):
        partial = of_run(workflow, workflow.compute, run, options, row, places)
        partials[row] = workflow.combine(partials[row], partial) if row in partials else partial
        samples[row] = samples.get(row, 0) + len(places)
    if not isinstance(partial, np.ndarray):
        partials = _on_host(partials)
    return encoded_rows(workflow.lines, {row: Part(samples[row], partial) for row, partial in partials.items()})


def _together(
    workflow: Aggregation[Any], block: Any, options: RowsOptions, indices: range
) -> NDArray[np.int64] | None:  # fmt: skip
    """All rows at once; None where the job computes them one by one."""
    stretches = list(options.rows.stretches(indices)) if workflow.compute_rows else []
    if not workflow.compute_rows or sum(stretch.number for stretch in stretches) == 1:
        return None
    lines = []
    for stretch in stretches:
        located = (indices[stretch.place],) if workflow.located else ()
        of_stretch = workflow.compute_rows(block[stretch.place], options.options, stretch, *located)
        if of_stretch is None:
            return None
        lines.append(of_stretch)
    rows = np.concatenate([stretch.rows for stretch in stretches])
    samples = np.concatenate([stretch.samples() for stretch in stretches])
    lines = [of_stretch if isinstance(of_stretch, np.ndarray) else of_stretch.get() for of_stretch in lines]
    placed = placed_lines(workflow, lines, options.rows, stretches, indices.start)
    return encoded_lines(rows, samples, placed, job=workflow.lines)


def _on_host(partials: Mapping[int, Any]) -> dict[int, NDArray[np.int64]]:
    arrays = list(partials.values())
    together = array_module(arrays[0]).concatenate(arrays).get()
    ends = np.cumsum([len(partial) for partial in partials.values()])
    return dict(zip(partials, np.split(together, ends[:-1]), strict=True))


def _reference(workflow: Aggregation[Any], block: NDArray[Any], options: RowsOptions, indices: range) -> Any:
    """Rows gathered one by one, by the row of every index."""
    rows = options.rows.rows_of(np.arange(indices.start, indices.stop))
    parts = {}
    order = np.argsort(rows, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(rows[order])) + 1):
        row = int(rows[places[0]])
        # The samples of a row are evenly spaced, unless they are of several groups, which are taken one by one.
        partial, first = None, 0
        cuts = np.flatnonzero(np.diff(places) != options.rows.inner) + 1
        for group in np.split(places, cuts):
            first = indices.start + int(group[0])
            of_group = range(first, first + len(group) * options.rows.inner, options.rows.inner)
            position = options.rows.position_of(first, row)
            if workflow.located and workflow.within_rows:
                of_group = range(position, position + len(group))
            one = workflow.reference(block[group], options.of(row), *([of_group] if workflow.located else []))
            if workflow.place and not workflow.located:
                one = workflow.place(one, position)
            partial = one if partial is None else workflow.combine(partial, one)
        parts[row] = Part(len(places), np.asarray(partial))
    return encoded_rows(workflow.lines, parts)


def _finalized(workflow: Aggregation[Any], partial: NDArray[np.int64], options: RowsOptions) -> Sequence[Any]:
    """The result of every row, of those without samples, too."""
    (present, counts, _), rows = headed(partial)[0], options.rows
    number = int(present.max(initial=-1)) + 1 if rows.number is None else rows.number
    samples = int(counts.sum())
    if not number:
        raise ValueError("expected at least one row, got no samples")
    if rows.length is None and not rows.sizes and samples % rows.inner:  # of unknown length before
        raise ValueError(f"--channels: expected a multiple of {rows.inner} samples, got {samples:,}; is the input "
                         "complete?")  # fmt: skip
    if workflow.lines and len(options.options) == 1:
        lines = _all_lines(workflow, partial, options, number)
        if workflow.located and workflow.lines.relocate:
            lines = workflow.lines.relocate(lines.copy(), rows.turns)
        return workflow.lines.results(lines, options.of(0))
    parts, results = decoded(partial), []
    for row in range(number):
        if row in parts:
            of_row = parts[row].partial
            if workflow.located and workflow.relocate is not None:  # positions are those in the source
                of_row = workflow.relocate(of_row.copy(), rows.within)
            results.append(workflow.finalize(of_row, options.of(row)))
        else:
            assert workflow.empty is not None
            of_row = workflow.empty(options.dtype, options.of(row))
            results.append(workflow.finalize(of_row, options.of(row)))
    return results


def _all_lines(
    workflow: Aggregation[Any], partial: NDArray[np.int64], options: RowsOptions, number: int
) -> NDArray[np.int64]:  # fmt: skip
    """A line for each row."""
    head, data = headed(partial)
    if head.shape[1] == number:
        return data.reshape(number, -1)
    assert workflow.empty is not None
    assert workflow.lines is not None
    nothing = workflow.lines.lines(workflow.empty(options.dtype, options.of(0))[None])
    known = lined(partial)
    if known is None:
        return np.repeat(nothing, number, axis=0)
    alike = workflow.lines.alike
    nothing, present = alike([nothing, known.lines]) if alike else (nothing, known.lines)
    lines = np.repeat(nothing, number, axis=0)
    lines[head[0]] = present
    return lines


def every_sample_in_a_row(partial: NDArray[np.int64], samples: int) -> str | None:
    """The rows have as many samples as there are."""
    total = int(headed(partial)[0][1].sum())
    return None if total == samples else f"every sample is in a row: expected {samples:,} in all, got {total:,}"


def _of_each_row(workflow: Aggregation[Any]) -> Invariant:
    def broken(part: Part) -> str | None:
        said = (holds(part.partial, part.samples) for holds in workflow.invariants)
        return next((broken for broken in said if broken is not None), None)

    def holds(partial: NDArray[np.int64], samples: int) -> str | None:
        if workflow.lines and (found := lined(partial)):
            rows, counts, lines = found
            if (line := workflow.lines.broken(lines, counts)) is None:
                return None
            part = Part(int(counts[line]), _partial_of(workflow.lines, lines, line))
            return f"row {rows[line]}: {broken(part) or 'its sums and extremes agree: they do not'}"
        for row, part in decoded(partial).items():
            if len(part.partial) and (what := broken(part)) is not None:
                return f"row {row}: {what}"
        return None

    return holds


def _partial_of(job: Lines[Any], lines: NDArray[np.int64], line: int) -> NDArray[np.int64]:
    """The partial of a line, with others beside it, because it may be wrong about what its entries are."""
    partials = job.partials(lines[(np.array([-1, 0, -2]) + line) % len(lines)])
    return np.asarray(partials[1])


def _differences(
    workflow: Aggregation[Any], got: NDArray[np.int64], expected: NDArray[np.int64], options: RowsOptions
) -> Iterable[str]:
    """The first entries that differ, with the names of their rows."""
    ours, theirs = decoded(got), decoded(expected)
    tables = [lined(partial) if workflow.lines else None for partial in (got, expected)]
    for row in sorted(ours.keys() | theirs.keys()):
        name = f"{options.rows.by} {options.rows.name(row)}"
        if row not in ours or row not in theirs or ours[row].samples != theirs[row].samples:
            counts = [parts[row].samples if row in parts else 0 for parts in (theirs, ours)]
            yield f"{name}: expected {counts[0]:,} samples, got {counts[1]:,}"
            continue
        one, other = (
            _partial_of(workflow.lines, table.lines, int(np.searchsorted(table.rows, row)))
            if workflow.lines and table else parts[row].partial
            for table, parts in zip(tables, (ours, theirs), strict=True)
        )  # fmt: skip
        if np.array_equal(one, other):
            continue
        if len(one) != len(other):
            yield f"{name}: expected {len(other)} entries, got {len(one)}"
        else:
            place = int(np.flatnonzero(one != other)[0])
            yield f"{name}, {workflow.label(place, options.of(row))}: expected {other[place]}, got {one[place]}"


def _within(workflow: Aggregation[Any], got: NDArray[np.int64], expected: NDArray[np.int64]) -> str | None:
    """What is wrong with partials that need not be equal, but near."""
    assert workflow.within is not None
    ours, theirs = decoded(got), decoded(expected)
    if {row: part.samples for row, part in ours.items()} != {row: part.samples for row, part in theirs.items()}:
        return "other rows, or other numbers of samples in them"
    wrong = (workflow.within(ours[row].partial, theirs[row].partial) for row in ours)
    return next(filter(None, wrong), None)


def _survey(survey: Survey[Any]) -> Survey[RowsOptions]:
    """Completes the options of every row: from the row itself, or from all samples for all rows."""

    def needed(options: RowsOptions) -> bool:
        return any(map(survey.needed, options.options))

    if not survey.of_rows:
        return Survey(
            needed, _of_all(survey.workflow),
            lambda options, result: replace(options, options=(survey.resolve(options.of(0), result),)),
            proven=lambda options: survey.proven(options.of(0)),
            instead=lambda options: survey.instead(options.of(0)),
            choose=lambda options: _of_all(survey.next(options.of(0))),
        )  # fmt: skip

    def resolve(options: RowsOptions, results: list[Any]) -> RowsOptions:
        each = (options.of(row) for row in range(len(results)))
        return replace(options, options=tuple(
            survey.resolve(of_row, result) if survey.needed(of_row) else of_row
            for of_row, result in zip(each, results, strict=True)
        ))  # fmt: skip

    return Survey(needed, replace(by_rows(survey.workflow), finalize=lambda partial, options: _finalized(
        survey.workflow, partial, options)), resolve, proven=lambda options: all(map(survey.proven, options.options)),
        instead=lambda options: survey.instead(options.of(0)))  # fmt: skip


def _of_all(workflow: Aggregation[Any]) -> Aggregation[RowsOptions]:
    """A job on all samples, whatever their rows, with the options of the first row."""
    empty = workflow.empty
    return replace(
        workflow,
        options=RowsOptions,
        compute=lambda block, options, *indices: workflow.compute(block, options.of(0), *indices),
        finalize=lambda partial, options: workflow.finalize(partial, options.of(0)),
        reference=lambda block, options, *indices: workflow.reference(block, options.of(0), *indices),
        label=lambda position, options: workflow.label(position, options.of(0)),
        check=lambda options, dtype: workflow.check(options.of(0), dtype),
        empty=None if empty is None else lambda dtype, options: empty(dtype, options.of(0)),
    )
