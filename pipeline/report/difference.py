"""Where two saved results differ, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.report.saved_file import Saved
from workflows.saved import numbers

MOST = 10  # entries of an array that are named


def differences(a: Saved, b: Saved) -> list[str]:
    """A line for each difference between the numbers of two results; none if they are equal, bit by bit."""
    if a.job != b.job:
        return [f"jobs differ: {a.job} and {b.job}"]
    return list(between(a.result, b.result))


def between(one: Any, other: Any) -> Iterator[str]:
    """The same of two results of one job."""
    ours, theirs = numbers(one), numbers(other)
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        if name not in ours or name not in theirs:
            yield f"{name}: only in the {'first' if name in ours else 'second'}"
        elif ours[name].shape != theirs[name].shape:
            yield f"{name}: shape {ours[name].shape} and {theirs[name].shape}"
        elif ours[name].dtype != theirs[name].dtype:
            yield f"{name}: {_shown(ours[name])} ({ours[name].dtype}) and {_shown(theirs[name])} ({theirs[name].dtype})"
        elif ours[name].tobytes() != theirs[name].tobytes():
            yield from _entries(name, ours[name], theirs[name], one)


def _entries(name: str, ours: NDArray[Any], theirs: NDArray[Any], result: Any) -> Iterator[str]:
    if not ours.ndim:
        yield f"{name}: {_shown(ours)} and {_shown(theirs)}"
        return
    places = np.argwhere(_bits(ours) != _bits(theirs))
    yield f"{name}: {len(places):,} of {ours.size:,} differ"
    for place in map(tuple, places[:MOST].tolist()):
        where = ", ".join(map(str, place))
        yield f"  {name}[{where}]{_bin(result, name, place)}: {_shown(ours[place])} and {_shown(theirs[place])}"
    if len(places) > MOST:
        yield f"  and {len(places) - MOST:,} more"


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """What is equal where all bits are: NaN equals NaN, and -0 differs from 0."""
    return array.view(f"V{array.itemsize}") if array.dtype.kind in "iuf" else array


def _bin(result: Any, name: str, place: tuple[int, ...]) -> str:
    if name != "counts" or not hasattr(result, "edges"):
        return ""
    edges = result.edges
    return f", bin [{edges[place[-1]]:g}, {edges[place[-1] + 1]:g}{']' if place[-1] + 2 == len(edges) else ')'}"


def _shown(value: Any) -> str:
    value = np.asarray(value)
    if value.ndim:
        return f"{value.size:,} numbers"
    return str(value.item())
