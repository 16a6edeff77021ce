"""Order statistics that one read finds are those of sorting; what it does not find is left to passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.common import device
from kernels.quantile import bracket, bracket_steps, ranges
from kernels.quantile.bracket import Found, find_on_device
from kernels.quantile.gpu import WIDE, count_around_on_device, count_cells_on_device
from kernels.quantile.keys import to_keys, to_sample
from kernels.quantile.ranks import METHODS
from kernels.quantile.search import Search
from tests.benchmarks import bracket_kernel

pytestmark = pytest.mark.gpu

SIZES = (2048, 2049, 5003, 16_389, 40_000)
FIVE = ("0.001", "0.25", "0.5", "0.75", "0.999")

Samples = NDArray[Any]
Make = Callable[[np.random.Generator, int], Samples]


def _specials(random: np.random.Generator, dtype: np.dtype[Any], size: int) -> Samples:
    """Half NaN, infinities and zeros of both signs; the ends of the range of integers."""
    if dtype.kind == "f":
        values = np.array([np.nan, -np.nan, np.nan, np.inf, -np.inf, 0.0, -0.0], dtype)
    else:
        values = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0], dtype)
    return values[random.integers(0, len(values), size)]


KINDS: dict[str, Make] = {
    "bell": lambda random, size: random.normal(1e6, 1e4, size),
    "constant": lambda random, size: np.full(size, 7),
    "two values": lambda random, size: random.integers(0, 2, size),
    "ten values": lambda random, size: random.integers(0, 10, size),
    "sorted": lambda random, size: np.sort(random.integers(0, 10**6, size)),
    "reversed": lambda random, size: np.arange(size)[::-1],
    "periodic": lambda random, size: np.arange(size) % 128,
    "one far": lambda random, size: np.where(np.arange(size) == size // 2, 10**6, 3),
    "skewed": lambda random, size: np.exp(5 * random.normal(size=size)).clip(0, 1e9),
}  # fmt: skip


def samples_of(kind: str, dtype: str, size: int, random: np.random.Generator) -> Samples:
    native = np.dtype(dtype)
    if kind == "any bits":
        return random.integers(0, 256, size * native.itemsize, np.uint8).view(native).copy()
    return _specials(random, native, size) if kind == "specials" else KINDS[kind](random, size).astype(native)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few samples are drawn of few."""
    monkeypatch.setattr(bracket, "DRAWN_BYTES", 2**14)
    monkeypatch.setattr(bracket, "LEAST", 2048)


def begun(dtype: str, texts: Any, method: str = "linear", omit: bool = True) -> Search:
    return Search.begin(np.dtype(dtype), [(method, Fraction(text)) for text in texts], omit)


def completed(search: Search, on_device: Any, found: Found | None) -> Search:
    """The search after what was found and all passes, proven."""
    search = search if found is None else search.completed(*found)
    while search.cells is not None:
        search = search.counted(count_cells_on_device(on_device, search.cells).get())
    search.proven_by(count_around_on_device(on_device, search.statistics).get())
    return search


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("kind", [*KINDS, "any bits", "specials"])
def test_keys_are_those_of_sorted_samples(cp: Any, kind: str, dtype: str) -> None:
    """Any method and quantiles, ends among them, samples that begin anywhere; nothing is left to passes."""
    random = np.random.default_rng(len(kind) + len(dtype))
    for size in SIZES[:: 1 + (dtype[-2:] == "64")]:
        start = int(random.integers(0, 4))
        samples = samples_of(kind, dtype, size + start, random)
        texts = [Fraction(int(number), 1000) for number in random.integers(0, 1001, 3)]
        search = begun(dtype, [*texts, *(("0", "1") if size % 2 else ())], METHODS[int(random.integers(len(METHODS)))])
        found = find_on_device(cp.asarray(samples)[start:], search.ranks, True)
        keys, nan = np.sort(to_keys(samples[start:])), int(np.isnan(samples[start:]).sum())
        if found is None and kind == "ten values":
            continue  # windows in too many of them: few samples were drawn
        assert found is not None and (found.samples, found.nan) == (size, nan)
        assert found.keys == {rank: int(keys[rank]) for rank in search.ranks(size - nan)}
        assert search.completed(*found).cells is None


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("kind", [*KINDS, "any bits"])
def test_ranges_are_proven_by_the_read(cp: Any, kind: str, dtype: str) -> None:
    """As by a pass of its own, and of other samples, too; where many samples have one key that pass is needed."""
    random = np.random.default_rng(len(kind) + len(dtype))
    for size, number in ((SIZES[1], 1), (SIZES[2], 5)):
        samples = samples_of(kind, dtype, size + 1, random)
        texts = [Fraction(int(k), 1000) for k in random.integers(0, 1001, number)]
        on_device, search = cp.asarray(samples)[1:], begun(dtype, texts)
        found = find_on_device(on_device, search.ranks, True)
        if found is None or found.around is None:
            few = found is None or found.nan or number > 1
            assert few or np.unique(samples[1:], return_counts=True)[1].max() * ranges.HEAVY > size / 2
            continue
        search = search.completed(*found)
        counts = found.around.count(on_device, search.statistics)
        search.proven_by(counts)
        np.testing.assert_array_equal(counts, count_around_on_device(on_device, search.statistics).get())
        other = on_device[size // 3 :: 2].copy()
        got = found.around.count(other, search.statistics).get()
        np.testing.assert_array_equal(got, count_around_on_device(other, search.statistics).get())


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("texts", [[f"{k}/9" for k in range(1, 9)], ["1/3", "999/1001"]])
def test_keys_and_samples_at_the_limits_are_proven(cp: Any, texts: Any, dtype: str) -> None:
    """As many keys as a search takes; the greatest samples above the last key, in its range."""
    samples = np.random.default_rng(len(texts)).normal(0, 1e8, 40_001).astype(dtype)
    samples[:15] = ends = np.iinfo(dtype).max if dtype == "int32" else np.inf
    on_device, search = cp.asarray(samples), begun(dtype, texts)
    found = find_on_device(on_device, search.ranks, True)
    assert found is not None and found.around is not None and len({*found.keys.values()}) == 2 * len(texts)
    assert max(found.keys.values()) < to_keys(np.array([ends], dtype))[0]
    search = search.completed(*found)
    counts = found.around.count(on_device, search.statistics)
    search.proven_by(counts)
    np.testing.assert_array_equal(counts, count_around_on_device(on_device, search.statistics).get())


@pytest.mark.parametrize("dtype", WIDE)
def test_ranges_that_touch_share_their_ends(cp: Any, dtype: str) -> None:
    """Of few values: a range ends with the key that the next one begins with, and has its samples."""
    random, touching = np.random.default_rng(18), 0
    for low in (100, 300, 500):
        samples = random.integers(0, random.integers(80, 140), 30_001).astype(dtype)
        drawn = 2**14 // samples.itemsize
        high = next(q for q in range(low, 1000) if len(ranges.targets_of([low * 30, q * 30], 30_001, drawn)) == 4)
        on_device, search = cp.asarray(samples), begun(dtype, [Fraction(low, 1000), Fraction(high, 1000)])
        found = find_on_device(on_device, search.ranks, True)
        keys = np.sort(to_keys(samples))
        assert found is not None and found.keys == {rank: int(keys[rank]) for rank in search.ranks(30_001)}
        assert found.around is not None
        touching += int(np.equal(*found.around._range.get()[2:4]))
        values = search.completed(*found).statistics
        counts = found.around.count(on_device, values)
        np.testing.assert_array_equal(counts, count_around_on_device(on_device, values).get())
    assert touching


@pytest.mark.parametrize("quantiles", [["0.5"], FIVE])
@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_what_finds_no_room_is_found_by_passes(
    cp: Any, dtype: str, quantiles: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_room = bracket._Read._make_room
    monkeypatch.setattr(bracket._Read, "_make_room", lambda read, levels, share: make_room(read, levels, 0.0))
    for module in (bracket, bracket_steps):
        monkeypatch.setattr(module, "TILE_BYTES", 64)
    samples = (np.random.default_rng(6).normal(size=30_001) * 1e6).astype(dtype)
    search, on_device = begun(dtype, quantiles), cp.asarray(samples)
    found = find_on_device(on_device, search.ranks, True)
    assert found == Found(30_001, 0, {})
    keys = np.sort(to_keys(samples))
    assert completed(search, on_device, found).keys == {rank: int(keys[rank]) for rank in search.ranks(30_001)}


def test_a_sample_that_is_not_counted_is_noticed(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = cp.asarray(np.random.default_rng(5).normal(size=30_001))
    queue = bracket_steps.queue_read

    def shorter(samples: Any, *others: Any) -> None:
        queue(samples[:-1], *others)

    monkeypatch.setattr(bracket, "queue_read", shorter)
    for quantiles in (["0.5"], FIVE):
        assert find_on_device(samples, begun("float64", quantiles).ranks, True) is None


def test_many_ranks(cp: Any) -> None:
    """More than the search on the device takes at a time; in one window, and in several."""
    samples = np.random.default_rng(1).normal(size=30_001).astype(np.float32)
    keys = np.sort(to_keys(samples))
    for wanted in (range(15_000, 15_060), [*range(100, 130), *range(20_000, 20_030)]):
        found = find_on_device(cp.asarray(samples), lambda numbers, wanted=wanted: wanted, True)
        assert found is not None and found.keys == {rank: int(keys[rank]) for rank in wanted}


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("shift", [-600, 300])
def test_what_lies_outside_its_range_is_found_by_passes(
    cp: Any, dtype: str, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The windows of the greater ranks are elsewhere: those of the others are known."""

    def elsewhere(*given: Any) -> list[ranges.Target]:
        first, last, *others = ranges.targets_of(*given)
        return [first, last, *(ranges.Target(share, beyond + shift) for share, beyond in others)]

    monkeypatch.setattr(bracket, "targets_of", elsewhere)
    samples = (np.random.default_rng(2).normal(size=30_001) * 1e6).astype(dtype)
    search, on_device = begun(dtype, ("0.25", "0.75"), "lower"), cp.asarray(samples)
    found = find_on_device(on_device, search.ranks, True)
    keys = np.sort(to_keys(samples))
    assert found is not None and found.keys == {7500: int(keys[7500])}
    assert completed(search, on_device, found).keys == {rank: int(keys[rank]) for rank in (7500, 22_500)}


def test_passes_do_what_one_read_does_not(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.random.default_rng(4).normal(size=4000).astype(np.float32)
    half_nan = np.where(np.arange(4000) % 2, samples, np.float32(np.nan))
    median = begun("float32", ["1/2"])
    assert find_on_device(cp.asarray(samples[:2047]), median.ranks, True) is None
    assert find_on_device(cp.asarray(np.full(4000, np.nan)), median.ranks, True) is None
    assert find_on_device(cp.asarray(half_nan), median.ranks, False) is None
    for number in (99, 11):  # too many ranks, too many windows
        search = begun("float32", [Fraction(k, number) for k in range(number)])
        assert find_on_device(cp.asarray(samples), search.ranks, True) is None
    few = cp.asarray(np.repeat(np.arange(14, dtype=np.int32), 300))  # all are heavy, two to a window
    found = find_on_device(few, begun("int32", [Fraction(k, 14) for k in range(1, 14, 2)]).ranks, True)
    assert found is not None and len(found.keys) == 14  # between each two of them
    monkeypatch.setattr(bracket, "MOST_GROUPS", 13)
    assert find_on_device(few, begun("int32", [Fraction(k, 14) for k in range(1, 14, 2)]).ranks, True) is None

    def full(job: str, count: int, dtype: Any) -> Any:
        if count > 4096:
            raise MemoryError
        return cp.empty(count, dtype)

    monkeypatch.setattr(bracket, "empty", full)
    assert find_on_device(cp.asarray(samples), median.ranks, True) is None


def test_gpus_with_less_shared_memory(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer ranks are searched at a time; where a read has no room, passes do it."""
    samples = np.random.default_rng(8).normal(size=30_001)
    on_device, keys, limits = cp.asarray(samples), np.sort(to_keys(samples)), device.limits()
    for kib, quantiles, found in ((99, FIVE, True), (80, FIVE, False), (64, ["0.5"], False)):
        smaller = replace(limits, shared_per_block=kib * 1024)
        monkeypatch.setattr(device, "limits", lambda smaller=smaller: smaller)
        search = begun("float64", quantiles)
        known = find_on_device(on_device, search.ranks, True)
        assert (known is not None) == found
        assert known is None or known.keys == {rank: int(keys[rank]) for rank in search.ranks(30_001)}


def test_a_nan_that_was_not_drawn(cp: Any) -> None:
    """It is counted: without it the ranks are others; where it is not left out, none are needed."""
    samples = np.arange(40_000).astype(np.float64)
    drawn = np.flatnonzero(samples % 2 == 0)[:0]
    search = begun("float64", ["0.5"], "lower")
    for place in range(100, 140):
        some = samples.copy()
        some[place] = np.nan
        found = find_on_device(cp.asarray(some), search.ranks, True)
        assert found is not None and (found.nan, [*found.keys]) == (1, [19_999])
        assert to_sample(found.keys[19_999], np.dtype(np.float64)) == np.sort(some)[19_999]
        propagated = find_on_device(cp.asarray(some), search.ranks, False)
        drawn = np.append(drawn, propagated is None)
        assert propagated in (None, Found(40_000, 1, {}))
    assert set(drawn.tolist()) == {0, 1}


@pytest.mark.parametrize("quantiles", [["0.5"], FIVE])
@pytest.mark.parametrize("kind", ["bell", "ten values"])
def test_benchmark_finds_nothing_wrong(cp: Any, kind: str, quantiles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it compares and runs; its times are taken on GPUs only."""
    ran = []

    def medians(works: dict[str, Any], *_: Any) -> dict[str, float]:
        ran.extend(work() for name, work in works.items() if name != "read")
        return dict.fromkeys(works, 1.0)

    monkeypatch.setattr(bracket_kernel, "device_medians", medians)
    part = samples_of(kind, "float32", 40_000, np.random.default_rng(3))
    bench = SimpleNamespace(samples=cp.asarray(part), part=part, what={}, repeats=1)
    row = bracket_kernel.steps(bench, quantiles)
    assert row["wrong"] == [] and {*row["reads"]} == {"read", *bracket_kernel.STEPS} and isinstance(ran[1], Found)


@pytest.mark.parametrize("wrong", [np.zeros((50, 50), np.float32), np.zeros(5000, np.int16)])
def test_wrong_arrays_are_refused(cp: Any, wrong: Samples) -> None:
    with pytest.raises((TypeError, ValueError), match="expected"):
        find_on_device(cp.asarray(wrong), lambda numbers: [0], True)
