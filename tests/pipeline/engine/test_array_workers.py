"""Jobs that write an array, on several processes and within memory limits: the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import pipeline.engine.array
import pipeline.engine.array_gpu
import pipeline.engine.array_regions
import pipeline.engine.run_loop
import pipeline.engine.task_memory
from pipeline.cluster.placement import Placement
from pipeline.cluster.workers import Workers
from pipeline.engine import array_task
from pipeline.engine.array import run_array
from pipeline.engine.array_task import check_regions, compute_regions
from pipeline.engine.run_loop import Run
from pipeline.engine.task_memory import COPIES, LANES
from pipeline.errors import UsageError, VerificationError
from pipeline.settings import Settings
from pipeline.storage import scratch
from pipeline.storage.sources import Source, open_source
from tests.cases.array import ON_CPU, SCALED, Factor, scaled
from tests.pipeline.cluster.test_existing import scheduler, worker
from workflows.array_job import Checked
from workflows.map import MAP, MapOptions
from workflows.regions import all_of, in_rows
from workflows.transpose import TRANSPOSE, TransposeOptions

MIB = 2**20


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The scheduler file of a cluster with two workers."""
    with scheduler(tmp_path_factory.mktemp("cluster")) as (file, _), worker(file), worker(file):
        yield file


@pytest.mark.parametrize("verify", ["full", "sample"])
@pytest.mark.parametrize(
    ("workflow", "options", "operands"),
    [(TRANSPOSE, TransposeOptions(), 1), (MAP, MapOptions("multiply-add"), 3), (MAP, MapOptions("maximum"), 2)],
)
def test_two_processes_make_the_same_bytes(
    tmp_path: Path, two_processes: str, workflow: Any, options: Any, operands: int, verify: str
) -> None:
    """Both write to one file, with more regions than either has threads."""
    random = np.random.default_rng(0)
    for number in range(operands):
        np.save(tmp_path / f"{number}.npy", random.standard_normal((201, 307)))
    sources = [open_source((str(tmp_path / f"{number}.npy"),), samples=False) for number in range(operands)]
    placements = {"here": ON_CPU, "there": Placement(scheduler_file=two_processes)}
    for name, placement in placements.items():
        outcome = run_array(workflow, options, sources, str(tmp_path / f"{name}.raw"), Settings(placement=placement,
                            verify=verify, chunk_bytes=60_000, traced=True))  # fmt: skip
        assert outcome.where.startswith("2 workers at" if name == "there" else "this process")
        assert outcome.verdict.chunks > 8
        assert len({trace.worker for trace in outcome.stages.traces}) == (2 if name == "there" else 1)
    assert (tmp_path / "here.raw").read_bytes() == (tmp_path / "there.raw").read_bytes()


# --- limits of memory -------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Source:
    np.save(tmp_path / "in.npy", np.arange(1000 * 100).reshape(1000, 100))
    return open_source((str(tmp_path / "in.npy"),), samples=False)


def on(monkeypatch: pytest.MonkeyPatch, workers: Workers) -> None:
    monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", lambda *_: nullcontext(workers))


@pytest.mark.parametrize("chunk_bytes", [None, 160_000])
def test_limit_is_shared_by_the_threads_of_a_process(
    source: Source, workers: Workers, chunk_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit makes tasks smaller, never larger; a row takes 1600 bytes."""
    on(monkeypatch, workers)
    monkeypatch.setattr(pipeline.engine.task_memory, "ENOUGH", 15_000 * COPIES)
    limit = 16_000 * COPIES * workers.threads
    assert scaled(source, chunk_bytes=chunk_bytes, memory_limit=limit).verdict.chunks == 100
    assert scaled(source, chunk_bytes=chunk_bytes, memory_limit=limit - 1).verdict.chunks == 112  # of nine rows
    large = scaled(source, chunk_bytes=chunk_bytes, memory_limit=2**40, device_memory_limit=1)
    assert large.verdict.chunks == (10 if chunk_bytes else 1)


def test_limit_of_a_gpu_is_shared_by_its_tasks(
    source: Source, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, replace(workers, device="gpu", computing=1))
    monkeypatch.setattr(pipeline.engine.task_memory, "ENOUGH", 8_000 * COPIES)
    regions: list[int] = []

    monkeypatch.setattr(Run, "complete", lambda run, work, *_: regions.append(sum(map(len, work.batches))))
    limit = 16_000 * COPIES * LANES
    scaled(source, chunk_bytes=None, device_memory_limit=limit)
    scaled(source, chunk_bytes=None, device_memory_limit=limit, memory_limit=16_000 * COPIES * workers.threads // 2)
    scaled(source, chunk_bytes=None)
    assert regions == [100, 200, 1]


def test_a_task_may_take_all_that_a_limit_leaves_it(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be smaller: only products are cut for less."""
    monkeypatch.setattr(pipeline.engine.task_memory, "MOST_ON_CPU", 1000)
    at_once = replace(SCALED, regions=lambda specs, output, *_: iter([tuple((0, length) for length in output.shape)]))
    assert scaled(source, workflow=at_once, memory_limit=2**26).verdict.chunks == 1


def test_memory_to_read_into_is_freed_at_the_end(source: Source) -> None:
    scaled(source)
    assert scratch._spare == []


INSIDE, MOST = {"compute": 0, "check": 0}, {"all": 0, "compute": 0}  # tasks at a time; the cluster is in this process
COUNTING = threading.Lock()


@contextmanager
def inside(kind: str) -> Iterator[None]:
    with COUNTING:
        INSIDE[kind] += 1
        MOST["all"] = max(MOST["all"], sum(INSIDE.values()))
        MOST["compute"] = max(MOST["compute"], INSIDE["compute"])
    time.sleep(0.002)
    try:
        yield
    finally:
        with COUNTING:
            INSIDE[kind] -= 1


def computing(*arguments: Any) -> Any:
    with inside("compute"):
        return SCALED.compute(*arguments)


def checking(*arguments: Any) -> Any:
    with inside("check"):
        return SCALED.check(*arguments)


@pytest.mark.parametrize(("device", "limits", "expected"), [
    ("cpu", {"memory_limit": 2**20}, (1, 1)), ("gpu", {"memory_limit": 2**20}, (1, 1)),
    ("gpu", {"device_memory_limit": 2**20}, (None, 1)), ("cpu", {}, (None, None)),
])  # fmt: skip
def test_no_more_tasks_hold_memory_than_were_counted_on(
    source: Source, workers: Workers, monkeypatch: pytest.MonkeyPatch, device: str, limits: dict[str, int],
    expected: tuple[int | None, int | None],
) -> None:  # fmt: skip
    """Host memory is for tasks that compute or check, that of a GPU for those that compute."""
    on(monkeypatch, replace(workers, device=device, computing=workers.threads, resources={}))
    monkeypatch.setattr(pipeline.engine.array_gpu, "compute_on_device", array_task._compute_on_cpu)
    for name in ("warm_up", "finish"):
        monkeypatch.setattr(pipeline.engine.array, name, lambda *_: None)
    monkeypatch.setattr(array_task, "device_name", lambda device: device)
    monkeypatch.setattr(array_task, "unit_name", lambda device: device)
    MOST.update(all=0, compute=0)
    counted = replace(SCALED, compute=computing, check=checking)
    outcome = scaled(source, workflow=counted, verify="full", chunk_bytes=16_000, **limits)
    assert outcome.verdict.checked == 100_000 and outcome.verdict.chunks == 100
    for most, allowed in zip(MOST.values(), expected, strict=True):
        assert most == allowed if allowed else most > 1
    assert not pipeline.engine.task_memory._of_runs


ASKED: list[int] = []  # regions of each checking task; the cluster is in this process


def on_cpu(job: Any, regions: Any, device: str) -> Any:
    return compute_regions(job, regions, "cpu")


def noting(job: Any, regions: Any, result: Any) -> Any:
    ASKED.append(len(regions))
    return check_regions(job, regions, result)


@pytest.mark.parametrize(("verify", "whole", "split"), [("full", False, True), ("sample", True, True),
                                                        ("sample", False, False)])  # fmt: skip
def test_what_a_gpu_computed_is_checked_by_as_many_tasks_as_there_are_regions(
    source: Source, workers: Workers, monkeypatch: pytest.MonkeyPatch, verify: str, whole: bool, split: bool
) -> None:
    """In a full check few tasks compute, and all threads check."""
    on(monkeypatch, replace(workers, device="gpu", computing=1, resources={}))
    monkeypatch.setattr(pipeline.engine.array_regions, "compute_regions", on_cpu)
    monkeypatch.setattr(pipeline.engine.array_regions, "check_regions", noting)
    ASKED.clear()
    in_pieces = replace(SCALED, whole=whole, pieces=lambda region, options, elements: in_rows(region, elements))
    outcome = scaled(source, workflow=in_pieces, verify=verify, chunk_bytes=16_000)
    assert outcome.verdict.chunks == sum(ASKED) == 100
    assert (set(ASKED) == {1}) == split
    assert (outcome.verdict.checked == 100_000) == split
    np.testing.assert_array_equal(outcome.result.array, 3 * np.load(source.files[0].path))


@pytest.mark.parametrize("limit", [None, 2**30])
@pytest.mark.parametrize("fails", [False, True])
def test_gpus_warm_up_and_finish(
    source: Source, workers: Workers, monkeypatch: pytest.MonkeyPatch, fails: bool, limit: int | None
) -> None:
    """Warm-up receives the first region before the output exists; clean-up its temporary name, even after a failure."""
    on(monkeypatch, replace(workers, device="gpu", computing=1, resources={}))
    monkeypatch.setattr(pipeline.engine.array_regions, "compute_regions", on_cpu)
    for name in ("warm_up", "finish"):
        monkeypatch.setattr(pipeline.engine.array, name, globals()[f"noting_{name}"])
    CALLED.clear()
    wrong = replace(SCALED, check=lambda *_: Checked(("planted",), 1))
    with pytest.raises(VerificationError) if fails else nullcontext():
        scaled(source, workflow=wrong if fails else SCALED, chunk_bytes=160_000, device_memory_limit=limit)
    (ready, region), (path, limited) = CALLED
    assert (ready, region) == ("out.npy", ((0, 100), (0, 100)))
    assert path.startswith(".out.npy.") and path.endswith(".part") and limited == (limit is not None)


CALLED: list[tuple[str, Any]] = []


def noting_warm_up(job: Any, region: Any) -> None:
    CALLED.append((Path(job.output.path).name, region))


def noting_finish(path: str, limited: bool) -> None:
    CALLED.append((Path(path).name, limited))


def test_limit_that_no_task_can_keep_is_refused(
    source: Source, workers: Workers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on(monkeypatch, workers)
    whole = replace(SCALED, needs=lambda region, specs, options: (all_of(specs[0]),), compute=None)
    text = r"^scaled: expected tasks that take at most \d+ bytes each, as the limit of memory says, got one that takes "
    with pytest.raises(UsageError, match=text + "80"):
        scaled(source, workflow=whole, memory_limit=100_000)
    listed = []

    def noting(*arguments: Any) -> Iterator[Any]:
        for region in SCALED.regions(*arguments):
            listed.append(region)
            yield region

    with pytest.raises(UsageError, match=text + "16;"):
        run_array(replace(SCALED, regions=noting), Factor(), [source], str(tmp_path / "out.npy"),
                  Settings(placement=ON_CPU, memory_limit=1))  # fmt: skip
    assert len(listed) == 1  # of a large array there are millions
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("job", ["map", "transpose"])
def test_memory_stays_within_the_limit(tmp_path: Path, job: str) -> None:
    """Files of three times the limit, fully verified, after a small run that has loaded all modules."""
    code = f"""
        import json, resource
        import numpy as np
        from pathlib import Path
        from pipeline.engine.array import run_array
        from pipeline.cluster.placement import Placement
        from pipeline.settings import Settings
        from pipeline.storage.sources import open_source
        from workflows.map import MAP, MapOptions
        from workflows.transpose import TRANSPOSE, TransposeOptions

        folder = Path({str(tmp_path)!r})
        jobs = {{"map": (MAP, MapOptions("add"), 2), "transpose": (TRANSPOSE, TransposeOptions(), 1)}}
        workflow, options, operands = jobs[{job!r}]

        def peak(rows):
            sources = []
            for number in range(operands):
                file = np.lib.format.open_memmap(folder / f"{{number}}.npy", "w+", np.float64, (rows, 1024))
                file.flush()
                del file
                sources.append(open_source((str(folder / f"{{number}}.npy"),), samples=False))
            run_array(workflow, options, sources, str(folder / "out.npy"),
                      Settings(Placement(device="cpu"), verify="full", memory_limit={24 * MIB}))
            return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        print(json.dumps([peak(16), peak({72 * MIB} // 8192 // operands)]))
    """
    done = subprocess.run([sys.executable, "-c", dedent(code)], text=True, capture_output=True, check=True)
    small, large = json.loads(done.stdout)
    assert large - small < 24 * MIB
