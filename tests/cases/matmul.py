"""Hard matrices for the exact product, and their products by definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from kernels.common import device
from kernels.matmul import residue
from kernels.matmul.cpu_narrow import product_on_cpu
from kernels.matmul.formats import DTYPES, FORMATS, INTEGERS, multiplied, result_dtype
from kernels.matmul.planes import HOPPER, Tile, Warpgroups, Warps
from kernels.matmul.reference import exact_float, exact_integer
from kernels.matmul.residue import ResidueProduct
from tests.cases.case import Case
from tests.cases.sizes import ON_GPU

Array = NDArray[Any]
Sizes = tuple[int, ...]
FLOATS = tuple(FORMATS)


def generator(*names: Any) -> np.random.Generator:
    return np.random.default_rng(list(repr(names).encode()))


def ordinary(dtype: str, sizes: Sizes) -> Array:
    values = generator("ordinary", dtype, sizes).standard_normal(sizes)
    return values.astype(dtype) if dtype in FLOATS else (20 * values + 30).astype(dtype)


def mixed(dtype: str, sizes: Sizes) -> Array:
    """Magnitudes over the whole range of the format; integers of any bits."""
    random = generator("mixed", dtype, sizes)
    if dtype in INTEGERS:
        return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, sizes, dtype, True)
    info = np.finfo(dtype)
    exponents = random.integers(info.minexp - info.nmant, info.maxexp, sizes)
    return np.ldexp(random.uniform(-1, 1, sizes), exponents).astype(dtype)


def close(dtype: str, sizes: Sizes) -> Array:
    """Exponents around the point where bits are lost."""
    if dtype in INTEGERS:
        return extreme(dtype, sizes)
    random, format = generator("close", dtype, sizes), FORMATS[dtype]
    lost = format.kept - format.precision
    exponents = -random.choice([0, lost - 1, lost, lost + 1, format.kept - 1, format.kept, format.kept + 1], sizes)
    if dtype == "float16":
        exponents = exponents // 2
    ones = 2.0 ** random.integers(0, format.precision + 1, sizes) - 1
    return np.ldexp(random.choice([-1, 1], sizes) * ones, exponents - format.precision).astype(dtype)


def extreme(dtype: str, sizes: Sizes) -> Array:
    """Only the smallest and the largest number: sums are as large as possible."""
    info: Any = np.finfo(dtype) if dtype in FLOATS else np.iinfo(dtype)
    values = generator("extreme", dtype, sizes).choice(np.array([info.min, info.max, info.max], dtype), sizes)
    return np.asarray(values)


def subnormal(dtype: str, sizes: Sizes) -> Array:
    """Rows and columns of the smallest magnitudes, some with one larger number."""
    if dtype in INTEGERS:
        return np.zeros(sizes, dtype)
    random, format = generator("subnormal", dtype, sizes), FORMATS[dtype]
    values = np.ldexp(random.integers(-99, 100, sizes).astype(np.float64), format.least)
    values[random.random(sizes) < 0.1] = 2.0 ** (format.least // 2)
    return values.astype(dtype)


def cancelling(dtype: str, sizes: Sizes) -> Array:
    """Pairs of opposite numbers that differ in the last bit, so that sums nearly cancel."""
    values = ordinary(dtype, sizes)
    half = sizes[-1] // 2
    opposite = -values[..., :half] if dtype in FLOATS else np.invert(values[..., :half])
    values[..., half : 2 * half] = np.nextafter(opposite, np.array(9, dtype)) if dtype in FLOATS else opposite
    return values


def special(dtype: str, sizes: Sizes) -> Array:
    """Infinities, NaN of any bits, zeros of both signs, numbers."""
    values = mixed(dtype, sizes)
    if dtype in INTEGERS:
        return values
    random = generator("special", dtype, sizes)
    strange = np.array([np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0], dtype)
    which = random.integers(0, 60 if values.size < 4000 else 6000, sizes)
    return np.where(which < len(strange), strange[np.minimum(which, len(strange) - 1)], values)


def blocks(dtype: str, sizes: Sizes) -> Array:
    """Zeros except for `mixed` blocks along the diagonal: most sums have no nonzero terms."""
    where = [np.arange(length) * 3 // max(1, length) for length in sizes]
    return np.where(np.equal.outer(*where), mixed(dtype, sizes), np.zeros(1, dtype))


def huge(dtype: str, sizes: Sizes) -> Array:
    """In every row one number so large that rounding removes all others; in some with its opposite."""
    values = ordinary(dtype, sizes)
    if dtype in FLOATS:
        random, rows = generator("huge", dtype, sizes), np.arange(sizes[0])
        large = np.array(2.0 ** (FORMATS[dtype].top // 2 - 2), dtype)
        values[rows, random.integers(0, sizes[1], sizes[0])] = large
        values[rows, random.integers(0, sizes[1], sizes[0])] = random.choice([-large, values[0, 0]], sizes[0])
    return values


KINDS: dict[str, Callable[[str, Sizes], Array]] = {
    "ordinary": ordinary, "mixed": mixed, "close": close, "extreme": extreme, "subnormal": subnormal,
    "cancelling": cancelling, "special": special, "blocks": blocks, "huge": huge,
}  # fmt: skip

# Of integers "special" is "mixed", and "huge" is "ordinary".
EVERY_KIND = [(d, kind) for d in DTYPES for kind in KINDS if d in FLOATS or kind not in ("special", "huge")]


def factors(kind: str, dtype: str, rows: int, inner: int, columns: int) -> tuple[Array, Array]:
    """Two matrices of a kind; 64-bit integers are reduced so that most sums fit."""
    a = KINDS[kind](dtype, (rows, inner))
    b = np.ascontiguousarray(KINDS[kind](dtype, (columns, inner)).T)
    if dtype in ("int64", "uint64"):
        a, b = a >> np.array(40, dtype), b >> np.array(32, dtype)
    elif dtype in INTEGERS:
        b = b // np.array(100, dtype)
    return a, b


def strange(dtype: str, rows: int, inner: int, columns: int) -> tuple[Array, Array]:
    """Ordinary matrices with infinities, NaN and zeros in them: no finite sum is near the limits of the format."""
    pairs = zip(
        factors("special", dtype, rows, inner, columns), factors("ordinary", dtype, rows, inner, columns), strict=True
    )
    a, b = (np.where(np.isfinite(special) & (special != 0), ordinary, special) for special, ordinary in pairs)
    return a, b


def overflowing(rows: int, inner: int, columns: int) -> tuple[Array, Array]:
    """In float64, sums that overflow on the way but not in the end, and that scaled integers miss by far: large numbers
    of A meet small ones of B, and small ones, which rounding removes, meet large ones."""
    random = generator("overflowing", rows, inner, columns)
    large = np.arange(inner) % 4 < 2
    a = np.where(large, 2.0**1023, random.uniform(2.0**-99, 2.0**-98, (rows, inner)))
    a[:, np.arange(inner) // 4 % 2 == 1] *= -1
    b = np.where(
        large[:, None], random.integers(1, 3, (1, columns)) / 2, random.uniform(2.0**700, 2.0**701, (inner, columns))
    )
    return a, b


def late(rows: int, inner: int, columns: int) -> tuple[Array, Array]:
    """In float16, only the last numbers are large: the losses show when they are added up."""
    random = generator("late", rows, inner, columns)
    powers = np.where(np.arange(inner) < inner - 40, -13, 7)
    a, b = (np.ldexp(random.standard_normal((lines, inner)), powers).astype("float16") for lines in (rows, columns))
    return a, np.ascontiguousarray(b.T)


def on_cpu(a: Array, b: Array, result: str | None = None) -> Array:
    """The product as the CPU computes it."""
    return with_uncertain(a, b, result)[0]


def with_uncertain(a: Array, b: Array, result: str | None = None) -> tuple[Array, int]:
    """The product, and how many of its elements are computed term by term."""
    dtype = np.dtype(result) if result else result_dtype((a.dtype, b.dtype))
    product = product_on_cpu((dtype, dtype) if dtype.kind == "f" else (a.dtype, b.dtype), dtype)
    with np.errstate(all="ignore"):
        return multiplied(product, lambda: [(a, b)]), product.uncertain


def in_residues(a: Any, b: Any) -> Any:
    """The product on a device from residues, even of small matrices."""
    result = result_dtype((a.dtype, b.dtype))
    dtypes = (result, result) if result.kind == "f" else (a.dtype, b.dtype)
    return multiplied(ResidueProduct(dtypes, result, a.shape[-1]), lambda: [(a, b)])


def defined(a: Array, b: Array) -> Array:
    """The product of two matrices as docs/matmul.md defines it, in Python's integers."""
    dtype = result_dtype((a.dtype, b.dtype))
    if dtype.kind == "f":
        a, b = a.astype(dtype), b.astype(dtype)
    product = np.zeros((a.shape[0], b.shape[1]), dtype)
    for i, row in enumerate(a):
        for j, column in enumerate(b.T):
            with np.errstate(over="ignore"):
                product[i, j] = (
                    exact_float(row, column, FORMATS[dtype.name]) if dtype.kind == "f" else exact_integer(row, column)
                )
    return product


def same_bits(got: Array, expected: Array) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    wrong = np.argwhere(got.view(f"u{got.itemsize}") != expected.view(f"u{got.itemsize}"))
    assert not len(wrong), (len(wrong), wrong[0], got[*wrong[0]], expected[*wrong[0]])


# Tiles that no wrapper chooses: few threads, so that a CPU runs them fast.
WARPS = Warps(32, 32, 16, 16, 2)
ONE_WARP = Warps(16, 16, 16, 16, 3)
GROUPS = Warpgroups(64, 2) if not ON_GPU else HOPPER if device.limits().hopper else WARPS
Chosen = Tile | None


def _case(
    kind: str, dtype: str, sizes: tuple[int, int, int], batches: tuple[Sizes, Sizes], tile: Chosen, cp: Any
) -> None:
    rows, inner, columns = sizes
    a, b = factors(kind, dtype, rows, inner, columns)
    a, b = (np.ascontiguousarray(np.broadcast_to(x, (*own, *x.shape))) for x, own in zip((a, b), batches, strict=True))
    with tiled(tile):
        same_bits(in_residues(cp.asarray(a), cp.asarray(b)).get(), on_cpu(a, b))


def tiled(tile: Chosen) -> AbstractContextManager[Any]:
    return patch.object(residue, "choose_tile", lambda *_: tile) if tile else nullcontext()


def _parts_case(pair: tuple[Array, Array], result: str | None, tile: Chosen, cp: Any) -> None:
    """Split into two parts."""
    a, b = pair
    dtype, sizes = a.dtype, (len(a), *b.shape)
    chosen = np.dtype(result or dtype)
    product = ResidueProduct((a.dtype, b.dtype), chosen, sizes[1])
    cut = sizes[1] // 3
    parts = [(cp.asarray(a[:, ends].copy()), cp.asarray(b[ends].copy())) for ends in (slice(cut), slice(cut, None))]
    with tiled(tile):
        got = multiplied(product, lambda: parts)
        expected, uncertain = with_uncertain(a, b, str(chosen))
        same_bits(got.get(), expected)
        assert product.uncertain == uncertain, (product.uncertain, uncertain)


def _too_large(cp: Any) -> None:
    a = np.full((5, 2), 2**62)
    try:
        with tiled(WARPS):
            in_residues(cp.asarray(a), cp.asarray(a.T.copy()))
    except OverflowError:
        return
    raise AssertionError("expected an OverflowError")


def residue_cases() -> Iterator[Case]:
    """Ragged tiles, large and small, in one part and in several; all dtypes; stacks; infinities and NaN."""
    for kernel, kind, dtype, sizes, batches, tile in (
        ("multiply", "ordinary", "float64", (37, 70, 21), ((), ()), WARPS),
        ("multiply", "ordinary", "int8", (128, 20, 130), ((), ()), None),
        ("multiply", "mixed", "uint8", (3, 130, 32), ((3, 1), (2,)), WARPS),
        ("multiply", "extreme", "int8", (66, 40, 16), ((2,), ()), None),
        ("multiply", "mixed", "int8", (17, 450, 9), ((), ()), ONE_WARP),
        ("multiply", "mixed", "int8", (130, 9, 18), ((), ()), ONE_WARP),
        ("multiply_warpgroups", "ordinary", "float16", (20, 600, 12), ((), ()), GROUPS),
        ("multiply_warpgroups", "mixed", "uint8", (3, 130, 32), ((2,), ()), GROUPS),
        ("multiply_warpgroups", "mixed", "int8", (130, 130, 70), ((), ()), GROUPS),
        ("split", "close", "float64", (5, 19, 7), ((), ()), WARPS),
        ("split", "mixed", "int64", (4, 17, 3), ((), ()), WARPS),
        ("split", "mixed", "uint64", (4, 17, 3), ((), ()), WARPS),
        ("split", "mixed", "uint16", (9, 31, 5), ((), (2,)), WARPS),
        ("split", "mixed", "uint32", (2, 5, 18), ((), ()), WARPS),
        ("largest_in_rows", "mixed", "float16", (11, 70, 2), ((), ()), WARPS),
        ("largest_in_columns", "mixed", "float32", (2, 70, 9), ((), ()), WARPS),
        ("nonfinite_terms", "special", "float32", (19, 33, 17), ((), ()), WARPS),
        ("dot_products", "mixed", "float32", (5, 33, 6), ((3, 1), (2,)), WARPS),
        ("dot_products", "mixed", "float32", (66, 40, 34), ((), ()), WARPS),
        ("find_uncertain", "huge", "float64", (7, 19, 6), ((2,), ()), WARPS),
        ("finish_floats", "subnormal", "float64", (5, 3, 9), ((), ()), ONE_WARP),
        ("finish_floats", "subnormal", "float32", (5, 3, 9), ((), ()), ONE_WARP),
        ("finish_floats", "extreme", "float16", (7, 2, 3), ((), ()), ONE_WARP),
        ("finish_floats", "cancelling", "float64", (4, 64, 4), ((), ()), ONE_WARP),
    ):
        check: Callable[[Any], None] = partial(_case, kind, dtype, sizes, batches, tile)
        yield Case("matmul/gpu", kernel, f"{kind} {dtype}, {sizes}, {batches}", check)
    for kernel, kind, dtype, sizes, result, tile in (
        ("multiply", "special", "float32", (9, 200, 10), None, WARPS),
        ("multiply", "special", "int16", (20, 70, 7), "int64", WARPS),
        ("multiply_warpgroups", "special", "int16", (20, 70, 7), "int64", GROUPS),
        ("find_uncertain", "mixed", "float16", (70, 30, 9), None, WARPS),
        ("find_uncertain", "ordinary", "float64", (21, 8, 20), None, WARPS),
        ("dot_products", "blocks", "float64", (9, 40, 9), None, WARPS),
        ("dot_products", "huge", "float64", (40, 50, 36), None, WARPS),
    ):  # fmt: skip
        parts = partial(_parts_case, factors(kind, dtype, *sizes), result, tile)
        yield Case("matmul/gpu", kernel, f"parts of {kind} {dtype}, {sizes}", parts)
    parts = partial(_parts_case, late(9, 900, 16), None, GROUPS)
    yield Case("matmul/gpu", "multiply_warpgroups", "parts of late numbers", parts)
    # Nothing was rounded, though the sum of top bits is zero.
    apart = np.array([[1.0, 2.0**-10, 0.0]]), np.array([[2.0**-10], [1.0], [0.0]])
    yield Case("matmul/gpu", "split", "parts of numbers far apart", partial(_parts_case, apart, None, WARPS))
    parts = partial(_parts_case, overflowing(40, 30, 60), None, WARPS)
    yield Case("matmul/gpu", "dot_products", "parts of sums that overflow", parts)
    yield Case("matmul/gpu", "finish_integers", "too large", _too_large)
