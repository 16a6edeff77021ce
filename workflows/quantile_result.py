"""The result of quantiles, and its forms: plain numbers, arrays, a table, lines for the panel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workflows.shown import Shown


@dataclass(frozen=True)
class QuantileResult(Shown):
    """Verified quantiles.

    Attributes
    ----------
    q
        The quantiles, as texts.
    values
        A sample for each, as an int or a float, where the method selects one; else the exact value rounded once to
        float64. NaN if there are no numbers, or a NaN that counts. Zero is 0.0, whatever the sign of the sample.
    dtype
        Of the values as an array: that of the samples, or float64.
    method
    samples, nan
        Number of samples, and how many of them are NaN.
    verification
        What was checked, set by `pipeline.run`.

    Examples
    --------
    >>> import numpy, pipeline
    >>> pipeline.run("quantile", numpy.arange(101), q="0.1,0.5").values
    (10.0, 50.0)
    """

    q: tuple[str, ...]
    values: tuple[int | float, ...]
    dtype: np.dtype[Any]
    method: str
    samples: int
    nan: int
    verification: Any = field(default=None, compare=False, repr=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The values, shape (len(q),)."""
        return np.array(self.values, self.dtype if dtype is None else dtype)

    def to_json(self) -> dict[str, Any]:
        """Quantiles, samples and nan; "nan", "inf" and "-inf" as strings, because JSON has no such numbers."""
        values = [x if math.isfinite(x) else str(x) for x in self.values]
        return {"q": list(self.q), "values": values, "samples": self.samples, "nan": self.nan}

    def document(self) -> dict[str, Any]:
        """As `to_json`, with the version of this layout, 2, the method, and the dtype of the values."""
        return {"format": 2, "method": self.method, "dtype": self.dtype.name} | self.to_json()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """q (float64) and values, shape (len(q),), and the 0-d samples and nan."""
        counts = {name: np.array(getattr(self, name), np.int64) for name in ("samples", "nan")}
        return {"q": read_q(self.q), "values": np.asarray(self)} | counts

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """One row per quantile."""
        return ("q", "value"), list(zip(self.q, self.values, strict=True))

    def lines(self) -> list[tuple[str, str]]:
        """Samples, NaN if the dtype has it, and every quantile with all digits."""
        facts = [("samples", f"{self.samples:,}"), ("NaN", f"{self.nan:,}")]
        return facts + [(f"q {q}", str(x)) for q, x in zip(self.q, self.values, strict=True)]


def read_q(q: tuple[str, ...]) -> NDArray[np.float64]:
    """Quantiles as numbers."""
    return np.array([float(Fraction(text)) for text in q])
