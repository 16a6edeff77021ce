"""How many GPUs take part by default: the fastest of what was recorded, within a tenth; and what `--gpus` changes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
import pipeline.cluster.placement
import pipeline.engine.array_request
import pipeline.engine.run_loop
from pipeline.cli.main import main
from pipeline.cluster.gpu_count import SPEEDS, Load, best_number, reason, seconds
from pipeline.cluster.placement import Placement, choose, open_workers
from pipeline.cluster.workers import Workers
from pipeline.errors import UsageError
from pipeline.gpu.devices import Devices, Gpu
from tests.benchmarks.common import RESULTS

GPUS = tuple(Gpu(i, "planted", f"GPU-{i}000", 2**37, 2**37) for i in range(4))
WORKERS = Workers(None, "gpu", 1, 1, None, {}, "here", None)
TENTH = 1.1


@pytest.mark.parametrize("kind", SPEEDS)
def test_more_gpus_for_more_bytes(kind: str) -> None:
    numbers = [best_number(Load(kind, 2**exponent), 4) for exponent in range(50)]
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (1, 4)
    assert {best_number(Load(kind, 2**exponent), 1) for exponent in range(50)} == {1}


def test_operations_and_tasks_count_as_bytes_do() -> None:
    assert best_number(Load("multiply", 2**20), 4) == 1
    assert best_number(Load("multiply", 2**20, operations=1e16), 4) == 4
    assert best_number(Load("write", 2**20, tasks=10_000), 4) == 4


def test_seconds_are_the_start_and_the_work() -> None:
    load = Load("read", 10**12)
    assert seconds(load, 1) == pytest.approx(1e12 / 48e9)
    assert seconds(load, 2) == pytest.approx(0.6 + 1e12 / 88e9)
    assert seconds(load, 4) == pytest.approx(1.0 + 1e12 / 102e9)
    assert reason(Load("read", 2**35), 1, 4) == (
        "32.00 GiB take 0.7 s or more on one, 1.3 s on 4 with the start of their processes"
    )
    assert reason(load, 2, 4).startswith("0.91 TiB take 20.8 s or more on one, 12.0 s on 2, 10.8 s on 4 with ")
    assert reason(Load("read", 0), 1, 4) == "several need files of known size"


def test_spawned_processes_start_later() -> None:
    load = Load("read", 2**38)
    assert seconds(load, 1, True) == seconds(load, 1)
    assert seconds(load, 4, True) == pytest.approx(seconds(load, 4) + 1.8)
    numbers = [[best_number(Load("read", 2**exponent), 4, spawned) for exponent in range(30, 45)]
               for spawned in (False, True)]  # fmt: skip
    assert numbers[0] != numbers[1] and all(few >= more for few, more in zip(*numbers, strict=True))


def recorded(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def whole_commands() -> Iterator[tuple[str, Load, dict[int, float]]]:
    """Name, what there was to do, and seconds by number of GPUs, of the commands that were recorded."""
    grown: dict[int, dict[int, float]] = {}
    for run in recorded("growth_4xH200")["runs"]:
        if run["where"] != "default":
            grown.setdefault(4 * run["samples"], {})[int(run["where"].partition(" ")[0])] = run["seconds"]
    for nbytes, taken in grown.items():
        yield f"growth, {nbytes} bytes", Load("read", nbytes), taken
    waited = recorded("waiting_4xH200")
    taken = waited["command, seconds"]
    yield "waiting", Load("read", 4 * waited["samples"]), {1: taken["warm, one GPU"], 4: taken["warm"]}
    read = recorded("histogram_file_4xH200")
    for turn in range(3):
        runs = {run["where"]: run["start_up_seconds"] + run["seconds"] for run in read["runs"]
                if (run.get("job", "histogram"), run["turn"]) == ("histogram", turn)}  # fmt: skip
        yield f"histogram_file {turn}", Load("read", read["bytes"]), {1: runs["one GPU"], 4: runs["4 GPUs"]}


@pytest.mark.parametrize(("name", "load", "taken"), [pytest.param(*row, id=row[0]) for row in whole_commands()])
def test_default_is_as_fast_as_the_fastest_recorded(name: str, load: Load, taken: dict[int, float]) -> None:
    spawned = name.startswith("histogram_file")
    chosen = min(taken, key=lambda gpus: seconds(load, gpus, spawned))  # three were not recorded
    assert taken[chosen] <= TENTH * min(taken.values())


def limited_jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    name = "jobs_4xH200"  # in older records processes start later
    for row in recorded(name)["jobs"]:
        one, two = (row["performance"][place]["start_up_seconds"] for place in ("1 GPU", "2 GPU"))
        if one < two:  # else the first run compiled kernels
            yield f"{name}, {row['job']} {' '.join(row['options'])}", name, row


@pytest.mark.parametrize(("name", "row"), [pytest.param(*rest, id=title) for title, *rest in limited_jobs()])
def test_default_under_limits_of_memory_is_as_fast_as_the_fastest_recorded(
    name: str, row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs themselves say what there is to do; their inputs have the recorded shapes, and no content."""
    number, cores = len(recorded(name)["environment"]["gpus"]), recorded(name)["environment"]["cores"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline.engine.array_request, "cores", lambda: cores)
    paths = list(inputs(row["dtypes"], row["bytes"]))
    assert sum(map(os.path.getsize, paths)) == row["bytes"]
    limits = ["--device-memory-limit", str(row["limit"])]
    if row["job"] not in ("histogram", "reduce"):
        limits += ["--memory-limit", str(row["limit"]), "-o", "output.npy"]
    loads = seen_loads(monkeypatch)
    with pytest.raises(SystemExit):
        main([row["job"], *row["options"], *paths, *limits, "-q"])
    assert len(loads) == 1
    runs = {int(place[0]): run["start_up_seconds"] + run["seconds"] for place, run in row["performance"].items()
            if place != "CPU"}  # fmt: skip
    assert runs[best_number(loads[0], number)] <= TENTH * min(runs.values())


def inputs(dtypes: Sequence[str], nbytes: int) -> Iterator[str]:
    """Sparse files of the shapes that `tests.benchmarks.jobs` writes."""
    for number, kind in enumerate(dtypes):
        dtype, _, matrix = kind.partition(" ")
        each, itemsize = nbytes // len(dtypes) - 128, np.dtype(dtype).itemsize
        side = round((each // itemsize) ** 0.5)
        shape = (side, side) if matrix else (each // 2**14, 2**14 // itemsize)
        np.lib.format.open_memmap(f"{number}.npy", "w+", dtype, shape).flush()
        yield f"{number}.npy"


def seen_loads(monkeypatch: pytest.MonkeyPatch) -> list[Load]:
    """What every later run says that there is to do, instead of doing it."""
    loads: list[Load] = []

    @contextmanager
    def opened(placement: Placement, nbytes: int, compiled: Any, load: Any, here: Any) -> Iterator[Workers]:
        loads.append(load() if load else Load("read", nbytes))
        raise UsageError("seen")
        yield WORKERS

    monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", opened)
    return loads


def test_a_product_counts_its_operations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, shape in (("a", (3, 30, 20)), ("b", (20, 10))):
        np.save(tmp_path / f"{name}.npy", np.ones(shape, np.float32))
    loads = seen_loads(monkeypatch)
    for options in ({}, {"chunk_bytes": 4000}):
        with pytest.raises(UsageError, match=r"^seen$"):
            pipeline.run("matmul", tmp_path / "a.npy", tmp_path / "b.npy", output=tmp_path / "c.npy", **options)
    assert loads[0] == Load("multiply", 4 * (3 * 30 * 20 + 20 * 10 + 3 * 30 * 10), 2.0 * 3 * 30 * 20 * 10)
    assert loads[1].tasks > 1


def chosen_by(monkeypatch: pytest.MonkeyPatch, placement: Placement, nbytes: int = 0, gpus: int = 4) -> Any:
    missing = None if gpus else "no NVIDIA driver is loaded"
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: Devices(GPUS[:gpus], "1", "1", missing))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return choose(placement, nbytes, bool, lambda: Load("read", nbytes))


@pytest.mark.parametrize(
    ("gpus", "own", "nbytes", "indices", "processes"),
    [
        (None, True, 2**37, [0, 1], 2), (None, False, 2**37, [0], 0),  # spawned processes start later
        (None, True, 2**30, [0], 0), (None, True, 2**42, [0, 1, 2, 3], 4), ("all", True, 0, [0, 1, 2, 3], 4),
        ("2", False, 0, [0, 1], 2), ("1", True, 2**42, [0], 0), ("1", False, 2**42, [0], 0),
        ("0,2", True, 0, [0, 2], 2),
        ("2,", True, 0, [2], 0), ("0,", False, 0, [0], 0), (["GPU-3"], True, 0, [3], 0),
        # Not in a process that may use CUDA for something else: it sees other GPUs, too.
        ("2,", False, 0, [2], 1),
    ],
)  # fmt: skip
def test_gpus_that_take_part(
    gpus: Any, own: bool, nbytes: int, indices: list[int], processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = chosen_by(monkeypatch, Placement(own_process=own, gpus=gpus), nbytes)
    assert ([gpu.index for gpu in chosen.gpus], chosen.processes) == (indices, processes)


def test_the_only_gpu_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus in ("all", "1", "0,", None):
        chosen = chosen_by(monkeypatch, Placement(gpus=gpus), 2**42, gpus=1)
        assert (chosen.gpus, chosen.processes) == (GPUS[:1], 0)


@pytest.mark.parametrize(
    ("gpus", "nbytes", "number", "line"),
    [
        (None, 2**35, 4, "GPU 0 of 4: 32.00 GiB take 0.7 s or more on one, 1.3 s on 4 with the start of their "
                         "processes"),
        ("2,", 2**35, 4, "GPU 2 of 4: --gpus 2,"), ("2", 0, 4, "GPUs 0, 1 of 4: --gpus 2"),
        (None, 2**42, 1, "GPU 0 of 1: the only one"), (None, 0, 0, ""),
    ],
)  # fmt: skip
def test_report_says_which_and_why(
    gpus: Any, nbytes: int, number: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def cluster(*_: Any) -> Iterator[Workers]:
        seen.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
        yield WORKERS

    seen: list[str | None] = []
    for name in ("in_this_process", "one_process_per_gpu"):
        monkeypatch.setattr(pipeline.cluster.placement, f"_{name}", cluster)
    missing = None if number else "no NVIDIA driver is loaded"
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: Devices(GPUS[:number], "1", "1", missing))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with open_workers(Placement(own_process=True, gpus=gpus), nbytes) as workers:
        assert workers.gpus == line
    one = line.startswith("GPU ") and number > 1
    assert seen == [f"GPU-{line[4]}000" if one else None]  # the only one that this process sees


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cpu", "gpus": 2}, "--gpus: expected none with --device cpu, got 2; leave one of them out"),
        ({"scheduler": "tcp://here:1", "gpus": "all"}, "--gpus: expected none for an existing cluster, whose workers "
                                                       "have their GPUs, got all; leave it out, and start workers"),
        ({"gpus": "all"}, "--gpus all: expected a GPU, but no NVIDIA driver is loaded; run with --device cpu instead"),
        ({"gpus": [0, 2]}, "--gpus 0,2: expected a GPU, but no NVIDIA driver is loaded"),
        ({"gpus": "0-2"}, "--gpus: expected a number of GPUs, all, idle, indices"),
    ],
)  # fmt: skip
def test_gpus_where_there_are_none(options: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError) as caught:
        chosen_by(monkeypatch, Placement(**options), gpus=0)
    assert str(caught.value).startswith(message)


def test_arrays_in_memory_have_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the output is a file. Without one they take none: tests/pipeline/in_memory."""
    array, output = np.ones((3, 3)), tmp_path / "out.npy"
    for gpus in (2, "all", "idle", (1,)):
        with pytest.raises(UsageError, match=r"^--gpus: expected none, or 1, for an array in memory, which this "):
            pipeline.run("transpose", array, output=output, gpus=gpus)
    loads = seen_loads(monkeypatch)
    with pytest.raises(UsageError, match=r"^seen$"):
        pipeline.run("transpose", array, output=output, gpus=1)
    assert best_number(loads[0], 4) == 1


@pytest.mark.parametrize(
    ("environment", "words", "expected"),
    [
        (None, ["--gpus", "0,2"], "0,2"), ("2", [], "2"), ("0,2", [], "0,2"), ("2,", [], "2,"), ("all", [], "all"),
        ("idle", [], "idle"), ("GPU-a1f0", [], "GPU-a1f0"), ("all", ["--gpus", "1"], "1"), (None, [], None),
    ],
)  # fmt: skip
def test_command_and_configuration_take_the_same(
    environment: str | None, words: list[str], expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask

    @contextmanager
    def opened(placement: Placement, *_: Any) -> Iterator[Workers]:
        seen.append(placement.gpus)
        raise UsageError("seen")
        yield WORKERS

    seen: list[str | None] = []
    monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", opened)
    np.arange(10, dtype=np.int32).tofile(tmp_path / "data.bin")
    configured = {} if environment is None else {"DASK_PIPELINE__GPUS": environment}
    with dask.config.set(dask.config.collect_env(configured)), pytest.raises(SystemExit):
        main(["histogram", str(tmp_path / "data.bin"), "-q", *words])
    assert seen == [expected]


@pytest.mark.parametrize(
    ("gpus", "device", "why"),
    [(GPUS, "auto", "none of 4: kvikio is missing"), (GPUS, "cpu", ""), ((), "auto", "")],
)  # fmt: skip
def test_a_run_on_the_cpu_says_why_it_uses_none_of_the_gpus(
    gpus: tuple[Gpu, ...], device: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = Devices(gpus, "1", "1", "kvikio is missing")
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: devices)
    with open_workers(Placement(device), 0) as workers:
        assert workers.device == "cpu" and workers.gpus == why
