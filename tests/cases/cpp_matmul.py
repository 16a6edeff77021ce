"""Matrices of all sizes for the compiled checks of products."""

from __future__ import annotations

from itertools import product

import numpy as np

SHAPES = ((1, 1, 1), (3, 130, 5), (16, 16, 64), (33, 65, 130), (129, 257, 70))


def check_product_sums() -> int:
    """Sums and elements of right products are within their bounds; returns how many were compared."""
    from kernels.matmul.check_compiled import functions
    from kernels.matmul.check_groups import random_groups, single_columns
    from kernels.matmul.check_limits import Limits
    from kernels.matmul.check_measured import Measured
    from kernels.matmul.check_sums import TileSums
    from kernels.matmul.factors import Factors
    from kernels.matmul.formats import FORMATS
    from tests.cases.matmul import on_cpu

    library, compared = functions(), 0
    assert library is not None
    for dtype, (rows, inner, columns) in product(FORMATS, SHAPES):
        random = np.random.default_rng(rows)
        a, b = (
            random.standard_normal((rows, inner)).astype(dtype),
            random.standard_normal((inner, columns)).astype(dtype),
        )
        of = Measured(Factors.of(a, b), (rows, columns), FORMATS[dtype])
        of.take(on_cpu(a, b))
        right = of.rows.rounded(a, None, slice(None)) @ of.columns.rounded(b, None, slice(None))
        for groups in (random_groups(inner, columns, dtype, random), single_columns(columns)):
            sums = TileSums(library, of, groups)
            sums.run()
            limits, own = Limits(of, sums, groups), sums.own_bounds(range(len(sums.parts)))
            for number, part in enumerate(sums.parts):
                tile = sums.compared(number, limits, own[number])
                assert (np.abs(tile.differences) <= tile.most).all()
                suspects = sums.suspects(number, tile, 0.0, (part.stop - part.start) * columns)
                assert suspects is not None
                compared += tile.most.size + len(suspects)
            places = np.argwhere(np.ones(right.shape, bool))
            elements, bounds, _ = sums.dots(places)
            assert (np.abs(elements - right[tuple(places.T)]) <= bounds + 2.0**-40).all()
            compared += len(places)
    return compared


def check_product_residues() -> int:
    """Residues agree with NumPy's; returns how many were compared."""
    from kernels.matmul.check_integers import PRIMES, TRIALS, functions, residues, residues_numpy
    from kernels.matmul.formats import INTEGERS

    library, compared = functions(), 0
    assert library is not None
    primes = np.array(PRIMES[-TRIALS:])
    for dtype, columns in product(INTEGERS, (0, 1, 63, 1024, 1025, 5000)):
        info, random = np.iinfo(dtype), np.random.default_rng(columns)
        matrix = random.integers(info.min, info.max, (7, columns), dtype, True)
        vectors = np.stack([random.integers(1, prime, columns) for prime in primes], axis=-1)
        got = residues(library, matrix, vectors, primes)
        np.testing.assert_array_equal(got, residues_numpy(matrix, vectors, primes))
        compared += got.size
    return compared


def check_product_rounding() -> int:
    """Products of float16 and float32, compiled and by NumPy, have the same bits; returns how many were compared."""
    from unittest.mock import patch

    from kernels.matmul import cpu_narrow
    from kernels.matmul.formats import multiplied
    from tests.cases.matmul import KINDS, factors, same_bits

    compared = 0
    assert cpu_narrow.functions() is not None
    for dtype, kind, (rows, inner, columns) in product(("float16", "float32"), KINDS, SHAPES):
        a, b = factors(kind, dtype, rows, inner, columns)
        for step in (inner, max(1, inner // 3)):
            parts = [(a[:, i : i + step], b[i : i + step]) for i in range(0, inner, step)]
            with np.errstate(all="ignore"):
                got = multiplied(cpu_narrow.NarrowCpuProduct(a.dtype), lambda parts=parts: parts)
                with patch.object(cpu_narrow, "functions", lambda: None):
                    expected = multiplied(cpu_narrow.NarrowCpuProduct(a.dtype), lambda parts=parts: parts)
            same_bits(got, expected)
            compared += got.size
    return compared


def check_product_elements() -> int:
    """Products by their definition are those of wider sums, and right for the check; returns how many were compared."""
    from kernels.matmul import check_each, cpu_direct
    from kernels.matmul.cpu import CpuProduct
    from kernels.matmul.factors import Factors
    from kernels.matmul.formats import DTYPES, FORMATS, multiplied, result_dtype
    from tests.cases.matmul import factors, same_bits

    compared, direct, check = 0, cpu_direct.functions(), check_each.functions()
    assert direct is not None and check is not None
    for dtype, kind, sizes in product(DTYPES, ("special", "close", "ordinary"), (*SHAPES, (70, 3, 66))):
        a, b = factors(kind if dtype in FORMATS else "ordinary", dtype, *sizes)
        result = result_dtype((a.dtype, b.dtype))
        dtypes = (a.dtype, b.dtype)
        with np.errstate(all="ignore"):
            got = multiplied(cpu_direct.DirectProduct(direct, dtypes, result), lambda a=a, b=b: [(a, b)])
            same_bits(got, multiplied(CpuProduct(dtypes, result), lambda a=a, b=b: [(a, b)]))
            if dtype in FORMATS:
                each = check_each.EachCheck(check, Factors.of(a, b), got.shape, FORMATS[dtype])
                assert each.wrong(got) == []
        compared += got.size
    return compared


def check_product_dots() -> int:
    """Dot products in order, compiled and by NumPy, have the same bits; returns how many were compared."""
    from unittest.mock import patch

    from kernels.matmul import cpu_dots
    from tests.cases.matmul import factors, same_bits

    compared = 0
    assert cpu_dots.functions() is not None
    for sizes in SHAPES:
        which = np.random.default_rng(sizes[0]).uniform(size=(sizes[0], sizes[2])) < 0.1
        a, b = factors("ordinary", "float64", *sizes)
        sums = []
        for functions in (cpu_dots.functions, lambda: None):
            with patch.object(cpu_dots, "functions", functions):
                dots = cpu_dots.DotProducts(which, None)
                dots.add(a, b)
                sums.append(dots.sums[which])
        same_bits(*sums)
        compared += len(sums[0])
    return compared
