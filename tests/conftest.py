"""Options and fixtures of all tests; tests of kernels run on a GPU, or where there is none through the emulator."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import pipeline.engine.run_loop
import pipeline.process.last_words
from kernels.common import cxx
from pipeline.cluster.placement import Placement, open_workers
from pipeline.cluster.workers import Workers
from pipeline.gpu.devices import find_devices
from tests import watchdog
from tests.emulator import recording
from tests.emulator.build import NoCompilerError, compiler
from tests.emulator.cupy import on_host
from tests.emulator.device import HOST
from tests.emulator.kinds import KINDS, ORDERS
from tests.emulator.records import FOLDER

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")

TESTS = Path(__file__).parent
FIRST = "project/test_project.py"  # ruff and mypy, so that a typo fails in seconds
# Files that take longest: with several processes they start early, so that none is left running alone at the end.
LONGEST = (
    "kernels/common/test_machine_code.py",
    "emulator/test_mutants.py",
    "emulator/test_schedules.py",
    "emulator/test_sanitized.py",
    "kernels/common/test_cxx_sanitized.py",
    "kernels/study/test_matmul_gpu.py",
    "kernels/matmul/test_residue.py",
    "kernels/study/test_reduce.py",
    "pipeline/cluster/test_fork_server.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """How kernels run in the emulator, and which recorded outcomes are repeated."""
    parser.addoption("--schedule-seed", type=int, help="order of threads, warps and blocks; as a failure names it")
    parser.addoption("--schedules", type=int, default=ORDERS, help=f"schedules for every variant (default: {ORDERS})")
    recording.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Signals do what they usually do; xdist hands out files in the order of the collection, not by their length."""
    for number in (signal.SIGINT, signal.SIGHUP):  # ignored in the background of a script, or under nohup
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    option = config.option
    if hasattr(option, "loadscopereorder"):
        option.loadscopereorder = False
    others = option.schedule_seed is not None or option.schedules != ORDERS
    if others and (option.full or option.record):
        raise pytest.UsageError(
            f"--full and --record: expected the {ORDERS} usual schedules, got others; leave them out"
        )
    config.pluginmanager.register(watchdog.Watchdog(config), "watchdog")
    plugin = recording.Recording(config, KINDS, FOLDER, runs_all=others)
    config.pluginmanager.register(plugin, "recorded outcomes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs more GPUs than there are, and say so; put ruff and mypy first, then the longest files."""
    order = (FIRST, *LONGEST)
    rank = {str(TESTS / name): number for number, name in enumerate(order)}
    items.sort(key=lambda item: rank.get(str(item.path), len(rank)))
    gpus = find_devices().usable
    for item in items:
        for marker, needed in (("hardware", 1), ("multigpu", 2)):
            if item.get_closest_marker(marker) and gpus < needed:
                item.add_marker(pytest.mark.skip(reason=f"needs {needed} GPU(s), {gpus} usable here"))


@pytest.fixture(autouse=True, scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the user's own state folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def not_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What earlier tests abandoned, like a cluster that was slow to close, would have a command end this process."""
    monkeypatch.setattr(pipeline.process.last_words, "_abandoned", False)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """One cluster on the CPU for all tests of a module."""
    with open_workers(Placement(device="cpu"), 0) as workers:
        yield workers


@pytest.fixture
def shared(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run uses that cluster."""
    monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", lambda *_: nullcontext(workers))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The emulator's CuPy; kernels run in the emulator."""
    try:
        compiler()
    except NoCompilerError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"kernels cannot run here: {error}")
    with on_host(monkeypatch) as cupy:
        yield cupy


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> None:
    """A GPU for tests marked `gpu`, or the emulator, with an order of threads that the test's name decides."""
    if request.node.get_closest_marker("gpu") and not find_devices().usable:
        request.getfixturevalue("host")
        seed = request.config.getoption("--schedule-seed")
        HOST.seed = zlib.crc32(request.node.name.encode()) if seed is None else seed


@pytest.fixture
def cp(device: None) -> Iterator[Any]:
    """CuPy or the emulator's; memory that it caches is freed after the test."""
    import cupy

    yield cupy
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects statuses of CUDA's driver that CuPy would turn into errors."""
    statuses: list[int] = []

    def error(status: int) -> Exception:
        statuses.append(status)
        return RuntimeError("refused")

    monkeypatch.setattr("pipeline.gpu.pinned._refusal", error)
    return statuses


@pytest.fixture
def compiled(request: pytest.FixtureRequest) -> Any:
    """The functions of the C++ file that the test's module names as SOURCE; skipped where there is no compiler."""
    library = cxx.library(request.module.SOURCE)
    if library is None:
        if cxx.compiler() or os.environ.get("CI") == "true":
            raise RuntimeError(f"expected {request.module.SOURCE} to be compiled")
        pytest.skip("no C++ compiler")
    return library


@pytest.fixture
def count_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[Any]]:
    """(module, function) -> the arguments of each call of it from now on."""

    def count(module: Any, name: str) -> list[Any]:
        calls: list[Any] = []
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *arguments: (calls.append(arguments), function(*arguments))[1])
        return calls

    return count


@pytest.fixture(params=["compiled", "NumPy"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What computes: the compiled SOURCE, or NumPy as on a machine without a compiler."""
    if request.param == "NumPy":
        monkeypatch.setattr(cxx, "library", lambda stem: None)
    else:
        request.getfixturevalue("compiled")
    return str(request.param)
