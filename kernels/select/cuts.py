"""Where in the order of samples a condition changes, if it only compares them with numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.select.tree import COMPARISONS, LOGICAL, SAMPLE
from kernels.select.typed import Typed


def compared_with(condition: Typed) -> list[tuple[np.dtype[Any], Any]] | None:
    """The numbers that samples are compared with, each beside the dtype to which the samples are converted.

    Between them, and where a sample is one of them, the condition is the same for all samples. None if there is more in
    it than such comparisons, joined by and, or and not.
    """
    if condition.op == "number":
        return []
    if condition.op in LOGICAL:
        parts = [compared_with(arg) for arg in condition.args]
        return None if any(part is None for part in parts) else [cut for part in parts for cut in part or ()]
    numbers = [arg.value for arg in condition.args if arg.op == "number"]
    names = [(arg.value, take) for arg, take in zip(condition.args, condition.takes, strict=True) if arg.op == "name"]
    if condition.op not in COMPARISONS or len(numbers) + len(names) < 2 or any(name != SAMPLE for name, _ in names):
        return None
    return [(take, number) for number in numbers for _, take in names]
