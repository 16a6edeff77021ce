"""Every kernel compiles for every GPU without a warning, and takes no more of one than it was built to take."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from kernels.common import nvrtc
from kernels.transpose import unaligned
from pipeline.study.inspection import inspect
from tests.emulator.build import sources, stem_of
from tests.emulator.kinds import MACHINE_CODE
from tests.emulator.recording import Due
from tests.kernels.common.machine_code import (
    ARCHITECTURES,
    INSTANCES,
    TASKS,
    TWINS,
    compiled,
    instances_of,
)
from tests.kernels.common.machine_limits import LARGE, ON_HOPPER, PRODUCTION, Taken, excesses
from tests.kernels.common.test_nvrtc import SHARED, require_compiler

Futures = dict[tuple[str, str], "Future[tuple[str, dict[str, Taken]]]"]


@pytest.fixture(scope="module")
def futures(request: pytest.FixtureRequest) -> Iterator[Futures]:
    """Of the tasks of this run; in processes, because NVRTC lets threads wait for each other."""
    require_compiler()
    calls = [item.callspec.params for item in request.session.items if getattr(item, "callspec", None)]
    tasks = [(call["stem"], call["architecture"]) for call in calls if {"stem", "architecture"} <= call.keys()]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(tasks)), mp_context=get_context("spawn")) as pool:
        yield {task: pool.submit(compiled, *task) for task in tasks if task in TASKS}


@pytest.mark.timeout(600)  # the first one waits for most of it, on a busy machine for minutes
@pytest.mark.parametrize(
    ("stem", "architecture"), [pytest.param(*task, marks=pytest.mark.recorded(MACHINE_CODE, [task])) for task in TASKS]
)
def test_compiles_within_its_limits(futures: Futures, stem: str, architecture: str, due: Due) -> None:
    log, kernels = futures[stem, architecture].result()
    assert log == "", f"kernels/{stem}.cu, {architecture}: {log}"
    assert list(kernels) == instances_of(stem, architecture)
    assert excesses(stem, architecture, kernels) == []
    due.outcomes[stem, architecture] = {"instances": len(kernels)}


def test_excess_is_named() -> None:
    """Kernel, architecture, limit and value."""
    kernels = {
        "histogram_shift<int, 8, 1>": Taken(65, 16, 50_000),
        "shared<int, false>": Taken(255, 8, 4096),
    }
    start = "kernels/histogram/gpu.cu, histogram_shift<int, 8, 1>, sm_90a: expected "
    assert excesses("histogram/gpu", "sm_90a", kernels) == [
        start + "at most 49152 bytes of static shared memory, takes 50000",
        start + "everything in registers, 16 bytes per thread are in local memory",
        start + "at most 64 registers for 1 x 1024 threads, takes 65",
    ]
    assert excesses("histogram/gpu", "sm_86", {"histogram_shift<int, 8, 1>": Taken(64, 0, 0)}) == []


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name != "sm_75"])
def test_histogram_increments_by_one_instruction(architecture: str) -> None:
    """Not by a loop that compares and swaps, which is what other counters than 32-bit ones become."""
    require_compiler()
    instances = {
        "histogram_shift": "histogram_shift<int, 4, 1>",
        "histogram_bytes": "histogram_bytes<u8, 32>",
    }
    for kernel in inspect("histogram/gpu", instances, architecture):
        atomics = [line.split("  ")[1] for line in kernel.listing if "ATOMS" in line]
        fused = [line for line in atomics if "ATOMS.POPC.INC" in line]
        assert fused and fused == atomics, f"{kernel.instance}, {architecture}: expected ATOMS.POPC.INC, got {atomics}"


@pytest.mark.parametrize("itemsize", unaligned.SHAPES)
def test_ragged_transposes_load_before_they_store(itemsize: int) -> None:
    """The loads of a tile are in flight together: none of them waits behind what is done with another."""
    require_compiler()
    (kernel,) = inspect("transpose/unaligned", {"ragged": unaligned.instance(itemsize)}, "sm_90a")
    found = re.findall(r"\b(LDG|STS)\b", "\n".join(kernel.listing))
    loads = found.count("LDG")
    assert loads > 8 and found == ["LDG"] * loads + ["STS"] * loads, found


def test_every_source_is_compiled() -> None:
    assert set(INSTANCES) == set(map(stem_of, sources())) == set(PRODUCTION)
    assert {architecture for _, architecture in TASKS} == set(ARCHITECTURES)
    for stem, instances in INSTANCES.items():
        found = [instances(architecture) for architecture in ARCHITECTURES]
        assert sum(map(bool, found)) == (1 if stem in ON_HOPPER else len(found)), stem
        assert all(len(set(names)) == len(names) for names in found), stem


@pytest.mark.parametrize(("one", "other"), TWINS.items())
def test_no_source_tells_twins_apart(one: str, other: str) -> None:
    """Every condition of an architecture holds for both or for neither, so that both are given the same code."""
    assert SHARED[one] == SHARED[other] and (one in LARGE) == (other in LARGE)
    for path in sorted(nvrtc.KERNELS.glob("*/*.cu*")):
        text = re.sub(r"//.*", "", path.read_text()).replace("\\\n", " ")
        for line in [line.strip() for line in text.splitlines() if "__CUDA_ARCH__" in line]:
            holds = {meets(line, 10 * int(architecture.removeprefix("sm_"))) for architecture in (one, other)}
            assert len(holds) == 1, f"{path.name}: {line}"


def meets(directive: str, architecture: int) -> bool:
    """Whether code after it is compiled: its condition in Python's words."""
    found = re.fullmatch(r"#(?:(if|elif)|ifdef|ifndef) (.*)", directive)
    assert found, f"expected a condition of the preprocessor, got {directive}"
    text = found[2].replace("defined(__CUDA_ARCH__)", "True").replace("__CUDA_ARCH__", str(architecture))
    return bool(eval(re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or "))))


def test_what_tells_architectures_apart_is_seen() -> None:
    condition = "#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 750 || (__CUDA_ARCH__ != 860 && __CUDA_ARCH__ >= 800)"
    assert [meets(condition, architecture) for architecture in (750, 700, 860, 890)] == [True, False, False, True]
    assert list(TWINS) == ["sm_89"] and instances_of("study/stencil", "sm_89")[0].startswith("global_memory<")
    kernels = [instance.partition("<")[0] for instance in instances_of("study/stencil", "sm_89")]
    assert sorted(kernels) == sorted({instance.partition("<")[0] for instance in INSTANCES["study/stencil"]("sm_89")})
