"""What a calibration is: y = t(x · gain + bias) in float64."""

from __future__ import annotations

from dataclasses import dataclass

# Transforms, and whether they rise with their argument; the others are first falling, then rising.
TRANSFORMS = {"none": True, "sqrt": True, "log": True, "log2": True, "log10": True, "abs": False, "square": False}
POSITIVE = ("sqrt", "log", "log2", "log10")  # NaN below 0
LOGS = ("log", "log2", "log10")


@dataclass(frozen=True)
class Calibration:
    """A sample x becomes y = t(x · gain + bias).

    x is converted to float64, and conversion, product, sum and transform are each rounded to the nearest float64, ties
    to even, as NumPy rounds them: ``t(x.astype(float64) * gain + bias)``. Logarithms are rounded correctly, too, where
    NumPy's own may be off by an ulp.

    Attributes
    ----------
    gain, bias
        Finite; the gain is not 0.
    transform
        A name in `TRANSFORMS`.
    """

    gain: float = 1.0
    bias: float = 0.0
    transform: str = "none"

    @property
    def monotone(self) -> bool:
        """Whether y never falls as x rises, or never rises; samples without a y aside."""
        return TRANSFORMS[self.transform]
