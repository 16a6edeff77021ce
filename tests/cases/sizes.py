"""Sizes for kernel tests: all of them on a GPU, only small ones in the emulator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from pipeline.gpu.devices import find_devices
from tests.cases.case import Case

ON_GPU = find_devices().usable > 0
MOST = 5000  # elements: a few blocks, the last of them ragged

Size = TypeVar("Size", int, tuple[int, ...])


def sizes(*all_sizes: Size) -> tuple[Size, ...]:
    """The sizes or shapes that are small enough for the current device."""
    return tuple(size for size in all_sizes if ON_GPU or np.prod(size, dtype=object) <= MOST)


def first_of_each(cases: Iterable[Case]) -> list[Case]:
    """All cases on a GPU; in the emulator, where test_schedules runs every one, the first of each kernel."""
    every = list(cases)
    return every if ON_GPU else list({case.variant: case for case in reversed(every)}.values())
