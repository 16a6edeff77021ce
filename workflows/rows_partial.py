"""Partials of several rows as one int64 array: the numbers of the rows, and the partial or line of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workflows.aggregation import Aggregation, Lines


class Part(NamedTuple):
    """What a partial holds of one row: how many samples, and their partial."""

    samples: int
    partial: NDArray[np.int64]


def encoded(parts: Mapping[int, Part]) -> NDArray[np.int64]:
    """The partial of several rows: their number, the rows, their samples, the lengths of their partials, and these.

    Rows ascend, so equal parts have equal bits.
    """
    rows = sorted(parts)
    head = [len(rows), *rows, *(parts[row].samples for row in rows), *(len(parts[row].partial) for row in rows)]
    return np.concatenate([np.array(head, np.int64), *(parts[row].partial for row in rows)])


def encoded_rows(job: Lines[Any] | None, parts: Mapping[int, Part]) -> NDArray[np.int64]:
    """The same, of the lines of partials of one length, if the job has lines."""
    lengths = {len(part.partial) for part in parts.values()}
    if job is None or len(lengths) != 1:
        return encoded(parts)
    rows = sorted(parts)
    samples = np.array([parts[row].samples for row in rows], np.int64)
    lines = job.lines(np.stack([parts[row].partial for row in rows]))
    return encoded_lines(np.array(rows, np.int64), samples, [lines])


def encoded_lines(
    rows: NDArray[np.int64], samples: NDArray[np.int64], lines: Sequence[NDArray[Any]],
    places: Sequence[NDArray[np.int64]] | None = None, job: Lines[Any] | None = None,
) -> NDArray[np.int64]:  # fmt: skip
    """The same of ascending rows whose partials are lines of integers; those without samples are left out.

    Parameters
    ----------
    rows, samples : int64 arrays, shape (rows,)
    lines : arrays, shape (rows, entries)
        Of all rows together, at least one.
    places
        The rows that each array of lines belongs to, counted in `rows`; by default one array follows another.
    job
        That they are of; needed where there are several.
    """
    lines = job.alike(lines) if job and job.alike and len(lines) > 1 else lines
    if not samples.all():
        kept = samples > 0
        ends = np.cumsum([len(part) for part in lines])
        places = places or [np.arange(end - len(part), end) for end, part in zip(ends, lines, strict=True)]
        lines = [part[kept[where]] for part, where in zip(lines, places, strict=True)]
        places = [(np.cumsum(kept) - 1)[where][kept[where]] for where in places]
        rows, samples = rows[kept], samples[kept]
    width = lines[0].shape[1]
    partial = np.empty(1 + (3 + width) * len(rows), np.int64)
    partial[0] = len(rows)
    head, data = headed(partial)
    head[0], head[1], head[2] = rows, samples, width
    table, start = data.reshape(-1, width), 0
    for number, part in enumerate(lines):
        table[slice(start, start + len(part)) if places is None else places[number]] = part
        start += len(part)
    return partial


def decoded(partial: NDArray[np.int64]) -> dict[int, Part]:
    """The parts of an `encoded` partial, as views."""
    head, data = headed(partial)
    rows, samples, lengths = head.tolist()
    ends = list(accumulate(lengths, initial=0))
    return {row: Part(count, data[first:last])
            for row, count, first, last in zip(rows, samples, ends[:-1], ends[1:], strict=True)}  # fmt: skip


def headed(partial: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows, samples and lengths of an `encoded` partial, shape (3, rows), and the partials of the rows, as views."""
    end = 1 + 3 * int(partial[0])
    return partial[1:end].reshape(3, -1), partial[end:]


def following(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """The partial of the rows of two, all of the first before those of the second, without a look at each row."""
    (head_a, data_a), (head_b, data_b) = headed(a), headed(b)
    head = np.concatenate([head_a, head_b], axis=1)
    return np.concatenate([[head.shape[1]], head.reshape(-1), data_a, data_b])


class Lined(NamedTuple):
    """Rows, samples of each, and their partials of one length, shape (rows, entries)."""

    rows: NDArray[np.int64]
    samples: NDArray[np.int64]
    lines: NDArray[np.int64]


def lined(partial: NDArray[np.int64]) -> Lined | None:
    """An `encoded` partial as lines; None if it has none, or of several lengths."""
    (rows, samples, lengths), data = headed(partial)
    if not len(rows) or (lengths != lengths[0]).any():
        return None
    return Lined(rows, samples, data.reshape(len(rows), -1))


def combined(workflow: Aggregation[Any], a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """The partial of the samples of two."""
    if not (a[0] and b[0]):
        return a if a[0] else b
    first, second = (a, b) if a[1] <= b[1] else (b, a)
    job, one, other = workflow.lines, lined(first), lined(second)
    if job and one and other and (job.alike or one.lines.shape[1] == other.lines.shape[1]):
        return _combined_lines(job, one, other)
    last, next_ = int(first[first[0]]), int(second[1])
    if last < next_:  # as those of successive segments: their number may be large
        return following(first, second)
    if last == next_ and first[0] > 1 and second[0] > 1:
        return following(following(_cut(first, slice(-1)), combined(workflow, _cut(first, slice(-1, None)),
                                   _cut(second, slice(1)))), _cut(second, slice(1, None)))  # fmt: skip
    parts = decoded(a)
    for row, part in decoded(b).items():
        if row in parts:
            samples, partial = parts[row]
            part = Part(samples + part.samples, workflow.combine(partial, part.partial))
        parts[row] = part
    return encoded(parts)


def _cut(partial: NDArray[np.int64], rows: slice) -> NDArray[np.int64]:
    """Some successive rows of a partial."""
    head, data = headed(partial)
    ends = np.concatenate([[0], np.cumsum(head[2])])
    kept = head[:, rows]
    first = ends[:-1][rows][0]
    return np.concatenate([[kept.shape[1]], kept.reshape(-1), data[first : first + kept[2].sum()]])


def _combined_lines(job: Lines[Any], a: Lined, b: Lined) -> NDArray[np.int64]:
    """Rows that only one has are copied, once; those of both are combined."""
    if np.array_equal(a.rows, b.rows):
        return encoded_lines(a.rows, a.samples + b.samples, [job.combine(a.lines, b.lines)])
    above = np.searchsorted(a.rows, b.rows)  # rows of `a` before each of `b`
    shared = a.rows[np.minimum(above, len(a.rows) - 1)] == b.rows
    before = np.cumsum(~shared) - ~shared  # rows of `b` alone before each
    of_b = above + before
    of_a = np.arange(len(a.rows)) + np.cumsum(np.bincount(above[~shared], minlength=len(a.rows) + 1))[: len(a.rows)]
    number = len(a.rows) + np.count_nonzero(~shared)
    rows, samples = np.empty(number, np.int64), np.zeros(number, np.int64)
    rows[of_a], rows[of_b] = a.rows, b.rows
    samples[of_a] = a.samples
    samples[of_b] += b.samples
    parts = [(a, of_a), (b, of_b)]
    if shared.any():
        common = Lined(b.rows[shared], b.samples[shared], job.combine(a.lines[above[shared]], b.lines[shared]))
        alone = np.ones(len(a.rows), bool)
        alone[above[shared]] = False
        parts = [(_some(a, alone), of_a[alone]), (_some(b, ~shared), of_b[~shared]), (common, of_b[shared])]
    parts = [(part, places) for part, places in parts if len(places)]
    return encoded_lines(rows, samples, [part.lines for part, _ in parts], [places for _, places in parts], job)


def _some(lined: Lined, chosen: NDArray[np.bool_]) -> Lined:
    """Some of the rows: views, if they follow each other."""
    places = np.flatnonzero(chosen)
    follow = len(places) and places[-1] - places[0] + 1 == len(places)
    which: Any = slice(places[0], places[-1] + 1) if follow else places
    return Lined(*(each[which] for each in lined))
