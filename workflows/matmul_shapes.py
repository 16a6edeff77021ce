"""Shapes of factors and products as in `numpy.matmul`: vectors, matrices, stacks of matrices that broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workflows.regions import Bounds, Spec, sizes

Ends = tuple[int, int]


@dataclass(frozen=True)
class Matrices:
    """The shapes of two factors and of their product.

    Attributes
    ----------
    shapes
        Shapes of the factors.
    batch
        Axes of the product before those of its matrices.
    rows, inner, columns
        Rows of A, products in a sum, columns of B; a vector has one row, or one column.
    """

    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    batch: tuple[int, ...]
    rows: int
    inner: int
    columns: int

    @property
    def vectors(self) -> tuple[bool, bool]:
        """Which of the factors are vectors."""
        return len(self.shapes[0]) == 1, len(self.shapes[1]) == 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the product, without the axis that a vector lacks."""
        vectors = self.vectors
        return (*self.batch, *[self.rows] * (not vectors[0]), *[self.columns] * (not vectors[1]))

    def region(self, batch: Bounds, rows: Ends, columns: Ends) -> Bounds:
        """Region of the product."""
        vectors = self.vectors
        return (*batch, *[rows] * (not vectors[0]), *[columns] * (not vectors[1]))

    def parts(self, region: Bounds) -> tuple[Bounds, Ends, Ends]:
        """Batch, rows and columns of a region."""
        rest = list(region[len(self.batch) :])
        rows = (0, 1) if self.vectors[0] else rest.pop(0)
        return region[: len(self.batch)], rows, (0, 1) if self.vectors[1] else rest[0]

    def needs(self, region: Bounds, inner: Ends) -> tuple[Bounds, Bounds]:
        """The parts of both factors that a region needs, for these columns of A and rows of B."""
        batch, rows, columns = self.parts(region)
        own = []
        for outer in (shape[:-2] for shape in self.shapes):
            ends = zip(outer, batch[len(batch) - len(outer) :], strict=True)
            own.append(tuple((0, 1) if length == 1 else part for length, part in ends))
        return (
            (inner,) if self.vectors[0] else (*own[0], rows, inner),
            (inner,) if self.vectors[1] else (*own[1], inner, columns),
        )

    def as_matrices(self, blocks: Sequence[Any]) -> tuple[Any, Any]:
        """Blocks of both factors, vectors as matrices of one row or one column."""
        a, b = blocks
        return a.reshape(1, -1) if self.vectors[0] else a, b.reshape(-1, 1) if self.vectors[1] else b

    def as_stack(self, elements: Any, region: Bounds) -> Any:
        """A region of the product with all axes: batch, rows, columns."""
        batch, rows, columns = self.parts(region)
        return elements.reshape(sizes((*batch, rows, columns)))


def matrices(specs: Sequence[Spec]) -> Matrices:
    """Shapes for these factors.

    Raises
    ------
    ValueError
        If they cannot be multiplied; names both shapes.
    """
    a, b = (spec.shape for spec in specs)
    if not a or not b:
        raise ValueError(f"expected vectors or matrices, got shapes {a} and {b}; multiply by a number with map")
    inner = b[-2] if len(b) > 1 else b[0]
    if a[-1] != inner:
        axis = "last axis but one" if len(b) > 1 else "only axis"
        raise ValueError(f"expected as many columns in the first matrix as rows in the second, got shapes {a} and {b}: "
                         f"{a[-1]} in the last axis of the first, {inner} in the {axis} of the second")  # fmt: skip
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ValueError(f"expected stacks of matrices that NumPy broadcasts, got shapes {a} and {b}: {a[:-2]} and "
                         f"{b[:-2]} before the last two axes") from None  # fmt: skip
    return Matrices((a, b), batch, a[-2] if len(a) > 1 else 1, inner, b[-1] if len(b) > 1 else 1)
