"""The result of a reduction, its forms, and the exact partial that it was rounded from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.reduce import partial as layout
from kernels.reduce import powers
from workflows.columns import WHOLE
from workflows.moments import Moments, Number
from workflows.partial_text import packed, unpacked
from workflows.shown import Shown

LAYOUT = 1  # of the partial in a document: that of `kernels.reduce.partial`


class Exact(NamedTuple):
    """What results are rounded from: a partial of reduce, how NaN counts, and what variances subtract from n."""

    partial: NDArray[np.int64]
    nan: str
    ddof: int

    def document(self) -> dict[str, Any]:
        """For a `.json` file: some hundred bytes."""
        return {"layout": LAYOUT, "nan": self.nan, "ddof": self.ddof, "words": len(self.partial),
                "partial": packed(self.partial)}  # fmt: skip

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Exact:
        """The same from a document; ValueError if it is something else."""
        if document["layout"] != LAYOUT or document["words"] not in (layout.SIZE, powers.SIZE):
            raise ValueError(f"expected a partial of layout {LAYOUT}, got {document['layout']}")
        partial = unpacked(document["partial"], document["words"])
        if not 0 <= partial[layout.CODE] < len(layout.DTYPES) or document["nan"] not in ("propagate", "omit"):
            raise ValueError("expected a partial of reduce, got something else")
        return cls(partial, document["nan"], int(document["ddof"]))


@dataclass(frozen=True)
class ReduceResult(Shown):
    """Verified results.

    Attributes
    ----------
    values
        By operation, in the order requested. Integer results are exact ints; floats are rounded once, to nearest; None
        for the position of an extreme that does not exist.
    samples, nan
        Number of samples, and how many of them are NaN.
    dtype
        Of the samples.
    exact
        What the values were rounded from; None where that cannot be added up, as of medians and quantiles.
    verification
        What was checked, set by `pipeline.run`.

    Examples
    --------
    >>> import numpy, pipeline
    >>> pipeline.run("reduce", numpy.array([0.1] * 10), op="sum,max").values
    {'sum': 1.0, 'max': 0.1}
    """

    values: Mapping[str, Number]
    samples: int
    nan: int
    dtype: np.dtype[Any]
    exact: Exact | None = field(default=None, compare=False, repr=False)
    verification: Any = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Results, samples and nan; "nan", "inf" and "-inf" as strings, because JSON has no such numbers."""
        plain = {name: str(x) if x in (math.inf, -math.inf) or x != x else x for name, x in self.values.items()}
        return {**plain, "samples": self.samples, "nan": self.nan}

    def document(self) -> dict[str, Any]:
        """As `to_json`, with the version of this layout, the dtype, and what the values were rounded from."""
        exact = {} if self.exact is None else {"exact": self.exact.document()}
        return {"format": 2} | self.to_json() | {"dtype": self.dtype.name} | exact

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> ReduceResult:
        """The result that a document describes."""
        own = {"format", "samples", "nan", "dtype", "exact", "excluded", "baru"}
        values = {name: _number(value) for name, value in document.items() if name not in own}
        exact = Exact.of_document(document["exact"]) if "exact" in document else None
        return cls(values, int(document["samples"]), int(document["nan"]), np.dtype(document["dtype"]), exact)

    def merged(self, other: ReduceResult, start: int) -> ReduceResult:
        """The result of both, as if the samples of the other one followed, from index `start` on.

        Raises
        ------
        ValueError
            If the exact partial of one is missing, or they cannot be added up.
        """
        if self.exact is None or other.exact is None:
            raise ValueError("without the exact partial: results are rounded, and cannot be added up")
        ours, theirs = self.exact, other.exact
        if ours.partial[layout.CODE] != theirs.partial[layout.CODE]:
            raise ValueError(f"different dtypes, {self.dtype} and {other.dtype}")
        alike = ours.partial[layout.ASKED] == theirs.partial[layout.ASKED] and list(self.values) == list(other.values)
        if not alike or ours[1:] != theirs[1:]:
            raise ValueError("different operations, --nan or --ddof")
        partial = powers.combine(ours.partial, layout.place(theirs.partial.copy(), start))
        moments = Moments(partial, ours.nan, ours.ddof)
        values = {name: moments.value(name) for name in self.values}
        samples, nan = int(partial[layout.SAMPLES]), int(partial[layout.NAN])
        return ReduceResult(values, samples, nan, self.dtype, Exact(partial, ours.nan, ours.ddof))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """0-d arrays: float64; int64, uint64, or digits if neither is wide enough; -1 for a position that is None."""
        everything = {**self.values, "samples": self.samples, "nan": self.nan}
        return {name: array_of(value) for name, value in everything.items()}

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """One row per operation."""
        return ("operation", "value"), [(name, "" if x is None else x) for name, x in self.values.items()]

    def lines(self) -> list[tuple[str, str]]:
        """Samples, NaN if the dtype has it, and every result with all digits."""
        facts = [("samples", f"{self.samples:,}")]
        if self.dtype.kind == "f":
            facts.append(("NaN", f"{self.nan:,}"))
        return facts + [(name, "none" if x is None else f"{x:,}" if name == "count" else str(x))
                        for name, x in self.values.items()]  # fmt: skip


def array_of(value: Number) -> NDArray[Any]:
    """A value as a 0-d array, as `ReduceResult.arrays` says."""
    if isinstance(value, float):
        return np.array(value)
    number = -1 if value is None else value
    fits = next((name for name, low, high in WHOLE if low <= number <= high), None)
    return np.array(number, fits) if fits else np.array(str(number))


def _number(value: Any) -> Number:
    return float(value) if isinstance(value, str) else value
