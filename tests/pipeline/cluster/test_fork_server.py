"""The fork server: its environment, its effects on the process, and that it ends with the command."""

from __future__ import annotations

import json
import multiprocessing.process
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest

import pipeline.cluster.fork_server
from pipeline.cluster.fork_server import WORKER, fork_server
from pipeline.threads import SWITCH_SECONDS

pytestmark = pytest.mark.usefixtures("folder")

# The command on a small file with two processes; each test fills in code to run at two points.
COMMAND = """
import signal, time

def starting(dashboard):
    {starting}
    return private(dashboard)

def started(run, *arguments):
    workers = run.workers
    {started}
    return on_gpus(run, *arguments)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell inherit that it is ignored
    import pipeline.__main__

    pipeline.__main__.prepare()
    import pipeline.cli.main, pipeline.cluster.placement, pipeline.engine.run_loop, pipeline.cluster.processes

    pipeline.cluster.placement.PROCESSES_FROM_BYTES = 0
    pipeline.cluster.placement.cores, pipeline.cluster.placement.processes = lambda: 2, lambda compiled: 2
    private, on_gpus = pipeline.cluster.processes.private, pipeline.engine.run_loop.Run.on_gpus
    pipeline.cluster.processes.private, pipeline.engine.run_loop.Run.on_gpus = starting, started
    pipeline.cli.main.main(["histogram", "samples.bin", "-q", "--json", "--device", "cpu"])
"""
HERE = "print('here', flush=True)"
STAYS = f"{HERE}; time.sleep(60)"
LOOK = """
    import json, os, signal, sys
    from multiprocessing import forkserver
    def look():
        blocked = sorted(number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        return os.getppid(), "pipeline.cluster.fork_preload" in sys.modules, blocked, round(sys.getswitchinterval(), 6)
    server = forkserver._forkserver
    threads = len(os.listdir(f"/proc/{server._forkserver_pid}/task"))
    folder = os.stat(os.path.dirname(server._forkserver_address)).st_mode & 0o777
    with open(f"/proc/{server._forkserver_pid}/environ") as file:  # what NumPy read as it was imported
        read = dict(item.split("=", 1) for item in file.read().split("\\0") if item)
    print(json.dumps([server._forkserver_pid, threads, folder, list(workers.client.run(look).values()),
                      read["OPENBLAS_NUM_THREADS"], "pandas" in sys.modules]))
"""


@contextmanager
def run(script: Path | None = None, starting: str = "", started: str = "") -> Iterator[subprocess.Popen[str]]:
    """The command in its own process group, `python -c` or a script; all of it is killed if the test fails."""
    code = COMMAND.format(starting=starting or "pass", started=started or "pass")
    if script:
        script.write_text(code)
    words = [sys.executable, str(script)] if script else [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as command:
        try:
            yield command
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)
            raise


def printed_by(command: subprocess.Popen[str]) -> str:
    """Its stdout; stderr must be empty, and the status 0."""
    printed, said = command.communicate(timeout=60)
    assert (command.returncode, said) == (0, "")
    return printed


def wait_until_here(command: subprocess.Popen[str]) -> None:
    assert command.stdout is not None
    assert command.stdout.readline() == "here\n"


def members(group: int) -> list[psutil.Process]:
    """Processes of a group that have not ended."""
    alive = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return alive


def all_end(processes: list[psutil.Process]) -> None:
    """Wait a moment: multiprocessing's resource tracker ends slightly later than the command."""
    _, alive = psutil.wait_procs(processes, 10)
    assert alive == []


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name != "samples.bin"]


def test_workers_are_forked_from_a_server_with_one_thread(folder: Path) -> None:
    with run(started=LOOK) as command:
        first, result = printed_by(command).splitlines()
        server, threads, mode, workers, blas, pandas = json.loads(first)
        assert (threads, mode, pandas, blas) == (1, 0o700, False, "1")
        assert workers == [[server, True, ["SIGHUP", "SIGINT", "SIGUSR1"], SWITCH_SECONDS]] * 2
        assert json.loads(result)["environment"]["where"] == "2 processes on this machine"
        assert left(folder) == []
        all_end(members(command.pid))


def test_modules_of_the_current_folder_are_left_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Python does not import from the working folder, as for a script elsewhere, neither does the server.

    Nor does it change a number of threads that the user chose.
    """
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    for name in ("workflows", "distributed", "numpy", "pipeline", "multiprocessing", "signal", "threading"):
        (folder / f"{name}.py").write_text("open('imported', 'w')")
    with run(tmp_path / "baru", started=LOOK) as command:
        printed = printed_by(command)
    _, threads, _, workers, blas, _ = json.loads(printed.splitlines()[0])
    assert (threads, blas) == (1, "3")
    assert [forked for _, forked, *_ in workers] == [True, True]
    assert not (folder / "imported").exists()


@pytest.mark.parametrize(
    ("moment", "number", "whole_group"),
    [
        ("starting", signal.SIGTERM, False), ("starting", signal.SIGINT, True),
        ("started", signal.SIGTERM, False), ("started", signal.SIGINT, True), ("started", signal.SIGINT, False),
    ],
)  # fmt: skip
def test_signal_ends_all_processes(folder: Path, moment: str, number: signal.Signals, whole_group: bool) -> None:
    """The command continues while processes start; Ctrl-C reaches all processes of a terminal."""
    status, text = {
        signal.SIGTERM: (143, "stopped by SIGTERM: nothing was written"),
        signal.SIGINT: (130, "interrupted: nothing was written"),
    }[number]
    with run(**{moment: HERE if moment == "starting" else STAYS}) as command:
        wait_until_here(command)
        assert len(members(command.pid)) >= 2
        (os.killpg if whole_group else os.kill)(command.pid, number)
        printed, said = command.communicate(timeout=60)
        assert (command.returncode, printed, said.strip()) == (status, "", text)
        assert left(folder) == []
        all_end(members(command.pid))


def test_nothing_outlives_a_command_that_is_killed() -> None:
    with run(started=STAYS) as command:
        wait_until_here(command)
        processes = members(command.pid)
        assert len(processes) == 5  # the command, two workers, the server, the resource tracker
        command.kill()
        command.communicate(timeout=60)
        all_end(processes[1:])


def test_environment_and_signals_stay_as_they_were() -> None:
    before = dict(os.environ), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with fork_server(WORKER):
        assert (dict(os.environ), signal.pthread_sigmask(signal.SIG_BLOCK, ())) == before
        server: Any = forkserver._forkserver
        process = psutil.Process(server._forkserver_pid)
        assert process.is_running()
    assert (dict(os.environ), signal.pthread_sigmask(signal.SIG_BLOCK, ())) == before
    assert not process.is_running()


def test_workers_are_spawned_where_no_server_can_be_started(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A socket path has at most 107 bytes."""
    long = folder / ("long" * 25)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    with run() as command:
        printed = printed_by(command)
    assert json.loads(printed)["environment"]["where"] == "2 processes on this machine"
    assert left(long) == []


def test_server_is_ended_where_dask_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ImportError("planted")

    monkeypatch.setattr(pipeline.cluster.fork_server, "_dask_forks", fails)
    with pytest.raises(ImportError, match="planted"), fork_server(WORKER):
        pass
    server: Any = forkserver._forkserver
    assert server._forkserver_pid is None


def test_its_folder_is_one_that_a_later_run_removes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(multiprocessing.process.current_process()._config, "tempdir", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with fork_server([]):
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith("baru-") and list(folder.iterdir())  # its socket
    assert list(tmp_path.iterdir()) == []
