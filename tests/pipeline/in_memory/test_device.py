"""Arrays on a GPU: computed where they lie, checked by samples; through the emulator where there is no GPU."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pipeline
from kernels.common import memory
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.in_memory import aggregate, device, samples
from pipeline.in_memory.kinds import view_of
from tests.cases.sizes import ON_GPU
from workflows import WORKFLOWS
from workflows.histogram import HISTOGRAM

pytestmark = pytest.mark.gpu
RANDOM = np.random.default_rng(3)
SIZE = 2**20 + 7 if ON_GPU else 5003
INTEGERS = RANDOM.integers(-50, 1100, SIZE).astype("i4")
FLOATS = (RANDOM.standard_normal(SIZE) * 2.0 ** RANDOM.integers(-60, 60, SIZE)).astype("f4")
SQUARE = RANDOM.integers(-99, 99, (60, 48)).astype("i2")
LAYOUTS: dict[str, Any] = {
    "C": lambda a: a,
    "Fortran": lambda a: a.T,
    "rows": lambda a: a[1::3],
    "columns": lambda a: a[:, ::2],
    "reversed": lambda a: a[::-1, ::-1],
    "odd start": lambda a: a.reshape(-1)[3:],
    "scalar": lambda a: a[3, 4],
}


class Cai:
    """What exposes only __cuda_array_interface__, like Numba's arrays."""

    def __init__(self, array: Any) -> None:
        self.owner, self.__cuda_array_interface__ = array, array.__cuda_array_interface__


class Dlpack:
    """What exposes only __dlpack__, like JAX's arrays."""

    def __init__(self, array: Any) -> None:
        self.owner = array

    def __dlpack__(self, **how: Any) -> Any:
        return self.owner.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.owner.__dlpack_device__()


@pytest.mark.parametrize("verify", ["auto", "full", "sample", "off"])
@pytest.mark.parametrize("part_bytes", [None, 4 * 1500])
def test_aggregations(cp: Any, verify: str, part_bytes: int | None) -> None:
    array, floats = cp.asarray(INTEGERS), cp.asarray(FLOATS)
    counted = pipeline.run("histogram", array, bins=64, range=(0, 1024), verify=verify, chunk_bytes=part_bytes)
    np.testing.assert_array_equal(counted.counts, np.histogram(INTEGERS, 64, (0, 1024))[0])
    assert isinstance(counted.counts, np.ndarray) and counted.samples == SIZE
    reduced = pipeline.run("reduce", floats, op="sum,argmin,max", verify=verify, chunk_bytes=part_bytes)
    exact = math.fsum(FLOATS.tolist())
    assert reduced.values == {"sum": exact, "argmin": FLOATS.argmin(), "max": FLOATS.max()}
    parts = -(-SIZE // 1500) if part_bytes else 1
    said = counted.verification
    assert (said.mode, said.samples, said.chunks) == (verify, SIZE, parts)
    if part_bytes is None:
        share = {"auto": max(1024, SIZE // 2048), "sample": max(1024, SIZE // 256), "full": SIZE, "off": 0}[verify]
        assert share <= said.checked <= share + 64
    shown = {"full": "100", "off": "0"}.get(verify, f"{100 * said.checked / SIZE:.3g}")
    assert str(said).startswith(f"{shown} % of {SIZE:,} samples checked")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("verify", ["auto", "full"])
def test_layouts(cp: Any, layout: str, verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples count in C order; what has gaps is copied in pieces."""
    monkeypatch.setattr(samples, "COPIED_BYTES", 1000)
    on_device, array = LAYOUTS[layout](cp.asarray(SQUARE)), LAYOUTS[layout](SQUARE)
    reduced = pipeline.run("reduce", on_device, op="sum,argmax,argmin", verify=verify)
    assert reduced.values == {"sum": array.sum(), "argmax": array.argmax(), "argmin": array.argmin()}
    counts = pipeline.run("histogram", on_device, bins=9, range=(-100, 90), verify=verify).counts
    np.testing.assert_array_equal(counts, np.histogram(array, 9, (-100, 90))[0])
    if array.ndim < 2:
        return
    np.testing.assert_array_equal(pipeline.run("transpose", on_device, verify=verify).array.get(), array.T)
    doubled = pipeline.run("map", on_device, on_device, operation="add", verify=verify).array
    np.testing.assert_array_equal(doubled.get(), array + array)


def test_range_of_the_data_and_several_jobs(cp: Any) -> None:
    array = cp.asarray(INTEGERS)
    counted, reduced = pipeline.run([("histogram", {"bins": 30, "range": "auto"}), ("reduce", {"op": "mean"})], array)
    counts, edges = np.histogram(INTEGERS, 30)
    assert counted.counts.tolist() == counts.tolist() and counted.edges.tolist() == edges.tolist()
    assert reduced.values["mean"] == INTEGERS.sum() / SIZE
    together = pipeline.run("reduce", array, array[:100], op="count,argmax").values
    assert together == {"count": SIZE + 100, "argmax": INTEGERS.argmax()}


@pytest.mark.parametrize("wrapped", [Cai, Dlpack])
def test_foreign_arrays_are_not_copied(cp: Any, wrapped: Any) -> None:
    array = cp.asarray(INTEGERS)
    assert view_of(wrapped(array)).data.ptr == array.data.ptr
    assert view_of(wrapped(array[::2])).strides == (8,)
    assert pipeline.run("reduce", wrapped(array), op="sum").values["sum"] == INTEGERS.sum()


def test_jobs_that_write_arrays(cp: Any) -> None:
    """They return CuPy arrays with the bits that NumPy arrays give."""
    small = FLOATS[:3600].reshape(60, 60)
    array = cp.asarray(small)
    for job, operands, options in (
        ("map", (small, small[:1]), {"operation": "multiply"}), ("transpose", (small,), {}),
        ("stencil", (small,), {"radius": 4, "axis": 0, "boundary": "wrap"}), ("matmul", (small, small), {}),
    ):  # fmt: skip
        for verify in ("auto", "full", "off"):
            given = [cp.asarray(operand) for operand in operands]
            result = pipeline.run(job, *given, verify=verify, **options)
            assert type(result.array) is type(array)
            expected = pipeline.run(job, *operands, **options).array
            assert isinstance(expected, np.ndarray) and result.array.get().tobytes() == expected.tobytes()
            for before, after in zip(operands, given, strict=True):
                assert after.get().tobytes() == before.tobytes()
            checked = result.verification.checked
            assert 0 < checked < expected.size if verify == "auto" else checked == expected.size * (verify == "full")


def test_output_is_an_array_of_its_own(cp: Any) -> None:
    array = cp.asarray(INTEGERS)
    output = pipeline.run("transpose", array).array
    assert output.data.ptr != array.data.ptr
    assert pipeline.run("map", array[:0], array[:0], operation="add").array.shape == (0,)


def test_regions_of_large_outputs(cp: Any) -> None:
    array = cp.asarray(SQUARE)
    result = pipeline.run("stencil", array, radius=2, chunk_bytes=600, verify="full")
    assert result.verification.chunks > 5
    np.testing.assert_array_equal(result.array.get(), pipeline.run("stencil", SQUARE, radius=2).array)


@pytest.mark.parametrize("verify", ["auto", "full", "sample"])
def test_wrong_numbers_are_found(cp: Any, monkeypatch: pytest.MonkeyPatch, verify: str) -> None:
    """A kernel that moves one sample to the next bin satisfies the invariant; only the recomputed run shows it."""

    def moved(block: Any, options: Any) -> Any:
        counts = HISTOGRAM.compute(block, options).get()
        full = int(counts.argmax())
        counts[full] -= 1
        counts[full - 1] += 1
        return cp.asarray(counts)

    monkeypatch.setitem(WORKFLOWS, "histogram", replace(HISTOGRAM, compute=moved))
    array = cp.asarray(INTEGERS)
    with pytest.raises(VerificationError, match=r"^histogram: a number is wrong in samples .* \(GPU 0\): .*returned$"):
        pipeline.run("histogram", array, bins=7, range=(0, 1024), verify=verify)
    assert pipeline.run("histogram", array, bins=7, range=(0, 1024), verify="off").samples == SIZE


def test_lost_samples_break_the_invariant(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = replace(HISTOGRAM, compute=lambda block, options: HISTOGRAM.compute(block, options) // 2)
    monkeypatch.setitem(WORKFLOWS, "histogram", broken)
    with pytest.raises(VerificationError, match="every sample is counted once"):
        pipeline.run("histogram", cp.asarray(INTEGERS), bins=8, range=(0, 1024), verify="off")


def test_check_that_disagrees_with_its_reference(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    aggregate._agreeing.clear()
    wrong = replace(HISTOGRAM, reference=lambda block, options: HISTOGRAM.reference(block, options) + 1)
    monkeypatch.setitem(WORKFLOWS, "histogram", wrong)
    if HISTOGRAM.check(WORKFLOWS["histogram"].options(), np.dtype("i4")) is None:
        pytest.skip("no C++ compiler")
    with pytest.raises(VerificationError, match="the check and the reference disagree on"):
        pipeline.run("histogram", cp.asarray(INTEGERS), bins=11, range=(0, 1024))


def test_what_cannot_be(cp: Any) -> None:
    array = cp.asarray(INTEGERS)
    for job, operands, options, message in (
        ("reduce", (array,), {"device": "cpu"}, "--device cpu: expected an array there, got a CuPy array"),
        ("reduce", (array,), {"output": "x.npy"}, "output: expected none with an array in memory"),
        ("reduce", (array,), {"scheduler": "tcp://x:1"}, "scheduler: expected none with an array in memory"),
        ("reduce", (array,), {"device_memory_limit": 5}, "device_memory_limit: expected none with an array in memory"),
        ("reduce", (array,), {"gpus": 1}, "gpus: expected none with an array in memory, got 1; the array is computed"),
        ("reduce", (array,), {"chunk_bytes": 3}, "chunk_bytes: expected at least one sample of 4 bytes, got 3"),
        ("reduce", (array,), {"verify": "some"}, "--verify: expected one of auto, full, sample, off, got 'some'"),
        ("reduce", (array, INTEGERS), {}, "expected arrays of one kind, got CuPy and NumPy; convert them"),
        ("reduce", (array, "file.bin"), {}, "expected files or arrays, got both"),
        ("reduce", (array, array.astype(np.int64)), {}, "expected int32 as in the first, got int64"),
        ("reduce", (array.astype(np.complex64),), {}, r"got complex ones \(complex64\); pass array\.real"),
        ("map", (array,), {"operation": "add"}, "^map: expected 2 arrays, got 1$"),
        ("matmul", (array[:6].reshape(2, 3), array[:8].reshape(2, 4)), {}, "^matmul: .*"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message) as caught:
            pipeline.run(job, *operands, **options)
        assert "\n" not in str(caught.value)


def test_empty_arrays(cp: Any) -> None:
    empty = cp.asarray(np.zeros((3, 0), "f4"))
    assert pipeline.run("reduce", empty, op="sum").values == {"sum": 0.0}
    assert pipeline.run("histogram", empty, bins=7).counts.tolist() == [0] * 7


def test_errors_of_cuda_are_one_line(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class OutOfMemoryError(MemoryError):
        pass

    def fail(block: Any, options: Any) -> Any:
        raise OutOfMemoryError("0 bytes left")

    monkeypatch.setitem(WORKFLOWS, "histogram", replace(HISTOGRAM, compute=fail))
    with pytest.raises(PipelineError, match=r"^an array in memory on GPU 0: expected free memory on the GPU"):
        pipeline.run("histogram", cp.asarray(INTEGERS))


def test_large_parts_are_checked_while_the_gpu_computes(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "OVERLAPPED_BYTES", 0)
    assert pipeline.run("reduce", cp.asarray(INTEGERS), op="max").values == {"max": INTEGERS.max()}


@pytest.mark.parametrize(("pool_bytes", "copies"), [(2**20, 2), (0, 3)])
def test_results_of_a_pool_are_copied_together(
    cp: Any, monkeypatch: pytest.MonkeyPatch, pool_bytes: int, copies: int
) -> None:
    """The run that is checked, and the counts of all samples and of that run, which lie one after another."""
    monkeypatch.setattr(memory, "POOL_BYTES", pool_bytes)
    memory.release_pool()
    asked: list[int] = []
    copy = cp.cuda.runtime.memcpyAsync
    monkeypatch.setattr(cp.cuda.runtime, "memcpyAsync", lambda *how: (asked.append(how[2]), copy(*how)))
    result = pipeline.run("histogram", cp.asarray(INTEGERS), bins=64, range=(0, 1024))
    np.testing.assert_array_equal(result.counts, np.histogram(INTEGERS, 64, (0, 1024))[0])
    assert len(asked) == copies
    memory.release_pool()


@pytest.mark.hardware
def test_the_callers_stream(cp: Any) -> None:
    """The array's contents are still being computed on another stream, which does not wait for the default one."""
    sources = [cp.full(2**26, value, cp.int32) for value in (1, 2, 3)]
    cp.cuda.Device().synchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        array = cp.zeros(2**26, cp.int32)
        for _ in range(20):
            for source in sources:
                array[...] = source
        result = pipeline.run("reduce", array, op="sum,min")
        assert result.values == {"sum": 3 * 2**26, "min": 3}
        memory.release_pool()


@pytest.mark.hardware
@pytest.mark.multigpu
def test_an_array_on_another_gpu(cp: Any) -> None:
    with cp.cuda.Device(1):
        array = cp.asarray(INTEGERS)
    result = pipeline.run("histogram", array, bins=64, range=(0, 1024))
    np.testing.assert_array_equal(result.counts, np.histogram(INTEGERS, 64, (0, 1024))[0])
    assert pipeline.run("transpose", array).array.device.id == 1 and cp.cuda.Device().id == 0
    assert pipeline.run("reduce", Dlpack(array), op="sum").values["sum"] == INTEGERS.sum()
    with pytest.raises(UsageError, match="expected arrays on one GPU, got GPU 0 and GPU 1"):
        pipeline.run("reduce", array, cp.asarray(INTEGERS))
