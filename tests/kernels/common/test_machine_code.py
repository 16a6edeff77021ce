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
from tests.kernels.common.machine_code import (
    ARCHITECTURES,
    INSTANCES,
    REGISTERS,
    TASKS,
    TWINS,
    Taken,
    compiled,
    instances_of,
)
from tests.kernels.common.test_nvrtc import SHARED, require_compiler

# Multiprocessors that hold 2048 threads; the others hold 1024 or 1536.
LARGE = ("sm_80", "sm_90a", "sm_100")
# Kernels that jobs run: threads of a block, and blocks that a multiprocessor is to hold at least.
PRODUCTION = {
    "histogram/gpu": r"histogram_\w+", "reduce/gpu": r"moments|combine|place", "study/matmul": "register_tiled",
    "study/stencil": "production", "transpose/gpu": "tiled", "study/reduce": "production", "map/gpu": "elementwise",
    "study/histogram": "", "study/map": "", "study/transpose": "",
    "study/roofline": r"\w+", "matmul/residue": r"\w+", "matmul/small_k": r"\w+", "matmul/small": r"\w+",
    "stencil/gpu": r"\w+", "transpose/strided_copy": r"\w+", "transpose/unaligned": r"\w+",
}  # fmt: skip
# Kernels that keep in local memory what they seldom need: bytes per thread at most.
SELDOM = {
    ("matmul/small", "multiply_small"): 32,
    ("matmul/small_k", "multiply_short"): 32,
    ("reduce/gpu", "moments"): 24,
}
ON_HOPPER = {"matmul/small_k"}  # alone


def launch(stem: str, instance: str, architecture: str) -> tuple[int, int]:
    """Threads of a block and blocks of a multiprocessor, as the launch bounds of the source say."""
    kernel, _, rest = instance.partition("<")
    if kernel == "register_tiled":
        c_type, micro, _ = rest.split(", ")
        return 256, 2 if int(micro) ** 2 * {"float": 4, "double": 8}[c_type] <= 256 else 1
    if kernel == "moments":
        c_type, parts = rest.rstrip(">").split(", ")
        two = (c_type == "float" and parts in "37") or (c_type == "double" and parts in "1357")
        elsewhere = (c_type, parts) == ("float16", "7") and architecture != "sm_90a"
        return 256, 2 if two or elsewhere else 3
    if stem == "matmul/small_k":
        return 256 if "64" in instance else 512, 1
    if stem == "matmul/small":
        warps = int(rest.split(", ")[1])
        return (128, 1) if warps == 1 else (32 * warps, 1)
    if (stem, kernel) == ("transpose/gpu", "tiled"):
        _, _, _, threads, *aligned = rest.rstrip(">").split(", ")
        of_unaligned = 896 if architecture == "sm_120" else 1024
        of_aligned = 2048 if architecture in LARGE else 1024
        return int(threads), (of_aligned if aligned == ["true", "true"] else of_unaligned) // int(threads)
    if stem == "transpose/unaligned":
        return 256, 4
    if stem == "matmul/residue" and kernel == "multiply":
        rows, columns, of_warp, across, _ = map(int, rest.rstrip(">").split(", "))
        return 32 * (rows // of_warp) * (columns // across), 1
    if kernel == "multiply_warpgroups":
        return 384, 1  # those that bring copies count as a whole warpgroup
    if stem == "matmul/residue":
        c_type, count = (rest.rstrip(">") + ", ").split(", ")[:2]
        if kernel == "split":
            return 256, 4
        if kernel == "dot_products":
            return 256, 1 if architecture == "sm_75" else 2  # whose shared memory holds no more
        return 256, 1 if not kernel.startswith("finish") else 2 if (kernel, count) == ("finish_integers", "21") else 3
    if stem == "stencil/gpu":
        c_type, *others = rest.rstrip(">").split(", ")
        if kernel == "box":
            blocks = int(others[4])
            fewer = {"sm_90a": blocks, "sm_120": blocks // 2}.get(architecture, min(16, blocks - 1))
            return int(others[1]), max(1, fewer)
        if kernel == "box_far":
            return 64 if c_type == "double" else 128, 3
        of_weighted = {("float", "float"): 8 if architecture == "sm_75" else 10, ("double", "double"): 7}.get(
            (c_type, *others), 5
        )
        of_few = 7 if c_type == "double" else 8 if architecture == "sm_75" else 10
        return 128, {"box_wide": 4, "box_range": 1, "weighted": of_weighted, "few_taps": of_few}[kernel]
    if (stem, kernel) == ("study/roofline", "merge"):
        return 256, 1
    if stem in ("histogram/gpu", "study/histogram", "study/reduce", "study/roofline"):
        wide = "double" in instance and (stem, kernel) == ("study/reduce", "production") and architecture != "sm_90a"
        two = architecture in LARGE and not kernel.startswith("histogram_") and not wide
        return 1024, 2 if two else 1
    return 256, 1


Futures = dict[tuple[str, str], "Future[tuple[str, dict[str, Taken]]]"]


@pytest.fixture(scope="module")
def futures() -> Iterator[Futures]:
    """In processes, because NVRTC lets threads wait for each other."""
    require_compiler()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        yield {task: pool.submit(compiled, *task) for task in TASKS}


@pytest.mark.timeout(600)  # the first one waits for most of it, on a busy machine for minutes
@pytest.mark.parametrize(("stem", "architecture"), TASKS)
def test_compiles_within_its_limits(futures: Futures, stem: str, architecture: str) -> None:
    log, kernels = futures[stem, architecture].result()
    assert log == "", f"kernels/{stem}.cu, {architecture}: {log}"
    assert list(kernels) == instances_of(stem, architecture)
    assert excesses(stem, architecture, kernels) == []


def excesses(stem: str, architecture: str, kernels: dict[str, Taken]) -> list[str]:
    """Kernel, architecture, limit and value of everything that is too much."""
    found = []
    for instance, taken in kernels.items():
        what = f"kernels/{stem}.cu, {instance}, {architecture}"
        if taken.shared > 48 * 1024:
            found.append(f"{what}: expected at most 49152 bytes of static shared memory, takes {taken.shared}")
        if not re.fullmatch(PRODUCTION[stem], instance.partition("<")[0]):
            continue
        if taken.local > SELDOM.get((stem, instance.partition("<")[0]), 0):
            found.append(
                f"{what}: expected everything in registers, {taken.local} bytes per thread are in local memory"
            )
        threads, blocks = launch(stem, instance, architecture)
        most = REGISTERS // (threads * blocks) // 8 * 8
        if taken.registers > most:
            found.append(f"{what}: expected at most {most} registers for {blocks} x {threads} threads, "
                         f"takes {taken.registers}")  # fmt: skip
        if taken.shared * blocks > SHARED[architecture] * 1024:
            found.append(f"{what}: expected {blocks} blocks to fit into {SHARED[architecture]} KiB of shared memory, "
                         f"each takes {taken.shared} bytes")  # fmt: skip
    return found


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
def test_unaligned_transposes_load_before_they_store(itemsize: int) -> None:
    """The loads of a tile are in flight together: none of them waits behind what is done with another."""
    require_compiler()
    (kernel,) = inspect("transpose/unaligned", {"unaligned": unaligned.instance(itemsize)}, "sm_90a")
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
