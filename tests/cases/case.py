"""A test case: a kernel variant on small inputs; helpers that make such inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RANDOM = np.random.default_rng


@dataclass(frozen=True)
class Case:
    """A variant on inputs.

    Attributes
    ----------
    stem
        Of the `.cu` file.
    variant
        Or for the histogram of any edges the kernel.
    what
        Type and sizes, for a message.
    check
        (CuPy or its stand-in) -> None; raises AssertionError if the result is wrong.
    broken
        The variant is wrong on purpose.
    """

    stem: str
    variant: str
    what: str
    check: Callable[[Any], None]
    broken: bool = False

    @property
    def name(self) -> str:
        """Name of the case, unique within its source."""
        return f"{self.variant}-{self.what}"

    def __str__(self) -> str:
        return f"{self.stem}-{self.name}"


def integers(size: Any, dtype: str, seed: int = 0, most: int = 99) -> NDArray[Any]:
    """Integers of either sign, if the dtype has one: sums and products of them are exact in every dtype."""
    low = 0 if np.dtype(dtype).kind == "u" else -most
    return RANDOM(seed).integers(low, most + 1, size).astype(dtype)


def same(got: Any, expected: NDArray[Any]) -> None:
    """Assert equal shapes and values; other tests compare bits."""
    np.testing.assert_array_equal(np.asarray(got.get()), expected)
