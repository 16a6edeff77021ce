"""Compiling and loading kernels by NVRTC: cache, warnings, options; how many blocks fit on a multiprocessor."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.common import cache, device, nvrtc
from kernels.common.counters import COPIES, counter_layout
from kernels.histogram.binning import MAX_BINS
from kernels.histogram.guess import key_of
from kernels.histogram.launch import C_TYPES, CLAMPED, KEY_TYPES, step_layout
from kernels.histogram.lookup import NARROW

# KiB of shared memory that a block may have (CUDA C++ Programming Guide, technical specifications).
SHARED = {"sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90a": 227, "sm_100": 227, "sm_120": 99}
# Compiles all instances; the others skip instances that differ only in a constant, which saves minutes.
EVERYTHING = "sm_80"
ORDER = sorted(SHARED, key=lambda architecture: architecture != EVERYTHING)  # the longest first

Compiled = tuple[dict[str, str], bytes, str]


def require_compiler() -> None:
    """Skip if NVRTC is not installed, but never on the CI server."""
    try:
        from cuda.bindings import nvrtc as bindings

        bindings.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"NVRTC cannot be loaded, install the extra `test`: {error}")


def histogram_instances(architecture: str) -> list[str]:
    """Instances that the histogram's wrapper can request on an architecture.

    Every kernel for every type with the most copies of its counters, those of 4 and 8 bytes also in windows; on
    EVERYTHING all of them in windows, and with every number of copies.
    """
    shared_per_block, names = SHARED[architecture] * 1024, set()
    for dtype, c_type in C_TYPES.items():
        kind, key = np.dtype(dtype), key_of(np.dtype(dtype))
        if kind.itemsize == 1:
            names.add(f"histogram_bytes<{c_type}, {counter_layout(256, 1, shared_per_block)[0]}>")
            continue
        of_key = KEY_TYPES[key.str[1:]]
        maps = ("ByValue", "ByBits") if kind.kind == "f" else ("ByValue",)
        # Powers of two lead to each number of copies of counters, though not to each pair with copies of thresholds.
        asked = [2**k for k in range(MAX_BINS.bit_length())]
        some = asked[:1] if kind.itemsize == 2 else [asked[0], asked[-1]]
        for bins in asked if architecture == EVERYTHING else some:
            copies, window = counter_layout(bins + CLAMPED, kind.itemsize, shared_per_block)
            start = f"{c_type}, {copies}, {divided(bins + CLAMPED, window)}"
            if kind.kind in "iu":
                names |= {f"histogram_shift<{start}, {unit}>" for unit in ("true", "false")}
                names |= {f"histogram_linear<{start}>"} if kind.itemsize <= 4 else set()
                names |= (
                    {f"histogram_narrow<{c_type}, {copies}>"} if start.endswith(" 1") and kind.itemsize == 2 else set()
                )
            # A lookup table leaves two fifths of the memory, and more of it for few thresholds.
            for kernel, left in (("steps", shared_per_block), ("search", shared_per_block * 2 // 5)):
                copies, held, window = step_layout(bins + 3, key.itemsize, left)
                start = f"histogram_{kernel}<{c_type}, {copies}, {held}"
                if kernel == "steps":
                    names.add(f"{start}>")
                    continue
                windowed, entry = str(window < bins + 3).lower(), "u16" if bins + 1 < NARROW else "u32"
                names |= {f"{start}, {windowed}, {of}<{of_key}>, {entry}>" for of in maps}
    return sorted(names)


def divided(counters: int, window: int) -> int:
    """Template argument for the number of windows of counters; 0: more than two."""
    number = -(-counters // window)
    return number if number <= 2 else 0


def test_every_kernel_and_type_is_compiled() -> None:
    """The list is complete: the tests above would pass if it were empty."""
    for architecture in SHARED:
        names = histogram_instances(architecture)
        for dtype, c_type in C_TYPES.items():
            kind = np.dtype(dtype)
            if kind.itemsize == 1:
                continue
            expected = {f"{COPIES[kind.itemsize]}, 1"}
            if kind.itemsize > 2 or architecture == EVERYTHING:
                expected.add("1, 0")
            if architecture == EVERYTHING:
                expected |= {"1, 2", *(f"{2**k}, 1" for k in range(5) if 2**k <= COPIES[kind.itemsize])}
            stems = [*(["histogram_shift"] if kind.kind in "iu" else []),
                     *(["histogram_linear"] if kind.kind in "iu" and kind.itemsize <= 4 else [])]  # fmt: skip
            starts = [f"{stem}<{c_type}, {text}" for stem in stems for text in expected]
            starts += [f"histogram_steps<{c_type}, 32, 32>", f"histogram_search<{c_type}, 32, 32, false, ByValue<"]
            if kind.itemsize > 2 or architecture == EVERYTHING:
                starts += [f"histogram_steps<{c_type}, 1, 1>", f"histogram_search<{c_type}, 1, 1, true, ByValue<"]
            for start in starts:
                assert any(name.startswith(start) for name in names), (architecture, start)
            assert any(f"<{c_type}, " in name and "ByBits" in name for name in names) == (kind.kind == "f")
        assert any(name.endswith("u32>") for name in names) and any(name.endswith("u16>") for name in names)
        assert {"histogram_bytes<u8, 32>", "histogram_narrow<i16, 16>", "histogram_narrow<u16, 16>"} <= set(names) or (
            architecture == "sm_75"
        )


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private folder of sources, with a kernel that adds a constant of its header."""
    require_compiler()
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "add.cu").write_text(
        '#include "step.cuh"\n#ifndef MORE\n#define MORE 0\n#endif\n'
        "template <int N> __global__ void add(int* x) { *x += N * STEP + MORE; }"
    )
    (folder / "step.cuh").write_text("constexpr int STEP = 2;")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_compiler_s_words_are_kept(sources: Path) -> None:
    """A warning comes back as the log, an error is raised with it."""
    assert nvrtc.compile_source(sources / "add.cu", ("add<1>",), "sm_90")[2] == ""
    (sources / "step.cuh").write_text("constexpr int STEP = 2; inline __device__ int f() { int unused; return 1; }")
    assert "unused" in nvrtc.compile_source(sources / "add.cu", ("add<1>",), "sm_90")[2]
    (sources / "step.cuh").write_text("constexpr int STEP = missing;")
    with pytest.raises(RuntimeError, match=r"add\.cu does not compile for sm_90:\n(.*\n)*.*missing"):
        nvrtc.compile_source(sources / "add.cu", ("add<1>",), "sm_90")


def test_subnormal_numbers_are_kept() -> None:
    """Flushing them to zero would put -1e-40 into the bin that begins at 0."""
    assert "--ftz=false" in nvrtc.OPTIONS


def test_machine_code_is_compiled_once(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilations = []
    compile_source = nvrtc.compile_source

    def counted(source: Path, instances: Sequence[str], architecture: str, defines: Mapping[str, int]) -> Compiled:
        compilations.append((source, *instances, architecture))
        return compile_source(source, instances, architecture, defines)

    def cached(instance: str, architecture: str, **defines: int) -> tuple[str, bytes]:
        return nvrtc._cached(sources / "add.cu", instance, defines, architecture)

    monkeypatch.setattr(nvrtc, "compile_source", counted)
    first = cached("add<1>", "sm_90")
    assert cached("add<1>", "sm_90") == first
    assert compilations == [(sources / "add.cu", "add<1>", "sm_90")]
    (sources / "unrelated.cuh").write_text("no header of this kernel")
    assert cached("add<1>", "sm_90") == first and len(compilations) == 1
    name, cubin = first
    assert name.encode() in cubin
    # All inputs of the code are part of its key.
    others = [cached("add<2>", "sm_90"), cached("add<1>", "sm_80"), cached("add<1>", "sm_90", MORE=7)]
    (sources / "step.cuh").write_text("constexpr int STEP = 3;")
    others.append(cached("add<1>", "sm_90"))
    monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "--device-debug"))
    others.append(cached("add<1>", "sm_90"))
    assert len({cubin for _, cubin in (first, *others)}) == 6
    assert len(compilations) == 6


def test_cache_is_private_and_clean(sources: Path) -> None:
    nvrtc._cached(sources / "add.cu", "add<1>", {}, "sm_90")
    folder = cache.cache_folder()
    assert folder.name == "baru"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.suffix for path in folder.iterdir()] == [".cubin"]


def test_cache_that_others_may_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached code is loaded unchecked, so the folder must be private; without a home folder there still is a cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "baru").mkdir()
    (tmp_path / "baru").chmod(0o777)
    own = cache.cache_folder()
    assert own != tmp_path / "baru"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache.cache_folder() == own


LIMITS = device.Limits(
    multiprocessors=132,
    threads_per_block=1024,
    threads_per_multiprocessor=2048,
    registers_per_multiprocessor=65536,
    shared_per_multiprocessor=233472,
    shared_per_block=232448,
)


@pytest.mark.parametrize("static", [0, 4096])
def test_kernels_may_have_all_of_the_device_s_shared_memory(monkeypatch: pytest.MonkeyPatch, static: int) -> None:
    """The limit of the device, even while plans assume less: a kernel is loaded once and kept."""
    given = {}
    driver = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES="static",
        CU_FUNC_ATTRIBUTE_NUM_REGS="registers",
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic",
        funcGetAttribute=lambda attribute, _: {"static": static, "registers": 40}[attribute],
        funcSetAttribute=lambda pointer, attribute, nbytes: given.update({(pointer, attribute): nbytes}),
    )
    function = SimpleNamespace(ptr=7)
    module = SimpleNamespace(load=lambda cubin: None, get_function=lambda name: function)
    attributes = dict.fromkeys(
        ("MultiProcessorCount", "MaxThreadsPerBlock", "MaxThreadsPerMultiProcessor", "MaxRegistersPerMultiprocessor",
         "MaxSharedMemoryPerMultiprocessor"), 1,
    ) | {"MaxSharedMemoryPerBlockOptin": 232448}  # fmt: skip
    fake = SimpleNamespace(attributes=attributes, compute_capability="80")
    cuda = SimpleNamespace(driver=driver, Device=lambda number: fake)
    for name, stand_in in (
        ("cupy", SimpleNamespace(cuda=cuda)),
        ("cupy.cuda", cuda),
        ("cupy.cuda.function", SimpleNamespace(Module=lambda: module)),
    ):
        monkeypatch.setitem(sys.modules, name, stand_in)
    monkeypatch.setattr(nvrtc, "_cached", lambda *_: ("add", b""))
    monkeypatch.setattr(nvrtc, "limits_of", device.limits_of.__wrapped__)
    monkeypatch.setattr(device, "limits", lambda: replace(LIMITS, shared_per_block=49152))
    assert nvrtc._load.__wrapped__(Path("add.cu"), "add<1>", (), 0) == nvrtc.Kernel(function, 40, static)
    assert given == {(7, "dynamic"): 232448 - static}


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (1024, 32, 0, 2),  # 2048 threads
        (1024, 33, 0, 1),  # 33 registers are given as 40: 2 * 1024 * 40 is more than 65536
        (512, 33, 0, 3),
        (128, 255, 0, 2),
        (32, 16, 0, 64),
        (1024, 32, 115712, 2),  # 113 KiB and 1 KiB, twice: exactly 228 KiB
        (1024, 32, 115713, 1),
        (128, 16, 16384, 13),
        (1024, 32, 232448, 1),  # the maximum for a block
        (1024, 128, 232448, 1),  # nothing fits: still one, so that the launch reports the error
    ],
)
def test_resident_blocks(threads: int, registers: int, shared: int, blocks: int) -> None:
    assert LIMITS.resident_blocks(threads, registers, shared) == 132 * blocks


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 32), st.integers(1, 255), st.integers(0, 232448), st.integers(1, 200))
def test_one_more_block_would_not_fit(warps: int, registers: int, shared: int, multiprocessors: int) -> None:
    limits = replace(LIMITS, multiprocessors=multiprocessors)
    blocks, rest = divmod(limits.resident_blocks(32 * warps, registers, shared), multiprocessors)

    def fits(number: int) -> bool:
        given = next(step for step in range(0, 257, 8) if step >= registers)
        used = (number * 32 * warps, number * 32 * warps * given, number * (shared + 1024))
        return all(use <= limit for use, limit in zip(used, (2048, 65536, 233472), strict=True))

    assert rest == 0
    assert blocks == 1 or fits(blocks)
    assert not fits(blocks + 1)


def test_a_header_of_another_family_recompiles_nothing() -> None:
    """A source is compiled from, and cached by, exactly the headers that it includes."""
    for source in nvrtc.KERNELS.glob("*/*.cu"):
        headers = set(nvrtc.include_closure(source)) - {source.name}
        folders = {Path(name).parts[0] for name in headers} - {source.parent.name, "common"}
        assert not folders or source.parent.name == "study", source
