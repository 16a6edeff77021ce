"""The start of the fork server: before anything else, if the files are large enough for several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import pipeline.__main__
import pipeline.cluster.cuda_preload
import pipeline.cluster.fork_server
import pipeline.cluster.gpu_count
import pipeline.cluster.helper_process
import pipeline.cluster.placement
import pipeline.threads
from kernels.common import cxx
from pipeline.cluster.fork_server import WORKER
from pipeline.cluster.gpu_count import Load
from pipeline.cluster.helper_process import CHECKS, COMPUTES
from pipeline.gpu.devices import Devices, Gpu


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder, with a file of 4,000 bytes; what a planted driver says is kept for no other test."""
    monkeypatch.setattr(pipeline.cluster.placement, "_told", [])
    np.arange(1000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "gpus", "small", "starts"),
    [
        (["histogram", "samples.bin"], 2, 4000, True), (["reduce", "-q", "samples.bin", "samples.bin"], 8, 8000, True),
        (["histogram", "samples.bin"], 2, 4001, False), (["histogram", "samples.bin"], 1, 0, False),
        (["histogram", "samples.bin", "--gpus", "all"], 2, 4001, True),
        (["histogram", "samples.bin", "--gpus", "2"], 3, 4001, True),
        (["histogram", "samples.bin", "--gpus=1", "--gpus=2,0"], 3, 4001, True),
        (["histogram", "samples.bin", "--gpus", "1"], 2, 0, False),
        (["histogram", "--gpus=1,", "samples.bin"], 2, 0, False),
        (["histogram", "samples.bin", "--gpus", "5"], 2, 0, False),
        (["histogram", "samples.bin", "--gpus"], 2, 0, True),
        (["histogram", "samples.bin", "--gpus", "all"], 0, 0, False),
        (["histogram", "samples.bin", "--gpus", "all", "--device", "cpu"], 2, 0, False),
        (["histogram", "samples.bin", "--device", "gpu"], 2, 0, True),
        (["histogram", "samples.bin", "--device"], 2, 0, True),
        (["histogram", "samples.bin"], 0, 0, False), (["histogram", "missing.bin"], 2, 0, False), ([], 2, 0, False),
        (["--help"], 2, 0, False), (["histogram", "samples.bin", "--device", "cpu"], 2, 0, False),
        (["histogram", "samples.bin", "--device=cpu"], 2, 0, False),
        (["histogram", "samples.bin", "--scheduler-file", "file.json"], 2, 0, False),
        (["histogram", "samples.bin", "--help"], 2, 0, False), (["histogram", "-h", "samples.bin"], 2, 0, False),
        (["histogram", "samples.bin", "--dry-run"], 2, 0, False),
    ],
)  # fmt: skip
def test_command_starts_it_first_where_files_are_for_several_gpus(
    words: list[str], gpus: int, small: int, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def best_number(load: Load, usable: int, spawned: bool = False) -> int:
        return usable if load.nbytes >= small else 1

    calls: list[Any] = []
    monkeypatch.setattr(pipeline.cluster.fork_server, "start_early", calls.append)
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: devices(gpus))
    for module in (pipeline.cluster.gpu_count, pipeline.cluster.placement):
        monkeypatch.setattr(module, "best_number", best_number)
    pipeline.__main__.expect_processes(words)
    assert [len(gpus) > 1 for gpus in calls] == [True] * starts


def devices(number: int) -> Devices:
    gpus = tuple(Gpu(i, "planted", f"GPU-{i}", 2**37, 2**37) for i in range(number))
    return Devices(gpus, "1", "1", None if number else "no NVIDIA GPU is visible")


@pytest.mark.parametrize("gpus", [0, 2])
@pytest.mark.parametrize("word", ["plan", "compare", "info", "study", "common", "..", "x" * 5000])
def test_what_is_no_job_starts_nothing(word: str, gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it ask the driver."""
    calls: list[Any] = []
    for name in ("start", "start_early"):
        monkeypatch.setattr(pipeline.cluster.fork_server, name, calls.append)
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: calls.append("asked") or devices(gpus))
    monkeypatch.setattr(pipeline.cluster.placement, "PROCESSES_FROM_BYTES", 0)
    pipeline.__main__.expect_processes([word, "samples.bin", *["--gpus", "all"][:gpus]])
    assert calls == []


@pytest.mark.parametrize(("nbytes", "asks"), [(2**32 - 1, False), (2**32, True), (2**40, True)])
def test_driver_is_asked_first_only_where_several_processes_may_pay(
    nbytes: int, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: calls.append(1) or devices(1))
    os.truncate("samples.bin", nbytes)
    pipeline.__main__.expect_processes(["histogram", "samples.bin"])
    assert len(calls) == asks


@pytest.mark.parametrize(
    ("gpus", "words", "starts"), [("all", [], True), ("2", [], True), ("1", [], False), ("all", ["--gpus", "1"], False)]
)
def test_environment_says_which_gpus(
    gpus: str, words: list[str], starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(pipeline.cluster.fork_server, "start_early", calls.append)
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: devices(2))
    monkeypatch.setenv("DASK_PIPELINE__GPUS", gpus)
    pipeline.__main__.expect_processes(["histogram", "samples.bin", *words])
    assert calls == [[f"GPU-{number}" for number in range(2)]] * starts


@pytest.mark.parametrize(
    ("job", "compiler", "gpus", "cores", "nbytes", "starts"),
    [
        ("matmul", "c++", 0, 2, 4000, True), ("matmul", "c++", 0, 1, 4000, False), ("matmul", "c++", 0, 2, 4001, False),
        ("matmul", "c++", 1, 2, 0, False), ("histogram", None, 0, 2, 4000, True), ("reduce", None, 0, 1, 0, False),
        ("histogram", "c++", 0, 4, 0, False), ("reduce", "c++", 0, 5, 4000, True), ("reduce", "c++", 0, 5, 4001, False),
    ],
)  # fmt: skip
def test_command_starts_it_first_where_files_are_for_several_cores(
    job: str, compiler: str | None, gpus: int, cores: int, nbytes: int, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(pipeline.cluster.fork_server, "start", calls.append)
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: devices(gpus))
    monkeypatch.setattr(pipeline.threads, "cores", lambda: cores)
    monkeypatch.setattr(cxx, "compiler", lambda: compiler and (compiler,))
    monkeypatch.setattr(pipeline.cluster.placement, "PROCESSES_FROM_BYTES", nbytes)
    pipeline.__main__.expect_processes([job, "samples.bin"])
    assert calls == [WORKER] * starts


@pytest.mark.parametrize(("driver", "given"), [(True, None), (True, "mine"), (False, None)])
def test_kernels_of_cupy_are_kept_where_only_this_user_may_write(
    driver: bool, given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*pipeline.threads.BLAS_VARIABLES, "CUPY_CACHE_DIR"):
        monkeypatch.setenv(name, given or "")  # and set back afterwards
    if given is None:
        monkeypatch.delenv("CUPY_CACHE_DIR")
    for name in ("set_threshold", "freeze"):
        monkeypatch.setattr(f"gc.{name}", lambda *_: None)
    monkeypatch.setattr("sys.setswitchinterval", lambda seconds: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "driver").mkdir()
    monkeypatch.setattr(pipeline.__main__, "NVIDIA_DRIVER", str(tmp_path / ("driver" if driver else "none")))
    pipeline.__main__.prepare()
    expected = given or (str(tmp_path / "cache" / "baru" / "cupy") if driver else None)
    assert os.environ.get("CUPY_CACHE_DIR") == expected
    assert (tmp_path / "cache").exists() == (driver and given is None) or given


def test_closed_descriptors_are_not_given_to_files() -> None:
    code = """
import os
from pipeline.process.supervisor import _open_streams
os.close(0); os.close(1); os.close(2)
_open_streams()
os._exit(0 if [os.readlink(f"/proc/self/fd/{number}") for number in range(3)] == ["/dev/null"] * 3 else 1)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("words", "beside_gpu", "on_cpu"),
    [
        (["matmul", "samples.bin", "samples.bin", "-o", "c.npy"], [CHECKS], [COMPUTES]),
        (["transpose", "samples.bin"], [], []),
        (["matmul", "samples.bin", "samples.bin", "--verify", "off"], [], [COMPUTES]),
        (["matmul", "samples.bin"], [], []),
        (["matmul", "samples.bin", "samples.bin", "--device=cpu"], [COMPUTES], [COMPUTES]),
        (["matmul", "samples.bin", "samples.bin", "--scheduler", "tcp://x:1"], [], []),
    ],
)
@pytest.mark.parametrize("driver", [True, False])
def test_products_have_what_checks_or_computes_them_started_first(
    words: list[str], beside_gpu: list[str], on_cpu: list[str], driver: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(pipeline.cluster.helper_process, "start_early", lambda module=CHECKS: calls.append(module))
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: devices(1))
    monkeypatch.setattr(pipeline.__main__, "NVIDIA_DRIVER", os.getcwd() if driver else "/no/driver")
    monkeypatch.setattr(pipeline.__main__, "CHECKED_APART", 8000)
    pipeline.__main__.expect_processes(words)
    assert calls == (beside_gpu if driver else on_cpu)


def test_environment_says_whether_products_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(pipeline.cluster.helper_process, "start_early", lambda: calls.append(1))
    monkeypatch.setattr(pipeline.__main__, "NVIDIA_DRIVER", os.getcwd())
    monkeypatch.setattr(pipeline.__main__, "CHECKED_APART", 0)
    monkeypatch.setenv("DASK_PIPELINE__VERIFY", "off")
    pipeline.__main__.expect_processes(["matmul", "samples.bin", "samples.bin"])
    assert not calls


@pytest.mark.parametrize(
    ("words", "gpus", "instances", "visible", "makes"),
    [
        (["histogram", "samples.bin"], 1, 0, None, True), (["map", "add", "samples.bin"], 1, 0, None, True),
        (["histogram", "samples.bin"], 2, 0, None, False), (["histogram", "samples.bin"], 0, 0, None, False),
        (["histogram", "samples.bin"], 1, 1, None, False), (["histogram", "samples.bin"], 1, 0, "0", False),
        (["histogram", "samples.bin", "--device", "cpu"], 1, 0, None, False),
        (["histogram", "missing.bin"], 1, 0, None, False), (["info", "samples.bin"], 1, 0, None, False),
        (["histogram", "samples.bin", "--scheduler", "tcp://x:1"], 1, 0, None, False),
    ],
)  # fmt: skip
def test_context_of_the_only_gpu_is_begun_first(
    words: list[str], gpus: int, instances: int, visible: str | None, makes: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for number in range(gpus):
        (tmp_path / f"driver/gpus/0000:0{number}:00.0").mkdir(parents=True)
        (tmp_path / f"driver/capabilities/gpu{number}/mig").mkdir(parents=True)
    for number in range(instances):
        (tmp_path / f"driver/capabilities/gpu0/mig/gi{number}").mkdir()
    calls: list[int] = []
    monkeypatch.setattr(pipeline.cluster.cuda_preload, "make_context", lambda: calls.append(1))
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: devices(gpus))
    monkeypatch.setattr(pipeline.__main__, "NVIDIA_DRIVER", str(tmp_path / "driver"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    pipeline.__main__.expect_processes(words)
    assert calls == [1] * makes


def test_a_word_that_is_too_long_for_a_file_is_no_job() -> None:
    assert not pipeline.__main__.has_kernels("x" * 5000) and pipeline.__main__.has_kernels("histogram")


@pytest.mark.parametrize(
    ("words", "driver", "compiled"),
    [
        (["histogram", "samples.bin"], "missing", ["cpu.cpp", "check.cpp"]),
        (["histogram", "samples.bin"], ".", ["pinned.cpp", "check.cpp"]),
        (["histogram", "samples.bin", "--device", "cpu"], ".", ["cpu.cpp", "check.cpp"]),
        (["map", "add", "samples.bin", "samples.bin"], "missing", ["check.cpp"]),
        (["info", "samples.bin"], "missing", []), (["histogram", "missing.bin"], "missing", []),
        (["histogram", "samples.bin", "--help"], "missing", []), (["histogram", "--dry-run", "samples.bin"], ".", []),
    ],
)  # fmt: skip
def test_sources_of_the_job_are_compiled_meanwhile(
    words: list[str], driver: str, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: SimpleQueue[Path] = SimpleQueue()
    monkeypatch.setattr(cxx, "library", calls.put)
    monkeypatch.setattr(pipeline.__main__, "NVIDIA_DRIVER", driver)
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: devices(0))
    pipeline.__main__.expect_processes(words)
    found = [calls.get(timeout=60) for _ in compiled]
    assert sorted(source.name for source in found) == sorted(compiled) and calls.empty()
    assert all(source.is_file() for source in found)


def test_sources_are_compiled_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other's compiler to begin."""
    both, names = Barrier(2), ("one.cpp", "another.cpp")

    def compiled(*_: Any) -> bytes:
        both.wait(60)
        raise OSError

    monkeypatch.setattr(cxx, "compiler", lambda: (sys.executable,))
    monkeypatch.setattr(cxx, "_compile", compiled)
    for name in names:
        (tmp_path / name).touch()
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(cxx.library, (tmp_path / name for name in names))] == [None, None]


@pytest.mark.parametrize("word", ["folder", "x" * 5000, ".."])
def test_sources_elsewhere_are_not_compiled(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first word may be a path, by mistake; a library that is loaded runs what is in it."""
    (tmp_path / "folder").mkdir()
    calls: list[Path] = []
    monkeypatch.setattr(cxx, "expected", calls.append)
    (tmp_path / "folder" / "gpu.py").touch()
    for job in (word, str(tmp_path / word)):
        pipeline.__main__.expect_processes([job, "samples.bin"])
    assert calls == []
