"""Every kernel compiles for every GPU without a warning and stays within its resource limits."""

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
    """Results of this run's compilations, in processes, because NVRTC serializes threads."""
    require_compiler()
    calls = [item.callspec.params for item in request.session.items if getattr(item, "callspec", None)]
    tasks = [(call["stem"], call["architecture"]) for call in calls if {"stem", "architecture"} <= call.keys()]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(tasks)), mp_context=get_context("spawn")) as pool:
        yield {task: pool.submit(compiled, *task) for task in tasks if task in TASKS}


@pytest.mark.timeout(600)  # the first test waits for most compilations, minutes on a busy machine
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
    """No compare-and-swap loop, which is what counters other than 32-bit ones compile to."""
    require_compiler()
    instances = {
        "histogram_shift": "histogram_shift<int, 2, 1, true>",
        "histogram_linear": "histogram_linear<int, 1, 2>",
        "histogram_steps": "histogram_steps<float, 16, 16>",
        "histogram_search": "histogram_search<double, 1, 1, true, ByBits<double>, u32>",
        "histogram_narrow": "histogram_narrow<i16, 16>",
        "histogram_bytes": "histogram_bytes<u8, 32>",
    }
    for kernel in inspect(nvrtc.KERNELS / "histogram/gpu.cu", instances, architecture):
        atomics = [line.split("  ")[1] for line in kernel.listing if "ATOMS" in line]
        fused = [line for line in atomics if "ATOMS.POPC.INC" in line]
        assert fused and fused == atomics, f"{kernel.instance}, {architecture}: expected ATOMS.POPC.INC, got {atomics}"


@pytest.mark.parametrize("itemsize", unaligned.SHAPES)
def test_unaligned_transposes_load_before_they_store(itemsize: int) -> None:
    """The loads of a tile are in flight together: no store comes between them."""
    require_compiler()
    (kernel,) = inspect(nvrtc.KERNELS / "transpose/unaligned.cu", {"unaligned": unaligned.instance(itemsize)}, "sm_90a")
    accesses = re.findall(r"\b(LDG|STS)\b", "\n".join(kernel.listing))
    loads = accesses.count("LDG")
    assert loads > 8 and accesses == ["LDG"] * loads + ["STS"] * loads, accesses


def test_every_source_is_compiled() -> None:
    assert set(INSTANCES) == set(map(stem_of, sources())) == set(PRODUCTION)
    assert {architecture for _, architecture in TASKS} == set(ARCHITECTURES)
    for stem, instances in INSTANCES.items():
        compiled_for = [instances(architecture) for architecture in ARCHITECTURES]
        assert sum(map(bool, compiled_for)) == (1 if stem in ON_HOPPER else len(compiled_for)), stem
        assert all(len(set(names)) == len(names) for names in compiled_for), stem


@pytest.mark.parametrize(("one", "other"), TWINS.items())
def test_no_source_tells_twins_apart(one: str, other: str) -> None:
    """Only arch.cuh depends on the architecture, and it gives both the same constants, so they get the same code."""
    assert SHARED[one] == SHARED[other] and (one in LARGE) == (other in LARGE)
    for path in sorted(nvrtc.KERNELS.glob("*/*.cu*")):
        text = re.sub(r"//.*", "", path.read_text())
        if path.name != "arch.cuh":
            assert not re.search(r"__CUDA_ARCH__|\bARCHITECTURE\b", text), path
    text = (nvrtc.KERNELS / "common/arch.cuh").read_text()
    of_one, of_other = (facts(text, 10 * int(architecture.removeprefix("sm_"))) for architecture in (one, other))
    assert of_one == of_other and {"HAS_ASYNC_COPY", "TURING", "THREADS_PER_SM"} <= of_one.keys()


def facts(text: str, architecture: int) -> dict[str, int]:
    """Architecture-dependent macros and constants of a header, evaluated for this architecture."""
    text = re.sub(r"//.*", "", text)
    values = {"ON_GPU": 1, "ARCHITECTURE": architecture}
    pattern = r"^#define (\w+) +(\(.*\)) *$|^constexpr \w+ (\w+) =\s*([^;]*);"
    for macro, of_macro, constant, of_constant in re.findall(pattern, text, re.MULTILINE):
        values[macro or constant] = evaluate(of_macro or of_constant, values)
    del values["ARCHITECTURE"]
    assert len(values) == len(re.findall(r"^#define \w+ +\(|^constexpr", text, re.MULTILINE)) + 1
    return values


def evaluate(expression: str, values: dict[str, int]) -> int:
    """A C++ condition as a Python expression; `a ? b : c` as well."""
    condition, chosen, rest = expression.partition("?")
    if chosen:
        yes, _, no = rest.partition(":")
        return evaluate(yes if evaluate(condition, values) else no, values)
    text = re.sub(r"!(?!=)", " not ", expression.replace("&&", " and ").replace("||", " or "))
    return int(eval(" ".join(text.split()), {}, values))


def test_what_tells_architectures_apart_is_seen() -> None:
    text = """
#define HAS_ONE (ON_GPU && ARCHITECTURE >= 800)  // one
constexpr bool OLD = ARCHITECTURE == 750 || (ARCHITECTURE != 860 && ARCHITECTURE < 800);
constexpr int MOST =
    OLD ? 1 : !HAS_ONE || ARCHITECTURE == 890 ? 2 : 3;
"""
    of = [tuple(facts(text, architecture).values())[1:] for architecture in (750, 700, 860, 890)]
    assert of == [(0, 1, 1), (0, 1, 1), (1, 0, 3), (1, 0, 2)]
    assert list(TWINS) == ["sm_89"] and instances_of("study/stencil", "sm_89")[0].startswith("global_memory<")
    kernels = [instance.partition("<")[0] for instance in instances_of("study/stencil", "sm_89")]
    assert sorted(kernels) == sorted({instance.partition("<")[0] for instance in INSTANCES["study/stencil"]("sm_89")})
