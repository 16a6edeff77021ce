"""Compiles every kernel that a wrapper can request, for every architecture, and reports its resource usage."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from kernels.common import cache, checksums, device, inflate, lz4, nvrtc, stored_samples, zstd
from kernels.digest import gpu as digest_gpu
from kernels.histogram import grouped
from kernels.histogram.guess import key_of
from kernels.histogram.launch import C_TYPES, KEY_TYPES
from kernels.map import gpu
from kernels.matmul import planes, residue, small, small_k
from kernels.matmul.formats import FORMATS, MOST_PRODUCTS, bits_of, moduli_for
from kernels.quantile import bracket_steps
from kernels.quantile import gpu as quantile
from kernels.reduce import gpu as reduce_device
from kernels.reduce import gpu_powers
from kernels.select import gpu as select
from kernels.stencil import gpu as stencil_gpu
from kernels.stencil import weighted
from kernels.study import architecture as architecture_study
from kernels.study import failures, matmul, reduce, roofline, stencil
from kernels.study import histogram as ladder
from kernels.study import map as map_study
from kernels.study import transpose as transpose_study
from kernels.transpose import gpu as transpose
from kernels.transpose import strided_copy, unaligned
from pipeline.study.inspection import RESERVED, _resources, _run, find_tools
from tests.emulator.build import flatten, source_of
from tests.emulator.inputs import cuda_texts, digest, function_texts
from tests.kernels.common.machine_limits import Taken, allowed_for, excesses
from tests.kernels.common.test_nvrtc import ORDER, SHARED, histogram_instances

ARCHITECTURES = tuple(SHARED)
# Same instructions and limits as another one, and no source distinguishes them: one instance per kernel is enough.
TWINS = {"sm_89": "sm_86"}


def _map_study() -> list[str]:
    return [f"{name}<{c_type}>" for name in map_study.INSTANCES for c_type in map_study.COURSE_TYPES.values()]


def _matmul() -> list[str]:
    names = []
    for c_type in matmul.C_TYPES.values():
        names += [f"{name}<{c_type}>" for name in ("blocks_1d", "blocks_2d", "uncoalesced", "rolled", "unrolled",
                                                   "whole_rows", "unrolled_rows", "past_the_end")]  # fmt: skip
        for name in ("shared_tile", "shared_sums", "missing_barrier", "stale_tile"):
            names += [f"{name}<{c_type}, {width}>" for width in matmul.WIDTHS]
        for micro in matmul.MICROS:
            names += [f"register_tiled<{c_type}, {micro}, {aligned}>" for aligned in ("true", "false")]
    return names


def _reduction() -> list[str]:
    names = ["float_drift"]
    for name in reduce.INSTANCES:
        operations = {"atomic_max": ("Max",), "float_drift": ()}.get(name, ("Sum", "Max"))
        for own in (", true", ", false") if name == "missing_barrier" else ("",):
            names += [f"{name}<{op}<{c_type}>{own}>" for op in operations for c_type in reduce.COURSE_TYPES.values()]
    return names


def _stencil() -> list[str]:
    names = []
    for c_type in stencil.COURSE_TYPES.values():
        names += [f"global_memory<{c_type}>", f"past_the_end<{c_type}>"]
        names += [f"shared_halo<{c_type}, {barrier}>" for barrier in ("true", "false")]
    return names


def _transpose_study() -> list[str]:
    names = []
    for c_type in transpose.UINT_OF_SIZE.values():
        names += [f"{name}<{c_type}, 32>" for name in ("missing_barrier", "past_the_end")]
        for tile in transpose_study.TILES:
            names += [f"{name}<{c_type}, {tile}>" for name in ("naive", "shared_tile", "padded_tile")]
    return names


def _reduce(architecture: str) -> list[str]:
    """All of them on one architecture; on the others those that compute everything, so contain all parts."""
    return [name for name in reduce_device.INSTANCES
            if architecture == device.HOPPER or "<" not in name or name.endswith(", 7>")]  # fmt: skip


def _residue(architecture: str) -> list[str]:
    """One of each kind. On one architecture also splits into the fewest and the most moduli that a dtype needs, and
    reconstruction from any number: other numbers of moduli only change loop lengths."""
    names = list(residue.INSTANCES)
    if architecture != device.HOPPER:
        return names
    names += [planes.HOPPER.kernel]
    for name, c_type in residue.C_TYPES.items():
        own = bits_of(np.dtype(name))
        others = (own, own) if name in FORMATS else (7, 64)
        counts = [moduli_for(own + other, inner) for other, inner in zip(others, (1, MOST_PRODUCTS), strict=True)]
        names += [
            f"split<{c_type}, {count}, {columns}, {in_pieces}>"
            for count, columns in zip(counts, ("true", "false"), strict=True)
            for in_pieces in ("true", "false")
        ]
        if name in FORMATS:
            names += [f"finish_floats<{c_type}, {count}>" for count in range(counts[0], counts[1] + 1)]
    least, most = moduli_for(14, 1), moduli_for(128, MOST_PRODUCTS)
    names += [f"finish_integers<i64, {count}>" for count in range(least, most + 1)]
    names += [f"finish_integers<int, {count}>" for count in (least, most)]
    return list(dict.fromkeys(names))


def _small(architecture: str) -> list[str]:
    """All of them on one architecture; on the others the smallest and the largest."""
    return [name for name in small.INSTANCES
            if architecture == "sm_90a" or re.search(r"(32, 1, 1|64, 4, 4), true|64, 1, 1, false", name)]  # fmt: skip


def _stencil_gpu(architecture: str) -> list[str]:
    """All of them on one architecture; on the others those with the fewest and the most taps."""
    ends = tuple(f", {taps}>" for taps in (weighted.FEW[4][0], weighted.FEW[4][-1]))
    return [name for name in stencil_gpu.INSTANCES
            if architecture == device.HOPPER or "few_taps" not in name or name.endswith(ends)]  # fmt: skip


def _rows(architecture: str) -> list[str]:
    """All kinds on one architecture, with the narrowest and the widest packs; on the others one for each type."""
    names = []
    for dtype, c_type in C_TYPES.items():
        kind, key = np.dtype(dtype), KEY_TYPES.get(key_of(np.dtype(dtype)).str[1:], "")
        maps = ["ByValue", "ByBits"] if kind.kind == "f" else ["ByValue"]
        located = [f"Searched<{key}, {of}<{key}>, {entry}>" for of in maps for entry in ("u16", "u32")]
        located += [f"Stepped<{key}>"]
        if kind.kind in "iu":
            located += [f"Shift<{key}, {unit}>" for unit in ("true", "false")]
            located += [f"Linear<{key}>"] * (kind.itemsize <= 4) + ["Narrow"] * (kind.itemsize == 2)
        located = ["Value"] if kind.itemsize == 1 else located
        packs = sorted({1, min(8, 16 // kind.itemsize)})
        if architecture != device.HOPPER:
            located, packs = located[-1:], packs[-1:]
        names += [f"rows_in_turns<{c_type}, {pack}, {locate}>" for locate in located for pack in packs]
        names += [f"rows_in_runs<{c_type}, {locate}>" for locate in located]
    return list(dict.fromkeys(names))


# By the stem of the source, the instances that its wrappers can request on an architecture.
INSTANCES: dict[str, Callable[[str], list[str]]] = {
    "histogram/gpu": lambda architecture: sorted({*histogram_instances(architecture)}),
    "histogram/rows": _rows,
    "study/histogram": lambda _: sorted(ladder.INSTANCES.values()),
    "matmul/gpu": _residue,
    "matmul/small_k": lambda architecture: list(small_k.HOPPER_INSTANCES) if architecture == device.HOPPER else [],
    "matmul/small": _small,
    "reduce/gpu": _reduce,
    "reduce/gpu_powers": lambda _: list(gpu_powers.INSTANCES),
    "stencil/gpu": _stencil_gpu,
    "quantile/gpu": lambda _: list(quantile.INSTANCES),
    "quantile/bracket": lambda _: list(bracket_steps.INSTANCES),
    "histogram/grouped": lambda _: list(grouped.INSTANCES),
    "select/gpu": lambda _: list(select.INSTANCES),
    "study/matmul": lambda _: _matmul(),
    "study/stencil": lambda _: _stencil(),
    "study/transpose": lambda _: _transpose_study(),
    "transpose/gpu": lambda _: list(transpose.INSTANCES),
    "transpose/unaligned": lambda _: list(unaligned.INSTANCES),
    "study/reduce": lambda _: _reduction(),
    "study/map": lambda _: _map_study(),
    "map/gpu": lambda _: list(gpu.INSTANCES),
    "transpose/strided_copy": lambda _: list(strided_copy.INSTANCES),
    "study/architecture": lambda _: list(architecture_study.INSTANCES.values()),
    "study/failures": lambda _: list(dict.fromkeys(failures.INSTANCES.values())),
    "study/roofline": lambda _: list(roofline.INSTANCES),
    "common/stored_samples": lambda _: list(stored_samples.INSTANCES),
    "common/lz4": lambda _: list(lz4.INSTANCES),
    "common/inflate": lambda _: list(inflate.INSTANCES),
    "common/zstd": lambda _: list(zstd.INSTANCES),
    "common/checksums": lambda _: list(checksums.INSTANCES),
    "digest/gpu": lambda _: list(digest_gpu.INSTANCES),
}
# The longest first.
TASKS = [(stem, architecture) for stem in INSTANCES for architecture in ORDER if INSTANCES[stem](architecture)]


def instances_of(stem: str, architecture: str) -> list[str]:
    """The instances that are compiled."""
    every = INSTANCES[stem](architecture)
    if architecture not in TWINS:
        return every
    kernels = [instance.partition("<")[0] for instance in every]
    return [every[kernels.index(kernel)] for kernel in dict.fromkeys(kernels)]


def inputs() -> dict[str, str]:
    """Hash of everything but the compiler that decides the machine code of a source and the verdict on it."""
    how = function_texts(_compile, excesses, nvrtc.compile_source, _resources), nvrtc.OPTIONS, SHARED
    return {
        stem: digest(
            cuda_texts(source_of(stem)),
            [
                (
                    architecture,
                    [(name, allowed_for(stem, name, architecture)) for name in instances_of(stem, architecture)],
                )
                for architecture in ARCHITECTURES
            ],
            how,
        )
        for stem in INSTANCES
    }


def compiled(stem: str, architecture: str) -> tuple[str, dict[str, Taken]]:
    """The compiler's log and the resource usage of each instance; cached by content, so that it is compiled once."""
    from cuda.bindings import nvrtc as bindings

    instances = instances_of(stem, architecture)
    content = repr((flatten(source_of(stem)), instances, architecture, nvrtc.OPTIONS, bindings.nvrtcVersion()))
    path = cache.cache_folder() / f"compiled-{hashlib.sha256(content.encode()).hexdigest()}.json"
    if not path.is_file():
        log, taken = _compile(stem, instances, architecture)
        text = json.dumps([log, {name: asdict(kernel) for name, kernel in taken.items()}])
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    log, kernels = json.loads(path.read_text())
    return log, {name: Taken(**kernel) for name, kernel in kernels.items()}


def _compile(stem: str, instances: list[str], architecture: str) -> tuple[str, dict[str, Taken]]:
    """Compile all instances in one program. The other instances slightly affect register allocation, so one that spills
    is compiled again by itself, as it is for a launch."""
    names, cubin, log = nvrtc.compile_source(source_of(stem), instances, architecture)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        used = _resources(_run(find_tools(), "--dump-resource-usage", Path(file.name)))
    reserved = RESERVED if int(architecture.strip("sm_a")) >= 90 else 0
    taken = {}
    for instance, name in names.items():
        of = used[name]
        shared = of["SHARED"] - reserved if of["SHARED"] else 0
        taken[instance] = Taken(of["REG"], of["STACK"] + of.get("LOCAL", 0), shared)
        if taken[instance].local and len(instances) > 1:
            taken |= _compile(stem, [instance], architecture)[1]
    return log, taken
