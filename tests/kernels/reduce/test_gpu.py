"""The kernels of reduce against the reference and the CPU; window limits; the wrapper and the source."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.common.memory import current_stream
from kernels.reduce import gpu, partial
from kernels.reduce.gpu import C_TYPES, INSTANCES, combine_on_device, reduce_on_device
from kernels.reduce.partial import EXTREMES, PARTS, SQUARES, SUM
from kernels.reduce.reference import reduce_reference
from tests.cases.reduce import CASES, DTYPES, FLOATS, case, generator
from tests.cases.sizes import ON_GPU

SIZES = (1, 31, 32, 33, 1023, 1024, 1025, 10_007)
ALL = SUM | SQUARES | EXTREMES
# Exponents that a window holds: RANGE in reduce/float_sum.cuh, by dtype and parts.
RANGES = {("float16", SUM): 32, ("float16", ALL): 32, ("float32", SUM): 62, ("float32", ALL): 40,
          ("float64", SUM): 33, ("float64", ALL): 32}  # fmt: skip
# Exponent range of a tile that float64 sums exactly, or the second level of a window.
NARROW = {("float16", ALL): 14, ("float32", SUM): 26, ("float32", SUM | SQUARES): 23, ("float64", ALL): 11}
FILES = (
    "reduce/exact_sum.cuh",
    "reduce/tile.cuh",
    "reduce/integer_sum.cuh",
    "reduce/exponent_bins.cuh",
    "reduce/float_sum.cuh",
    "reduce/gpu.cu",
)
SOURCE = "".join((nvrtc.KERNELS / name).read_text(encoding="utf-8") for name in FILES)


def check(cp: Any, samples: NDArray[Any], parts: int = ALL) -> None:
    same(reduce_on_device(cp.asarray(samples), parts).get(), reduce_reference(samples, parts))


def same(got: NDArray[Any], expected: NDArray[Any]) -> None:
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), (wrong, got[wrong], expected[wrong])
    assert got.dtype == np.int64 and got.shape == (partial.SIZE,)


@pytest.fixture
def one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread sees many samples."""
    monkeypatch.setattr(device.Limits, "resident_blocks", lambda *_: 1)


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel_is_the_reference_at_every_size(cp: Any, dtype: str, size: int) -> None:
    check(cp, case("specials", dtype, size))


@pytest.mark.gpu
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel_is_the_reference_for_all_that_can_be_asked(cp: Any, dtype: str, parts: int) -> None:
    check(cp, case("ordinary", dtype, 30_011), parts)
    check(cp, case("specials", dtype, 3001), parts)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel_is_the_reference_on_nasty_samples(cp: Any, dtype: str, name: str) -> None:
    size = 130_009 if name == "borders" else 40_009 if ON_GPU else 20_011
    check(cp, case(name, dtype, size))
    check(cp, case(name, dtype, size), SUM)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_views_that_begin_anywhere(cp: Any, dtype: str) -> None:
    itemsize = np.dtype(dtype).itemsize
    # In the emulator one tile per block and a ragged one, with aligned and unaligned starts.
    samples = case("specials", dtype, 20_000 if ON_GPU else 16_384 // itemsize + 700)
    on_device = cp.asarray(samples)
    for start in range(17 if ON_GPU else 16 // itemsize + 1):
        same(reduce_on_device(on_device[start:], ALL).get(), reduce_reference(samples[start:], ALL))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_extremes_before_and_in_the_tiles(cp: Any, dtype: str) -> None:
    """The first of equal samples counts, even one before the tiles whose thread has seen another in a tile."""
    samples = np.full(20_001, 5, dtype)
    on_device = cp.asarray(samples)
    for start in (1, 2, 3):
        same(reduce_on_device(on_device[start:], ALL).get(), reduce_reference(samples[start:], ALL))


@pytest.mark.gpu
@pytest.mark.usefixtures("one_block")
@pytest.mark.parametrize("excess", [-1, 0, 1, 4, 6, 14])
@pytest.mark.parametrize(("dtype", "parts"), RANGES)
def test_windows_that_are_full(cp: Any, dtype: str, parts: int, excess: int) -> None:
    """Samples of one sign whose exponents span a window, and more; the remainder of each for the last level is maximal,
    and so is its last bit."""
    size = 300_000 if ON_GPU or not excess else 70_000
    info, random = np.finfo(dtype), generator("windows", dtype, parts)
    span = min(RANGES[dtype, parts] + excess, info.maxexp - info.minexp)
    last_level = {("float16", SUM): 1, ("float16", ALL): 1}.get((dtype, parts), 43)
    exponents = -random.choice([0, min(last_level, span - 1), span - 1], size)
    exponents += info.maxexp - 1 if dtype == "float16" else 3
    ones = 2.0 ** random.integers(min(40, info.nmant), info.nmant + 1, size) - 1
    check(cp, np.ldexp(2.0**info.nmant + ones, exponents - info.nmant).astype(dtype), parts)


@pytest.mark.gpu
@pytest.mark.usefixtures("one_block")
@pytest.mark.parametrize("excess", [-1, 0, 1, 2, 3, 5, 9])
@pytest.mark.parametrize(("dtype", "parts"), NARROW)
def test_tiles_at_the_limit_of_a_plain_sum(cp: Any, dtype: str, parts: int, excess: int) -> None:
    """Tiles of the largest numbers and one of the smallest, with last bits as far apart as possible."""
    random, info = generator("narrow", dtype, parts), np.finfo(dtype)
    span, tile = NARROW[dtype, parts] + excess, 64 // np.dtype(dtype).itemsize
    ones = 2.0**info.nmant + 2.0 ** random.integers(info.nmant - 2, info.nmant, 200_000) - 1
    if dtype == "float64":  # the first level leaves the longest possible remainder
        ones = (random.integers(2**52, 2**53, len(ones)) | 1).astype(dtype)
    exponents = np.where(random.integers(0, tile, len(ones)) == 0, 1 - span, 0)
    exponents += info.maxexp - 1 if dtype == "float16" else 3
    check(cp, np.ldexp(ones, exponents - info.nmant).astype(dtype), parts)


@pytest.mark.gpu
@pytest.mark.usefixtures("one_block")
@pytest.mark.parametrize("dtype", FLOATS)
def test_threads_empty_their_sums_in_time(cp: Any, dtype: str) -> None:
    """A window without headroom above its samples, then enough of the largest to fill it four times."""
    random, info = generator("emptied", dtype), np.finfo(dtype)
    samples = (2 - np.maximum(info.eps, random.uniform(0, 0.1, 256 * 4500))).astype(dtype)
    if dtype != "float16":
        samples[: 256 * 16 : 2] = np.ldexp(samples[: 256 * 16 : 2], 1 - RANGES[dtype, SUM])
    check(cp, samples, SUM)


@pytest.mark.gpu
@pytest.mark.usefixtures("one_block")
@pytest.mark.parametrize(("dtype", "exponent", "size"), [("float64", 976, 4500), ("float32", 127, 40_000)])
def test_threads_empty_their_cells_in_time(cp: Any, dtype: str, exponent: int, size: int) -> None:
    """No window holds a tile, and every other number is the largest that shares a cell."""
    samples = np.full(256 * (size if dtype == "float64" or ON_GPU else 500), 2 - np.finfo(dtype).eps, dtype)
    samples[::2], samples[1::2] = np.ldexp(samples[::2], exponent), np.ldexp(samples[1::2], -exponent + 10)
    for parts in (SUM, ALL):
        check(cp, samples, parts)


@pytest.mark.gpu
@pytest.mark.parametrize("parts", [SUM, SUM | EXTREMES, SUM | SQUARES])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_exponent_of_cells(cp: Any, dtype: str, parts: int) -> None:
    """Numbers of both signs at each exponent, including subnormal ones, with zero and nonzero last bits."""
    kind = np.dtype(f"u{np.dtype(dtype).itemsize}")
    nmant, top = np.finfo(dtype).nmant, 2 * np.finfo(dtype).maxexp - 1
    fractions = np.array([0, 1, 2 ** (nmant - 1), 2**nmant - 1, 2 ** (nmant // 2) + 1], kind)
    bits = (np.arange(top).astype(kind) << kind.type(nmant))[:, None] | fractions
    signs = generator("cells", dtype).integers(0, 2, (4, bits.size)).astype(kind) << kind.type(8 * kind.itemsize - 1)
    for seed, sign in enumerate(signs):
        check(cp, generator(seed).permutation(bits.ravel() | sign).view(dtype), parts)


@pytest.mark.gpu
def test_carries_of_squares_run_on(cp: Any) -> None:
    """In every thread, the second word of the sum of squares is all ones when the first one carries."""
    of_thread = np.array([2**64 - 1, 2**32, 2**32 - 1, 2**32 - 1, 0, 0, 0, 0], np.uint64)
    check(cp, np.repeat(of_thread.reshape(4, 1, 2), 256, axis=1).ravel())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_partials_combine_on_the_device_as_on_the_host(cp: Any, dtype: str) -> None:
    whole = case("specials", dtype, 9001)
    a, b, c = (
        gpu.place_on_device(reduce_on_device(cp.asarray(whole[start:end]), ALL), start)
        for start, end in ((0, 1), (1, 4000), (4000, 9001))
    )
    expected = reduce_reference(whole, ALL)
    for total in (combine_on_device(combine_on_device(a, b), c), combine_on_device(c, combine_on_device(b, a))):
        same(total.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float64"])
def test_arrays_of_several_launches(cp: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "MOST_SAMPLES", 1000)
    check(cp, case("specials", dtype, 4321))


@pytest.mark.hardware
def test_more_than_2_32_samples(cp: Any) -> None:
    if cp.cuda.runtime.memGetInfo()[0] < 6 * 2**30:
        pytest.skip("needs 6 GiB of device memory")
    samples = cp.full(2**32 + 5, -128, cp.int8)
    samples[-1], samples[2**31 + 3] = 7, -127
    got = reduce_on_device(samples, ALL).get()
    expected = partial.empty(np.dtype("int8"), ALL, 2**32 + 5)
    total, squares = -128 * (2**32 + 3) + 7 - 127, 128**2 * (2**32 + 3) + 49 + 127**2
    for at, value, bits in ((partial.SUM_AT, total, 1088), (partial.SQUARES_AT, squares, 2176)):
        expected[at] = partial.exact_sum.to_words(value << bits, at.stop - at.start)
    expected[[partial.MIN_KEY, partial.MIN_AT, partial.MAX_KEY, partial.MAX_AT]] = -128, 0, 7, 2 * (2**32 + 4)
    same(got, expected)


@pytest.mark.gpu
def test_wrapper_refuses(cp: Any) -> None:
    with pytest.raises(TypeError, match=r"expected int8 or .* got complex64"):
        reduce_on_device(cp.zeros(3, "complex64"), ALL)
    with pytest.raises(ValueError, match=r"expected 1 dimension\(s\), got shape \(2, 2\)"):
        reduce_on_device(cp.zeros((2, 2), "int8"), ALL)
    with pytest.raises(ValueError, match=r"C-contiguous .* strides \(8,\) for shape \(3,\)"):
        reduce_on_device(cp.zeros(6, "float32")[::2], ALL)
    with pytest.raises(ValueError, match="at least 1 sample, got an empty array"):
        reduce_on_device(cp.zeros(0, "float32"), ALL)
    with pytest.raises(ValueError, match="on multiples of 4 bytes, the first is at 0x"):
        reduce_on_device(cp.zeros(9, "uint8")[1:].view("float32"), ALL)
    with pytest.raises(ValueError, match=r"expected parts out of 1, 3, 4, 5, 7, got 2"):
        reduce_on_device(cp.zeros(9, "uint8"), SQUARES)


def test_constants_are_those_of_the_source() -> None:
    def constant(name: str) -> str:
        match = re.search(rf"\b{name} = ([^,;]+)", SOURCE)
        assert match, name
        return match[1]

    names = {"SUM_WORDS": partial.SUM_WORDS, "SQUARE_WORDS": partial.SQUARE_WORDS, "SUM_AT": partial.SUM_AT.start,
             "SUM_BITS": partial.exact_sum.SUM_BITS, "SQUARE_BITS": partial.exact_sum.SQUARE_BITS, "SUM": SUM,
             "SQUARES": SQUARES, "EXTREMES": EXTREMES, "REDUCE_THREADS": gpu.THREADS,
             "DIGIT_BITS": gpu.DIGIT_BITS}  # fmt: skip
    assert {name: int(constant(name)) for name in names} == names
    assert int(constant("TOTAL_DIGITS")) + 78 + 154 == gpu.TOTALS
    assert set(C_TYPES) == set(partial.DTYPES)


def test_header_names_every_kernel() -> None:
    text = (nvrtc.KERNELS / "reduce/gpu.cu").read_text(encoding="utf-8")
    listed = re.findall(r"^//   (\w+)  +", text, re.MULTILINE)
    assert listed == re.findall(r"__global__ void\s+(?:__launch_bounds__\([^\n]*\)\s*)?(\w+)\(", text)
    assert {name.partition("<")[0] for name in INSTANCES} == set(listed)


@pytest.mark.gpu
def test_another_thread_takes_the_last_totals(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Taken(list[Any]):
        def __len__(self) -> int:
            return 1  # when it is looked at

    samples = np.arange(100.0)
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "free_totals", lambda *stream: Taken())
        found = reduce_on_device(cp.asarray(samples), SUM).get()
    np.testing.assert_array_equal(found, reduce_reference(samples, SUM))


@pytest.mark.gpu
def test_what_a_graph_adds_to_is_nobody_elses(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = cp.asarray(np.arange(100.0))
    monkeypatch.setattr(gpu, "_captured", [])
    with monkeypatch.context() as patch:
        patch.setattr(cp.cuda.runtime, "streamIsCapturing", lambda stream: True)
        for _ in range(2):
            reduce_on_device(samples, SUM)
    first, second = gpu._captured
    assert first is not second
    reduce_on_device(samples, SUM)
    free = gpu.free_totals(*current_stream())
    assert free and all(totals is not first and totals is not second for totals in free)
