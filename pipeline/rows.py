"""What the user says about rows, and the rows of a source that it describes."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import psutil

from pipeline.engine.aggregate_plan import Job
from pipeline.errors import UsageError
from pipeline.storage.sources import Files, Joined, Source
from workflows.by_rows import by_rows
from workflows.pictures import SUFFIXES as PICTURES
from workflows.rows import Rows, RowsOptions

Layout = Literal["interleaved", "planar"]
LAYOUTS: tuple[Layout, ...] = ("interleaved", "planar")
# Partials of all rows are held so often: two sums of all chunks, the chunk's, and the results.
OF_ONE_AXIS = (*PICTURES, ".zip", ".h5")  # formats of rows that have an axis in common
COPIES = 4
MOST = 2**48  # channels, or samples of a segment


@dataclass(frozen=True)
class RowsAsked:
    """Each row is to have a result of its own.

    Attributes
    ----------
    channels, layout
        Rows are so many channels, whose samples take turns or follow each other.
    segment
        Rows are runs of so many samples; the last one may be shorter.
    by
        ``"file"``: rows are the files.
    axis
        Rows are what is left of an array without this axis.
    """

    channels: int | None = None
    layout: Layout | None = None
    segment: int | None = None
    by: Literal["file"] | None = None
    axis: int | None = None

    def __post_init__(self) -> None:
        given = {"--channels": self.channels, "--segment": self.segment, "--by": self.by, "--axis": self.axis}
        flags = [flag for flag, value in given.items() if value is not None]
        if len(flags) > 1:
            raise UsageError(f"expected one of {', '.join(given)}, got {' and '.join(flags)}; leave all but one out")
        for flag, value in (("--channels", self.channels), ("--segment", self.segment), ("--axis", self.axis)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer)):
                raise UsageError(f"{flag}: expected an integer, got {value!r}"[:200])
            if flag != "--axis" and value is not None and not 1 <= value <= MOST:
                raise UsageError(f"{flag}: expected 1 to 2^48, got {value}")
            if value is not None:  # NumPy's integers wrap
                object.__setattr__(self, flag[2:], int(value))
        if self.layout is not None and self.channels is None:
            raise UsageError(f"--layout {self.layout}: expected the number of --channels beside it, got none")
        if self.layout not in (None, *LAYOUTS):
            raise UsageError(f"--layout: expected {' or '.join(LAYOUTS)}, got {self.layout!r}")
        if self.by not in (None, "file"):
            raise UsageError(
                f"--by: expected file, got {self.by!r}; for other rows use --channels, --segment or --axis"
            )

    @property
    def any(self) -> bool:
        """Whether rows are asked for."""
        return self != RowsAsked()

    def rows(self, name: str, shape: tuple[int, ...] | None, files: Sequence[tuple[str, int | None]]) -> Rows:
        """The rows of samples.

        Parameters
        ----------
        name
            Of the source, for messages.
        shape
            Of the array; None if the number of samples is unknown.
        files
            Name and number of samples of each file.

        Raises
        ------
        UsageError
            If they are not as many samples, or have not as many axes, as the rows need.
        """
        samples = None if shape is None else math.prod(shape)
        if self.channels is not None:
            return self._channels(name, samples, self.channels)
        if self.segment is not None:
            number = None if samples is None else (-(-samples // self.segment),)
            return Rows("segment", number, self.segment)
        if self.by is not None:
            sizes = [size for _, size in files if size is not None]
            if len(sizes) < len(files):
                raise UsageError(f"--by file: expected files of known length, got {name}; leave --by out, or write it "
                                 "to a file first, as --spool does")  # fmt: skip
            return Rows(
                "file", (len(files),), None, sizes=tuple(sizes), names=_unique([_text(file) for file, _ in files])
            )
        return self._axis(name, shape, len(files))

    def _channels(self, name: str, samples: int | None, channels: int) -> Rows:
        if samples is not None and samples % channels:
            raise UsageError(f"{name}: expected a multiple of {channels:,} samples as --channels says, got "
                             f"{samples:,}, {samples % channels:,} too many; is the file complete, and is --dtype "
                             "right?")  # fmt: skip
        length = None if samples is None else samples // channels
        if self.layout == "planar":
            if length is None:
                raise UsageError(f"--layout planar: expected a source of known length, got {name}; write it to a file "
                                 "first, as --spool does")  # fmt: skip
            return Rows("channel", (channels,), length)
        return Rows("channel", (channels,), length or None, channels)

    def _axis(self, name: str, shape: tuple[int, ...] | None, files: int) -> Rows:
        assert self.axis is not None
        if shape is None or files != 1:
            what = "a stream" if shape is None else f"{files} files, whose samples count as one dimension"
            raise UsageError(f"--axis: expected one array, got {what}; run the files one by one")
        if not shape:
            raise UsageError(f"--axis: expected an array with axes, got {name}, which is a single number; leave it out")
        if not -len(shape) <= self.axis < len(shape):
            raise UsageError(f"--axis: expected one of the axes of {name}, {-len(shape)} to {len(shape) - 1} of shape "
                             f"{shape}, got {self.axis}")  # fmt: skip
        axis = self.axis % len(shape)
        left = shape[:axis] + shape[axis + 1 :]
        return Rows("row", left, shape[axis], math.prod(shape[axis + 1 :]))


def _text(name: str) -> str:
    """A file's name as text, which result files hold: bytes that are not UTF-8 become escapes."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """The names, those that come again with a number, because categories have to differ."""
    seen = Counter[str]()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(unique)


def rows_of_source(jobs: Sequence[Job], asked: RowsAsked, source: Source) -> list[Job]:
    """The jobs, on every row of a source by itself, if rows are asked for; UsageError if that is not possible."""
    if not asked.any:
        check_alone(jobs)
        return list(jobs)
    rows = asked.rows(source.names[0], source.shape, list(_files(source)))
    if asked.axis is not None and source.fortran:
        raise UsageError(f"--axis: expected an array in C order, got {source.names[0]} in Fortran order; write it in C "
                         "order with transpose, and count its axes from the other end")  # fmt: skip
    return with_rows(jobs, rows, source.dtype)


def _files(source: Source) -> Iterator[tuple[str, int | None]]:
    """Name and number of samples of each file."""
    if isinstance(source, Files):
        yield from source.lengths
    elif isinstance(source, Joined):
        for part in source.sources:
            yield from _files(part)
    else:
        yield source.names[0], source.samples


def with_rows(jobs: Sequence[Job], rows: Rows, dtype: np.dtype[Any]) -> list[Job]:
    """The jobs, on every row by itself.

    Raises
    ------
    UsageError
        If a job cannot be, or the partials of all rows do not fit into memory.
    """
    return [_with_rows(job, rows, dtype.newbyteorder("=")) for job in jobs]


def check_alone(jobs: Sequence[Job]) -> None:
    """Refuse, by UsageError, jobs whose options are for several rows."""
    for job in jobs:
        _options_of_rows(job, 1)


def _options_of_rows(job: Job, number: int | None) -> tuple[Any, ...]:
    try:
        return job.workflow.options_of_rows(job.options, number)
    except ValueError as error:
        raise UsageError(f"{job.workflow.name}: {error}") from None


def _with_rows(job: Job, rows: Rows, dtype: np.dtype[Any]) -> Job:
    if rows.number == 0:
        raise UsageError(f"{job.workflow.name}: expected at least one {rows.by}, got none; are there no samples?")
    each = [replace(job, options=options).prepared(dtype) for options in _options_of_rows(job, rows.number)]
    if (of_few := each[0].workflow.of_few) and (longest := rows.longest) is not None:
        each = [replace(one, options=of_few(one.options, longest)) for one in each]
    job = each[0]
    workflow, options = job.workflow, job.options
    number, available = rows.number or 1, psutil.virtual_memory().available
    if workflow.empty is None:
        raise UsageError(f"{workflow.name}: expected a job that takes rows, got one whose `empty` is None; declare "
                         "it, or leave the rows out")  # fmt: skip
    surveyed = workflow.survey if job.surveyed else None
    if surveyed is not None and surveyed.of_rows:  # each row gets options of its own, and lines are of the same ones
        workflow = replace(workflow, compute_rows=None, lines=None)
    first = workflow.empty if surveyed is None else surveyed.workflow.empty
    if first is not None and (surveyed is None or surveyed.of_rows):
        partial = first(dtype, options)
        if partial.dtype != np.int64 or partial.ndim != 1:
            raise UsageError(f"{workflow.name}: expected partials of int64 for rows, got {partial.dtype}")
        if (nbytes := COPIES * number * partial.nbytes) > available:
            raise UsageError(f"{workflow.name}: expected rows that fit into memory, got {number:,} of "
                             f"{partial.nbytes:,} bytes, held {COPIES} times, {nbytes / 2**30:.3g} GiB of the "
                             f"{available / 2**30:.3g} GiB that are free; make fewer or longer rows, or fewer "
                             "bins")  # fmt: skip
    made = by_rows(workflow)
    if len(each) > 1:  # without an axis that all rows have in common
        made = replace(made, formats=tuple(suffix for suffix in made.formats if suffix not in OF_ONE_AXIS))
    return replace(job, workflow=made, options=RowsOptions(rows, dtype, tuple(one.options for one in each)))
