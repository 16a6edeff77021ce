"""Options that were checked before: equal ones are the same object, with all that was derived from them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from threading import local
from typing import Any

import numpy as np

from workflows import WORKFLOWS

MOST = 8  # as many binnings as launch plans are kept; one may hold 16 MB
MOST_BYTES = 2**16  # of an array among the options: comparing a larger one takes longer than what it saves
PLAIN = {int, float, str, type(None), bool}  # exact types: their `repr` tells any two of them apart

Made = tuple[Any, Any]  # a job and its options


def kept(make: Callable[[str, Mapping[str, Any]], Made]) -> Callable[[str, Mapping[str, Any]], Made]:
    """Keep what a function makes of a job's name and the values of its options, for the next call with equal ones.

    Building the options of a histogram and the exact thresholds of its bins takes longer than counting 2^20 samples on
    a GPU.
    """
    of_thread = local()  # arrays that a launch plan has on a device are ready only on the stream that made them

    @wraps(make)
    def kept_or_made(name: str, values: Mapping[str, Any]) -> Made:
        key = _key(name, values)
        if key is None:
            return make(name, values)
        made: OrderedDict[Hashable, Made] = vars(of_thread).setdefault("made", OrderedDict())
        known = made.get(key)
        if known is not None and known[0] is WORKFLOWS.get(name):
            return known
        # Arrays are copied: the caller may change theirs afterwards.
        own = {option: value.copy() if isinstance(value, np.ndarray) else value for option, value in values.items()}
        made[key] = known = make(name, own)
        while len(made) > MOST:
            made.popitem(last=False)
        return known

    return kept_or_made


def _key(name: str, values: Mapping[str, Any]) -> Hashable | None:
    """What tells the values apart; None if they cannot be kept."""
    words: list[Hashable] = [name]
    for option, value in values.items():
        if _is_plain(value):
            words.append((option, repr(value)))
        elif type(value) is np.ndarray and value.nbytes <= MOST_BYTES and not value.dtype.hasobject:
            words.append((option, value.dtype.str, value.shape, value.tobytes()))
        else:
            return None
    return tuple(words)


def plain_key(name: str, values: Mapping[str, Any]) -> Hashable | None:
    """The same, faster, where no value is an array, which could change."""
    return (name, repr(values)) if all(map(_is_plain, values.values())) else None


def _is_plain(value: Any) -> bool:
    """Whether it is one of these, or a tuple of them."""
    if type(value) is tuple:
        return PLAIN.issuperset(map(type, value)) or all(map(_is_plain, value))
    return type(value) in PLAIN or isinstance(value, np.number)
