"""Elementwise operations from file to file, against NumPy: every operation, dtype, shape and cut; planted errors."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.map import check as map_check
from pipeline.cluster.placement import Placement
from pipeline.engine.array import run_array
from pipeline.engine.outcome import Outcome
from pipeline.errors import UsageError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows import map as map_job
from workflows.map import MAP, MapOptions
from workflows.regions import Bounds, Spec, all_of

PAGE = Path(__file__).parents[2] / "docs" / "map.md"
ON_CPU = Placement(device="cpu")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")
DTYPES = (*INTEGERS, *FLOATS)
OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "minimum": np.minimum, "maximum": np.maximum, "multiply-add": lambda a, b, c: a * b + c,
}  # fmt: skip
OPERANDS = {name: 3 if name == "multiply-add" else 2 for name in OPERATIONS}


def mapped(folder: Path, operation: str, *arrays: NDArray[Any], **keywords: Any) -> Outcome:
    sources = []
    for number, array in enumerate(arrays):
        np.save(folder / f"in-{number}.npy", array)
        sources.append(open_source((str(folder / f"in-{number}.npy"),), samples=False))
    return run_array(
        MAP, MapOptions(operation), sources, str(folder / "out.npy"), Settings(placement=ON_CPU, **keywords)
    )


def by_numpy(operation: str, *arrays: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return np.asarray(OPERATIONS[operation](*arrays))


def special(dtype: str) -> NDArray[Any]:
    """Numbers of every kind, including some that overflow, underflow or give NaN."""
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        values = {0, 1, 2, 3, 7, info.min, info.max, info.min // 2, info.max // 2 + 1, info.max - 1}
        return np.array(sorted(values), dtype)
    finfo = np.finfo(dtype)
    tiny = float(finfo.smallest_subnormal)
    halves = [0.0, 1.0, 1.5, 1 / 3, tiny, 3 * tiny, float(finfo.tiny), float(finfo.max), 1 + float(finfo.eps), np.inf]
    return np.array([*halves, *(-value for value in halves), np.nan], dtype)


def same(got: NDArray[Any], expected: NDArray[Any]) -> None:
    """Dtype, shape and bits, but for the bits of NaN, and of zeros of which either sign may be the lesser."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(got, expected)
    if got.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(expected[numbers]))
        one = np.full((), np.nan, got.dtype).tobytes()
        assert {value.tobytes() for value in got[~numbers].reshape(-1)[:9]} <= {one}


def signed(operation: str, expected: NDArray[Any], *arrays: NDArray[Any]) -> NDArray[Any]:
    """The minimum of two zeros is -0.0 and the maximum 0.0, which NumPy leaves to the machine."""
    if operation in ("minimum", "maximum") and expected.dtype.kind == "f":
        negative = np.add if operation == "minimum" else np.multiply
        signs = negative(*(np.signbit(array).astype(int) for array in arrays)) > 0
        zeros = np.logical_and(*(array == 0 for array in arrays))
        return np.where(zeros, np.where(signs, -0.0, 0.0).astype(expected.dtype), expected)
    return expected


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[NDArray[Any]]]:
    """An operation and arrays whose shapes broadcast."""
    operation = draw(st.sampled_from(sorted(OPERATIONS)))
    shapes = draw(st_numpy.mutually_broadcastable_shapes(num_shapes=OPERANDS[operation], min_side=0, max_side=5))
    dtypes = [draw(st.sampled_from(DTYPES)) for _ in shapes.input_shapes]
    arrays = [draw(st_numpy.arrays(dtype, shape)) for dtype, shape in zip(dtypes, shapes.input_shapes, strict=True)]
    return operation, arrays


@pytest.mark.usefixtures("shared")
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), big=st.booleans(), fortran=st.booleans(), chunk_bytes=st.integers(1, 500))
def test_result_is_that_of_numpy(
    tmp_path: Path, case: tuple[str, list[NDArray[Any]]], big: bool, fortran: bool, chunk_bytes: int
) -> None:
    operation, arrays = case
    stored = [a.astype(a.dtype.newbyteorder(">" if big else "<"), order="F" if fortran else "C") for a in arrays]
    outcome = mapped(tmp_path, operation, *stored, chunk_bytes=chunk_bytes, verify="full")
    got = np.array(outcome.result.array)
    same(got, signed(operation, by_numpy(operation, *arrays), *arrays))
    assert outcome.verdict.checked == got.size


def computed(operation: str, *arrays: Any) -> Any:
    """By the job's functions, without files."""
    options, specs = MapOptions(operation), [Spec(array.shape, array.dtype) for array in arrays]
    output = MAP.outline(specs, options)
    return MAP.compute(arrays, all_of(output), specs, options)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_pair_of_dtypes_with_special_values(operation: str) -> None:
    for dtypes in itertools.product(DTYPES, repeat=2):
        a, b = special(dtypes[0])[:, None], special(dtypes[1])
        more = [special(dtypes[1])[::-1].copy()] if OPERANDS[operation] == 3 else []
        same(computed(operation, a, b, *more), signed(operation, by_numpy(operation, a, b, *more), a, b))


@pytest.mark.parametrize("dtype", ["int32", "float16", "float64"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_scalars(operation: str, dtype: str) -> None:
    for value in special(dtype):
        arrays = [np.array(value), *[np.array(2, dtype)] * (OPERANDS[operation] - 1)]
        same(computed(operation, *arrays), signed(operation, by_numpy(operation, *arrays), *arrays[:2]))


def test_every_three_dtypes_are_promoted_as_by_numpy() -> None:
    """int8 * uint8 + float16 is float32; promoted together the three would be float16."""
    for dtypes in itertools.product(DTYPES, repeat=3):
        arrays = [special(dtype)[:3] for dtype in dtypes]
        same(computed("multiply-add", *arrays), by_numpy("multiply-add", *arrays))


@pytest.mark.gpu
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtypes", [*zip(DTYPES, DTYPES, strict=True), ("int8", "uint8"), ("int64", "float32"),
                                    ("uint64", "int8"), ("float16", "int16")])  # fmt: skip
def test_device_makes_the_same_bits(cp: Any, operation: str, dtypes: tuple[str, str]) -> None:
    a, b = special(dtypes[0])[:, None], special(dtypes[1])
    more = [special(dtypes[1])[::-1].copy()] if OPERANDS[operation] == 3 else []
    with np.errstate(all="ignore"):  # the emulator warns, a GPU does not
        got = computed(operation, *(cp.asarray(array) for array in (a, b, *more))).get()
    expected = computed(operation, a, b, *more)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert got.tobytes() == expected.tobytes()


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ([np.zeros((2, 3)), np.zeros((3, 2))], r"expected shapes that NumPy broadcasts, got \(2, 3\) and \(3, 2\)"),
        ([np.zeros(0), np.zeros(2)], r"expected shapes that NumPy broadcasts, got \(0,\) and \(2,\)"),
        ([np.zeros(2), np.zeros(2, complex)], "expected arrays of integers or floats of at most 64 bits, got complex"),
        ([np.zeros((2, 3), bool), np.zeros(3)], "integers or floats of at most 64 bits, got bool 2×3"),
        ([np.zeros(2, "M8[s]"), np.zeros(2)], "integers or floats of at most 64 bits, got datetime64"),
        ([np.zeros(2), np.zeros(2, "S3")], "integers or floats of at most 64 bits, got bytes24 2"),
        ([np.zeros(2, np.longdouble), np.zeros(2)], "integers or floats of at most 64 bits, got float128 2"),
        ([np.zeros(2)], "expected 2 arrays, got 1"),
        ([np.zeros(2)] * 3, "expected 2 arrays, got 3"),
    ],
)
def test_arrays_that_cannot_be_broadcast_are_refused(tmp_path: Path, arrays: list[Any], text: str) -> None:
    with pytest.raises(UsageError, match=f"^map: .*{text}"):
        mapped(tmp_path, "add", *arrays)
    assert not (tmp_path / "out.npy").exists()


def test_unknown_operation_is_refused() -> None:
    text = "^operation: expected one of add, subtract, multiply, multiply-add, minimum, maximum, got 'divide'$"
    with pytest.raises(ValueError, match=text):
        MapOptions("divide")


# --- the check --------------------------------------------------------------------------------------------------------


def words(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(f"u{array.dtype.itemsize}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", ["add", "minimum", "multiply-add"])
def test_one_planted_error_is_always_found(operation: str, dtype: str) -> None:
    """A single flipped bit of any element, also of a NaN."""
    random = np.random.default_rng(1)
    arrays = [random.integers(0, 100, (20, 30)).astype(dtype) for _ in range(OPERANDS[operation])]
    arrays[0][:2, :7] = special(dtype)[:7]
    specs = [Spec(array.shape, array.dtype) for array in arrays]
    right = computed(operation, *arrays)
    region: Bounds = ((0, 20), (0, 30))

    def details_of(elements: NDArray[Any]) -> tuple[str, ...]:
        return MAP.check(lambda n, _: arrays[n], elements, region, specs, MapOptions(operation), random).details

    assert details_of(right) == ()
    for _ in range(500 if dtype in ("int32", "float32", "float64") else 60):
        wrong = right.copy()
        place = int(random.integers(right.size))
        wrong.view(np.uint8).reshape(right.size, -1)[place, random.integers(right.itemsize)] ^= 1 << random.integers(8)
        (line,) = details_of(wrong)
        where = divmod(place, 30)
        expected, got = (f"{one}" for one in (right[where], wrong[where]))
        if expected == got == "nan":
            expected, got = (f"nan ({int(bits[where]):#x})" for bits in map(words, (right, wrong)))
        assert line == f"element {where}: expected {expected}, got {got}"


def test_errors_are_located_in_the_whole_array() -> None:
    a, b = np.arange(600.0).reshape(20, 30), np.arange(30.0)
    specs = [Spec(a.shape, a.dtype), Spec(b.shape, b.dtype)]
    region: Bounds = ((5, 7), (3, 30))

    def read(number: int, bounds: Bounds) -> NDArray[Any]:
        return (a, b)[number][tuple(slice(*ends) for ends in bounds)]

    elements = (a + b)[5:7, 3:]
    options = MapOptions("add")
    assert MAP.check(read, elements, region, specs, options, np.random.default_rng()).details == ()
    elements[1, 2] += 1
    checked = MAP.check(read, elements, region, specs, options, np.random.default_rng())
    assert checked.details == ("element (6, 5): expected 190.0, got 191.0",)
    assert (checked.elements, checked.escape) == (54, 0.0)


def test_promotion_that_the_page_shows() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"(\w+) and (\w+) give (\w+)", text)
    assert len(shown) == 3
    for first, second, result in shown:
        assert np.promote_types(first, second).name == result
    (a, b, c) = re.findall(r"\(([\d, ]+)\) and \(([\d, ]+)\) give \(([\d, ]+)\)", text)[0]
    shapes = [tuple(int(word) for word in shape.split(",") if word) for shape in (a, b, c)]
    assert np.broadcast_shapes(*shapes[:2]) == shapes[2]


def checked(*arrays: NDArray[Any], operation: str = "add") -> tuple[str, ...]:
    """What the check says about right elements."""
    specs, options = [Spec(array.shape, array.dtype) for array in arrays], MapOptions(operation)
    right = computed(operation, *arrays)
    region = all_of(Spec(right.shape, right.dtype))
    random = np.random.default_rng()
    return MAP.check(lambda number, _: arrays[number], right, region, specs, options, random).details


def test_neither_integer_arithmetic_nor_numpy_decides_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they disagree about an element that is right by one of them, the run fails."""
    if map_check.right_results([np.ones(1)] * 2, "add") is None:
        pytest.skip("no C++ compiler")
    a = np.arange(600.0).reshape(20, 30)
    assert checked(a, a) == ()

    def off(arrays: Any, operation: str) -> Any:
        results = map_check.numpy_results(arrays, operation)
        results[37::300] += 1
        return results

    monkeypatch.setattr(map_job, "numpy_results", off)
    text = "element {}: the check expects {}, NumPy {}"
    assert checked(a, a) == tuple(text.format(divmod(at, 30), 2.0 * at, 2.0 * at + 1) for at in (37, 337))


def test_a_sample_of_a_large_piece_is_checked_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    numpy = map_check.numpy_results
    monkeypatch.setattr(map_job, "numpy_results", lambda a, *more: (sizes.append(len(a[0])), numpy(a, *more))[1])
    if map_check.right_results([np.ones(1)] * 2, "add") is None:
        pytest.skip("no C++ compiler")
    assert checked(np.ones((300, 300)), np.ones(300)) == ()
    assert sizes == [map_job.SAMPLE]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_without_a_compiler_numpy_checks(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cxx, "library", lambda source: None)
    for dtype in ("int16", "float32"):
        assert checked(*[special(dtype)] * OPERANDS[operation], operation=operation) == ()
    test_one_planted_error_is_always_found(operation, "float16")
