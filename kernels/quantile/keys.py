"""Keys: unsigned integers in the order of the samples, so that counting by their upper bits narrows a rank down.

The key of an unsigned integer is itself, that of a signed one its distance from the least one. The key of a float is
its magnitude's bits, with the sign, above or below 2^(bits - 1): -0.0 and 0.0 have one key. All NaN have the greatest
key, which no number has.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.rounded import rounded

Keys = NDArray[Any]  # unsigned


def bits_of(dtype: np.dtype[Any]) -> int:
    """Bits of a key."""
    return 8 * dtype.itemsize


def nan_key(dtype: np.dtype[Any]) -> int | None:
    """The key of NaN; None if the dtype has none."""
    return 2 ** bits_of(dtype) - 1 if dtype.kind == "f" else None


def to_keys(samples: NDArray[Any]) -> Keys:
    """Keys of samples.

    Parameters
    ----------
    samples : array of any integer or float dtype, native byte order

    Returns
    -------
    array of the unsigned dtype of the same size and shape
    """
    size = samples.dtype.itemsize
    unsigned = np.dtype(f"u{size}").type
    bits: Keys = samples.view(unsigned)
    half = unsigned(1 << (8 * size - 1))
    if samples.dtype.kind == "u":
        return bits
    if samples.dtype.kind == "i":
        offsets: Keys = bits ^ half
        return offsets
    magnitude = bits & (half - unsigned(1))
    keys: Keys = np.where(bits & half, half - magnitude, half + magnitude)
    infinite = np.array(np.inf, samples.dtype).view(unsigned)
    keys[magnitude > infinite] = unsigned(2 ** (8 * size) - 1)
    return keys


def to_samples(keys: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Samples of keys; of both zeros 0.0, of a key of no sample the nearest infinity.

    Parameters
    ----------
    keys : array of unsigned integers
    dtype
        Of the samples, native.
    """
    unsigned, half = np.dtype(f"u{dtype.itemsize}").type, 1 << (bits_of(dtype) - 1)
    offsets: Keys = keys.astype(unsigned)
    if dtype.kind != "f":
        return offsets if dtype.kind == "u" else (offsets ^ unsigned(half)).view(dtype)
    nan, infinite = offsets == nan_key(dtype), np.array(np.inf, dtype).view(unsigned)
    below = offsets < half
    sizes = np.minimum(np.where(below, unsigned(half) - offsets, offsets - unsigned(half)), infinite)
    values: NDArray[Any] = np.where(below, -sizes.view(dtype), sizes.view(dtype))
    values[nan] = np.nan
    return values


def to_sample(key: int, dtype: np.dtype[Any]) -> int | float:
    """As `to_samples`, of one key, in a tenth of the time: many short rows have few keys each."""
    half = 1 << (bits_of(dtype) - 1)
    if dtype.kind != "f":
        return key if dtype.kind == "u" else key - half
    if key == nan_key(dtype):
        return math.nan
    infinite = int.from_bytes(struct.pack(f"<{dtype.char}", math.inf), "little")
    size: float = struct.unpack(f"<{dtype.char}", min(abs(key - half), infinite).to_bytes(dtype.itemsize, "little"))[0]
    return -size if key < half else size


def to_number(key: int, dtype: np.dtype[Any]) -> Fraction | float:
    """The sample of a key, exact; a float only where it is infinite or NaN."""
    sample = to_sample(key, dtype)
    return Fraction(sample) if math.isfinite(sample) else float(sample)


def key_from(number: Fraction, dtype: np.dtype[Any]) -> int:
    """The least key of a sample that is not below a number; one too many if there is none."""
    if dtype.kind != "f":
        least = int(np.iinfo(dtype).min)
        return min(max(math.ceil(number) - least, 0), 1 << bits_of(dtype))
    with np.errstate(over="ignore"):
        near = np.array([rounded(number)]).astype(dtype)
    key = int(to_keys(near)[0])
    while to_number(key, dtype) < number:
        key += 1
    while to_number(key - 1, dtype) >= number:
        key -= 1
    return key
