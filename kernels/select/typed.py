"""A condition with the dtype of every part, by NumPy's rules of promotion: what NumPy's functions would be called with.

Numbers take the dtype of what they meet, as in NumPy: ``x < 0.1`` compares float32 samples with float32(0.1). Integers
compare exactly with integers of any dtype; in arithmetic they have to fit.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.select.tree import COMPARISONS, Node

_COMPARE = {
    "less": operator.lt, "less_equal": operator.le, "equal": operator.eq, "not_equal": operator.ne,
    "greater_equal": operator.ge, "greater": operator.gt,
}  # fmt: skip


@dataclass(frozen=True)
class Typed:
    """A part of a condition, once the dtypes of names are known.

    Attributes
    ----------
    op, args
        As of `Node`.
    dtype
        Of its values.
    takes
        Dtypes to which the arguments are converted.
    value
        A name, or a NumPy scalar.
    """

    op: str
    dtype: np.dtype[Any]
    args: tuple[Typed, ...] = ()
    takes: tuple[np.dtype[Any], ...] = ()
    value: Any = None


def typed(node: Node, dtypes: Mapping[str, np.dtype[Any]]) -> Typed:
    """A condition for names of these native dtypes; its own dtype is bool.

    Raises
    ------
    ValueError
        If a number does not fit the dtype that it is computed in.
    """
    result = _typed(node, dtypes)
    return result if result.op != "number" else _number(bool(result.value), np.dtype(bool), node)


def _typed(node: Node, dtypes: Mapping[str, np.dtype[Any]]) -> Typed:
    if node.op == "name":
        return Typed("name", dtypes[node.value], value=node.value)
    if node.op == "number":  # its dtype is that of what it meets
        return Typed("number", np.dtype(type(node.value)) if not isinstance(node.value, int) else np.dtype(bool),
                     value=node.value)  # fmt: skip
    args = [_typed(arg, dtypes) for arg in node.args]
    kinds = tuple(_kind(arg) for arg in args)
    *takes, dtype = getattr(np, node.op).resolve_dtypes((*kinds, None))
    for number, (arg, take) in enumerate(zip(args, takes, strict=True)):
        if arg.op != "number":
            continue
        if isinstance(arg.value, int) and not isinstance(arg.value, bool) and take.kind in "iu":
            bounds = np.iinfo(take)
            if not bounds.min <= arg.value <= bounds.max:
                if node.op in COMPARISONS:  # the same for every sample, of which 0 is a possible one
                    pair = [arg.value if other is arg else 0 for other in args]
                    return _number(_COMPARE[node.op](*pair), np.dtype(bool), node)
                raise ValueError(f"expected a number that fits {take}, in which NumPy computes with it, got {arg.value}"
                                 f"{_where(node)}; write {arg.value}.0 to compute in a float")  # fmt: skip
        args[number] = _number(arg.value, take, node)
    return Typed(node.op, dtype, tuple(args), tuple(takes))


def _kind(arg: Typed) -> Any:
    """What NumPy takes the dtype of an operand from."""
    if arg.op != "number" or isinstance(arg.value, np.bool_):
        return arg.dtype
    return np.dtype(bool) if isinstance(arg.value, bool) else type(arg.value)


def _number(value: Any, dtype: np.dtype[Any], node: Node) -> Typed:
    with np.errstate(over="ignore"):
        return Typed("number", dtype, value=dtype.type(value))


def _where(node: Node) -> str:
    return f" (at character {node.at + 1})" if node.at >= 0 else ""
