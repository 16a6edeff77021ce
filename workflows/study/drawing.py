"""Pictures of a study that show what threads touch, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Tree:
    """A reduction, step by step.

    Attributes
    ----------
    title
    arrays
        By variant, the array before the first step and after each.
    steps
        By variant and step, the threads that add, with the neighbour whose value each takes.
    """

    title: str
    arrays: Mapping[str, Sequence[Sequence[int]]]
    steps: Mapping[str, Sequence[Sequence[tuple[int, int]]]]


@dataclass(frozen=True)
class BankMap:
    """Banks of shared memory in which the elements of a tile lie.

    Attributes
    ----------
    title
    maps
        By variant, the bank of each element.
    conflicts
        By variant, how many threads of a warp meet in one bank when they load a column.
    """

    title: str
    maps: Mapping[str, NDArray[np.int64]]
    conflicts: Mapping[str, int]


Drawing = Tree | BankMap
