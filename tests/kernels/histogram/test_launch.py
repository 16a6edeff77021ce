"""The histogram's source and the launches of its wrapper, without a GPU."""

from __future__ import annotations

import itertools
import re
import sys
from typing import Any

import numpy as np
import pytest

from kernels.common import device, nvrtc
from kernels.common.counters import COPIES, SPREAD, counter_bytes, counter_layout
from kernels.histogram import guess, lookup
from kernels.histogram.binning import MAX_BINS, Binning
from kernels.histogram.gpu import INSTANCES, KERNELS, histogram
from kernels.histogram.launch import (
    AROUND,
    C_TYPES,
    CLAMPED,
    STEP_BYTES,
    STEP_COPIES,
    THREADS,
    step_bytes,
    step_layout,
)
from tests.cases import histogram_small
from tests.cases.histogram import CASES, DTYPES, ONE_BLOCK, assert_refused, gpu_edges, kernels_for, stems
from tests.emulator.array import DeviceArray
from tests.emulator.launches import H200, Launch, recorded
from workflows.histogram import HistogramOptions

SOURCE, STREAM, COUNTERS, STEPS, LOCATE, GUESS, TYPES = (
    (nvrtc.KERNELS / name).read_text(encoding="utf-8")
    for name in ("histogram/gpu.cu", "common/stream.cuh", "common/counters.cuh", "histogram/steps.cuh",
                 "histogram/locate.cuh", "histogram/guess.cuh", "common/types.cuh")
)  # fmt: skip
SHARED = (64 * 1024, 99 * 1024, 163 * 1024, 227 * 1024)  # bytes that a block may have, by architecture


def test_header_names_every_kernel() -> None:
    header = SOURCE.partition("\n#include")[0]
    assert tuple(re.findall(r"^//   (histogram_\w+)  +\S", header, re.MULTILINE)) == KERNELS


def test_kernels_are_those_of_the_source() -> None:
    kernels = re.findall(r"__global__\s+void\s+__launch_bounds__\([^)]*\)\s*(\w+)\(", SOURCE)
    assert len(kernels) == SOURCE.count("__global__")
    assert tuple(kernels) == KERNELS


def test_constants_are_those_of_the_source() -> None:
    assert f"constexpr int THREADS = {THREADS};" in STREAM
    assert re.search(r"SPREAD = \(1u << 27\) \+ \(1u << 22\);", COUNTERS) and SPREAD == 2**27 + 2**22
    # Counters of clamped samples run from that below the bins to that which comes two after the last bin.
    assert "counter + skipped - (counter + skipped > bins)" in LOCATE and CLAMPED == 3
    assert f"rows(min(slots, all - mine * slots) + {AROUND})" in STEPS
    origin, first = re.findall(r"constexpr (?:int ORIGIN|float FIRST_WHOLE) = (\w+\.?\w?)f?;", GUESS)
    assert int(origin, 16) == int(np.float32(first.rstrip("f")).view(np.int32))
    assert float(first.rstrip("f")) == 2**23 > guess.MOST
    # The two highest bits of a narrow entry are taken.
    assert "CROWDED = Entry(1) << (8 * sizeof(Entry) - 1), MANY = CROWDED / 2;" in LOCATE
    assert lookup.NARROW == 2 ** (16 - 2) and MAX_BINS + 1 < 2 ** (32 - 2)


def test_one_instance_of_each_kernel_is_shown() -> None:
    assert tuple(instance.partition("<")[0] for instance in INSTANCES) == KERNELS


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
    match = re.search(rf"\b{stem}\((.*?)\) {{", SOURCE, re.DOTALL)
    assert match
    return [" ".join(parameter.split()).rpartition(" ")[0] for parameter in match[1].split(",")]


def numpy_type(text: str, dtype: str, instance: str) -> tuple[np.dtype[Any], bool]:
    """Dtype of a kernel parameter for samples of a dtype, and whether it is a pointer."""
    key = guess.key_of(np.dtype(dtype))
    mapped = np.dtype(f"u{key.itemsize}") if "ByBits" in instance else key
    types: dict[str, Any] = {
        "T": dtype,
        "int": "i4",
        "u32": "u4",
        "i64": "i8",
        "u64": "u8",
        "typename Key<T>::type": key,
        "Entry": "u2" if instance.endswith("u16>") else "u4",
    }
    for of, kind in (("typename Key<T>::type", key), ("typename Map::type", mapped)):
        types[f"decltype(Guess<{of}>::start)"] = kind
        types[f"typename Guess<{of}>::Real"] = "f8" if kind.itemsize == 8 else "f4"
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
            assert name in (stem, "histogram_search", "histogram_narrow", "histogram_linear", "histogram_shift")
            assert launch.arguments[0].ctypes.data == samples.ctypes.data
            assert launch.arguments[1] == 1025
            assert launch.arguments[2].ctypes.data == slots.ctypes.data
            for argument, text in zip(launch.arguments, declared(name), strict=True):
                expected, pointer = numpy_type(text, dtype, launch.instance)
                expected = slots.dtype if argument is launch.arguments[2] else expected  # counts, which have no sign
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
        kernel, name, rest = re.findall(r"(\w+)<(\w+), (.*)>$", launch.instance)[0]
        assert kernel in (kernels_for(dtype, stem, bins) if stem in stems(dtype, bins) else KERNELS)
        assert name == C_TYPES[dtype]
        copies, *given = rest.split(", ")
        counters, window = (int(number) for number in launch.arguments[3:5])
        windows, of_key = -(-counters // window), 0
        known = str(windows) if windows <= 2 else "0"
        if kernel == "histogram_bytes":
            assert (counters, windows) == (256, 1)
        elif kernel == "histogram_narrow":  # always one window, so that the kernel takes none
            assert bins <= counters <= 2 * binning.slots and windows == 1
        elif kernel in ("histogram_shift", "histogram_linear"):  # samples outside the bins have counters of their own
            assert counters == bins + 3 and given[0] == known
        else:
            assert counters == len(binning.thresholds) + 2 and int(launch.arguments[6]) == len(binning.thresholds)
            of_key = guess.key_of(binning.dtype).itemsize
            rows, words = window + AROUND, (window + AROUND) * int(copies)
            needed = 4 * (words + words % 2) + rows * int(given[0]) * of_key
            if kernel == "histogram_search":
                assert given[1] == str(windows > 1).lower()
                assert launch.arguments[9] == len(launch.arguments[8])
                needed += launch.arguments[8].nbytes
            assert needed <= launch.shared_mem
        assert window * int(copies) * 4 <= launch.shared_mem <= H200.shared_per_block
        assert launch.block == (1024,)
        (blocks,) = launch.grid
        assert blocks % windows == 0
        assert 0 <= H200.resident_blocks(1024, 32, launch.shared_mem) - blocks < windows
        # A search takes up to three fifths of the memory for its table; a counter takes slightly more than four bytes.
        left = H200.shared_per_block * (2 if kernel == "histogram_search" else 5) // 5 - 64
        assert windows <= -(-counters * (5 + of_key) // left)
        launches.clear()


def test_small_cases_reach_every_kind_of_instance(launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    """What schedules, sanitizers and mutants run: each case the kernel of its name, together what can be launched."""
    monkeypatch.setattr(histogram_small, "same", lambda *_: None)
    seen, crowds = set(), set()
    for case in histogram_small.histogram_cases():
        case.check(sys.modules["cupy"])
        (launch,) = launches
        kernel, name, rest = re.findall(r"(\w+)<(\w+), (.*)>$", launch.instance)[0]
        assert kernel == case.variant, case.name
        given, bins = rest.split(", ")[1:], launch.arguments[2].size - 3
        windows = -(-int(launch.arguments[3]) // int(launch.arguments[4]))
        if kernel == "histogram_shift":
            skipped = launch.arguments[6]
            seen.add((kernel, given[0], given[1], f"skipped {skipped}"))
            seen |= {("odd" if bins % 2 else "even", given[0])}
        elif kernel == "histogram_search":
            entries = launch.arguments[8].get()
            top = 8 * entries.itemsize - 2
            crowds |= {(given[1], int(high)) for high in entries >> top}
            if entries[-2] >> top:
                crowds.add((given[1], "infinity"))
            seen.add((kernel, *given[1:]))
        else:
            seen.add((kernel, name, "1" if windows == 1 else "2" if windows == 2 and given else "more"))
        launches.clear()
    assert seen >= {("histogram_shift", windows, unit, "skipped 0") for windows in "120" for unit in ("true", "false")}
    assert seen >= {("histogram_shift", windows, "true", "skipped 1") for windows in "120"}
    assert seen >= {("odd", "2"), ("even", "2")}
    assert seen >= {("histogram_linear", "int", windows) for windows in ("1", "2", "more")}
    assert seen >= {("histogram_steps", name, windows) for name, windows in (
        ("float", "1"), ("double", "1"), ("double", "more"), ("float16", "1"), ("float16", "more"), ("u64", "1"),
        ("i64", "1"), ("int", "more"),
    )}  # fmt: skip
    assert seen >= {("histogram_search", "false", of, "u16") for of in (
        "ByValue<int>", "ByValue<u32>", "ByValue<i64>", "ByValue<u64>", "ByValue<float>", "ByValue<double>",
        "ByBits<float>", "ByBits<double>",
    )}  # fmt: skip
    assert seen >= {
        ("histogram_search", "true", "ByValue<float>", "u16"),
        ("histogram_search", "true", "ByValue<float>", "u32"),
    }
    assert crowds >= {(windowed, some) for windowed in ("true", "false") for some in (0, 2, 3, "infinity")}


@pytest.mark.parametrize("copies", [1, 2, 4, 8, 16, 32])
def test_counters_fit_where_they_are_placed(copies: int) -> None:
    """Each copy of each counter, and of that of other windows after them, has its own word: `place`, `spread`."""
    for counters in (1, 2, 31, 32, 33, 1027, 16387, 57001, MAX_BINS + 3):
        number = np.arange(counters, dtype=np.uint64)
        spread = number + (number * np.uint64(SPREAD) >> np.uint64(32))
        places = number if copies >= 16 else spread
        assert len(np.unique(places)) == counters
        assert counter_bytes(counters, copies) == 4 * copies * int(places.max() + np.uint64(2))
        # Every second one in two windows, with an even and with an odd first one.
        half = number * np.uint64(2**31 + SPREAD // 2) >> np.uint64(32)
        for of_window in (half[::2], half[: counters - 1][::2]):
            assert len(np.unique(of_window)) == len(of_window)
            assert not len(of_window) or 4 * copies * int(of_window.max() + np.uint64(2)) <= counter_bytes(
                counters, copies, 2
            )
        if copies == 1 and counters > 1024:  # multiples of round numbers fall into different banks
            for step in (32, 64, 128, 256, 512, 1024):
                some = places[::step][:8] % np.uint64(32)
                assert len(np.unique(some)) >= min(4, len(some))


@pytest.mark.parametrize("shared", SHARED)
def test_layouts_fit_and_hold_all(shared: int) -> None:
    for counters in (1, 2, 3, 100, 1027, 4099, 16387, 30_003, 56_003, 65539, 2**17 + 3, MAX_BINS + 3):
        for itemsize in COPIES:
            copies, window = counter_layout(counters, itemsize, shared)
            windows = -(-counters // window)
            needed = counter_bytes(counters, copies, windows) if windows <= 2 else counter_bytes(window, copies)
            assert needed <= shared and 1 <= copies <= COPIES[itemsize]
            assert copies == 1 or windows == 1
        for keysize in (4, 8):
            copies, held, window = step_layout(counters, keysize, shared)
            assert step_bytes(window, keysize, copies, held) <= shared
            assert window == counters or (copies, held) == (1, 1)
            # No other number of copies that fits lets lanes wait less.
            waits = 32 // copies + 32 // held * keysize // 4
            for others in itertools.product(STEP_COPIES, STEP_COPIES):
                if step_bytes(counters, keysize, *others) <= min(STEP_BYTES, shared):
                    assert 32 // others[0] + 32 // others[1] * keysize // 4 >= waits


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
