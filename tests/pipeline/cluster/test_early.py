"""Processes of GPU workers that wait for their cluster; here they compute on the CPU."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import psutil
import pytest

from pipeline.cluster import early, placement
from pipeline.cluster.placement import Placement
from pipeline.gpu.devices import Devices
from pipeline.process.exit_status import STATUS
from pipeline.threads import SWITCH_SECONDS

pytestmark = pytest.mark.usefixtures("folder")

ON_GPUS = """
if __name__ == "__main__":
    import json, os, sys
    os.environ["DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC"] = "1"
    import pipeline.__main__
    from contextlib import contextmanager
    from dataclasses import replace
    from pipeline.cluster import early, gpu_count, placement
    from pipeline.gpu import devices

    gpus = tuple(devices.Gpu(number, "planted", f"GPU-{{number}}", 2**37, 2**37) for number in range(2))
    placement.find_devices = devices.find_devices = lambda: devices.Devices(gpus, "1", "1", None)
    placement.best_number = gpu_count.best_number = lambda load, usable, *_: usable
    told = {{"waiting": {{}}, "workers": []}}
    expect = pipeline.__main__.expect_processes

    def seen():
        import signal
        blocked = sorted(number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        return [os.environ["CUDA_VISIBLE_DEVICES"], os.getpid(), os.getppid(), blocked,
                round(sys.getswitchinterval(), 6), os.environ["OPENBLAS_NUM_THREADS"], sys.stdin.read()]

    def expecting(words):
        expect(words)
        told["waiting"] = {{gpu: waits.process.pid for gpu, waits in early._waiting.items()}}
        assert "numpy" not in sys.modules
        {expected}
        import pipeline.engine.run_loop
        opened = placement.open_workers

        @contextmanager
        def on_cpu(*arguments):
            with opened(*arguments) as workers:
                told["workers"] = list(workers.client.run(seen).values())
                {started}
                yield replace(workers, device="cpu")

        pipeline.engine.run_loop.open_workers = on_cpu

    pipeline.__main__.expect_processes = expecting
    try:
        pipeline.__main__.main()
    finally:
        print(json.dumps(told))
"""


def told(
    script: Path, *words: str, expected: str = "pass", started: str = "pass", refused: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """What the command told, and the other lines that it printed; `refused`: it is wrong, as one line says."""
    script.write_text(ON_GPUS.format(expected=expected, started=started))
    command = [sys.executable, str(script), "histogram", "samples.bin", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, len(done.stderr.splitlines())) == ((2, 1) if refused else (0, 0)), done.stderr
    *others, last = done.stdout.splitlines()
    told = json.loads(last)
    assert sorted(told["waiting"]) == ["GPU-0", "GPU-1"]
    assert not any(map(psutil.pid_exists, [*told["waiting"].values(), *(one[1] for one in told["workers"])]))
    assert [path.name for path in script.parent.iterdir()] == [script.name]
    return told, others


NO_SERVER = "from multiprocessing import forkserver; assert forkserver._forkserver._forkserver_pid is None"


def test_they_become_the_workers_of_their_gpus(tmp_path: Path, folder: Path) -> None:
    """No server is started beside them."""
    said, others = told(tmp_path / "baru", "-q", "--json", started=NO_SERVER)
    assert {gpu: pid for gpu, pid, *_ in said["workers"]} == said["waiting"]
    parents = {parent for _, _, parent, *_ in said["workers"]}
    assert len(parents) == 1 and parents.isdisjoint(said["waiting"].values())
    blocked_in_workers = sorted(number.name for number in STATUS if number != signal.SIGTERM)
    for _, _, _, blocked, interval, blas, stdin in said["workers"]:
        assert (blocked, interval, blas, stdin) == (blocked_in_workers, SWITCH_SECONDS, "1", "")
    assert json.loads("\n".join(others))["environment"]["where"] == "2 processes on this machine, one per GPU"
    assert [path.name for path in folder.iterdir()] == ["samples.bin"]


def test_they_end_with_a_command_that_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of processes that nobody has waited for Python would warn."""
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    said, _ = told(tmp_path / "baru", "--bin", "3", refused=True)
    assert said["workers"] == []


def test_one_that_was_killed_is_replaced(tmp_path: Path) -> None:
    """Before it became a worker."""
    kill = "import signal, time; os.kill(told['waiting']['GPU-0'], signal.SIGKILL); time.sleep(0.5)"
    said, _ = told(tmp_path / "baru", "-q", "--json", expected=kill)
    pids = {gpu: pid for gpu, pid, *_ in said["workers"]}
    assert pids["GPU-1"] == said["waiting"]["GPU-1"] and pids["GPU-0"] != said["waiting"]["GPU-0"]


DYING = """
        def dying(one, is_ready=early._is_ready):
            ready = is_ready(one)
            if one.process.pid == told["waiting"]["GPU-0"]:
                one.process.kill()
                os.waitid(os.P_PID, one.process.pid, os.WEXITED | os.WNOWAIT)
            return ready
        early._is_ready = dying"""


def test_one_that_dies_before_it_is_told_what_to_run_is_replaced(tmp_path: Path) -> None:
    """After it was seen alive."""
    said, _ = told(tmp_path / "baru", "-q", "--json", expected=DYING)
    pids = {gpu: pid for gpu, pid, *_ in said["workers"]}
    assert pids["GPU-1"] == said["waiting"]["GPU-1"] and pids["GPU-0"] != said["waiting"]["GPU-0"]


def test_module_that_fails_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process waits on; a worker reports what it needs."""
    (tmp_path / "cupy.py").write_text("import os\nif os.getenv('CUDA_VISIBLE_DEVICES'): raise RuntimeError\n"
                                      "raise ImportError")  # fmt: skip
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", paths)
    (tmp_path / "script").mkdir()
    said, _ = told(tmp_path / "script" / "baru", "-q", "--json")
    assert {gpu: pid for gpu, pid, *_ in said["workers"]} == said["waiting"]


STOPPING = """
        import signal, threading
        pid, launch = told["waiting"]["GPU-0"], early._Launched._launch
        def stopping(launched, process):
            if launched._early.process.pid == pid:
                os.kill(pid, signal.SIGSTOP)
                threading.Timer(1, os.kill, (pid, signal.SIGKILL)).start()
            launch(launched, process)
        early._Launched._launch = stopping"""


def test_one_that_is_killed_while_it_starts_is_replaced(tmp_path: Path) -> None:
    """It has been told what to run, but is stopped until it is killed."""
    said, _ = told(tmp_path / "baru", "-q", "--json", expected=STOPPING, started=NO_SERVER)
    pids = {gpu: pid for gpu, pid, *_ in said["workers"]}
    assert pids["GPU-1"] == said["waiting"]["GPU-1"] and pids["GPU-0"] != said["waiting"]["GPU-0"]


HANGING = """
import os, time
if os.getenv("CUDA_VISIBLE_DEVICES") == "GPU-0":
    time.sleep(600)
raise ImportError
"""
IMPATIENT = """
        import pipeline.cluster.fork_server as fork_server
        def counted(*arguments, start=fork_server.start):
            told["starts"] = told.get("starts", 0) + 1
            return start(*arguments)
        fork_server.start, early.HUNG_SECONDS = counted, 1.0"""


def test_one_whose_import_hangs_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one from a server that starts then, before the cluster is given up and started again."""
    (tmp_path / "cupy.py").write_text(HANGING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    (tmp_path / "script").mkdir()
    said, _ = told(tmp_path / "script" / "baru", "-q", "--json", expected=IMPATIENT)
    pids = {gpu: pid for gpu, pid, *_ in said["workers"]}
    assert pids["GPU-1"] == said["waiting"]["GPU-1"] and pids["GPU-0"] != said["waiting"]["GPU-0"]
    assert said["starts"] == 2  # once with the cluster's processes, once before its first attempt


def test_they_need_no_server_whose_socket_has_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be too long here."""
    (long := tmp_path.parent / f"{tmp_path.name}{'x' * 100}").mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    said, _ = told(tmp_path / "baru", "-q", "--json")
    assert {gpu: pid for gpu, pid, *_ in said["workers"]} == said["waiting"]


def test_they_end_where_workers_are_spawned(tmp_path: Path) -> None:
    """Nothing can be started, as if the working folder were removed."""
    fails = "import pipeline.cluster.fork_server; pipeline.cluster.fork_server.start = lambda *_: False"
    ended = "import psutil; assert not any(map(psutil.pid_exists, told['waiting'].values()))"
    said, _ = told(tmp_path / "baru", "-q", "--json", expected=fails, started=ended)
    assert len(said["workers"]) == 2


LINGERING = """
import os, socket, sys, time
from multiprocessing import reduction
with socket.socket(fileno=int(sys.argv[1])) as connection:
    reads, held, *_ = reduction.recvfds(connection, 9)
os.close(held)
time.sleep(600)
"""


def test_wait_for_one_that_lingers_has_its_limit() -> None:
    """All of its descriptors are closed, but it has not ended: the driver removes its context."""
    ours, theirs = socket.socketpair()
    with theirs:
        words = [sys.executable, "-c", LINGERING, str(theirs.fileno())]
        process = subprocess.Popen(words, pass_fds=[theirs.fileno()])
    results: SimpleQueue[Any] = SimpleQueue()

    def look() -> None:
        launched = early._Launched(SpawnProcess(), early._Early(process, ours))
        results.put(launched.wait(0.5))

    try:
        Thread(target=look, daemon=True).start()
        assert results.get(timeout=60) is None
    finally:
        process.kill()
        process.wait(20)


def test_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    kill = "import signal; os.kill(told['waiting']['GPU-0'], signal.SIGKILL)"
    _, others = told(tmp_path / "baru", "-q", "--json", started=kill)
    assert json.loads("\n".join(others))["result"]["histogram"]["storage"]["values"].count(1) == 1000


def test_command_that_is_killed_leaves_none(tmp_path: Path) -> None:
    stays = "print(json.dumps(told), flush=True); import time; time.sleep(60)"
    (tmp_path / "baru").write_text(ON_GPUS.format(expected="pass", started=stays))
    words = [sys.executable, str(tmp_path / "baru"), "histogram", "samples.bin"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as command:
        try:
            assert command.stdout is not None
            said = json.loads(command.stdout.readline())
            processes = [psutil.Process(pid) for pid in (said["workers"][0][2], *said["waiting"].values())]
        finally:
            command.kill()
    _, alive = psutil.wait_procs(processes, 20)
    assert alive == []


def test_other_gpus_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a wrong guess, before a run takes its place."""
    kept: list[Any] = []
    monkeypatch.setattr(early, "keep", kept.append)
    with placement.open_workers(Placement("cpu"), 0):
        pass
    assert kept == [()]


def test_processes_of_other_gpus_are_killed() -> None:
    early.start(["a", "b"], (), {})
    both = [waits.process for waits in early._waiting.values()]
    early.keep(["b"])
    assert both[0].wait(20) == -signal.SIGKILL and both[1].poll() is None
    early.keep()
    assert both[1].wait(20) == -signal.SIGKILL and not early._waiting


def test_process_whose_parent_has_ended_does_nothing() -> None:
    words = [sys.executable, "-m", "pipeline.cluster.early_worker", str(2**22 + 1), "0", "no_such_module"]
    assert subprocess.run(words, timeout=60, stdin=subprocess.DEVNULL).returncode == 0


def test_driver_is_not_asked_again_for_the_first_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it said as the command started is used once: GPUs may be gone by the next run."""
    asked: list[int] = []
    monkeypatch.setattr(placement, "find_devices", lambda: asked.append(1) or Devices((), None, None, "none"))
    placement.ask()
    for number in (1, 2):
        with placement.open_workers(Placement(), 0):
            assert len(asked) == number
