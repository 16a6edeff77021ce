"""Fixtures of all tests. Tests of kernels run on a GPU, and where there is none on the host (emulator/device.py)."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import pipeline.engine.aggregate
import pipeline.engine.array
from kernels.common import cxx
from pipeline.cluster.placement import Placement, Workers, open_workers
from pipeline.gpu.devices import find_devices
from tests.emulator import recording
from tests.emulator.build import NoCompilerError, compiler
from tests.emulator.cupy import on_host
from tests.emulator.device import HOST
from tests.emulator.kinds import KINDS, ORDERS
from tests.emulator.records import FOLDER

# Files that take minutes. Several processes start with them: behind all others one would wait for another's.
TESTS = Path(__file__).parent
LONGEST = (
    "kernels/common/test_machine_code.py",
    "emulator/test_mutants.py",
    "emulator/test_schedules.py",
    "emulator/test_sanitized.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """How to run kernels on the host."""
    parser.addoption("--schedule-seed", type=int, help="order of threads, warps and blocks; as a failure names it")
    parser.addoption("--schedules", type=int, default=ORDERS, help=f"schedules for every variant (default: {ORDERS})")
    recording.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Processes are handed files in the order of the collection, where xdist can, and not those of many tests first."""
    option = config.option
    if hasattr(option, "loadscopereorder"):
        option.loadscopereorder = False
    others = option.schedule_seed is not None or option.schedules != ORDERS
    if others and (option.full or option.record):
        raise pytest.UsageError(f"--full and --record: expected the {ORDERS} usual schedules, got others; leave them out")
    plugin = recording.Recording(config, KINDS, FOLDER, runs_all=others)
    config.pluginmanager.register(plugin, "recorded outcomes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs more GPUs than there are, and say so; what takes longest comes first."""
    if hasattr(config, "workerinput"):  # one process of several
        items.sort(
            key=lambda item: (
                LONGEST.index(name) if (name := str(item.path.relative_to(TESTS))) in LONGEST else len(LONGEST)
            )
        )
    gpus = find_devices().usable
    for item in items:
        for marker, needed in (("hardware", 1), ("multigpu", 2)):
            if item.get_closest_marker(marker) and gpus < needed:
                item.add_marker(pytest.mark.skip(reason=f"needs {needed} GPU(s), {gpus} usable here"))


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """One cluster on the CPU for all tests of a module."""
    with open_workers(Placement(device="cpu"), 0) as workers:
        yield workers


@pytest.fixture
def shared(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run goes to it."""
    for module in (pipeline.engine.array, pipeline.engine.aggregate):
        monkeypatch.setattr(module, "open_workers", lambda *_, **__: nullcontext(workers))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What stands for CuPy where kernels run on the host."""
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
    """A GPU for the tests that are marked so, or the host with an order of threads that the test's name decides."""
    if request.node.get_closest_marker("gpu") and not find_devices().usable:
        request.getfixturevalue("host")
        seed = request.config.getoption("--schedule-seed")
        HOST.seed = zlib.crc32(request.node.name.encode()) if seed is None else seed


@pytest.fixture
def cp(device: None) -> Iterator[Any]:
    """CuPy, or what stands for it; what it keeps of the device's memory is given back after the test."""
    import cupy

    yield cupy
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Statuses of CUDA's driver of which CuPy would make an error."""
    found: list[int] = []

    def error(status: int) -> Exception:
        found.append(status)
        return RuntimeError("refused")

    monkeypatch.setattr("pipeline.gpu.pinned._refusal", error)
    return found


@pytest.fixture
def compiled(request: pytest.FixtureRequest) -> Any:
    """The functions of the C++ file that the test's module names as SOURCE; skipped where there is no compiler."""
    library = cxx.library(request.module.SOURCE)
    if library is None:
        if cxx.compiler() or os.environ.get("CI") == "true":
            raise RuntimeError(f"expected {request.module.SOURCE} to be compiled")
        pytest.skip("no C++ compiler")
    return library


@pytest.fixture(params=["compiled", "NumPy"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What does the work: compiled SOURCE, or what there is without a compiler."""
    if request.param == "NumPy":
        monkeypatch.setattr(cxx, "library", lambda stem: None)
    else:
        request.getfixturevalue("compiled")
    return str(request.param)
