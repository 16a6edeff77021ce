"""The histogram's source and the launches of its wrapper, without a GPU."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from kernels.common import device, nvrtc
from kernels.histogram.binning import Binning
from kernels.histogram.gpu import KERNELS, histogram
from kernels.histogram.launch import APART, C_TYPES, THREADS, counter_bytes
from kernels.histogram.linear_map import KEYS
from tests.cases.histogram import CASES, DTYPES, ONE_BLOCK, assert_refused, gpu_edges
from tests.emulator.array import DeviceArray
from tests.emulator.launches import H200, Launch, recorded
from workflows.histogram import HistogramOptions

SOURCE, STREAM = (
    (nvrtc.KERNELS / name).read_text(encoding="utf-8") for name in ("histogram/gpu.cu", "common/stream.cuh")
)


def test_header_names_every_kernel() -> None:
    header = SOURCE.partition("\n#include")[0]
    assert tuple(re.findall(r"^//   (histogram_\w+)  +\S", header, re.MULTILINE)) == KERNELS


def test_kernels_are_those_of_the_source() -> None:
    kernels = re.findall(r"__global__\s+void\s+__launch_bounds__\([^)]*\)\s*(\w+)\(", SOURCE)
    assert len(kernels) == SOURCE.count("__global__")
    assert tuple(kernels) == KERNELS


def test_threads_are_those_of_the_source() -> None:
    assert f"constexpr int THREADS = {THREADS};" in STREAM
    assert f"constexpr u32 APART = {APART};" in SOURCE


TYPES = (nvrtc.KERNELS / "common/types.cuh").read_text(encoding="utf-8")


@pytest.mark.parametrize("dtype", DTYPES)
def test_c_type_is_that_of_the_samples(dtype: str) -> None:
    aliases = dict(re.findall(r"^using (\w+) = ([\w ]+);", TYPES, re.MULTILINE))
    name = aliases.get(C_TYPES[dtype], C_TYPES[dtype])
    numpy_names = {"unsigned char": "ubyte", "short": "short", "unsigned short": "ushort", "int": "intc"}
    numpy_names |= {"unsigned int": "uintc", "long long": "longlong", "unsigned long long": "ulonglong"}
    numpy_names |= {"float16": "half", "float": "single", "double": "double"}
    # Bytes are counted by bit pattern, so the sign does not matter.
    assert np.dtype(numpy_names[name]) == np.dtype("uint8" if dtype == "int8" else dtype)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    return recorded(monkeypatch, "histogram/gpu")


def declared(stem: str) -> list[str]:
    """Types of a kernel's parameters, from the source."""
    match = re.search(rf"\b{stem}\(([^)]*)\)\s*{{", SOURCE)
    assert match
    return [" ".join(parameter.split()).rpartition(" ")[0] for parameter in match[1].split(",")]


def numpy_type(text: str, dtype: str, instance: str) -> tuple[np.dtype[Any], bool]:
    """Dtype of a kernel parameter for samples of a dtype, and whether it is a pointer."""
    key = np.dtype(KEYS.get(dtype, dtype))
    mapped = np.dtype(f"u{key.itemsize}") if "ByBits" in instance else key
    types: dict[str, Any] = {
        "T": dtype,
        "u8": dtype,
        "int": "i4",
        "u32": "u4",
        "i64": "i8",
        "u64": "u8",
        "bool": "?",
        "typename Key<T>::type": key,
        "typename Unsigned<typename Key<T>::type>::type": f"u{key.itemsize}",
        "typename Map::type": mapped,
    }
    for of, kind in (("typename Key<T>::type", key), ("typename Map::type", mapped)):
        whole = kind.kind in "iu"
        types |= {
            f"typename LinearMap<{of}>::Reach": "u8" if whole and kind.itemsize == 8 else "u4",
            f"typename LinearMap<{of}>::Scale": "f8" if kind.itemsize == 8 else "u4" if whole else "f4",
            f"typename LinearMap<{of}>::Offset": "f8" if kind.itemsize == 8 else "u8" if whole else "f4",
        }
    return np.dtype(types[text.removeprefix("const ").removesuffix("*")]), text.endswith("*")


@pytest.mark.parametrize(("dtype", "stem"), CASES)
def test_wrapper_passes_what_the_kernel_declares(launches: list[Launch], dtype: str, stem: str) -> None:
    """CuPy checks nothing: an argument of another size would be read as garbage."""
    for bins in (2, 1024, 2**15):
        for edges, regular in (gpu_edges(dtype, stem, bins), (np.geomspace(1e-3, 1e3, bins + 1), False)):
            samples = np.zeros(1025, dtype)
            slots = histogram(samples, Binning(samples.dtype, edges, regular))
            assert (slots.dtype, slots.shape) == (np.int64, (bins + 3,))
            (launch,) = launches
            name = launch.instance.partition("<")[0]
            assert name in (stem, "histogram_search", "histogram_narrow")
            assert launch.arguments[0].ctypes.data == samples.ctypes.data
            assert launch.arguments[1] == 1025
            assert launch.arguments[2].ctypes.data == slots.ctypes.data
            for argument, text in zip(launch.arguments, declared(name), strict=True):
                expected, pointer = numpy_type(text, dtype, launch.instance)
                assert argument.dtype == expected, text
                assert isinstance(argument, (np.ndarray, DeviceArray) if pointer else np.generic), text
            launches.clear()


@pytest.mark.parametrize(("dtype", "stem"), CASES)
def test_windows_hold_every_counter(launches: list[Launch], dtype: str, stem: str) -> None:
    """Counters of a block fit into shared memory for any number of bins, and blocks cover all windows."""
    for bins in (2, 256, 1000, 1024, 4096, 16384, 2**15, 2**18):
        edges, regular = gpu_edges(dtype, stem, bins)
        binning = Binning(np.dtype(dtype), edges, regular)
        histogram(np.zeros(1, dtype), binning)
        (launch,) = launches
        kernel, name, copies, divided = re.findall(r"(\w+)<(\w+), (\d+)(?:, (\w+))?", launch.instance)[0]
        assert name == C_TYPES[dtype]
        counters, window = (int(number) for number in launch.arguments[3:5])
        if kernel == "histogram_bytes":
            assert counters == 256
        elif kernel == "histogram_narrow":
            assert bins <= counters <= 2 * binning.slots
        else:  # samples outside the bins have counters of their own, or slots
            assert counters == (binning.slots if kernel == "histogram_search" else bins)
        windows = -(-counters // window)
        # Bytes and narrow samples are counted by value, always in one window, so their kernels take no window.
        known = str(windows) if windows <= 2 else "0"
        assert divided == ("" if kernel in ("histogram_bytes", "histogram_narrow") else known)
        assert windows == 1 or divided
        assert (window + APART) * int(copies) * 4 <= launch.shared_mem <= H200.shared_per_block
        assert launch.block == (1024,)
        (blocks,) = launch.grid
        assert blocks % windows == 0
        assert 0 <= H200.resident_blocks(1024, 32, launch.shared_mem) - blocks < windows
        # A search reserves a third of the memory for its table; a counter takes slightly more than four bytes.
        assert windows <= -(-counters * 5 // (H200.shared_per_block * 2 // 3))
        launches.clear()


@pytest.mark.parametrize("copies", [1, 2, 4, 8, 16, 32])
def test_counters_fit_where_they_are_placed(copies: int) -> None:
    """Each copy of each counter, including those outside the bins, has its own word."""
    for counters in (1, 2, 31, 32, 33, 1027, 16387, 57001):
        number = np.arange(counters + APART)
        places = number if copies >= 16 else number + (number >> 5) + (number >> 10)
        assert len(np.unique(places)) == counters + APART
        assert 0 <= counter_bytes(counters, copies) - (places.max() + 1) * copies * 4 <= 4
        if copies < 16:  # in windows, if there are many counters
            assert len(np.unique(number + (number >> 10))) == counters + APART
        if copies == 1 and counters > 1024:  # multiples of round numbers fall into different banks
            for step in (32, 64, 128, 256, 512, 1024):
                some = places[::step][:8] % 32
                assert len(np.unique(some)) >= min(4, len(some))


def test_wrapper_splits_what_would_overflow_a_counter(launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    """A block counts in 32 bits. np.empty only reserves addresses here: nothing reads the samples."""
    monkeypatch.setattr(device, "limits", lambda: ONE_BLOCK)
    samples = np.empty(2**32 + 5, np.uint8)
    slots = histogram(samples, Binning(samples.dtype, np.array([0.0, 1.0]), True))
    assert [launch.grid for launch in launches] == [(1,)] * 3
    sizes = [int(launch.arguments[1]) for launch in launches]
    assert sizes == [2**31, 2**31, 5]
    assert sizes == [len(launch.arguments[0]) for launch in launches]
    starts = [launch.arguments[0].ctypes.data - samples.ctypes.data for launch in launches]
    assert starts == [0, 2**31, 2**32]
    assert {launch.arguments[2].ctypes.data for launch in launches} == {slots.ctypes.data}  # all share counters


def test_wrapper_launches_nothing_for_nothing(launches: list[Launch]) -> None:
    assert histogram(np.zeros(0, np.int32), HistogramOptions().binning(np.dtype(np.int32))).sum() == 0
    assert not launches


def test_wrapper_refuses(launches: list[Launch]) -> None:
    assert_refused(np.array)
    with pytest.raises(TypeError, match="expected samples of int32, got "):
        histogram(np.zeros(8, np.dtype(np.int32).newbyteorder()), HistogramOptions().binning(np.dtype(np.int32)))
    assert not launches
