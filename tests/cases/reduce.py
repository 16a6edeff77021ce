"""Hard samples for exact sums and extremes."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.reduce.partial import DTYPES as DTYPES

FLOATS = ("float16", "float32", "float64")
SPECIAL = (0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324, 2.0**-1022, 1e-40, 1e-30, 1.0, -3.7,
           2.0**24 + 1, 3e38, 1.7976931348623157e308, -1.7976931348623157e308)  # fmt: skip


def generator(*names: Any) -> np.random.Generator:
    return np.random.default_rng(list(repr(names).encode()))


def any_bits(dtype: str, size: int) -> NDArray[Any]:
    """Any bit patterns; of floats only finite ones."""
    kind = np.dtype(dtype)
    bits = generator("bits", dtype, size).integers(0, 2 ** (8 * kind.itemsize) - 1, size, f"u{kind.itemsize}", True)
    samples = bits.view(kind)
    if kind.kind == "f":
        exponent = bits.dtype.type(np.array(np.inf, kind).view(bits.dtype))
        samples = np.where(bits & exponent == exponent, bits & ~exponent, bits).view(kind)
    return samples


def ordinary(dtype: str, size: int) -> NDArray[Any]:
    """Normally distributed."""
    kind = np.dtype(dtype)
    values = generator("ordinary", dtype, size).standard_normal(size)
    return values.astype(kind) if kind.kind == "f" else (50 + 10 * values).astype(kind)


def extreme(dtype: str, size: int) -> NDArray[Any]:
    """Only the smallest and the largest number of the dtype."""
    info: Any = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    return generator("extreme", dtype, size).choice(np.array([info.min, info.max], dtype), size)


def subnormal(dtype: str, size: int) -> NDArray[Any]:
    """The smallest magnitudes, and one large number; of integers the values around zero."""
    steps = generator("subnormal", dtype, size).integers(0, 100, size)
    if np.dtype(dtype).kind != "f":
        return steps.astype(dtype)
    samples = (steps.astype(f"u{np.dtype(dtype).itemsize}")).view(dtype)
    samples = np.where(generator("signs", size).random(size) < 0.5, -samples, samples)
    samples[size // 3] = np.finfo(dtype).max
    return samples


def cancelling(dtype: str, size: int) -> NDArray[Any]:
    """Numbers, the same numbers negated and shuffled, and the smallest magnitude."""
    half = any_bits(dtype, size // 2)
    opposite = -half if np.dtype(dtype).kind == "f" else ~half
    samples = np.append(generator("order", size).permutation(np.concatenate((half, opposite))), half[:0])
    rest = np.zeros(size - len(samples), dtype)
    rest[:1] = np.finfo(dtype).smallest_subnormal if np.dtype(dtype).kind == "f" else 1
    return np.concatenate((samples, rest)).astype(dtype)


def rising(dtype: str, size: int) -> NDArray[Any]:
    """Ascending over the whole range, so that every exponent window is used."""
    return np.sort(any_bits(dtype, size))


def steps(dtype: str, size: int) -> NDArray[Any]:
    """Long runs of numbers of equal magnitude; windows move from one run to the next."""
    if np.dtype(dtype).kind != "f":
        return np.repeat(any_bits(dtype, -(-size // 1000)), 1000)[:size]
    info = np.finfo(dtype)
    exponents = generator("steps", size).integers(info.minexp, info.maxexp - 1, -(-size // 3000))
    mantissas = generator("run", size).standard_normal(size).clip(-1.5, 1.5)
    return np.ldexp(mantissas, np.repeat(exponents, 3000)[:size]).astype(dtype)


def borders(dtype: str, size: int) -> NDArray[Any]:
    """Runs with exponents at which a square or a grid over- or underflows; any integers."""
    if np.dtype(dtype).kind != "f":
        return any_bits(dtype, size)
    info = np.finfo(dtype)
    ranges = [(490, 530), (1000, 1023), (-520, -430), (-1070, -930)]
    near = np.concatenate([np.linspace(*ends, 15) for ends in (ranges if dtype == "float64" else [(-149, 127)])])
    exponents = np.repeat(near.astype(int).clip(info.minexp - info.nmant, info.maxexp - 1), 2048)
    mantissas = generator("borders", dtype).uniform(-1.99, 1.99, size)
    return np.ldexp(mantissas, np.resize(exponents, size)).astype(dtype)


def equal(dtype: str, size: int) -> NDArray[Any]:
    return np.full(size, 7, dtype)


def negative(dtype: str, size: int) -> NDArray[Any]:
    """None above zero; large ones if unsigned."""
    below = -2 - np.abs(generator("negative", dtype).standard_normal(size))
    if np.dtype(dtype).kind == "f":
        return below.astype(dtype)
    return (20 * below).astype(np.int64).clip(-128).astype(dtype)


def missing(dtype: str, size: int) -> NDArray[Any]:
    """NaN of either sign among numbers below zero; of integers the numbers alone."""
    samples = negative(dtype, size)
    if np.dtype(dtype).kind == "f":
        samples[::5], samples[3::7] = -np.nan, np.nan
    return samples


def zeros(dtype: str, size: int) -> NDArray[Any]:
    """Zeros of both signs."""
    signs = generator("zeros", size).random(size) < 0.5
    return np.where(signs, -0.0, 0.0).astype(dtype)


def specials(dtype: str, size: int) -> NDArray[Any]:
    """NaN of all kinds, infinities, zeros and numbers."""
    samples = any_bits(dtype, size)
    if np.dtype(dtype).kind == "f":
        chosen = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0], dtype)
        where = generator("specials", size).integers(0, 40, size)
        samples = np.where(where < len(chosen), chosen[np.minimum(where, len(chosen) - 1)], samples)
        signalling = np.array(np.inf, dtype).view(f"u{samples.itemsize}") + 1
        samples.view(signalling.dtype)[where == 7] = signalling
    return samples


def infinite(dtype: str, size: int) -> NDArray[Any]:
    """Infinities of both signs among numbers, and no NaN; of integers the numbers alone."""
    samples = ordinary(dtype, size)
    if np.dtype(dtype).kind == "f":
        samples[2::9], samples[::11] = np.inf, -np.inf
    return samples


def last_bits(dtype: str, size: int, sign: int = 1) -> NDArray[Any]:
    """Further and further from zero, in their last bits; often the one next to zero."""
    step = np.finfo(dtype).eps if np.dtype(dtype).kind == "f" else 1
    samples = sign * (1 + np.arange(size) * step)
    samples[::64] = sign
    return samples.astype(dtype)


def lanes(dtype: str, size: int) -> NDArray[Any]:
    """Each lane sees one magnitude, different from every other lane's, so that their windows do not overlap."""
    if np.dtype(dtype).kind != "f":
        return any_bits(dtype, size)
    info = np.finfo(dtype)
    lane = np.arange(size) * info.dtype.itemsize // 16 % 32
    exponents = info.minexp + (info.maxexp - info.minexp) * lane // 33
    return np.ldexp(generator("lanes", dtype).uniform(1, 2, size), exponents).astype(dtype)


def late(dtype: str, size: int) -> NDArray[Any]:
    """Only NaN at first, some later; extremes come last and differ only in their last bits."""
    if np.dtype(dtype).kind != "f":
        return np.arange(size)[::-1].astype(dtype)
    eps = np.finfo(dtype).eps
    away = np.arange(size) // 7 * eps
    samples = np.where(generator("late", size).random(size) < 0.5, 3 + 2 * away, 2 - away).astype(dtype)
    samples[: size // 3] = np.nan
    samples[size // 2 :: 301] = samples[3 * size // 4 :: 3] = np.nan
    samples[np.arange(size) * samples.itemsize // 16 % 32 == 5] = np.nan  # everything one lane sees
    return samples


def falling(dtype: str, size: int) -> NDArray[Any]:
    """The greatest value first, then descending."""
    samples = -np.arange(size) // 7
    samples[: size // 3] = 5
    return samples.astype(dtype)


def sinking(dtype: str, size: int) -> NDArray[Any]:
    """Above zero, and less and less."""
    return (size // 7 + 1 - np.arange(size) // 7).astype(dtype)


def climbing(dtype: str, size: int) -> NDArray[Any]:
    """The least value first, then ascending."""
    samples = np.arange(size) // 7
    samples[: size // 3] = -5
    return samples.astype(dtype)


def nothing(dtype: str, size: int) -> NDArray[Any]:
    """Only NaN; only ones for integers."""
    return np.full(size, np.nan if np.dtype(dtype).kind == "f" else 1, dtype)


def uneven(dtype: str, size: int) -> NDArray[Any]:
    """Widely spread exponents first, including the least; the greatest appears later, among equal magnitudes."""
    samples = np.ones(size, dtype)
    if np.dtype(dtype).kind == "f":
        samples[: size // 6 : 3] = np.ldexp(1.0, np.finfo(dtype).minexp // 2)
        samples[size // 9], samples[-1 - size // 9] = -3, 3
    return samples


def full(dtype: str, size: int) -> NDArray[Any]:
    """All bits set, in numbers of two sizes: sums fill what they are added up in."""
    if np.dtype(dtype).kind != "f":
        return np.full(size, np.iinfo(dtype).max, dtype)
    info = np.finfo(dtype)
    two = np.ldexp(2 - info.eps, [info.maxexp - 9, info.minexp // 2]).astype(dtype)
    return np.resize(two, size)


CASES = {
    "any": any_bits, "ordinary": ordinary, "extreme": extreme, "subnormal": subnormal, "cancelling": cancelling,
    "rising": rising, "steps": steps, "borders": borders, "equal": equal, "zeros": zeros, "negative": negative,
    "missing": missing,
    "specials": specials, "lanes": lanes, "late": late, "nothing": nothing, "falling": falling,
    "climbing": climbing, "sinking": sinking, "uneven": uneven, "full": full,
    "infinite": infinite, "last bits": last_bits,
    "last bits below zero": partial(last_bits, sign=-1),
}  # fmt: skip
# Those without NaN and infinities.
FINITE = tuple(name for name in CASES if name not in ("specials", "late", "nothing", "missing", "infinite"))


def case(name: str, dtype: str, size: int) -> NDArray[Any]:
    """Samples, the same each time."""
    return CASES[name](dtype, size)


def two_sizes(data: Any, dtype: str, block: int) -> NDArray[Any]:
    """Numbers of two sizes, and anywhere among them what has to be treated on its own; as hypothesis draws `data`."""
    from hypothesis import strategies as st  # not needed to run the cases

    size = data.draw(st.sampled_from([1, 2, 31, 33, block - 1, block, block + 1, 2 * block + 77]))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    low, high = np.finfo(dtype).minexp, np.finfo(dtype).maxexp
    exponents = [data.draw(st.integers(low - 10, high - 3)) for _ in range(2)]
    with np.errstate(all="ignore"):
        numbers = np.ldexp(random.standard_normal(size), random.choice(exponents, size)).astype(dtype)
        for value in data.draw(st.lists(st.sampled_from(SPECIAL), max_size=4)):
            numbers[random.integers(0, size, data.draw(st.sampled_from([1, 3, size])))] = value
    return numbers


def spread(dtype: str, apart: int) -> NDArray[Any]:
    """Numbers of which the largest are about 2**apart times the smallest, as far as the dtype has them."""
    random = np.random.default_rng(apart)
    apart = min(apart, 240 if dtype == "float32" else apart)
    return np.ldexp(random.uniform(-1, 1, 20_001), random.integers(-apart // 2, apart // 2, 20_001)).astype(dtype)
