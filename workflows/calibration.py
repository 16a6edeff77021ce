"""A job on calibrated samples, y = t(x · gain + bias): bins become thresholds, other jobs get float64 numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernels.calibrate.apply import calibrate
from kernels.calibrate.calibration import POSITIVE, TRANSFORMS, Calibration
from kernels.calibrate.check import CalibratedSamples
from kernels.calibrate.reference import calibrate_reference
from kernels.histogram.cpu import histogram_cpu
from kernels.histogram.gpu import histogram
from kernels.histogram.monotone import MonotoneBinning, monotone_binning
from workflows.aggregation import Aggregation, Check, Lines, of_others
from workflows.histogram import HISTOGRAM, count_rows
from workflows.histogram_options import HistogramOptions
from workflows.rows import Stretch

__all__ = ["TRANSFORMS", "Calibration", "calibrated"]

Options = TypeVar("Options")

FLOAT64 = np.dtype(np.float64)
PIECE = 2**20  # samples that are calibrated at a time, on either device


def calibrated(workflow: Aggregation[Options], calibration: Calibration) -> Aggregation[Options]:
    """The job on calibrated samples.

    A histogram finds, for each edge, the first sample whose calibrated value reaches it, and counts samples as they
    are; other jobs get float64 numbers, each rounded as `Calibration` says.
    """
    survey = workflow.survey
    if survey is not None:
        survey = of_others(survey, partial(calibrated, calibration=calibration))
    by_thresholds = workflow.compute is HISTOGRAM.compute and calibration.monotone
    of_rows = workflow.compute_rows
    return replace(
        workflow,
        compute=partial(_count, calibration) if by_thresholds else partial(_compute, workflow, calibration),
        compute_rows=(
            partial(_count_rows, calibration)
            if by_thresholds
            else of_rows and partial(_compute_rows, of_rows, calibration)
        ),
        lines=workflow.lines and replace(workflow.lines, check=partial(_check_rows, workflow.lines, calibration)),
        look=None,
        reference=partial(_reference, workflow, calibration),
        check=partial(_check, workflow, calibration),
        survey=survey,
        prepare=None,
        asked={**workflow.asked, **asked(calibration)},
        empty=None if workflow.empty is None else partial(_empty, workflow),
        rounding=lambda dtype, samples, options: workflow.rounding(FLOAT64, samples, options),
    )


def asked(calibration: Calibration) -> dict[str, Any]:
    """What a calibration does, by flag."""
    return {"gain": calibration.gain, "bias": calibration.bias, "transform": calibration.transform}


def _empty(workflow: Aggregation[Options], dtype: np.dtype[Any], options: Options) -> NDArray[Any]:
    assert workflow.empty is not None
    return workflow.empty(FLOAT64, options)


def _compute(
    workflow: Aggregation[Options], calibration: Calibration, block: Any, options: Options, *located: range
) -> Any:
    total = None
    for start in range(0, len(block), PIECE):
        some = slice(start, start + PIECE)
        numbers = calibrate(block[some], calibration)
        part = workflow.compute(numbers, options, *(indices[some] for indices in located))
        if workflow.place is not None and start:
            part = workflow.place(part, start)
        total = part if total is None else workflow.combine(total, part)
    return total


@lru_cache(maxsize=16)
def binning(calibration: Calibration, options: HistogramOptions, dtype: np.dtype[Any]) -> MonotoneBinning:
    """Bins of calibrated samples among samples of a native dtype; options are compared by identity."""
    edges, rising = options.all_edges, calibration.gain > 0
    guess = None
    if options.edges is None and calibration.transform == "none":
        with np.errstate(all="ignore"):
            guess = ((edges - calibration.bias) / calibration.gain)[:: 1 if rising else -1]
    limited = calibration.transform in POSITIVE
    return monotone_binning(dtype, edges, lambda samples: calibrate(samples, calibration), rising=rising,
                            limited=limited, guess=guess)  # fmt: skip


def _count(calibration: Calibration, block: Any, options: Any) -> Any:
    bins = binning(calibration, options, block.dtype)
    count = histogram_cpu if isinstance(block, np.ndarray) else histogram
    return bins.regrouped(count(block, bins.binning))


def _count_rows(calibration: Calibration, block: Any, options: tuple[Any, ...], stretch: Stretch) -> Any:
    """Counts of rows that have the same edges; thresholds of others are not kept from block to block."""
    if len(options) > 1:
        return None
    bins = binning(calibration, options[0], block.dtype)
    counted = count_rows(block, (bins.binning,), stretch)
    return None if counted is None else bins.regrouped(counted.T).T


def _compute_rows(
    of_rows: Callable[..., Any], calibration: Calibration, block: Any, options: tuple[Any, ...], stretch: Stretch
) -> Any:  # fmt: skip
    """As `compute_rows` of `workflows.aggregation.Aggregation`."""
    return None if stretch.long else of_rows(calibrate(block, calibration), options, stretch)


def _check_rows(
    lines: Lines[Options], calibration: Calibration, samples: NDArray[Any], begins: NDArray[np.int64],
    ends: NDArray[np.int64], options: Options,
) -> NDArray[np.int64] | None:  # fmt: skip
    numbers = CalibratedSamples.of(calibration, samples.dtype.newbyteorder("="))
    return None if numbers is None else lines.check(numbers.of_samples(samples), begins, ends, options)


def _reference(
    workflow: Aggregation[Options], calibration: Calibration, samples: NDArray[Any], options: Options, *located: range
) -> NDArray[Any]:
    return workflow.reference(calibrate_reference(samples, calibration), options, *located)


def _check(
    workflow: Aggregation[Options], calibration: Calibration, options: Options, dtype: np.dtype[Any]
) -> CalibratedCheck | None:
    inner, numbers = workflow.check(options, FLOAT64), CalibratedSamples.of(calibration, dtype)
    return None if inner is None or numbers is None else CalibratedCheck(inner, numbers)


class CalibratedCheck:
    """The compiled check of a job on calibrated samples, which another function than that of `compute` calibrates."""

    def __init__(self, inner: Check, numbers: CalibratedSamples) -> None:
        self._inner, self._numbers = inner, numbers
        self.partial = inner.partial

    def add(self, samples: NDArray[Any], first: int, *step: int) -> None:
        """Add samples; indices as of the job's own check."""
        add: Any = self._inner.add
        for start in range(0, len(samples), PIECE):
            add(self._numbers.of_samples(samples[start : start + PIECE]), first + start * (step or (1,))[0], *step)
