"""Conditions as trees: names, numbers, comparisons, arithmetic, sqrt and abs, joined by and, or and not."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

COMPARISONS = ("less", "less_equal", "equal", "not_equal", "greater_equal", "greater")
ARITHMETIC = ("add", "subtract", "multiply", "divide", "negative", "absolute", "sqrt")
LOGICAL = ("logical_and", "logical_or", "logical_not")
SAMPLE, INDEX = "x", "i"  # names of the sample and of its index in the source
MOST = 2**1023  # magnitude of a number: float64 holds all of these


@dataclass(frozen=True)
class Node:
    """A part of a condition.

    Attributes
    ----------
    op
        ``"name"``, ``"number"``, or the name of NumPy's function.
    args
        Of an operation.
    value
        A name, or an int, a float or a bool.
    at
        Where it begins in its text, counted in characters; -1 without a text.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None
    at: int = -1

    @property
    def truth(self) -> bool:
        """Whether it is true or false by its form; a name never is."""
        return self.op in COMPARISONS + LOGICAL or isinstance(self.value, bool)

    def names(self) -> Iterator[str]:
        """Names in it, as often as they occur."""
        if self.op == "name":
            yield self.value
        for arg in self.args:
            yield from arg.names()


TRUE = Node("number", value=True)

_FOLDED: Mapping[str, Callable[..., Any]] = MappingProxyType({
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "negative": operator.neg, "absolute": abs, "sqrt": math.sqrt, "less": operator.lt, "less_equal": operator.le,
    "equal": operator.eq, "not_equal": operator.ne, "greater_equal": operator.ge, "greater": operator.gt,
    "logical_and": operator.and_, "logical_or": operator.or_, "logical_not": operator.not_,
})  # fmt: skip


def made(op: str, args: tuple[Node, ...], at: int = -1) -> Node:
    """An operation; a number if all of its arguments are numbers, which are computed as Python computes.

    Raises
    ------
    ValueError
        If that has no result, or one of 2**1023 or more.
    """
    if not all(arg.op == "number" for arg in args):
        return Node(op, args, at=at)
    try:
        value = _FOLDED[op](*(arg.value for arg in args))
    except ZeroDivisionError:
        raise ValueError("a division by zero") from None
    except (OverflowError, ValueError):
        raise ValueError("numbers without a result") from None
    if isinstance(value, int) and abs(value) >= MOST:
        raise ValueError("a number of 2**1023 or more")
    return Node("number", value=value, at=at)


def all_of(conditions: Sequence[Node]) -> Node:
    """The condition that all of these hold, in few levels: there may be thousands, and functions follow the tree."""
    if len(conditions) < 2:
        return conditions[0] if conditions else TRUE
    half = (len(conditions) + 1) // 2
    return Node("logical_and", (all_of(conditions[:half]), all_of(conditions[half:])))
