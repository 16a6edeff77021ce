"""Lines of many rows on the CPU, by compiled C++."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.reduce.lines import Lines, made_by

SOURCE = Path(__file__).with_suffix(".cpp")


def reduce_rows_cpu(
    samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], parts: int
) -> Lines | None:  # fmt: skip
    """Lines of rows, each from its begin to its end in the samples; None without a compiler.

    Parameters
    ----------
    samples : array of any integer or float dtype, native byte order, shape (n,)
    begins, ends : arrays, shape (rows,)
        A row may be empty.
    parts
        What to compute, as for `kernels.reduce.cpu_powers.reduce_cpu_with_powers`.
    """
    functions = cxx.library(SOURCE)
    return None if functions is None else made_by(functions.reduce_rows, samples, begins, ends, parts)
