"""The reference for conditions: Python's operators on NumPy arrays, promoted by NumPy itself."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.select.tree import Node

OPERATORS: Mapping[str, Any] = {
    "less": operator.lt, "less_equal": operator.le, "equal": operator.eq, "not_equal": operator.ne,
    "greater_equal": operator.ge, "greater": operator.gt, "add": operator.add, "subtract": operator.sub,
    "multiply": operator.mul, "divide": operator.truediv, "negative": operator.neg, "absolute": abs, "sqrt": np.sqrt,
    "logical_and": operator.and_, "logical_or": operator.or_, "logical_not": np.logical_not,
}  # fmt: skip


def kept_reference(condition: Node, values: Mapping[str, NDArray[Any]], samples: int) -> NDArray[np.bool_]:
    """Whether each sample is kept, from arrays of every name in either byte order, shape (samples,)."""

    def value(node: Node) -> Any:
        if node.op in ("name", "number"):
            return values[node.value] if node.op == "name" else node.value
        return OPERATORS[node.op](*map(value, node.args))

    with np.errstate(all="ignore"):
        return np.broadcast_to(np.asarray(value(condition), bool), samples)
