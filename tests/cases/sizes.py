"""What sizes a test of kernels takes: all of them on a GPU, small ones where the host stands for it."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from pipeline.gpu.devices import find_devices

ON_GPU = find_devices().usable > 0
MOST = 5000  # elements: a few blocks, the last of them ragged

Size = TypeVar("Size", int, tuple[int, ...])


def sizes(*all_sizes: Size) -> tuple[Size, ...]:
    """Those that are not too large here: numbers of elements, or shapes."""
    return tuple(size for size in all_sizes if ON_GPU or np.prod(size, dtype=object) <= MOST)
