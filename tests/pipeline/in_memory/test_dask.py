"""dask arrays: block by block on the caller's client or dask's scheduler, with the bits of one array."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import pipeline
from pipeline.errors import PipelineError, UsageError, VerificationError
from tests.cases.sizes import ON_GPU
from workflows import WORKFLOWS
from workflows.histogram import HISTOGRAM
from workflows.stencil import STENCIL

RANDOM = np.random.default_rng(5)
INTEGERS = RANDOM.integers(-100, 1100, (80, 60)).astype("i4")
FLOATS = RANDOM.standard_normal((60, 45))
CHUNKS: list[Any] = [(80, 60), (30, 60), (17, 25), (1, 60)]


@pytest.fixture(params=["threads", "client"], scope="module")
def scheduler(request: pytest.FixtureRequest) -> Iterator[Client | None]:
    """dask's threads, or a client that the caller has opened."""
    if request.param == "threads":
        yield None
        return
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def run_task_names(client: Client) -> set[str]:
    return set(client.run_on_scheduler(lambda dask_scheduler: [str(one[0]) for one in dask_scheduler.transition_log]))


@pytest.mark.parametrize("chunks", CHUNKS)
def test_aggregations(scheduler: Client | None, chunks: Any) -> None:
    array = da.from_array(INTEGERS, chunks=chunks)
    counted, reduced = pipeline.run(
        [("histogram", {"bins": 30, "range": "auto"}), ("reduce", {"op": "sum,argmin,argmax"})], array, verify="full"
    )
    counts, edges = np.histogram(INTEGERS, 30)
    assert counted.counts.tolist() == counts.tolist() and counted.edges.tolist() == edges.tolist()
    assert reduced.values == {"sum": INTEGERS.sum(), "argmin": INTEGERS.argmin(), "argmax": INTEGERS.argmax()}
    assert str(counted.verification).startswith("100 % of 4,800 samples checked: equal to the reference")
    floats = pipeline.run("reduce", da.from_array(FLOATS, chunks=20), op="sum").values
    assert floats == {"sum": math.fsum(FLOATS.reshape(-1).tolist())}
    if scheduler is not None:
        assert any("reduce" in name for name in run_task_names(scheduler))


@pytest.mark.parametrize("chunks", CHUNKS)
def test_bool_counts_as_uint8(scheduler: Client | None, chunks: Any) -> None:
    array = da.from_array(INTEGERS > 500, chunks=chunks)
    for blocks in (array, array[::3, 5:], array.T):
        reduced = pipeline.run("reduce", blocks, op="sum,argmax")
        kept = blocks.compute()
        assert reduced.values == {"sum": kept.sum(), "argmax": kept.argmax()}


def test_unknown_chunk_sizes() -> None:
    array = da.from_array(INTEGERS, chunks=(17, 25)).reshape(-1)
    some = array[array > 900]
    assert all(map(math.isnan, some.shape))
    expected = INTEGERS[INTEGERS > 900]
    values = pipeline.run("reduce", some, op="count,sum,argmax").values
    assert values == {"count": len(expected), "sum": expected.sum(), "argmax": expected.argmax()}
    assert pipeline.run("reduce", array[array > 5000], op="count").values == {"count": 0}
    with pytest.raises(UsageError, match="expected known chunk sizes, got a dask array of unknown shape"):
        pipeline.run("transpose", some)
    rows = da.from_array(INTEGERS, chunks=(17, 25))
    with pytest.raises(UsageError, match="expected blocks of whole rows, got a dask array of unknown shape"):
        pipeline.run("reduce", rows[rows[:, 0] > 0])
    counts = pipeline.run("histogram", rows[rows[:, 0] > 0], bins=5).counts  # which need no order
    assert counts.tolist() == np.histogram(INTEGERS[INTEGERS[:, 0] > 0], 5, (0, 1024))[0].tolist()


@pytest.mark.parametrize("verify", ["auto", "full", "sample", "off"])
@pytest.mark.parametrize(
    ("job", "options", "operands"),
    [
        ("map", {"operation": "subtract"}, (FLOATS, FLOATS[:1])), ("transpose", {}, (FLOATS,)),
        ("matmul", {}, (FLOATS, FLOATS.T)), ("matmul", {}, (FLOATS, FLOATS[0])),
        *(("stencil", {"radius": 23, "axis": 0, "boundary": name}, (FLOATS,)) for name in ("zero", "wrap", "valid")),
    ],
)  # fmt: skip
def test_jobs_that_write_arrays(verify: str, job: str, options: dict[str, Any], operands: Any) -> None:
    lazy = pipeline.run(job, *(da.from_array(one, chunks=20) for one in operands), verify=verify, **options)
    assert isinstance(lazy.array, da.Array) and lazy.array.npartitions > 1
    expected = pipeline.run(job, *operands, **options).array
    computed = lazy.array.compute()
    assert (computed.dtype, computed.tobytes()) == (lazy.array.dtype, expected.tobytes())
    assert ("--verify full" in lazy.verification) == (verify != "full")


def test_byte_orders_and_blocks_of_the_output() -> None:
    swapped = da.from_array(INTEGERS.astype(">i4"), chunks=(17, 60))
    turned = pipeline.run("transpose", swapped).array
    assert turned.dtype == np.dtype(">i4") and turned.chunks == swapped.chunks[::-1]
    np.testing.assert_array_equal(turned.compute(), INTEGERS.T)
    assert pipeline.run("reduce", swapped, op="sum").values == {"sum": INTEGERS.sum()}
    assert pipeline.run("transpose", da.zeros((0, 3), chunks=2)).array.compute().shape == (3, 0)
    assert pipeline.run("reduce", da.zeros((0, 3), chunks=2), op="sum").values == {"sum": 0.0}


def test_wrong_numbers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    array = da.from_array(INTEGERS, chunks=30)
    wrong = replace(HISTOGRAM, compute=lambda block, options: HISTOGRAM.compute(block, options)[::-1].copy())
    monkeypatch.setitem(WORKFLOWS, "histogram", wrong)
    with pytest.raises(VerificationError, match="histogram: a number is wrong in samples"):
        pipeline.run("histogram", array, bins=9)
    monkeypatch.setitem(WORKFLOWS, "stencil", replace(STENCIL, compute=lambda *given: STENCIL.compute(*given) + 1))
    lazy = pipeline.run("stencil", array, radius=1).array
    with pytest.raises(VerificationError, match="stencil: a number is wrong in region"):
        lazy.compute()


def test_blocks_that_are_not_what_dask_says() -> None:
    other = da.from_array(FLOATS, chunks=20).map_blocks(lambda block: block.astype("f4"), dtype="f8")
    with pytest.raises(UsageError, match="expected blocks of float64, as dask says, got float32"):
        pipeline.run("reduce", other)
    nothing = da.from_array(FLOATS, chunks=20).map_blocks(
        lambda block: block.tolist(), dtype="f8", meta=np.empty((0, 0))
    )
    with pytest.raises(UsageError, match="expected blocks that are NumPy or CuPy arrays, got list"):
        pipeline.run("histogram", nothing)
    with pytest.raises(UsageError, match="expected paths or arrays, got Delayed"):
        pipeline.run("reduce", dask.delayed(FLOATS))
    shorter = da.from_array(FLOATS, chunks=(20, 45)).map_blocks(lambda block: block[:3], dtype="f8")
    with pytest.raises(UsageError, match="expected 2700 samples, as dask says, got 405"):
        pipeline.run("reduce", shorter)
    with pytest.raises(UsageError, match=r"expected blocks of shape \(20, 45\), as dask says, got \(3, 45\)"):
        pipeline.run("reduce", shorter, where="i < 7")
    with pytest.raises(UsageError, match=r"expected blocks of shape \(20, 45\), as dask says, got \(3, 45\)"):
        pipeline.run("transpose", shorter).array.compute()


def test_blocks_are_looked_at_before_they_are_cut() -> None:
    """Cutting drops what is more than dask says, and joining converts."""
    with dask.config.set({"array.chunk-size": "1 KiB"}):
        longer = da.from_array(FLOATS, chunks=(20, 15)).map_blocks(
            lambda block: np.concatenate([block, block]), dtype="f8"
        )
        cut = r"expected blocks of shape \(20, 15\), as dask says, got \(40, 15\)"
        for options in ({"op": "sum,argmin"}, {"op": "sum", "where": "i >= 0"}, {"op": "sum", "segment": 45}):
            with pytest.raises(UsageError, match=cut):
                pipeline.run("reduce", longer, **options)
        with pytest.raises(UsageError, match=cut):
            pipeline.run("map", da.from_array(FLOATS, chunks=5), longer, operation="add").array.compute()
        integers = da.from_array(INTEGERS.astype("f8"), chunks=20).map_blocks(
            lambda block, block_id: np.full(block.shape, 2**53 + 1) if block_id[1] else block, dtype="f8",
            meta=np.empty((0, 0)),
        )  # fmt: skip
        with pytest.raises(UsageError, match="expected blocks of float64, as dask says, got int64"):
            pipeline.run("reduce", integers, op="sum")


def test_without_axes() -> None:
    """Their blocks are NumPy's scalars."""
    array = da.from_array(FLOATS, chunks=20)
    total, first = array.max(), array[0]
    assert pipeline.run("reduce", total, op="max,argmax").values == {"max": FLOATS.max(), "argmax": 0}
    assert pipeline.run("reduce", total, op="count", where="i < 1").values == {"count": 1}
    for lazy, expected in (
        (pipeline.run("transpose", total).array, FLOATS.max()),
        (pipeline.run("map", total, first, operation="add").array, FLOATS.max() + FLOATS[0]),
    ):
        assert lazy.shape == expected.shape
        np.testing.assert_array_equal(lazy.compute(), expected)


def test_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask itself waits for workers for ever."""
    monkeypatch.setattr("pipeline.in_memory.blocks.IDLE_SECONDS", 1)
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        with pytest.raises(PipelineError, match=r"^dask: expected workers within 1 s, got none; start some, or close "):
            pipeline.run("histogram", da.ones(10, chunks=5, dtype="i4"))
        assert all(state.status == "cancelled" for state in client.futures.values())


def test_worker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.cluster.client.CALL_SECONDS", 2)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        (worker,) = client.run(os.getpid).values()
        os.kill(worker, signal.SIGSTOP)
        try:
            with pytest.raises(PipelineError, match=r"^dask: expected the scheduler and every worker .* within 2 s; "):
                pipeline.run("histogram", da.ones(10, chunks=5, dtype="i4"))
        finally:
            os.kill(worker, signal.SIGCONT)


def test_workers_without_baru(tmp_path: Path) -> None:
    """Processes that cannot import it, as on another machine: one line says so; dask itself would wait for ever."""
    script = tmp_path / "script.py"
    script.write_text(dedent("""
        import dask.array, pipeline
        from distributed import Client, LocalCluster
        if __name__ == "__main__":
            with Client(LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0")) as client:
                client.run(exec, "import sys; sys.modules['pipeline'] = None")
                for job, options in (("reduce", {}), ("stencil", {"radius": 1})):
                    try:
                        pipeline.run(job, dask.array.ones(10, chunks=5), **options)
                    except pipeline.errors.PipelineError as error:
                        print(error)
    """))  # fmt: skip
    done = subprocess.run([sys.executable, script], text=True, capture_output=True, timeout=100)
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    for line in lines:
        assert re.match(r"dask: expected baru 0\.1\.0 on the scheduler and every worker .* got .* on tcp://", line)


@pytest.mark.gpu
def test_blocks_on_a_gpu(cp: Any) -> None:
    array = da.from_array(INTEGERS, chunks=(30, 60)).map_blocks(cp.asarray, meta=np.empty((0, 0), "i4"))
    with dask.config.set(scheduler="threads" if ON_GPU else "synchronous"):  # the emulator runs one kernel at a time
        counts = pipeline.run("histogram", array, bins=9, range=(0, 1000)).counts
        turned = pipeline.run("transpose", array).array
        blocks = dask.compute(*turned.to_delayed().reshape(-1))
    assert {type(block) for block in blocks} == {type(cp.asarray(INTEGERS))}
    np.testing.assert_array_equal(np.concatenate([block.get() for block in blocks], axis=1), INTEGERS.T)
    assert counts.tolist() == np.histogram(INTEGERS, 9, (0, 1000))[0].tolist()
    with pytest.raises(PipelineError):
        pipeline.run("reduce", array, device="cpu", output="x.npy")
