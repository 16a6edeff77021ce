"""What a process makes once, and one that is forked from it makes anew: threads, which no fork copies."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

Result = TypeVar("Result")


def once_per_process(make: Callable[..., Result]) -> _lru_cache_wrapper[Result]:
    """As `functools.cache`. Who waits for threads that a fork did not copy waits for ever."""
    made = cache(make)
    os.register_at_fork(after_in_child=made.cache_clear)
    return made
