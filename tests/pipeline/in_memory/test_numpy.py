"""Arrays in memory from Python: NumPy's result for any layout and byte order, or one clear line."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
from pipeline import arguments
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.in_memory.kinds import view_of
from pipeline.storage.array_source import ArraySource, Kept
from pipeline.storage.protocol import Opening
from pipeline.storage.sources import DTYPES
from workflows import WORKFLOWS
from workflows.histogram import HISTOGRAM
from workflows.map import MAP

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
    "subclass": lambda a: a.view(np.recarray),
    "read only": lambda a: np.frombuffer(a.tobytes(), a.dtype),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_are_numpys(layout: str) -> None:
    array = LAYOUTS[layout](BASE.astype(np.int32))
    counted, reduced = pipeline.run(
        [("histogram", {"bins": 7, "range": (0, 100)}), ("reduce", {"op": "sum,min,argmax"})], array, chunk_bytes=10_000
    )
    np.testing.assert_array_equal(counted.counts, np.histogram(array, 7, (0, 100))[0])
    assert reduced.values == {"sum": array.sum(), "min": array.min(), "argmax": array.argmax()}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bool_counts_as_uint8(layout: str) -> None:
    array = LAYOUTS[layout](BASE > 60)
    ones = int(array.sum())
    reduced, counted = pipeline.run(
        [("reduce", {"op": "sum,argmax"}), ("histogram", {"bins": 2, "range": (0, 2)})], array
    )
    assert reduced.values == {"sum": ones, "argmax": array.argmax()}
    assert counted.counts.tolist() == [array.size - ones, ones]
    with pytest.raises(UsageError, match=r"^an array in memory: expected uint8 as in the first, got int32"):
        pipeline.run("reduce", array, array.astype("i4"))


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
        (np.zeros(3, "c8"), {}, r"got complex ones \(complex64\); pass array\.real"),
        (np.zeros(3, "M8[s]"), {}, r"got datetime64\[s\]; convert"),
        (np.ma.masked_array([1, 2], [True, False]), {}, "expected an array without a mask, got a masked one"),
        (np.zeros(3, "i4"), {"dtype": "int16"}, "expected int16 as --dtype says, got int32; leave --dtype out"),
        (np.zeros(3, "i4"), {"byteorder": "big"}, "expected big endian as --byteorder says, got int32; leave"),
        (np.zeros(3, "i4"), {"offset": 0}, "--offset is for raw files"),
        (np.zeros(3, "i4"), {"scheduler": "tcp://nowhere:1"}, "scheduler: expected none with an array in memory, got"),
        ([1, 2], {}, "expected paths or arrays, got list; convert numbers with numpy.asarray"),
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


class Dlpack:
    """What exposes only __dlpack__, like a tensor on the CPU."""

    def __init__(self, array: NDArray[Any], device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def test_no_cluster_is_started() -> None:
    program = """
        import sys, numpy, pipeline
        pipeline.run("histogram", numpy.arange(100), bins=4)
        pipeline.run("map", numpy.arange(5), numpy.arange(5), operation="add")
        print([name for name in ("dask", "distributed", "cupy") if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", dedent(program)], text=True, capture_output=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("verify", ["auto", "full", "sample", "off"])
def test_parts_on_all_threads(verify: str) -> None:
    array = np.random.default_rng(1).standard_normal(300_000)
    result = pipeline.run("reduce", array, op="sum,argmin,std", verify=verify, chunk_bytes=2**19)
    exact = math.fsum(array.tolist())
    assert result.values["sum"] == exact and result.values["argmin"] == array.argmin()
    said = result.verification
    assert (said.samples, said.chunks, said.mode) == (len(array), 5, verify)
    bounds = {"auto": (2**15, 300_000), "full": (300_000, 300_000), "sample": (300_000 // 256, 1600), "off": (0, 0)}
    least, most = bounds[verify]
    assert least <= said.checked <= most


@pytest.mark.parametrize("verify", ["auto", "full", "sample"])
def test_wrong_numbers_are_found(verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(block: Any, options: Any) -> Any:
        counts = HISTOGRAM.compute(block, options)
        return np.concatenate((counts[:1], np.roll(counts[1:-2], 1), counts[-2:]))

    monkeypatch.setitem(WORKFLOWS, "histogram", replace(HISTOGRAM, compute=moved))
    array = np.random.default_rng(1).exponential(300, 50_000).astype("f4")
    with pytest.raises(VerificationError, match=r"histogram: a number is wrong in samples .* memory \(cpu\): bin"):
        pipeline.run("histogram", array, bins=7, verify=verify, chunk_bytes=60_000)


@pytest.mark.parametrize("verify", ["auto", "full"])
@pytest.mark.parametrize("wrong", range(4))
def test_one_wrong_part_is_found(verify: str, wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is checked whole because it is short: the check is compared with what becomes the result."""

    def compute(block: Any, options: Any) -> Any:
        counts = HISTOGRAM.compute(block, options)
        return counts if block[0] != 1000 * wrong or seen.append(wrong) or len(seen) > 1 else np.roll(counts, 1)

    seen: list[int] = []
    monkeypatch.setitem(WORKFLOWS, "histogram", replace(HISTOGRAM, compute=compute))
    with pytest.raises(VerificationError, match="histogram: a number is wrong in samples"):
        pipeline.run("histogram", np.arange(4000), bins=7, range=(0, 4000), verify=verify, chunk_bytes=8000)


def test_wrong_elements_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(MAP, compute=lambda *given: MAP.compute(*given) + 1)
    monkeypatch.setitem(WORKFLOWS, "map", wrong)
    with pytest.raises(VerificationError, match=r"map: a number is wrong in region .*; nothing was returned"):
        pipeline.run("map", BASE, BASE, operation="add")
    assert pipeline.run("map", BASE, BASE, operation="add", verify="off").array[0, 0, 0] == 2 * BASE[0, 0, 0] + 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_array_jobs_return_arrays(layout: str) -> None:
    array: NDArray[Any] = LAYOUTS[layout](BASE.astype(np.int16))
    turned = pipeline.run("transpose", array)
    np.testing.assert_array_equal(turned.array, array.T)
    assert turned.array.dtype == array.dtype and not np.shares_memory(turned.array, array)
    assert str(turned.verification).startswith(f"100 % of {array.size:,} element{'s' * (array.size != 1)} checked")
    added = pipeline.run("map", array, array, operation="add", chunk_bytes=999).array
    np.testing.assert_array_equal(added, array + array)
    if array.ndim:
        summed = pipeline.run("stencil", array, radius=1, boundary="valid", chunk_bytes=999).array
        wide = array.astype(np.int64)
        np.testing.assert_array_equal(summed, wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:])


def test_products_of_arrays() -> None:
    a, b = BASE[:, :, 0], BASE[:, :, 1].T
    result = pipeline.run("matmul", a, b)
    np.testing.assert_array_equal(result.array, a @ b)
    assert "exact, of integers" in result.notes["arithmetic"] and result.verification.checked == result.array.size
    with pytest.raises(UsageError, match="matmul: expected 2 arrays, got 1"):
        pipeline.run("matmul", a)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_inputs_stay_as_they_are(dtype: str) -> None:
    """They are not copied, so that nothing may use them as workspace."""
    a = (np.random.default_rng(2).standard_normal((70, 70)) * 100).astype(dtype)
    if a.dtype.kind == "f":
        a[3, 5:9] = np.nan, np.inf, -np.inf, 1e-40
    before = a.tobytes()
    for job, operands, options in (
        ("histogram", [a], {"range": "auto"}), ("reduce", [a], {}), ("map", [a, a], {"operation": "maximum"}),
        ("stencil", [a], {"radius": 2}), ("stencil", [a], {"radius": 1, "weights": np.array([1.0, 2, 3])}),
        ("transpose", [a], {}), ("matmul", [a, a], {}),
    ):  # fmt: skip
        pipeline.run(job, *operands, verify="full", **options)
        assert a.tobytes() == before, job


def test_any_bytes_are_transposed() -> None:
    records = np.array([[(1, 2.5), (3, 4.5)]], [("a", ">i4"), ("b", "f8")])
    assert (pipeline.run("transpose", records).array == records.T).all()
    complex_ = np.arange(6).reshape(2, 3) * 1j
    assert (pipeline.run("transpose", complex_).array == complex_.T).all()


def test_tensors_on_the_cpu_are_not_copied() -> None:
    assert np.shares_memory(view_of(Dlpack(BASE)), BASE)
    assert pipeline.run("reduce", Dlpack(BASE), op="sum").values == {"sum": BASE.sum()}
    with pytest.raises(UsageError, match="expected one on the CPU or a CUDA device, got DLPack device type 10"):
        pipeline.run("reduce", Dlpack(BASE, (10, 0)))
    with pytest.raises(UsageError, match="expected a Dlpack that shares its memory, got BufferError"):
        pipeline.run("reduce", Dlpack(BASE.astype(">i4")))


def test_arguments_that_do_not_fit() -> None:
    for options, message in (
        ({"device": "gpu"}, "--device gpu: expected an array there, got a NumPy array, .* pass cupy.asarray"),
        ({"memory_limit": 5}, "memory_limit: expected none with an array in memory, got 5"),
        ({"chunk_bytes": 0}, "chunk_bytes: expected 1 byte or more, got 0"),
        ({"device": "tpu"}, "--device: expected one of auto, gpu, cpu, got 'tpu'"),
    ):
        with pytest.raises(UsageError, match=message):
            pipeline.run("reduce", BASE, **options)


def test_equal_options_are_the_same_object() -> None:
    make = arguments._job
    first = make("histogram", {"bins": 5, "range": (0, 10)})
    assert make("histogram", {"bins": 5, "range": (0, 10)})[1] is first[1]
    for others in ({"bins": 5, "range": (-0.0, 10)}, {"bins": 5, "range": (0, 10.0)}, {"bins": 6, "range": (0, 10)}):
        assert make("histogram", others)[1] is not first[1]
    with pytest.raises(UsageError, match=r"--bins: expected 1 to .* got True"):
        make("histogram", {"bins": True, "range": (0, 10)})
        make("histogram", {"bins": 1, "range": (0, 10)})
    edges = np.array([0.0, 10, 30])
    of_edges = make("histogram", {"edges": edges})[1]
    assert make("histogram", {"edges": edges.copy()})[1] is of_edges
    edges[1] = 20
    counted = pipeline.run("histogram", BASE, edges=edges)
    assert counted.edges.tolist() == [0, 20, 30] and of_edges.all_edges.tolist() == [0, 10, 30]


def test_options_of_a_replaced_job_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = arguments._job("histogram", {"bins": 5})
    monkeypatch.setitem(WORKFLOWS, "histogram", other := replace(HISTOGRAM))
    assert arguments._job("histogram", {"bins": 5})[0] is other and kept[0] is HISTOGRAM
