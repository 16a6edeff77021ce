"""Selects and calibrates samples, as the user asks, before a job gets them."""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.engine.aggregate_plan import Job
from pipeline.errors import UsageError
from pipeline.storage.column import NUMBERS, TRUTHS, Beside, open_column
from pipeline.storage.protocol import Source
from workflows.calibration import TRANSFORMS, Calibration, calibrated
from workflows.expression import FUNCTIONS, parse
from workflows.selection import INDEX, SAMPLE, Column, Selection, all_of, of_mask, present, selected

MASK = "--mask"  # the name of its column, which no condition can use

Given = str | NDArray[Any]
Number = int | float


class Prepared(NamedTuple):
    """A function that prepares jobs, and the sources that they read besides."""

    job: Callable[[Job], Job]
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Preparation:
    """What a user asks for.

    Attributes
    ----------
    where
        A condition.
    mask
        A `.npy` file, or an array: true for samples that are kept.
    columns
        Files or arrays with a number for each sample, by their names in the condition.
    missing
        Samples equal to one of these are left out.
    gain, bias, transform
        Those that are kept become transform(x * gain + bias); None for 1, 0 and none.
    """

    where: str | None = None
    mask: Given | None = None
    columns: Mapping[str, Given] = field(default_factory=dict)
    missing: tuple[Number, ...] = ()
    gain: float | None = None
    bias: float | None = None
    transform: str | None = None

    @property
    def any(self) -> bool:
        """Whether anything is asked for."""
        return self._selects or self._calibrates

    @property
    def _selects(self) -> bool:
        return self.where is not None or self.mask is not None or bool(self.columns) or bool(self.missing)

    @property
    def _calibrates(self) -> bool:
        return any(value is not None for value in (self.gain, self.bias, self.transform))

    def of_source(self, source: Source) -> Prepared:
        """How jobs are prepared for the samples of a source; errors as of `of`."""
        return self.of(source.dtype, partial(Beside.of, source))

    def of(self, dtype: np.dtype[Any], beside: Callable[[str], Beside]) -> Prepared:
        """How jobs are prepared for samples.

        Parameters
        ----------
        dtype
            Of the samples.
        beside
            flag -> what columns lie beside; called if there are any.

        Raises
        ------
        UsageError
            If the condition is none, or a file is missing or does not fit the samples.
        """
        calibration = self._calibration() if self._calibrates else None
        if not self._selects:
            return Prepared(partial(_prepared, calibration, None, dtype), ())
        selection, sources = self._selection(dtype.newbyteorder("="), beside)
        return Prepared(partial(_prepared, calibration, selection, dtype), sources)

    def _calibration(self) -> Calibration:
        gain, bias = 1.0 if self.gain is None else self.gain, 0.0 if self.bias is None else self.bias
        transform = "none" if self.transform is None else self.transform
        if not (math.isfinite(gain) and gain):
            raise UsageError(f"--gain: expected a finite number other than 0, got {gain}")
        if not math.isfinite(bias):
            raise UsageError(f"--bias: expected a finite number, got {bias}")
        if transform not in TRANSFORMS:
            raise UsageError(f"--transform: expected one of {', '.join(TRANSFORMS)}, got {transform!r}")
        return Calibration(gain, bias, transform)

    def _selection(self, dtype: np.dtype[Any], beside: Callable[[str], Beside]) -> tuple[Selection, tuple[Source, ...]]:
        columns: dict[str, Column] = {}
        sources: list[Source] = []
        asked: dict[str, Any] = {}
        for name, given in self.columns.items():
            _check_name(name)
            flag = f"--column {name}"
            source, columns[name] = open_column(given, flag, beside(flag), NUMBERS)
            sources.append(source)
            asked.setdefault("columns", {})[name] = source.names[0]
        conditions = []
        if self.where is not None:
            truths = [name for name, column in columns.items() if column.dtype == bool]
            numbers = [SAMPLE, INDEX, *(name for name in columns if name not in truths)]
            try:
                conditions.append(parse(self.where, numbers, truths))
            except ValueError as error:
                raise UsageError(f"--where: {error}") from None
            asked["where"] = self.where
        unused = set(columns) - set().union(*(condition.names() for condition in conditions))
        if unused:
            raise UsageError(f"--column: expected columns that --where uses, got {', '.join(sorted(unused))}; leave "
                             "them out, or use them")  # fmt: skip
        if self.mask is not None:
            source, columns[MASK] = open_column(self.mask, MASK, beside(MASK), TRUTHS)
            sources.append(source)
            conditions.append(of_mask(MASK, source.dtype))
            asked["mask"] = source.names[0]
        for value in self.missing:
            conditions.append(present(value, dtype))
            asked.setdefault("missing", []).append(value if math.isfinite(value) else str(value))
        selection = Selection(all_of(conditions), columns, asked)
        try:
            selection.typed(dtype)
        except ValueError as error:
            raise UsageError(f"--where: {error}") from None
        return selection, tuple(sources)


def _prepared(calibration: Calibration | None, selection: Selection | None, dtype: np.dtype[Any], job: Job) -> Job:
    """The job on samples of a dtype that are selected first, and then calibrated."""
    job = job.prepared(dtype if calibration is None else np.dtype(np.float64))
    workflow = job.workflow
    if calibration is not None:
        if workflow.kernel:
            raise UsageError(f"{workflow.name}: --kernel {workflow.kernel}: expected no --gain, --bias or --transform, "
                             "which only the job's own kernel takes; leave --kernel out")  # fmt: skip
        workflow = calibrated(workflow, calibration)
    try:
        return replace(job, workflow=workflow if selection is None else selected(workflow, selection))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _check_name(name: str) -> None:
    reserved = (SAMPLE, INDEX, *FUNCTIONS)
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name) or name in reserved:
        raise UsageError(f"--column: expected a name of letters, digits and _, other than {', '.join(reserved)}, got "
                         f"{name[:30]!r}")  # fmt: skip


def read_missing(word: str) -> Number:
    """The number that a word says: integers exactly; ValueError if it says none."""
    try:
        return int(word)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"expected a number or nan, got {word[:30]!r}") from None
