"""Partials of several rows: one int64 array that has the rows, and the partial or the line of each."""

from __future__ import annotations

from collections.abc import Mapping
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
    return encoded_lines(np.array(rows, np.int64), samples, lines)


def encoded_lines(rows: NDArray[np.int64], samples: NDArray[np.int64], lines: NDArray[Any]) -> NDArray[np.int64]:
    """The same of ascending rows whose partials are lines of integers; those without samples are left out."""
    kept = samples > 0
    number = np.array([np.count_nonzero(kept)])
    head = [number, rows[kept], samples[kept], np.repeat(lines.shape[1], number)]
    return np.concatenate([*head, (lines if kept.all() else lines[kept]).reshape(-1)], dtype=np.int64)


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
    if workflow.lines and (one := lined(first)) and (other := lined(second)):
        return _combined_lines(workflow.lines, one, other)
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
    """Of two whose first rows ascend."""
    if np.array_equal(a.rows, b.rows):
        return encoded_lines(a.rows, a.samples + b.samples, job.combine(a.lines, b.lines))
    begin, end = np.searchsorted(a.rows, b.rows[0]), np.searchsorted(b.rows, a.rows[-1], "right")
    # Rows of the first one, of both, and of the second one: the last ones where rows follow each other.
    before, after = Lined(*(of_a[:begin] for of_a in a)), Lined(*(of_b[end:] for of_b in b))
    between, also = Lined(*(of_a[begin:] for of_a in a)), Lined(*(of_b[:end] for of_b in b))
    rows = np.union1d(between.rows, also.rows)
    of_a, of_b = np.searchsorted(rows, between.rows), np.searchsorted(rows, also.rows)
    samples = np.zeros(len(rows), np.int64)
    samples[of_a] = between.samples
    samples[of_b] += also.samples
    both, ours, theirs = np.intersect1d(of_a, of_b, assume_unique=True, return_indices=True)
    of_row = np.concatenate([of_a, of_b])  # which of the lines each row has, of those of both the sum
    which = np.zeros(len(rows), np.int64)
    which[of_row] = np.arange(len(of_row))
    which[both] = len(of_row) + np.arange(len(both))
    lines = [part for part in (between.lines, also.lines) if len(part)]
    lines += [job.combine(between.lines[ours], also.lines[theirs])] if len(both) else []
    parts = [before.lines, job.join(lines)[which] if len(rows) else before.lines[:0], after.lines]
    return encoded_lines(np.concatenate([before.rows, rows, after.rows]),
                         np.concatenate([before.samples, samples, after.samples]),
                         job.join([part for part in parts if len(part)]))  # fmt: skip
