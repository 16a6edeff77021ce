"""The command `plan` and the option --dry-run: one answer, the run's own chunks, and what cannot fit is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workflows.matmul
from pipeline.cluster import gpu_count
from pipeline.cluster.gpu_count import SPEEDS, Chosen, Load
from pipeline.estimate import aggregate, array, machine
from pipeline.gpu.devices import Devices, Gpu
from tests.cases.web_server import web_server
from tests.pipeline.cli.test_main import (
    Run,
    run,  # noqa: F401
)
from workflows.regions import sizes

GIB = 2**30


@pytest.fixture(autouse=True)
def small(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small measurements, kept for a test only."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setattr(aggregate, "SIZES", {"cpu": (2**14, 2**16), "gpu": (2**14, 2**16)})
    monkeypatch.setattr(array, "MOST_BYTES", {"cpu": 2**16, "gpu": 2**16})
    monkeypatch.setattr(array, "MOST_OPERATIONS", {"cpu": 2.0**18, "gpu": 2.0**18})


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    np.save(tmp_path / "samples.npy", np.arange(100_000, dtype="<i4") % 1000)
    return tmp_path / "samples.npy"


def planned(run: Run, *words: object) -> dict[str, Any]:  # noqa: F811
    status, out, err = run("plan", *words, "--json")
    assert status == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


@pytest.mark.parametrize("size", [400_000, 100_000, 30_000])
def test_chunks_are_those_of_the_run(run: Run, samples: Path, size: int) -> None:  # noqa: F811
    plan = planned(run, "histogram", samples, "-c", size)
    status, out, _ = run("histogram", samples, "-c", size, "--json")
    assert status == 0 and plan["chunks"] == json.loads(out)["verification"]["chunks"]
    assert plan["nbytes"] == 400_000 and plan["chunk_bytes"] <= size and plan["fits"]
    assert plan["passes"] == 1 and plan["time"]["run"] > 0 and plan["unknown"] == ""


def test_both_forms_say_the_same(run: Run, samples: Path, tmp_path: Path) -> None:  # noqa: F811
    kept = planned(run, "reduce", samples, "--op", "sum")
    status, out, err = run("reduce", samples, "--op", "sum", "--dry-run", "--json", "-o", tmp_path / "r.json")
    again = json.loads(out)
    for one in (kept, again):
        one["needs"][0].pop("free")
    assert (status, err) == (0, "") and again == kept  # nothing is measured again
    status, out, _ = run("plan", "reduce", samples, "--op", "sum")
    labels = [line.split("  ")[0] for line in out.splitlines()]
    assert labels == ["plan", "computed on", "input", "passes", "host memory", "time", "bound by", "measured"]
    assert [path.name for path in tmp_path.iterdir()] == ["samples.npy"]  # nothing ran, nothing was written


def test_passes(run: Run, samples: Path) -> None:  # noqa: F811
    plan = planned(run, "histogram", samples, "--range", "auto")
    assert (plan["passes"], plan["more_passes"]) == (2, True)


def test_wrong_requests_are_refused_as_by_the_run(run: Run, samples: Path, tmp_path: Path) -> None:  # noqa: F811
    for words in (["histogram", samples, "--bins", 0], ["histogram", tmp_path / "missing"],
                  ["transpose", samples, "-o", samples], ["histogram", samples, "-c", 1],
                  ["histogram", samples, "-o", "x.pdq"]):  # fmt: skip
        assert run("plan", *words)[::2] == run(*words)[::2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scheduler", "tcp://127.0.0.1:1"], "plan: expected a run on this machine, got a scheduler"),
        (["--device", "gpu"], "--device gpu: expected a GPU"),
    ],
)
def test_what_cannot_be_planned(run: Run, samples: Path, words: list[str], message: str) -> None:  # noqa: F811
    status, out, err = run("plan", "histogram", samples, *words)
    assert (status, out) == (2, "") and err.startswith(f"error: {message}")


def test_a_job_that_generated_samples_do_not_fit(run: Run, samples: Path, tmp_path: Path) -> None:  # noqa: F811
    """Everything but the time is known."""
    np.save(tmp_path / "mask.npy", np.ones(100_000, bool))
    plan = planned(run, "histogram", samples, "--mask", tmp_path / "mask.npy")
    assert plan["time"] is None and "cannot be measured with generated samples" in plan["unknown"]
    assert plan["chunks"] == 1
    assert "not known: this cannot be measured" in run("plan", "histogram", samples, "--mask", tmp_path / "mask.npy")[1]


@pytest.mark.parametrize(
    "words",
    [["--channels", "5", "--layout", "planar"], ["--where", "x > 500"], ["--gain", "2", "--range", "0", "2000"],
     ["--also", "reduce --op sum"]],
)  # fmt: skip
def test_jobs_on_rows_and_on_prepared_samples(run: Run, samples: Path, words: list[str]) -> None:  # noqa: F811
    assert planned(run, "histogram", samples, *words)["time"]["run"] > 0


@pytest.mark.parametrize(
    "words",
    [["transpose", "m.npy"], ["stencil", "m.npy", "--radius", "3"], ["map", "add", "m.npy", "m.npy"],
     ["matmul", "m.npy", "w.npy"], ["matmul", "m.npy", "w.npy", "--verify", "off"]],
)  # fmt: skip
def test_jobs_that_write_arrays(
    words: list[str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    np.save("m.npy", np.ones((300, 200)))
    np.save("w.npy", np.ones((200, 100)))
    plan = planned(run, *words, "-o", "out.npy", "-c", 100_000)
    status, out, _ = run(*words, "-o", "out.npy", "-c", 100_000, "--json")
    document = json.loads(out)
    assert status == 0 and plan["chunks"] == document["verification"]["chunks"]
    assert plan["time"]["run"] > 0
    (memory, disk) = plan["needs"]
    assert disk["least"] == os.path.getsize("out.npy") and memory["least"] > 0


@pytest.mark.parametrize(
    ("dtype", "inner", "chunk"),
    [("float64", 200, 2**20), ("float64", 200, 2**30), ("float64", 3000, 2**20), ("int64", 3000, 2**22)],
)
def test_products_hold_whole_slabs(
    dtype: str, inner: int, chunk: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    """As many bytes of inputs and output as the run has at a time, or more, and no more than there are."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((300, inner), dtype))
    np.save("b.npy", np.ones((inner, 250), dtype))
    held, whole, slabs = [0], [True], workflows.matmul.slabs

    def noting(region: Any, *rest: Any) -> Any:
        (rows, columns), parts = sizes(region), slabs(region, *rest)
        held[0] = max(held[0], 8 * (rows * columns + (parts[0][1] - parts[0][0]) * (rows + columns)))
        whole[0] &= len(parts) == 1 and (rows, columns) == (300, 250)
        return parts

    words = ("matmul", "a.npy", "b.npy", "-o", "out.npy", "-c", chunk)
    plan = planned(run, *words)
    monkeypatch.setattr(workflows.matmul, "slabs", noting)
    assert run(*words, "--device", "cpu")[0] == 0
    everything = 8 * (300 * 250 + inner * 550)
    assert held[0] <= plan["chunk_bytes"] <= everything and (plan["chunk_bytes"] == everything or not whole[0])


def test_memory_that_is_not_there(
    run: Run, samples: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    """The refusal has the arithmetic, and holds: so many times the bytes are more than are free."""
    monkeypatch.setattr(aggregate, "free_memory", lambda: 20 * 2**20)
    status, out, err = run("plan", "histogram", samples, "--bins", 2**20)
    assert (status, out) == (2, "")
    assert "expected a run that fits into the 20.00 MiB of host memory that are free, got one of" in err
    assert "partials of 8.00 MiB" in err and "make fewer bins" in err


def test_a_disk_that_is_full(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    np.save(tmp_path / "m.npy", np.ones((300, 200)))
    monkeypatch.setattr(array, "free_disk", lambda path: 1000)
    status, _, err = run("plan", "transpose", tmp_path / "m.npy", "-o", tmp_path / "t.npy")
    assert status == 2 and "of disk that are free, got one of 468.88 kiB: float64 200×300" in err


def test_a_machine_with_gpus(
    run: Run, samples: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    """Memory of the GPU that has the least is what counts; several are faster as was measured elsewhere."""
    gpus = tuple(Gpu(index, "planted", f"GPU-{index}", 80 * GIB, (40 - index) * GIB) for index in range(2))
    monkeypatch.setattr(machine, "choose", lambda *_: Chosen(gpus, gpus, 2, None))
    monkeypatch.setattr(machine, "find_devices", lambda: Devices(gpus, "580.1", "14.0", None))
    one = machine.planned(aggregate.Settings().placement, 10**9, bool, lambda: aggregate.Load("read", 10**9))
    assert one.faster == pytest.approx(SPEEDS["read"].of(2) / SPEEDS["read"].one)
    assert 0 < one.start_up == pytest.approx(gpu_count.seconds(Load("read", 0), 2))
    assert one.workers.device == "gpu" and one.workers.computing == 2

    def not_here(*_: Any) -> Any:
        raise aggregate.PipelineError("there is none")

    monkeypatch.setattr(aggregate, "calibrated", not_here)
    plan = planned(run, "histogram", samples)
    assert plan["where"] == "2 GPUs (planted)" and plan["unknown"] == "the machine cannot be measured: there is none"
    (of_host, of_gpu) = plan["needs"]
    assert (of_gpu["what"], of_gpu["free"]) == ("memory of each GPU", 39 * GIB) and of_host["what"] == "host memory"
    assert of_gpu["most"] > 6 * 2**27


def test_files_that_are_not_in_memory_are_read_from_storage(
    run: Run, samples: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setattr(aggregate, "uncached", lambda path: (400_128, [0]))
    monkeypatch.setattr(aggregate, "rate", lambda path, places: 1000.0)
    plan = planned(run, "histogram", samples, "--verify", "off")
    assert plan["time"]["run"] == pytest.approx(400.0, rel=0.01)
    assert plan["time"]["stage"] == "read, from storage" and "storage gives 0.98 kiB/s" in plan["time"]["measured"]
    monkeypatch.setattr(aggregate, "rate", lambda path, places: None)
    assert "storage of unknown speed" in planned(run, "histogram", samples)["time"]["left_out"]


def test_remote_storage(run: Run, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """How fast it answers is not known; everything else is."""
    with web_server() as server:
        server.files["/samples.npy"] = samples.read_bytes()
        plan = planned(run, "histogram", server.url("/samples.npy"))
    assert plan["time"] is None and "remote storage" in plan["unknown"] and plan["nbytes"] == 400_000


@pytest.mark.parametrize("shape", [(0,), ()])
def test_no_samples_or_one(run: Run, tmp_path: Path, shape: tuple[int, ...]) -> None:  # noqa: F811
    np.save(tmp_path / "x.npy", np.zeros(shape))
    assert planned(run, "histogram", tmp_path / "x.npy")["nbytes"] == 8 * bool(shape == ())
    assert planned(run, "transpose", tmp_path / "x.npy", "-o", tmp_path / "t.npy")["time"]["run"] >= 0
