"""Small ragged inputs for the read that finds order statistics: see all.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from kernels.common import device
from kernels.common.memory import current_stream
from kernels.quantile import bracket
from kernels.quantile import bracket_steps as steps
from kernels.quantile.bracket_steps import KEPT, LEVELS, TARGETS, Kept, Search, sums_of
from kernels.quantile.gpu import WIDE
from kernels.quantile.keys import to_keys
from kernels.quantile.ranges import HEAVY, MOST_TOGETHER, Range, Ranges, Target, range_words, ranges_of, targets_of
from kernels.quantile.reference import around_reference
from tests.cases.case import RANDOM, Case, same
from tests.cases.quantile_small import samples_of

DRAWN = 2048
TOP = 2**16
NONE = [Target(0.5, 0.0), Target(0.5, 0.0)]  # that is used


def strata(samples: int, drawn: int) -> NDArray[np.int64]:
    """The place of the sample that is drawn of each stratum; its number decides, as in MurmurHash3."""
    places = []
    for number in range(drawn):
        mixed = number * 0x85EBCA6B % 2**32
        mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 % 2**32
        first, end = number * samples // drawn, (number + 1) * samples // drawn
        places.append(first + (mixed * (end - first) >> 32))
    return np.array(places)


def _sample(dtype: str, size: int, number: int, cp: Any) -> None:
    """What is drawn, and what lies at places that follow from the number of NaN: open ends, neighbours, equal ones."""
    samples = samples_of(dtype, size)
    drawn_bytes = DRAWN * samples.itemsize
    shares = np.sort(RANDOM(number).random(number))
    targets = [Target(share, beyond) for share in shares for beyond in (-40 * number, 40.4)]
    targets[0], targets[-1] = Target(0.0, -3.0), Target(1.0, 3.0)
    with patch.object(bracket, "DRAWN_BYTES", drawn_bytes):
        read = bracket._Read(cp.asarray(samples)[1:], [1], targets, True)
        windows, picked, nan = read.drawn()
    expected = samples[1:][strata(size - 1, DRAWN)]
    assert read._own.get().tobytes() == expected.tobytes() and nan == np.isnan(expected).sum()
    places = [round((DRAWN - nan) * share + beyond) for share, beyond in targets]
    assert [place for window in windows for place in window] == places
    keys = np.sort(to_keys(expected))
    inside = [min(max(place, 0), DRAWN - int(nan) - 1) for place in places]
    assert picked.keys == keys[inside].tolist()
    assert picked.before == [place - int(np.searchsorted(keys, keys[place])) for place in inside]
    assert picked.equal == [int((keys == keys[place]).sum()) for place in inside]


def _all_nan(cp: Any) -> None:
    samples, targets = cp.asarray(np.full(3000, np.nan, np.float32)), [Target(0.5, -9.0), Target(0.5, 9.0)]
    with patch.object(bracket, "DRAWN_BYTES", 4 * DRAWN):
        assert bracket._Read(samples, [1], targets, True).drawn()[2] == DRAWN


def _among(items: NDArray[Any], held: list[int], room: int) -> NDArray[Any]:
    """Keys of what blocks have, ascending."""
    rows = items.reshape(-1, room)
    return np.sort(np.concatenate([to_keys(row[:number]) for row, number in zip(rows, held, strict=True)]))


def _search(dtype: str, held: list[int], room: int, number: int, cp: Any) -> None:
    """Ranks from the first to the last, neighbours and equal ones; keys within one range, or in several."""
    random = RANDOM(number)
    items = samples_of(dtype, room * len(held), number)
    items[::5] = random.permutation(items)[: len(items[::5])]
    items[3 * TOP // 4 :] = 2
    if items.dtype.kind == "f":
        items[items != items] = -3
    keys = _among(items, held, room)
    every = np.unique([0, len(keys) - 1, *random.integers(0, len(keys), 4 * TARGETS)])
    ranks = every[np.linspace(0, len(every) - 1, min(number, len(every))).astype(int)].tolist()
    search = Search(items.dtype, len(ranks), cp.asarray(np.array(Search.words(ranks), np.uint64)))
    kept = Kept(cp.asarray(items), cp.asarray(np.array(held, np.uint32)), room)
    cuts = np.unique(keys)[:: len(keys) if number % 2 else 1 + len(keys) // 5].tolist()
    ranges = [Range(first, int(keys[keys < end].max())) for first, end in pairwise([*cuts, int(keys[-1]) + 1])]
    search.queue(kept, cp.asarray(range_words(items.dtype, ranges)), len(ranges), current_stream())
    got = steps.picked_of(search.state.get())
    assert got.keys == keys[ranks].tolist()
    assert got.before == [rank - int(np.searchsorted(keys, keys[rank])) for rank in ranks]
    assert got.equal == [int((keys == keys[rank]).sum()) for rank in ranks]
    same(search.state[:1], np.zeros(1))
    same(search._counters, np.zeros(search._counters.size))


def ranges_in(samples: NDArray[Any], gathered: int, counted: int) -> Ranges:
    """Ranges between keys of samples, of different widths, the first from the least key; single keys between them."""
    keys = np.unique(to_keys(samples[samples == samples]))
    ends = keys[np.linspace(0, len(keys) - 1, 3 * gathered + counted + 1).astype(int)].tolist()
    few = [Range(ends[3 * number] if number else 0, ends[3 * number + 1 + number % 2]) for number in range(gathered)]
    return Ranges(few, [Range(key, key) for key in ends[3 * gathered : 3 * gathered + counted]], 1.0)


def _expected(samples: NDArray[Any], ranges: Ranges) -> tuple[list[list[int]], NDArray[Any]]:
    """Numbers below each range, and in it; the keys of what is gathered, ascending."""
    keys = to_keys(samples[samples == samples])
    every = (*ranges.gathered, *ranges.counted)
    inside = [keys[(keys >= first) & (keys <= last)] for first, last in ranges.gathered]
    counts = [[int((keys < first).sum()), int(((keys >= first) & (keys <= last)).sum())] for first, last in every]
    return counts, np.sort(np.concatenate(inside or [keys[:0]]))


def _counted(read: Any) -> tuple[list[list[int]], int]:
    """The same of a read, and how many NaN there are."""
    below, inside, nan = read._counts()
    return [list(pair) for pair in zip(below, inside, strict=True)], nan


def _read(dtype: str, size: int, gathered: int, counted: int, cp: Any, blocks: int = 2, launches: int = 1) -> None:
    """Counts, what is kept, and the ranks among it; blocks of several tiles, launches one after the other."""
    samples = samples_of(dtype, size + 1, gathered)
    ranges = ranges_in(samples[1:], gathered, counted)
    counts, keys = _expected(samples[1:], ranges)
    numbers = int((samples[1:] == samples[1:]).sum())
    limits = device.Limits(blocks, 1024, 1024, 65536, 233472, 232448)
    wanted = np.unique(RANDOM(size).integers(0, numbers, TARGETS)).tolist()
    most = -(-size // launches)
    with (
        patch.object(device, "limits", lambda: limits), patch.object(steps, "MOST", most),
        patch.object(bracket, "DRAWN_BYTES", 1024 * samples.itemsize),
    ):  # fmt: skip
        read = bracket._Read(cp.asarray(samples)[1:], wanted, NONE, True)
        assert read.queue(ranges)
        found = read.found(lambda of: wanted, True)
    assert _counted(read) == (counts, size - numbers)
    held = read._kept.held.get().tolist()
    assert _among(read._kept.items.host, held, read._kept.room).tolist() == keys.tolist()
    assert (found.samples, found.nan) == (size, size - numbers)
    ordered = np.sort(to_keys(samples[1:][samples[1:] == samples[1:]]))
    every = (*ranges.gathered, *ranges.counted)
    expected = {rank: int(ordered[rank]) for rank in wanted
                if any(first <= ordered[rank] <= last for first, last in every)}  # fmt: skip
    assert found.keys == expected


def _no_room(dtype: str, size: int, cp: Any) -> None:
    """Samples that find no room are counted all the same, and only what was counted alone is found."""
    samples = samples_of(dtype, size)
    ranges = replace(ranges_in(samples, 1, 1), share=0.0)
    counts, _ = _expected(samples, ranges)
    numbers = int((samples == samples).sum())
    with patch.object(bracket, "TILE_BYTES", 64), patch.object(bracket, "DRAWN_BYTES", 1024 * samples.itemsize):
        read = bracket._Read(cp.asarray(samples), [0, 1], NONE, True)
        assert read.queue(ranges)
        found = read.found(lambda of: range(0, numbers, 97), True)
    assert _counted(read) == (counts, len(samples) - numbers)
    assert max(read._kept.held.get()) > read._kept.room
    below, inside = counts[1]
    ((key, _),) = ranges.counted
    assert found.keys == {rank: key for rank in range(0, numbers, 97) if below <= rank < below + inside}


def _alone(dtype: str, samples: NDArray[Any], wanted: list[int], cp: Any, launches: int = 1) -> None:
    """Ranges whose ends stay on the device: what is found, what proves it, and the same counts of other samples."""
    limits = device.Limits(2, 1024, 1024, 65536, 233472, 232448)
    size, others = len(samples) - 1, samples[7::3].copy()
    if others.dtype.kind == "f":
        others[::50] = np.nan
    other, targets = cp.asarray(others), targets_of(wanted, size, 1024)
    with (
        patch.object(device, "limits", lambda: limits), patch.object(steps, "MOST", -(-size // launches)),
        patch.object(bracket, "DRAWN_BYTES", 1024 * samples.itemsize),
    ):  # fmt: skip
        read = bracket._Read(cp.asarray(samples)[1:], wanted, targets, True)
        assert read.queue_alone()
        found = read.proven()
        numbers = np.sort(samples[1:][samples[1:] == samples[1:]])
        if len(numbers) < size:  # then other ranks are meant
            assert found is None
            assert read.was_fit
            found = read.found_alone(lambda of: wanted, True)
            assert found is not None and found.keys == dict(zip(wanted, to_keys(numbers[wanted]).tolist(), strict=True))
            return
        assert found is not None and found.keys == dict(zip(wanted, to_keys(numbers[wanted]).tolist(), strict=True))
        assert (found.samples, found.nan) == (size, size - len(numbers)) and found.around is not None
        values = np.unique(numbers[wanted])
        keys = to_keys(values)
        known = found.around.count(read._samples, keys)
        np.testing.assert_array_equal(known, around_reference(samples[1:], values))
        same(found.around.count(other, keys), around_reference(others, values))
    assert found.around.count(other, keys + keys.dtype.type(1)) is None
    with patch.object(steps, "AROUND_BYTES", other.nbytes - 1):
        assert found.around.count(other, keys) is None


def _unfit(samples: NDArray[Any], omit: bool, cp: Any) -> None:
    """Nothing is read where one key is that of many samples, nor beside NaN that are not left out."""
    size = len(samples)
    with patch.object(bracket, "DRAWN_BYTES", 1024 * samples.itemsize):
        read = bracket._Read(cp.asarray(samples), [size // 2], targets_of([size // 2], size, 1024), omit)
        assert read.queue_alone() and read.proven() is None
        windows, picked, nan = read.drawn()
    assert not read.was_fit
    same(read._of("sums"), np.zeros(sums_of(LEVELS)))
    same(read._kept.held, np.zeros(read._kept.held.size))
    same(read._of("proof")[KEPT:], np.zeros(steps.PROOF - KEPT))
    if omit:
        assert read.queue(ranges_of(samples.dtype, windows, picked, 1024 - nan))
        found = read.found(lambda of: [size // 2], True)
        assert found is not None and found.keys == {size // 2: int(np.sort(to_keys(samples))[size // 2])}


def _together(cp: Any) -> None:
    """Nothing is read where no end is a key of many samples, but all ends together are."""
    size, wanted = 30_001, [3000, 15_000, 27_000]
    samples = np.arange(size, dtype=np.int32) // 353
    with patch.object(bracket, "DRAWN_BYTES", 1024 * samples.itemsize):
        read = bracket._Read(cp.asarray(samples), wanted, targets_of(wanted, size, 1024), True)
        assert read.queue_alone() and read.proven() is None
        _, picked, _ = read.drawn()
    assert max(picked.equal) * HEAVY <= 1024 < sum(picked.equal) * HEAVY / MOST_TOGETHER and not read.was_fit


def _ends(dtype: str, cp: Any) -> None:
    """Ends of a range at places among what was drawn, and open ones before the first and behind the last."""
    samples = (RANDOM(3).normal(size=5000) * 1e6 + 2e6).clip(0).astype(dtype)
    drawn = np.sort(samples[strata(len(samples), 1024)])
    least, most = (-np.inf, np.inf) if dtype[0] == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for first, last in ((-1, 1024), (0, 1023), (700, 900), (1023, 2000)):
        with patch.object(bracket, "DRAWN_BYTES", 1024 * samples.itemsize):
            read = bracket._Read(cp.asarray(samples), [1], [Target(0.0, first), Target(0.0, last)], True)
        ends = [least if first < 0 else drawn[first], most if last > 1023 else drawn[last]]
        keys = drawn[[max(first, 0), min(last, 1023)]]
        equal = [int((drawn == key).sum()) for key in keys]
        fit = sum(one * HEAVY <= 1024 and sum(equal) * HEAVY <= 1024 * MOST_TOGETHER for one in equal)
        same(read._of("range")[:3], np.array([fit, *np.array(ends, dtype).view(f"u{samples.itemsize}")], np.uint64))


def _alone_cases() -> Iterator[Case]:
    for number, dtype in enumerate(WIDE):
        size = 40_011 + number
        samples = (RANDOM(number).normal(size=size) * 1e6 + 3e6).clip(0).astype(dtype)
        if number % 2 == 0:
            samples = (samples // 4000 * 4000).astype(dtype)  # many keys are equal
        wanted = [size // 3, size // 3 + 1] if number < 4 else [size // 3]
        for kernel in ("quantile_bracket", "quantile_prove"):
            yield Case("quantile/bracket", kernel, f"{dtype}, one range", partial(_alone, dtype, samples, wanted))
        spread = [0, size // 9, size // 2, size // 2 + 1, 8 * size // 9][number % 2 :]
        samples = RANDOM(number).integers(0, 2**62, size, np.uint64).astype(dtype)
        for kernel in ("quantile_ends", "quantile_bracket", "quantile_pick", "quantile_prove")[number % 2 :: 2]:
            yield Case("quantile/bracket", kernel, f"{dtype}, several ranges", partial(_alone, dtype, samples, spread))
    some_nan = RANDOM(9).normal(size=40_001).astype(np.float32)
    some_nan[::7] = np.nan
    check = partial(_alone, "float32", some_nan, [17_000])
    yield Case("quantile/bracket", "quantile_bracket", "one range beside NaN", check)
    ramp = np.arange(30_001, dtype=np.int32)
    check = partial(_alone, "int32", ramp - 15_000, [0, 1], launches=3)
    yield Case("quantile/bracket", "quantile_bracket", "one range from the least key on", check)
    check = partial(_alone, "int32", np.where(ramp > 29_980, 2**31 - 1, ramp).astype(np.int32), [29_970])
    yield Case("quantile/bracket", "quantile_prove", "one range to the greatest key", check)
    check = partial(_unfit, np.where(ramp % 3, ramp, 15_000).astype(np.float64), True)
    yield Case("quantile/bracket", "quantile_ends", "ends with a heavy key", check)
    yield Case("quantile/bracket", "quantile_ends", "ends beside NaN", partial(_unfit, some_nan, False))
    yield Case("quantile/bracket", "quantile_ends", "keys of many samples together", _together)
    for dtype in WIDE:
        yield Case("quantile/bracket", "quantile_ends", f"{dtype}, ends of a range", partial(_ends, dtype))


def bracket_cases() -> Iterator[Case]:
    """Every kernel, types of every width."""
    for number, dtype in enumerate(WIDE):
        size = DRAWN + 1 if number == 0 else 40_007 + number
        for windows in (1, TARGETS // 2):
            check = partial(_sample, dtype, size, windows)
            yield Case("quantile/bracket", "quantile_sample", f"{dtype}, {size}, {windows} windows", check)
    yield Case("quantile/bracket", "quantile_sample", "all NaN", _all_nan)
    for dtype, held, room, targets in (
        ("int32", [1024], 1024, 1), ("float32", [1300, 7, 1025, 0], 1300, 5), ("uint64", [40, 39], 40, TARGETS),
        ("float64", [2100, 1], 2100, 4), ("int64", [5, 0, 3], 9, 3), ("uint32", [300], 300, 2),
        ("int32", [TOP, 2 * TOP], 2 * TOP, 6),
    ):  # fmt: skip
        check = partial(_search, dtype, held, room, targets)
        yield Case("quantile/bracket", "quantile_pick", f"{dtype}, {held} of {room}, {targets} ranks", check)
    for number, (dtype, size) in enumerate((("float32", 70_003), ("int32", 5001), ("float64", 33_000), ("uint32", 2049),
                                            ("int64", 1037), ("uint64", 4099))):  # fmt: skip
        for gathered, counted in ((1, 0), (0, 1), (2, 2)) if number % 2 else ((1, 1), (0, 1), (5, 2), (3, 12)):
            check = partial(_read, dtype, size, gathered, counted)
            what = f"{dtype}, {size}, {gathered} gathered, {counted} counted"
            yield Case("quantile/bracket", "quantile_bracket", what, check)
    for size in (2, 6):
        yield Case("quantile/bracket", "quantile_bracket", f"float32, {size}", partial(_read, "float32", size, 1, 0))
    check = partial(_read, "float32", 140_000, 1, 0, blocks=1, launches=3)
    yield Case("quantile/bracket", "quantile_bracket", "float32, one block, three launches", check)
    for dtype in ("float32", "int64"):
        yield Case("quantile/bracket", "quantile_bracket", f"{dtype}, no room", partial(_no_room, dtype, 20_003))
    yield from _alone_cases()
