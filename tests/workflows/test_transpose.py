"""Transposes from file to file, against NumPy: every dtype, number of axes, order and cut; planted errors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.transpose.cpu import balanced, boxes, transpose_cpu
from kernels.transpose.gpu import reverse_axes
from pipeline.cluster.placement import Placement
from pipeline.engine.array import run_array
from pipeline.engine.outcome import Outcome
from pipeline.errors import UsageError
from pipeline.report.panel import to_json
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows.array_job import Checked
from workflows.regions import Bounds, Spec, sizes
from workflows.transpose import ALIGNED, TRANSPOSE, TransposeOptions

ON_CPU = Placement(device="cpu")
OPTIONS = TransposeOptions()
NUMBERS = ("bool", "int8", "uint16", "float16", "int32", "float32", "int64", "float64", "complex64", "complex128")
OTHERS = ("longdouble", "M8[s]", "U1", "U4", "S1", "S7", "S16", "i1, f8", "S40")
DTYPES = (*NUMBERS, *OTHERS, *(f"V{itemsize}" for itemsize in range(1, 17)))


def random_bits(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> NDArray[Any]:
    """Random bits, among them NaN and zeros of either sign; of booleans and text only valid ones."""
    dtype = np.dtype(dtype)
    random = np.random.default_rng(seed)
    if dtype.kind in "bU":
        return random.integers(2, size=shape).astype(dtype)
    return np.frombuffer(random.bytes(math.prod(shape) * dtype.itemsize), dtype).reshape(shape)


def bits(array: NDArray[Any]) -> tuple[tuple[int, ...], bytes]:
    return array.shape, np.ascontiguousarray(array).tobytes()


def transposed(folder: Path, array: NDArray[Any], *, suffix: str = "npy", **keywords: Any) -> Outcome:
    np.save(folder / "in.npy", array)
    source = open_source((str(folder / "in.npy"),), samples=False)
    return run_array(
        TRANSPOSE, OPTIONS, [source], str(folder / f"out.{suffix}"), Settings(placement=ON_CPU, **keywords)
    )


@pytest.mark.usefixtures("shared")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(st.integers(0, 7), max_size=4).map(tuple),
    dtype=st.sampled_from(DTYPES),
    fortran=st.booleans(),
    big=st.booleans(),
    chunk_bytes=st.integers(1, 2000),
    suffix=st.sampled_from(["npy", "raw"]),
)
def test_result_is_that_of_numpy(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, fortran: bool, big: bool, chunk_bytes: int, suffix: str
) -> None:
    array = random_bits(shape, dtype)
    stored = array.astype(array.dtype.newbyteorder(">" if big else "<"), order="F" if fortran else "C")
    outcome = transposed(tmp_path, stored, suffix=suffix, chunk_bytes=chunk_bytes, verify="full")
    got = outcome.result.array
    assert got.dtype == stored.dtype
    assert bits(np.asarray(got)) == bits(np.transpose(stored))
    assert outcome.verdict.checked == outcome.verdict.samples == array.size


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("suffix", ["npy", "raw"])
def test_byte_order_is_kept(tmp_path: Path, suffix: str) -> None:
    """Every byte of the file is one of the input's, also of an array in memory, and the result says so."""
    array = random_bits((5, 3), ">f4")
    outcomes = [transposed(tmp_path, array, suffix=suffix)]
    of_file = (tmp_path / f"out.{suffix}").read_bytes()
    source = open_source((array,), samples=False)
    outcomes.append(run_array(TRANSPOSE, OPTIONS, [source], str(tmp_path / f"out.{suffix}"), Settings(ON_CPU)))
    assert (tmp_path / f"out.{suffix}").read_bytes() == of_file
    if suffix == "npy":
        assert np.load(tmp_path / "out.npy").dtype.str == ">f4"
        of_file = of_file[-array.nbytes :]
    assert of_file == array.T.tobytes()
    for outcome in outcomes:
        assert (outcome.result.array.dtype.str, outcome.result.array.tobytes()) == (">f4", array.T.tobytes())
        assert outcome.result.to_json()["byteorder"] == to_json(outcome)["input"][0]["byteorder"] == "big"
        assert outcome.result.lines()[0][1].endswith("(float32 3×5, big endian)")


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["uint8", "V3", "float32", "complex128"])
def test_larger_than_a_task(tmp_path: Path, dtype: str, order: Any) -> None:
    """Regions of many rows and columns, the last ones ragged; everything is compared, even with `sample`."""
    array = random_bits((523, 1021), dtype).copy(order)
    outcome = transposed(tmp_path, array, chunk_bytes=200_000, verify="sample")
    assert bits(np.asarray(outcome.result.array)) == bits(array.T)
    verdict = outcome.verdict
    assert (verdict.checked, verdict.samples, verdict.escape) == (array.size, array.size, 0.0)
    assert verdict.chunks > 4


@pytest.mark.usefixtures("shared")
def test_one_file_only(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((2, 3)))
    source = open_source((str(tmp_path / "in.npy"),), samples=False)
    with pytest.raises(UsageError, match=r"^transpose: expected 1 array, got 2$"):
        run_array(TRANSPOSE, OPTIONS, [source, source], str(tmp_path / "out.npy"), Settings(placement=ON_CPU))


# --- regions ----------------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 300), max_size=4).map(tuple), st.integers(1, 3000))
def test_boxes_cover_once_and_are_no_larger_than_asked(shape: tuple[int, ...], elements: int) -> None:
    lengths = balanced(shape, elements)
    assert math.prod(lengths) <= elements
    if math.prod(shape) < 10**5:
        covered = np.zeros(shape, np.uint8)
        for box in boxes(shape, lengths):
            covered[box] += 1
        assert (covered == 1).all()


def cut(shape: tuple[int, ...], elements: int) -> list[Bounds]:
    spec = Spec(shape, np.dtype(np.float32))
    output = TRANSPOSE.outline([spec], OPTIONS)
    return list(TRANSPOSE.regions([spec], output, OPTIONS, elements))


@pytest.mark.parametrize(
    ("shape", "elements", "expected"),
    [
        ((10**5, 10**5), 2**22, (2048, 2048)),  # byte runs of 2048 elements on both sides
        ((10**5, 100), 2**22, (100, 33344)),  # the whole width, in parts of about the same length
        ((100, 10**5), 2**22, (33344, 100)),
        ((10**7,), 2**20, (10**6,)),
        ((3, 10**4, 10**4), 2**20, (1024, 320, 3)),  # byte runs of 1024 elements to read, of 3 x 320 to write
        ((1000, 10, 1000), 2**20, (1000, 1, 1000)),
        ((5, 7), 2**20, (7, 5)),
        ((), 2**20, ()),
    ],
)
def test_regions_are_long_in_both_orders(shape: tuple[int, ...], elements: int, expected: tuple[int, ...]) -> None:
    regions = cut(shape, elements)
    assert sizes(regions[0]) == expected
    assert math.prod(expected) <= elements
    assert sum(math.prod(sizes(region)) for region in regions) == math.prod(shape)


@pytest.mark.parametrize(("side", "whole"), [(2**14, True), (2**15, True), (2**15 + 2**12, False)])
def test_whole_rows_are_read_where_written_runs_are_long_enough(side: int, whole: bool) -> None:
    """2**28 elements of 4 bytes, written in byte runs of 64 KiB, of 32 KiB, and of less."""
    region = cut((2**17, side), 2**28)[0]
    assert (region[0] == (0, side)) == whole
    assert not whole or region[1] == (0, 2**28 // side)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 300), max_size=4).map(tuple), st.integers(1, 20_000))
def test_pieces_cover_a_region_once(shape: tuple[int, ...], elements: int) -> None:
    assert TRANSPOSE.pieces is not None
    covered = np.zeros(shape, np.uint8) if math.prod(shape) < 10**6 else None
    for piece in TRANSPOSE.pieces(Spec(shape, np.dtype(np.float64)), OPTIONS, elements):
        assert math.prod(sizes(piece)) <= elements
        if covered is None:
            break
        covered[tuple(slice(*ends) for ends in piece)] += 1
    assert covered is None or (covered == 1).all()


def test_pieces_are_long_in_both_arrays() -> None:
    """In a region for a GPU: whole rows of the input where byte runs of the output have 4 KiB, otherwise squares."""
    assert TRANSPOSE.pieces is not None
    for columns, elements, expected in ((2048, 2**20, (2048, 512)), (2048, 2**19, (704, 704)), (64, 2**20, (64, 8192))):
        region = Spec((columns, 8192), np.dtype(np.float64))
        assert sizes(next(iter(TRANSPOSE.pieces(region, OPTIONS, elements)))) == expected


def test_regions_are_aligned_for_the_kernel() -> None:
    starts = {start for region in cut((10_007, 5003), 2**20) for start, _ in region}
    assert {start % ALIGNED for start in starts} == {0}


# --- on the CPU and on a device ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(300, 257), (1, 70_000), (70_000, 1), (3, 200, 150), (200, 150, 3), (2,) * 17])
@pytest.mark.parametrize("dtype", ["uint8", "V3", "int16", "float32", "float64", "complex128", "S20"])
def test_cpu(shape: tuple[int, ...], dtype: str) -> None:
    array = random_bits(shape, dtype)
    got = transpose_cpu(array)
    assert got.flags.c_contiguous and got.dtype == array.dtype
    assert bits(got) == bits(array.T)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(), (5,), (33, 70), (1, 9), (4, 5, 6), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_device(cp: Any, shape: tuple[int, ...], dtype: str) -> None:
    array = random_bits(shape, dtype)
    region: Bounds = tuple((0, length) for length in shape[::-1])
    got = TRANSPOSE.compute([cp.asarray(array)], region, [Spec(shape, array.dtype)], OPTIONS)
    assert got.dtype == array.dtype and got.flags.c_contiguous
    assert bits(got.get()) == bits(array.T)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(), (5,), (33, 70), (4, 5, 6)])
@pytest.mark.parametrize("itemsize", range(1, 18))
def test_device_moves_bytes(cp: Any, shape: tuple[int, ...], itemsize: int) -> None:
    """Dtypes that CuPy does not have are passed as bytes."""
    array = random_bits((*shape, itemsize), "uint8")
    got = reverse_axes(cp.asarray(array), as_bytes=True)
    assert got.dtype == np.uint8 and got.flags.c_contiguous
    axes = range(len(shape))
    assert bits(got.get()) == bits(array.transpose(*axes[::-1], len(axes)))


# --- the check --------------------------------------------------------------------------------------------------------


def checked(array: NDArray[Any], transposed: NDArray[Any], seed: int = 0) -> Checked:
    region: Bounds = tuple((100, 100 + length) for length in transposed.shape)
    random = np.random.default_rng(seed)
    return TRANSPOSE.check(lambda *_: array, transposed, region, [Spec(array.shape, array.dtype)], OPTIONS, random)


@pytest.mark.parametrize("shape", [(50, 60), (7, 900), (900,), (9, 20, 40), (2, 2, 300), (1, 1), ()])
@pytest.mark.parametrize("dtype", ["uint8", "V5", "float32", "complex128"])
def test_check_accepts_a_right_result(shape: tuple[int, ...], dtype: str) -> None:
    array = random_bits(shape, dtype)
    result = checked(array, transpose_cpu(array))
    assert result == Checked((), array.size, 0.0)


@pytest.mark.parametrize(("dtype", "shape"), [("uint8", (64, 48)), ("float64", (40, 64)), ("V3", (12, 5, 8)),
                                              ("float32", (5, 300))])  # fmt: skip
def test_one_planted_error_is_always_found(dtype: str, shape: tuple[int, ...]) -> None:
    """A single wrong bit anywhere: as small as an error can be."""
    array = random_bits(shape, dtype)
    right = transpose_cpu(array)
    random = np.random.default_rng(1)
    for trial in range(1000):
        wrong = right.copy()
        data = wrong.reshape(-1).view(np.uint8)
        byte = int(random.integers(data.size))
        data[byte] ^= 1 << random.integers(8)
        details = checked(array, wrong, trial).details
        where = np.unravel_index(byte // array.itemsize, wrong.shape)
        assert len(details) == 1
        assert details[0].startswith(f"element {tuple(100 + int(index) for index in where)}: expected ")


def test_swapped_elements_and_shifted_rows_are_found() -> None:
    array = random_bits((70, 80), "int32")
    random = np.random.default_rng(2)
    for trial in range(300):
        wrong = transpose_cpu(array)
        (a, b), (c, d) = random.choice(80, 2, replace=False), random.choice(70, 2, replace=False)
        wrong[a, c], wrong[b, d] = wrong[b, d], wrong[a, c]
        assert len(checked(array, wrong, trial).details) == 2
    for axis in (0, 1):
        details = checked(array, np.ascontiguousarray(np.roll(array.T, 1, axis))).details
        assert len(details) == 4 and details[3] == f"{70 * 80 - 3} more"
