"""Arrays in memory from Python: NumPy's result for any layout and byte order, or one clear line."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.memory import ArraySource, Kept
from pipeline.storage.protocol import Opening
from pipeline.storage.sources import DTYPES
from workflows import WORKFLOWS
from workflows.histogram import HISTOGRAM

BASE = np.random.default_rng(0).integers(0, 100, (40, 50, 6))
LAYOUTS: dict[str, Any] = {
    "C": lambda a: a,
    "Fortran": np.asfortranarray,
    "big endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "reversed": lambda a: a[::-1, :, ::-1],
    "strided": lambda a: a[1::3, ::2],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
    "scalar": lambda a: np.array(a[3, 4, 5]),
    "read only": lambda a: np.frombuffer(a.tobytes(), a.dtype),
}


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_are_numpys(layout: str) -> None:
    array = LAYOUTS[layout](BASE.astype(np.int32))
    counted, reduced = pipeline.run(
        [("histogram", {"bins": 7, "range": (0, 100)}), ("reduce", {"op": "sum,min,argmax"})], array, chunk_bytes=10_000
    )
    np.testing.assert_array_equal(counted.counts, np.histogram(array, 7, (0, 100))[0])
    assert reduced.values == {"sum": array.sum(), "min": array.min(), "argmax": array.argmax()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_are_in_c_order(layout: str, dtype: str) -> None:
    array = LAYOUTS[layout](BASE.astype(dtype))
    source = ArraySource.of(array, Opening())
    (piece,) = source.pieces()
    flat = array.reshape(-1)
    for start, samples in ((0, array.size), (array.size // 3, array.size // 2), (array.size - 1, 1)):
        buffer = np.zeros(samples, source.dtype)
        piece.filler.fill(start, buffer)
        np.testing.assert_array_equal(buffer, flat[start : start + samples])


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("layout", ["C", "Fortran", "big endian", "reversed", "strided"])
def test_jobs_that_write_arrays(tmp_path: Path, layout: str) -> None:
    array: NDArray[Any] = LAYOUTS[layout](BASE.astype(np.int16))
    result = pipeline.run("transpose", array, output=tmp_path / "t.npy", verify="full").array
    np.testing.assert_array_equal(result, array.T)
    result = pipeline.run("map", array, array, operation="add", output=tmp_path / "m.npy", verify="full").array
    np.testing.assert_array_equal(result, array + array)


@pytest.mark.usefixtures("shared")
def test_empty_array(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = np.zeros((3, 0), np.float32)
    assert pipeline.run("reduce", empty, op="sum").values == {"sum": 0.0}
    assert pipeline.run("histogram", empty, bins=7).counts.tolist() == np.histogram(empty, 7)[0].tolist()
    monkeypatch.setitem(WORKFLOWS, "histogram", replace(HISTOGRAM, empty=None))
    with pytest.raises(UsageError, match=r"in memory: expected samples, got an empty array of shape \(3, 0\)"):
        pipeline.run("histogram", empty)


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.array([1, None], object), {}, "expected samples of int8, .* got Python objects"),
        (np.zeros(3, "c8"), {}, "expected samples of int8, .* got complex64; convert"),
        (np.zeros(3, "M8[s]"), {}, r"got datetime64\[s\]; convert"),
        (np.ma.masked_array([1, 2], [True, False]), {}, "expected an array without a mask, got a masked one"),
        (np.zeros(3, "i4"), {"dtype": "int16"}, "expected int16 as --dtype says, got int32; leave --dtype out"),
        (np.zeros(3, "i4"), {"byteorder": "big"}, "expected big endian as --byteorder says, got int32; leave"),
        (np.zeros(3, "i4"), {"offset": 0}, "--offset is for raw files"),
        (np.zeros(3, "i4"), {"scheduler": "tcp://nowhere:1"}, "--scheduler: expected sources that its workers can"),
        ([1, 2], {}, "expected paths or NumPy arrays, got list; convert numbers with numpy.asarray"),
    ],
)  # fmt: skip
def test_what_cannot_be(array: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pipeline.run("reduce", array, **options)


def test_array_job_on_another_cluster(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected sources that its workers can read, got an array in memory"):
        pipeline.run("transpose", BASE, output=tmp_path / "t.npy", scheduler_file=tmp_path / "none.json")
    assert not list(tmp_path.iterdir())


def test_reference_that_outlives_its_array() -> None:
    kept = Kept(np.arange(5))
    reference = pickle.loads(pickle.dumps(kept))
    buffer = np.zeros(2, np.int64)
    reference.fill(3, buffer)
    assert buffer.tolist() == [3, 4]
    del kept
    with pytest.raises(PipelineError, match="expected a task in the process that holds them, got one elsewhere"):
        reference.fill(3, buffer)
