"""Lines of many rows for verification: compiled, by other ways than `cpu_rows.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.reduce.lines import Lines, made_by

SOURCE = Path(__file__).with_suffix(".cpp")


def reduce_rows_check(
    samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], parts: int
) -> Lines | None:  # fmt: skip
    """Lines of rows of samples of any byte order, each from its begin to its end; None without a compiler."""
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    state = np.zeros(-(-functions.state_bytes() // 16), np.complex128)  # at a multiple of 16 bytes
    native = np.require(samples, samples.dtype.newbyteorder("="), ["C", "A"])
    return made_by(functions.check_rows, native, begins, ends, parts, state)
