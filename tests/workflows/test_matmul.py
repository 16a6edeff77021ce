"""Matrix products from file to file: shapes, dtypes, cuts, stacks, special values, errors; on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernels.matmul.factors
import workflows.matmul
from pipeline.cluster.placement import Placement
from pipeline.engine.array import run_array
from pipeline.engine.outcome import Outcome
from pipeline.errors import PipelineError, UsageError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.matmul import EVERY_KIND, FLOATS, Array, factors, generator, on_cpu, same_bits, strange, with_uncertain
from workflows.matmul import MATMUL, MatmulOptions
from workflows.matmul_shapes import matrices
from workflows.regions import Spec, sizes

pytestmark = pytest.mark.usefixtures("shared")
ON_CPU = Placement(device="cpu")


def outcome_of(folder: Path, a: Array, b: Array, dtype: str = "auto", **keywords: Any) -> Outcome:
    sources = []
    for name, array in (("a", a), ("b", b)):
        np.save(folder / f"{name}.npy", array)
        sources.append(open_source((str(folder / f"{name}.npy"),), samples=False))
    path = str(folder / "c.npy")
    return run_array(MATMUL, MatmulOptions(dtype), sources, path, Settings(placement=ON_CPU, **keywords))


def multiplied(folder: Path, a: Array, b: Array, dtype: str = "auto", **keywords: Any) -> Array:
    """The array that the job writes, after verification."""
    outcome = outcome_of(folder, a, b, dtype, **keywords)
    assert outcome.verdict.checked == outcome.verdict.samples and outcome.verdict.escape <= 2.0**-20
    return np.array(outcome.result.array)


@pytest.mark.parametrize(("dtype", "kind"), EVERY_KIND)
def test_every_dtype_and_kind_is_right_by_its_own_check(tmp_path: Path, dtype: str, kind: str) -> None:
    a, b = factors(kind, dtype, 20, 33, 17)
    got = multiplied(tmp_path, a, b)
    same_bits(got, on_cpu(a, b))
    if dtype not in FLOATS:
        assert got.dtype == np.int64 and (got == a.astype(object) @ b.astype(object)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_and_nan_are_those_of_numpy(tmp_path: Path, dtype: str) -> None:
    a, b = strange(dtype, 40, 9, 30)
    with np.errstate(all="ignore"):
        theirs = a.astype(np.float64) @ b.astype(np.float64)
    got, nonfinite = multiplied(tmp_path, a, b), ~np.isfinite(theirs)
    assert nonfinite.any() and not nonfinite.all() and set(theirs[nonfinite & ~np.isnan(theirs)]) == {np.inf, -np.inf}
    np.testing.assert_array_equal(got[nonfinite], theirs[nonfinite])
    assert np.isfinite(got[~nonfinite]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_further_from_the_truth_than_blas(tmp_path: Path, dtype: str) -> None:
    a, b = factors("ordinary", dtype, 150, 200, 130)
    truth = a.astype(np.longdouble) @ b.astype(np.longdouble)
    ours, theirs = (np.abs(product - truth).max() for product in (multiplied(tmp_path, a, b), a @ b))
    assert ours < theirs


@pytest.mark.parametrize(
    ("kind", "dtype"), [("mixed", "float64"), ("special", "float32"), ("blocks", "float32"), ("mixed", "int16")]
)
def test_bits_do_not_depend_on_the_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, dtype: str) -> None:
    """Regions of any size, slabs of any depth."""
    a, b = factors(kind, dtype, 50, 70, 41)
    expected = multiplied(tmp_path, a, b)
    for slab, tile, held, cuts in (
        (8192, 128, 2**22, (50_000, 20_000)), (32, 128, 1000, (2**20, 50_000)), (7, 128, 100, (20_000,)),
        (8192, 4, 1000, (2**20, 20_000)),
    ):  # fmt: skip
        monkeypatch.setattr(workflows.matmul, "SLAB", slab)
        monkeypatch.setattr(workflows.matmul, "TILE", tile)
        monkeypatch.setattr(kernels.matmul.factors, "HELD", held)
        for nbytes in cuts:
            same_bits(multiplied(tmp_path, a, b, chunk_bytes=nbytes), expected)


shapes = st.tuples(
    st.sampled_from([((), ()), ((3,), ()), ((), (2,)), ((2, 1), (3,)), ((1,), (4,)), ((2, 3), (2, 3)), ((0,), (1,))]),
    st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.booleans(), st.booleans(),
)  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes, st.sampled_from(["float64", "int32"]), st.integers(1, 400))
def test_shapes_are_those_of_numpy(tmp_path: Path, shape: Any, dtype: str, chunk_bytes: int) -> None:
    (of_a, of_b), rows, inner, columns, vector_a, vector_b = shape
    random = generator(shape)
    a = random.integers(-50, 50, (inner,) if vector_a else (*of_a, rows, inner)).astype(dtype)
    b = random.integers(-50, 50, (inner,) if vector_b else (*of_b, inner, columns)).astype(dtype)
    got = multiplied(tmp_path, a, b, chunk_bytes=chunk_bytes)
    expected = np.asarray(np.matmul(a, b))
    assert got.shape == expected.shape and (got == expected).all()
    assert got.dtype == ("int64" if dtype == "int32" else dtype)


@pytest.mark.parametrize("elements", [1, 10, 100, 5000, 10**6])
@pytest.mark.parametrize("shape", [((40, 9), (9, 50)), ((3, 1, 40, 9), (7, 9, 6)), ((9,), (9, 300)), ((9,), (9,))])
def test_regions_cover_the_product_once(shape: Any, elements: int) -> None:
    specs = [Spec(own, np.dtype("float64")) for own in shape]
    output = MATMUL.outline(specs, MatmulOptions())
    counts = np.zeros(output.shape, int)
    for region in MATMUL.regions(specs, output, MatmulOptions(), elements):
        counts[tuple(slice(*ends) for ends in region)] += 1
        assert np.prod(sizes(region)) <= elements
        needed = MATMUL.needs(region, specs, MatmulOptions())
        assert [len(bounds) for bounds in needed] == [len(own) for own in shape]
    assert (counts == 1).all()


def test_tiles_of_large_products_are_whole_blocks() -> None:
    specs = [Spec((4096, 100), np.dtype("float32")), Spec((100, 3000), np.dtype("float32"))]
    output = MATMUL.outline(specs, MatmulOptions())
    tiles = [sizes(region) for region in MATMUL.regions(specs, output, MatmulOptions(), 10**6)]
    assert tiles[0] == (896, 1024) and sum(rows * columns for rows, columns in tiles) == output.size


@pytest.mark.parametrize(
    ("a", "b", "dtype", "message"),
    [
        (((4, 6), "f8"), ((5, 3), "f8"), "auto", r"got shapes \(4, 6\) and \(5, 3\): 6 in the last axis of the first, "
                                                 "5 in the last axis but one of"),
        (((4, 6), "f8"), ((5,), "f8"), "auto", r"got shapes \(4, 6\) and \(5,\): 6 in the last .* 5 in the only axis"),
        (((), "f8"), ((5, 3), "f8"), "auto", r"expected vectors or matrices, got shapes \(\) and \(5, 3\)"),
        (((2, 4, 6), "f8"), ((3, 6, 5), "f8"), "auto", r"got shapes \(2, 4, 6\) and \(3, 6, 5\): \(2,\) and"),
        (((4, 6), "c8"), ((6, 3), "f8"), "auto", "matrices of integers, float16, float32 or float64, got complex64"),
        (((4, 6), "?"), ((6, 3), "f8"), "auto", "got bool"),
        (((4, 6), "f4"), ((6, 3), "i4"), "int32", "matrices of integers for a product of int32, got float32 4×6 and"),
    ],
)  # fmt: skip
def test_what_cannot_be_multiplied_is_said_with_both_shapes(
    tmp_path: Path, a: Any, b: Any, dtype: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        outcome_of(tmp_path, np.zeros(*a), np.zeros(*b), dtype)
    assert not (tmp_path / "c.npy").exists()
    with pytest.raises(ValueError, match="dtype: expected auto, int64 or int32, got 'float32'"):
        MatmulOptions("float32")
    long = [Spec((1, 2**28 + 1), np.dtype("int8")), Spec((2**28 + 1, 1), np.dtype("int8"))]
    with pytest.raises(ValueError, match="at most 268435456 products in a sum, got 268435457"):
        MATMUL.outline(long, MatmulOptions())


def test_integers_that_do_not_fit_are_an_error(tmp_path: Path) -> None:
    a = np.full((3, 2), 2**31 - 1, np.int32)
    b = np.full((2, 3), 1, np.int32)
    assert multiplied(tmp_path, a, b)[0, 0] == 2**32 - 2
    with pytest.raises(PipelineError, match=r"to 2147483647, got the sum 4294967294, .* ask for int64"):
        outcome_of(tmp_path, a, b, "int32")
    assert multiplied(tmp_path, a // 2, b, "int32").dtype == np.int32
    with pytest.raises(PipelineError, match=r"got the sum .* outside of int64; convert the matrices to float64"):
        outcome_of(tmp_path, a.astype(np.int64) << 31, 2 * b)
    with pytest.raises(PipelineError, match=r"outside of int32; convert the matrices to float64"):  # nor into int64
        outcome_of(tmp_path, a.astype(np.int64) << 31, 2 * b, "int32")


def test_vectors_stacks_and_fortran_order(tmp_path: Path) -> None:
    random = generator("fortran")
    a, b = random.standard_normal((6, 5)), random.standard_normal((5, 4))
    same_bits(multiplied(tmp_path, np.asfortranarray(a), np.asfortranarray(b)), on_cpu(a, b))
    same_bits(multiplied(tmp_path, a.astype(">f8"), b), on_cpu(a, b))


@pytest.mark.parametrize("kind", ["mixed", "huge", "ordinary"])
def test_result_says_how_many_elements_were_computed_term_by_term(tmp_path: Path, kind: str) -> None:
    """The same number for all cuts; none for numbers of similar magnitude."""
    a, b = factors(kind, "float64", 40, 33, 50)
    _, uncertain = with_uncertain(a, b)
    for chunk_bytes in (None, 20_000):
        outcome = outcome_of(tmp_path, a, b, chunk_bytes=chunk_bytes)
        assert outcome.result.notes["elements computed term by term"] == f"{uncertain:,} of 2,000"
    assert (uncertain == 0) is (kind == "ordinary")


def test_notes_say_what_was_done() -> None:
    assert MATMUL.notes
    floats = MATMUL.notes([Spec((4, 4096), np.dtype("f8")), Spec((4096, 4), np.dtype("f4"))], MatmulOptions())
    assert (
        "integers of 55 bits, rounded once to float64" in floats["arithmetic"] and "16 numbers" in floats["arithmetic"]
    )
    exact = MATMUL.notes([Spec((4,), np.dtype("i4")), Spec((4,), np.dtype("i4"))], MatmulOptions())
    assert exact["arithmetic"].startswith("exact, of integers")
    assert matrices([Spec((4,), np.dtype("i4"))] * 2).shape == ()
