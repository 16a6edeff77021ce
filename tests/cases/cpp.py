"""Hard samples for the compiled CPU kernels; as a script, checks kernels compiled with the given options:
reads a JSON list of checks from stdin and prints how many results each one compared."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import cycle, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.cases.cpp_digest import check_digest
from tests.cases.cpp_histogram import check_added_counts
from tests.cases.cpp_matmul import (
    check_product_dots,
    check_product_elements,
    check_product_residues,
    check_product_rounding,
    check_product_sums,
)
from tests.cases.cpp_quantile import check_counts_of_keys
from tests.cases.cpp_rows import check_rows
from tests.cases.cpp_scattered import check_scattered
from tests.cases.cpp_transpose import check_transpose, check_transposed
from tests.cases.cpp_turns import check_turns as check_turns_of

SIZES = (0, 1, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 10_001)


def views(samples: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The samples, or all but a few at the ends, at other addresses and strides."""
    yield samples
    yield samples[1:]
    yield samples[:-3]
    yield samples[::-1]
    yield samples[::3]
    yield np.frombuffer(b"x" + samples.tobytes(), samples.dtype, offset=1)


def full(dtype: str, exponent: int, below: int, size: int, sign: int = 1) -> NDArray[Any]:
    """Numbers just below 2**exponent with full significands; every second one smaller by 2**below."""
    large, small = (
        np.nextafter(np.ldexp(1.0, exponent - by).astype(dtype), np.dtype(dtype).type(0)) for by in (0, below)
    )
    samples = np.full(size, sign * large, dtype)
    samples[1::2] = sign * small
    return samples


def limits(dtype: str, size: int) -> Iterator[NDArray[Any]]:
    """Blocks that fill their accumulator, with the widest range of exponents that it takes, at many exponents."""
    info = np.finfo(dtype)
    middle = (-482, -481, -401, -400, -399, 0, 1, 499, 500, 501) if dtype == "float64" else (-62, 0, 1)
    exponents = [
        info.minexp - info.nmant + 30,
        info.minexp,
        info.minexp + 20,
        *middle,
        info.maxexp - 2,
        info.maxexp - 1,
    ]
    for exponent, below, sign in product(exponents, (0, 1, 16, 17, 18, 19, 26, 27, 28, 29, 30), (1, -1)):
        with np.errstate(under="ignore"):
            samples = full(dtype, exponent, below, size, sign)
        yield samples
        if exponent == info.maxexp - 1:
            yield 2 * samples
    for below in (16, 17, 18, 19, 26, 27, 28, 29):  # exact powers of two
        yield np.resize(np.array([1, 2.0**-below], dtype), size)
    random = np.random.default_rng(0)
    for exponent in (exponents[0], info.minexp + 8, 0, info.maxexp - 2):
        for mantissa in random.uniform(1, 2, 32):  # rounding errors of the additions also have equal signs
            yield np.full(size, np.ldexp(mantissa, exponent), dtype)


def check_histogram() -> int:
    """The compiled and NumPy counts agree; returns how many were compared."""
    from kernels.histogram.binning import Binning
    from kernels.histogram.cpu import count_compiled, histogram_numpy
    from tests.cases.histogram import DTYPES, EDGES, nasty

    compared = 0
    for dtype, (edges, regular) in product(DTYPES, EDGES.values()):
        binning = Binning(np.dtype(dtype), np.asarray(edges, np.float64), regular)
        for number, size in enumerate(SIZES):
            # The samples and one of their views; every view comes up with every dtype and kind of edges.
            all_views = list(views(nasty(dtype, size, binning.edges)))
            for samples in (all_views[0], all_views[1 + number % 5]):
                got, compared = count_compiled(samples, binning), compared + 1
                assert got is not None
                np.testing.assert_array_equal(got, histogram_numpy(samples, binning))
    for dtype, edges in _edges_of_rare_ways():
        binning = Binning(np.dtype(dtype), edges, False)
        samples = nasty(dtype, 1025, edges)
        got, compared = count_compiled(samples, binning), compared + 1
        np.testing.assert_array_equal(got, histogram_numpy(samples, binning))
    return compared + check_added_counts()


def _edges_of_rare_ways() -> Iterator[tuple[str, NDArray[np.float64]]]:
    """More bins than 16 bits can number or than there are values; edges for which a line is just not good enough."""
    many = np.linspace(0, 1e6, 70_001)
    yield from (("int16", np.arange(-(2.0**15), 2.0**17)), ("int32", many), ("float64", many), ("float64", many**2))
    for dtype, jitter in product(("int32", "uint64", "float32", "float64"), (1e-9, 0.3, 0.49, 0.5, 0.51, 0.9)):
        random = np.random.default_rng(int(100 * jitter))
        for moved in (jitter * random.uniform(-1, 1, 51), np.where(np.arange(51) == 25, jitter, 0), -jitter, jitter):
            yield dtype, np.unique(1000.25 + 7.3 * (np.arange(51) + moved))


def check_reduce() -> int:
    """Compiled and by NumPy the same; how many were compared."""
    from kernels.reduce import partial
    from kernels.reduce.cpu import _fill_compiled, reduce_numpy
    from tests.cases.reduce import CASES, DTYPES, FLOATS, case

    def check(samples: NDArray[Any], parts: int) -> int:
        got = partial.empty(samples.dtype, parts, len(samples))
        assert _fill_compiled(got, samples, parts)
        np.testing.assert_array_equal(got, reduce_numpy(samples, parts))
        return 1

    compared = 0
    # One choice of parts per view; every pair of view and choice comes up with every dtype and size.
    turns = cycle(partial.PARTS)
    for dtype, size, name in product(DTYPES, SIZES[1:], CASES):
        samples = case(name, dtype, size)
        compared += check(samples, partial.PARTS[-1])
        compared += sum(check(view, parts) for view, parts in zip(views(samples), turns, strict=False) if len(view))
    for dtype in FLOATS:
        compared += sum(check(samples, 7) for size in (4096, 8191) for samples in limits(dtype, size))
    return compared


def sums_to_check(dtype: str) -> Iterator[tuple[NDArray[Any], NDArray[Any], int]]:
    """Samples, right or wrong window sums, and the radius."""
    from kernels.stencil.cpu import box_cpu
    from tests.cases.stencil import ADVERSARIAL, FLOATS, adversarial, numbers

    shapes = ((1, 1), (3, 40), (2, 700))
    for shape, radius in product(shapes, (0, 1, 5, 300)):
        x = numbers(dtype, (shape[0], shape[1] + 2 * radius))
        sums = box_cpu(x, radius)
        yield x, sums, radius
        if dtype in FLOATS:
            yield x.astype(np.float64).astype(dtype), sums, radius
            for towards in (np.inf, -np.inf, -sums):
                yield x, np.nextafter(sums, towards), radius
            yield np.floor(x), box_cpu(np.floor(x), radius), radius
        else:
            yield x, sums + sums.dtype.type(1), radius
            yield x, sums ^ sums.dtype.type(1) << sums.dtype.type(63), radius
    for case, radius in product(ADVERSARIAL if dtype in FLOATS else (), (0, 1, 20)):
        x = adversarial(case, (3, 300), dtype)
        with np.errstate(all="ignore"):
            sums = box_cpu(x, radius)
            others = np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, float(np.finfo(dtype).max), 5e-324
            wrong = [np.full(sums.shape, other) for other in others]
            beside = (np.nextafter(sums, end) for end in (np.inf, -np.inf))
            others = (sums, *beside, -sums, 2 * sums, *wrong)
            # Stacked as rows: the reference takes no longer for many rows than for a few.
            yield np.tile(x, (len(others), 1)), np.concatenate(others), radius


def check_stencil() -> int:
    """Compiled code accepts the right sums, and no others; returns how many rows were compared."""
    from kernels.stencil.check import right_sums
    from kernels.stencil.reference import _wrong
    from tests.cases.reduce import DTYPES

    compared = 0
    for dtype in DTYPES:
        for x, sums, radius in sums_to_check(dtype):
            width = 2 * radius + 1
            x, sums = x[:, : sums.shape[1] + width - 1], sums[:, : x.shape[1] - width + 1]
            with np.errstate(all="ignore"):
                expected = ~_wrong(x, sums, width)
            for samples in (x, np.repeat(x, 2, axis=1)[:, ::2]):
                right = right_sums(samples, sums, width)
                np.testing.assert_array_equal(right, expected)
                compared += len(x)
    return compared


def check_sums() -> int:
    """Compiled window sums agree with NumPy's; returns how many rows were compared."""
    from kernels.stencil.cpu import compiled_sums
    from kernels.stencil.cpu_exact import exact_sums
    from tests.cases.stencil import ADVERSARIAL, FLOATS, adversarial, numbers

    compared = 0
    for dtype, width, length in product(FLOATS, (1, 2, 3, 64, 65, 2001), (2001, 2064, 3000)):
        with np.errstate(over="ignore"):
            spread = [numbers(dtype, (3, length)) * np.ldexp(1.0, k).astype(dtype) for k in (-90, 0, 90)]
        two = (1 + numbers("float64", (3, length)) * 2.0**-60).astype(dtype)
        cases = [*spread, np.floor(spread[1]), 0 * spread[1], two]
        if length == 2001:  # several short blocks
            cases += [adversarial(case, (1, length), dtype) for case in ADVERSARIAL]
        for x in cases:
            for samples in (x, np.frombuffer(b"x" + x.tobytes(), dtype, offset=1).reshape(x.shape), x[:, ::-1]):
                got = compiled_sums(samples, width)
                with np.errstate(all="ignore"):
                    expected = exact_sums(samples.astype(np.float64), width)
                assert got is not None and got.tobytes() == expected.tobytes()
                compared += len(x)
    for dtype, x in product(("float32", "float64"), _one_apart()):
        found = compiled_sums(x.astype(dtype), 1)
        assert found is not None and (found == x).all()
        compared += len(x)
    for exponent in range(32):  # so many that they fill a limb more than each of them
        x = np.full((1, 9001), np.ldexp(1 - 2.0**-53, exponent))
        x[0, 5000] = 2.0**-400
        found = compiled_sums(x, 9000)
        assert found is not None and found.tobytes() == exact_sums(x, 9000).tobytes()
    return compared


def _one_apart() -> Iterator[NDArray[Any]]:
    """Rows in which one sample needs another cut: a small one at either end, or what is left of which is 2."""
    for place in (0, 7, -1):
        for others, apart in ((1.0, 2.0**-60), (2.0**55, 2.0), (2.0**110, 2.0)):
            for between in (others, others * 2.0**-60):  # then two cuts are not enough
                x = np.full((1, 40), others)
                x[0, 20], x[0, place] = between, apart if between == others else min(apart, others * 2.0**-109)
                yield x


def check_counts() -> int:
    """What checks histograms and finite ranges finds what it should; how many were compared."""
    from tests.cases.aggregation_checks import count, ranges

    return count(SIZES, views) + ranges(SIZES, views)


def check_moments() -> int:
    """What checks partials of reduce finds what the reference does; how many were compared."""
    from tests.cases.aggregation_checks import reduced

    return reduced(SIZES[1:], views)


def check_map() -> int:
    """Results and conversions agree with NumPy's at every length; returns how many results were compared."""
    from kernels.map.check import OPERATIONS, TYPES, numpy_results, right_results

    compared = 0
    random = np.random.default_rng(0)
    for types, operation in product(product(TYPES, repeat=2), OPERATIONS):
        for size in (1, 70, 1100) if types[0] == types[1] else (600,):
            parts = [np.frombuffer(random.bytes(size * np.dtype(name).itemsize), name) for name in (*types, types[0])]
            parts = parts if operation == "multiply_add" else parts[:2]
            got, expected = right_results(parts, operation), numpy_results(parts, operation)
            assert got is not None and got.dtype == expected.dtype and got.tobytes() == expected.tobytes()
            compared += size
    return compared


def check_quantile() -> int:
    """Counts of keys against NumPy's; returns the number of comparisons."""
    return check_counts_of_keys(SIZES)


def check_turns() -> int:
    """Checks of rows that take turns get their samples; returns how many."""
    return check_turns_of(SIZES)


CHECKS = {
    "histogram": check_histogram, "counts": check_counts, "reduce": check_reduce, "moments": check_moments,
    "quantile": check_quantile, "transpose": check_transpose, "transposed": check_transposed,
    "stencil": check_stencil, "sums": check_sums, "scattered": check_scattered, "map": check_map,
    "product sums": check_product_sums, "product residues": check_product_residues,
    "product rounding": check_product_rounding, "product elements": check_product_elements,
    "product dots": check_product_dots, "digest": check_digest, "turns": check_turns, "rows": check_rows,
}  # fmt: skip


if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)  # not for the compiler
    from kernels.common import cxx

    cxx.OPTIONS = (*cxx.OPTIONS, *sys.argv[1:])
    SIZES = SIZES[::2]  # in this process the tests take all of them
    print(json.dumps({name: CHECKS[name]() for name in json.load(sys.stdin)}))
