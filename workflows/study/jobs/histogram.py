"""The histogram by a variant of the ladder: 10-bit samples in int32, the bins that the job has by default."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.study.histogram import VALUES, VARIANTS
from kernels.study.variant import Variant
from workflows.aggregation import Aggregation
from workflows.histogram import HISTOGRAM
from workflows.histogram_options import HistogramOptions


def job(variant: Variant, options: HistogramOptions) -> Aggregation[HistogramOptions]:
    """The job; ValueError for bins that the ladder does not have."""
    if options.edges is not None or (options.bins, options.range, options.scale) != (
        VALUES, (0.0, float(VALUES)), "linear"
    ):  # fmt: skip
        got = "--edges" if options.edges is not None else (
            f"--bins {options.bins or VALUES} --range {_text(options.range)} --scale {options.scale}"
        )  # fmt: skip
        raise ValueError(f"expected the ladder's bins, --bins {VALUES} --range 0 {VALUES}, got {got}; leave them out")
    return replace(HISTOGRAM, compute=partial(compute, variant.name), compute_rows=None, dtypes=("int32",))


def _text(ends: tuple[float, float] | str) -> str:
    return ends if isinstance(ends, str) else " ".join(f"{end:g}" for end in ends)


def compute(name: str, block: Any, _: HistogramOptions) -> NDArray[np.int64]:
    """Counts of one block, on the host. The blocks of a launch follow from its samples; the rest is the course's.

    The ladder does not count samples outside of [0, 1024). Where there are some, CuPy counts them: below, above, and
    1024 itself, which the last bin includes.
    """
    variant = VARIANTS[name]
    parameters = dict(variant.parameters)
    if "blocks" in parameters:
        of_block = parameters.get("threads", 1) * parameters.get("slice", 1)
        parameters["blocks"] = max(1, -(-block.size // of_block))
    slots = np.zeros(VALUES + 3, np.int64)
    slots[1:-2] = variant.run(block, **parameters).get()
    if slots.sum() != block.size:
        slots[0], slots[-2] = int((block < 0).sum()), int((block > VALUES).sum())
        slots[VALUES] += int((block == VALUES).sum())
    return slots
