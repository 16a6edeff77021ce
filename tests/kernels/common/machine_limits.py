"""Limits on the resources of a kernel: those that the launch bounds of its source assume."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.kernels.common.test_nvrtc import SHARED

REGISTERS = 65536  # per multiprocessor, on every architecture
# Multiprocessors that hold 2048 threads; the others hold 1024 or 1536.
LARGE = ("sm_80", "sm_90a", "sm_100")
# Kernels that jobs run, by source.
PRODUCTION = {
    "histogram/gpu": r"histogram_\w+", "histogram/rows": r"\w+", "histogram/grouped": r"\w+",
    "reduce/gpu": r"moments|combine|place", "study/matmul": "register_tiled",
    "reduce/gpu_powers": r"\w+",
    "study/stencil": "", "transpose/gpu": "production", "study/reduce": "", "map/gpu": "production",
    "study/histogram": "", "study/map": "", "study/transpose": "", "study/failures": "", "study/architecture": "",
    "study/roofline": r"\w+", "common/stored_samples": r"\w+", "common/lz4": r"\w+", "common/inflate": r"\w+",
    "common/zstd": r"\w+",
    "common/checksums": r"\w+",
    "digest/gpu": r"\w+", "quantile/gpu": r"\w+", "quantile/bracket": r"\w+",
    "select/gpu": r"\w+",
    "matmul/gpu": r"\w+",
    "matmul/small_k": r"\w+", "matmul/small": r"\w+",
    "stencil/gpu": r"\w+", "transpose/strided_copy": r"\w+", "transpose/unaligned": r"\w+",
}  # fmt: skip
# Kernels that keep rarely used values in local memory: maximal bytes per thread.
SELDOM = {
    ("common/lz4", "lz4"): 56,
    ("common/zstd", "zstd"): 72,
    ("matmul/small", "multiply_small"): 32,
    ("matmul/small_k", "multiply_small_k"): 32,
    ("reduce/gpu", "moments"): 24,
    ("stencil/gpu", "box_layers"): 640,
}
ON_HOPPER = {"matmul/small_k"}  # only


def launch(stem: str, instance: str, architecture: str) -> tuple[int, int]:
    """Threads per block and blocks per multiprocessor, from the launch bounds of the source."""
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
        return 512, 1
    if stem == "matmul/small":
        warps = int(rest.split(", ")[1])
        return (128, 1) if warps == 1 else (32 * warps, 1)
    if (stem, kernel) == ("transpose/gpu", "tiled"):
        _, _, _, threads, *aligned = rest.rstrip(">").split(", ")
        of_unaligned = 896 if architecture == "sm_120" else 1024
        of_aligned = 2048 if architecture in LARGE else 1024
        return int(threads), (of_aligned if aligned == ["true", "true"] else of_unaligned) // int(threads)
    if stem == "common/lz4":
        return 128, 4 if architecture in ("sm_100", "sm_120") else 6
    if stem in ("common/inflate", "common/checksums"):
        return 128, 1
    if stem == "common/zstd":
        return 64, 1
    if stem in ("transpose/unaligned", "digest/gpu"):
        return 256, 4
    if stem == "matmul/gpu" and kernel == "multiply":
        rows, columns, of_warp, across, _ = map(int, rest.rstrip(">").split(", "))
        return 32 * (rows // of_warp) * (columns // across), 1
    if kernel == "multiply_warpgroups":
        return 384, 1  # the copying warps count as a whole warpgroup
    if stem == "matmul/gpu":
        c_type, count = (rest.rstrip(">") + ", ").split(", ")[:2]
        if kernel == "split":
            return 256, 4
        if kernel == "dot_products":
            return 256, 1 if architecture == "sm_75" else 2  # limited by shared memory
        return 256, 1 if not kernel.startswith("finish") else 2 if (kernel, count) == ("finish_integers", "21") else 3
    if stem == "stencil/gpu":
        c_type, *others = rest.rstrip(">").split(", ")
        if kernel in ("box", "box_few", "box_layers"):
            threads, _, _, blocks = map(int, (128, 0, 0, 6) if kernel == "box_few" else others[kernel == "box" :][:4])
            fewer = {"sm_90a": blocks, "sm_120": blocks // 2}.get(architecture, min(16, blocks - 1))
            return threads, max(1, fewer)
        of_weighted = {("float", "float"): 8 if architecture == "sm_75" else 10, ("double", "double"): 7}.get(
            (c_type, *others), 5
        )
        of_few = 7 if c_type == "double" else 8 if architecture == "sm_75" else 10
        return 128, {"box_range": 1, "weighted": of_weighted, "few_taps": of_few}[kernel]
    if stem == "select/gpu":  # a block takes 33 KiB of shared memory
        fewer = architecture in ("sm_100", "sm_120") and rest.rstrip(">") in ("i8", "u8", "i16", "u16", "float16")
        return 256, min(2 if fewer else 4, SHARED[architecture] // 34)
    if (stem, kernel) == ("study/roofline", "merge"):
        return 256, 1
    if stem in ("histogram/rows", "histogram/grouped", "quantile/gpu"):
        return 1024, 1
    if stem in ("histogram/gpu", "study/histogram", "study/reduce", "study/roofline"):
        two = architecture in LARGE and not kernel.startswith("histogram_")
        return 1024, 2 if two else 1
    return 256, 1


@dataclass(frozen=True)
class Taken:
    """Resource usage of a kernel.

    Attributes
    ----------
    registers
        Per thread.
    local
        Bytes of local memory per thread, including the stack: spilled registers.
    shared
        Bytes of static shared memory per block.
    """

    registers: int
    local: int
    shared: int


@dataclass(frozen=True)
class Allowed:
    """Limits for a production kernel: bytes of local memory per thread, and so few registers that `blocks` blocks of
    `threads` threads are resident on a multiprocessor."""

    local: int
    threads: int
    blocks: int


def allowed_for(stem: str, instance: str, architecture: str) -> Allowed | None:
    """The limits; None for a kernel that no job runs."""
    kernel = instance.partition("<")[0]
    if not re.fullmatch(PRODUCTION[stem], kernel):
        return None
    return Allowed(SELDOM.get((stem, kernel), 0), *launch(stem, instance, architecture))


def excesses(stem: str, architecture: str, kernels: dict[str, Taken]) -> list[str]:
    """Kernel, architecture, limit and value wherever a limit is exceeded."""
    over = []
    for instance, taken in kernels.items():
        what = f"kernels/{stem}.cu, {instance}, {architecture}"
        if taken.shared > 48 * 1024:
            over.append(f"{what}: expected at most 49152 bytes of static shared memory, takes {taken.shared}")
        allowed = allowed_for(stem, instance, architecture)
        if allowed is None:
            continue
        if taken.local > allowed.local:
            over.append(f"{what}: expected everything in registers, {taken.local} bytes per thread are in local memory")
        threads, blocks = allowed.threads, allowed.blocks
        most = REGISTERS // (threads * blocks) // 8 * 8
        if taken.registers > most:
            over.append(f"{what}: expected at most {most} registers for {blocks} x {threads} threads, "
                        f"takes {taken.registers}")  # fmt: skip
        if taken.shared * blocks > SHARED[architecture] * 1024:
            over.append(f"{what}: expected {blocks} blocks to fit into {SHARED[architecture]} KiB of shared memory, "
                        f"each takes {taken.shared} bytes")  # fmt: skip
    return over
