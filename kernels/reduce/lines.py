"""Partials of many rows as one array of int64, shape (rows, entries): a line for each.

A line has the entries of a partial, but of each sum only some words, the same in all lines of an array: those above
repeat the sign, those below are zero. Of integers they are those that sums of the dtype can reach, of floats the fewest
that do. So equal partials make equal lines.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.reduce import partial as layout
from kernels.reduce import powers
from kernels.reduce.exact_sum import SQUARE_BITS, SUM_BITS
from kernels.reduce.partial import FIRST_NAN, MAX_AT, MAX_KEY, MIN_AT, MIN_KEY, NOWHERE, POSITIONS, SAMPLES
from kernels.reduce.powers import CUBE_BITS, FOURTH_BITS, POWERS

Lines = NDArray[np.int64]
Windows = tuple[tuple[int, int], ...]  # of each sum, the first word and the one after the last

WINDOWS = layout.SUM_AT.start  # the entry of a line that says its windows, after those of a partial but the sums
WORDS = WINDOWS + 1
CHUNK = 2**10  # rows at a time whose sums have all words
# Exponent of the lowest bit of a float, and of the power of two above all.
FLOATS = {"float16": (-24, 16), "float32": (-149, 128), "float64": (-1074, 1024)}
# Place in a partial and bits after the binary point of the sum of samples, squares, cubes and fourth powers.
SUMS = ((layout.SUM_AT, SUM_BITS), (layout.SQUARES_AT, SQUARE_BITS), (powers.CUBES_AT, CUBE_BITS),
        (powers.FOURTHS_AT, FOURTH_BITS))  # fmt: skip


@lru_cache
def widest(code: int, with_powers: bool) -> Windows:
    """The words that sums of a dtype can reach."""
    dtype = np.dtype(layout.DTYPES[code])
    lowest, highest = FLOATS.get(dtype.name, (0, 8 * dtype.itemsize))
    found = []
    for power, (at, bits) in enumerate(SUMS[: 4 if with_powers else 2], 1):
        last = (bits + power * highest + 63) // 64 + 1  # 2**63 samples and a sign
        found.append(((bits + power * lowest) // 64, min(last, at.stop - at.start)))
    return tuple(found)


def windows_of(line: NDArray[np.int64]) -> Windows:
    """The windows of a line."""
    code, number = int(line[WINDOWS]) % 2**64, 4 if line[layout.ASKED] & POWERS else 2
    return tuple((code >> 16 * i & 255, code >> 16 * i + 8 & 255) for i in range(number))


def strange(lines: Lines) -> NDArray[np.bool_]:
    """Which lines, of at least one, say something else of their entries than most do: these are wrong."""
    said = lines[:, [layout.CODE, layout.ASKED, WINDOWS]]
    return np.asarray((said != np.sort(said, axis=0)[len(lines) // 2]).any(axis=1))


def _coded(windows: Windows) -> np.int64:
    return np.uint64(sum((first | end << 8) << 16 * i for i, (first, end) in enumerate(windows))).view(np.int64)


@lru_cache
def entries(windows: Windows) -> NDArray[np.int64]:
    """The entries in a partial that lines with these windows have, with some in the place of the windows."""
    of_sums = [np.arange(at.start + first, at.start + end)
               for (at, _), (first, end) in zip(SUMS, windows, strict=False)]  # fmt: skip
    return np.concatenate([np.arange(WINDOWS), [layout.CODE], *of_sums])


def columns(windows: Windows) -> list[slice]:
    """The entries of a line that belong to each sum."""
    found, start = [], WORDS
    for first, end in windows:
        found.append(slice(start, start := start + end - first))
    return found


def to_lines(partials: NDArray[np.int64]) -> Lines:
    """The lines of partials, shape (rows, entries), at least one."""
    windows = widest(int(partials[0, layout.CODE]), partials.shape[1] == powers.SIZE)
    return _trimmed(_described(np.take(partials, entries(windows), axis=1), windows))


def to_partials(lines: Lines) -> NDArray[np.int64]:
    """The partials of lines, at least one, whose entries are what most of them say."""
    windows = windows_of(lines[strange(lines).argmin()])
    partials = np.zeros((len(lines), powers.SIZE if len(windows) > 2 else layout.SIZE), np.int64)
    partials[:, entries(windows)[:WINDOWS]] = lines[:, :WINDOWS]
    partials[:, entries(windows)[WORDS:]] = lines[:, WORDS:]
    for (at, _), (first, end) in zip(SUMS, windows, strict=False):
        if first < end:
            partials[:, at.start + end : at.stop] = partials[:, at.start + end - 1 : at.start + end] >> 63
    return partials


def _described(lines: Lines, windows: Windows) -> Lines:
    lines[:, WINDOWS] = _coded(windows)
    return lines


def _fewest(lines: Lines) -> Windows:
    """The fewest words of floats that hold all sums, mostly those that they have; of integers always."""
    windows = windows_of(lines[0])
    if not layout.DTYPES[lines[0, layout.CODE]].startswith("float"):
        return windows
    found = _of_words(lines[:CHUNK], windows)
    for start in range(CHUNK, len(lines), CHUNK):
        if found == windows:
            break
        found = _union([found, _of_words(lines[start : start + CHUNK], windows)])
    return found


def _of_words(lines: Lines, windows: Windows) -> Windows:
    """The same of lines with these windows, by a look at every word."""
    fewest = []
    for (first, end), column in zip(windows, columns(windows), strict=True):
        words = lines[:, column]
        low = np.flatnonzero(np.bitwise_or.reduce(words, axis=0))
        if not len(low):
            fewest.append((0, 0))
            continue
        differ = np.bitwise_or.reduce(words ^ (words[:, -1:] >> 63), axis=0)  # from the sign
        high = int(np.flatnonzero(differ).max(initial=0))
        last = max(high + 1 + (differ[high] < 0), low[0] + 1)  # another one where the sign is not that of the sum
        fewest.append((first + int(low[0]), min(first + int(last), end)))
    return tuple(fewest)


def _union(each: Sequence[Windows]) -> Windows:
    """Windows that hold all."""
    return tuple(
        (min(first for first, _ in used), max(end for _, end in used))
        if (used := [one for one in of_sum if one[0] < one[1]]) else (0, 0)
        for of_sum in zip(*each, strict=True)
    )  # fmt: skip


def _trimmed(lines: Lines) -> Lines:
    """Lines with these words."""
    return _spread(lines, _fewest(lines))


def alike(parts: Sequence[Lines]) -> list[Lines]:
    """Arrays of lines, each of at least one, with the fewest words that hold the sums of all."""
    windows = _union(list(map(_fewest, parts)))
    return [_spread(part, windows) for part in parts]


def _spread(part: Lines, windows: Windows) -> Lines:
    """Lines with windows that hold all their sums; the same ones if they have these."""
    had = windows_of(part[0])
    if had == windows:
        return part
    lines = np.empty((len(part), columns(windows)[-1].stop), np.int64)
    lines[:, :WORDS] = part[:, :WORDS]
    for target, source, (first, end), (was, last) in zip(columns(windows), columns(had), windows, had, strict=True):
        words, low, high = lines[:, target], max(first, was), min(end, last)
        if low >= high:
            words[:] = 0
            continue
        words[:, : low - first] = 0
        words[:, low - first : high - first] = part[:, source.start + low - was : source.start + high - was]
        words[:, high - first :] = part[:, source.start + high - was - 1 : source.start + high - was] >> 63
    return _described(lines, windows)


def relocate(lines: Lines, index: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Lines:
    """Lines with other indices in all positions, in place; `index`: indices -> others, shape (rows, positions), 0 where
    there is none."""
    positions = lines[:, POSITIONS]
    exist = positions != NOWHERE
    others = index(np.where(exist, positions >> 1, 0))
    lines[:, POSITIONS] = np.where(exist, 2 * others + (positions & 1), NOWHERE)
    return lines


def combine(a: Lines, b: Lines) -> Lines:
    """`kernels.reduce.powers.combine` of each line with its counterpart, at least one."""
    reach = widest(int(a[0, layout.CODE]), bool(a[0, layout.ASKED] & POWERS))
    union = _union([windows_of(a[0]), windows_of(b[0])])
    windows = tuple((first, min(end + (first < end), most)) for (first, end), (_, most) in
                    zip(union, reach, strict=True))  # fmt: skip
    a, b = _spread(a, windows), _spread(b, windows)
    total = a.copy()
    total[:, SAMPLES:FIRST_NAN] += b[:, SAMPLES:FIRST_NAN]
    total[:, FIRST_NAN] = np.minimum(a[:, FIRST_NAN], b[:, FIRST_NAN])
    for key, at, sign in ((MIN_KEY, MIN_AT, 1), (MAX_KEY, MAX_AT, -1)):
        ours, theirs = (a[:, key], b[:, key]) if sign > 0 else (~a[:, key], ~b[:, key])
        other = (theirs < ours) | ((theirs == ours) & (b[:, at] < a[:, at]))
        total[other, key], total[other, at] = b[other, key], b[other, at]
    ours, theirs, sums = a.view(np.uint64), b.view(np.uint64), total.view(np.uint64)
    for window in columns(windows):
        carry = np.zeros(len(a), np.uint64)
        for word in range(window.start, window.stop):
            part = theirs[:, word] + carry
            sums[:, word] = ours[:, word] + part
            carry = ((part < carry) | (sums[:, word] < part)).astype(np.uint64)
    return _trimmed(total)


def made_by(
    function: Any, samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], parts: int,
    state: NDArray[Any] | None = None,
) -> Lines:  # fmt: skip
    """The lines that a function of C++ makes of rows, each from its begin to its end, in a state that it may need.

    Those of floats are made some at a time, because they take several times as much memory before they are trimmed.
    """
    samples = np.require(samples, requirements=["C", "A"])
    begins, ends = (np.ascontiguousarray(places, np.int64) for places in (begins, ends))
    code = layout.DTYPES.index(samples.dtype.name)
    windows = widest(code, bool(parts & POWERS))
    chosen, step = entries(windows), CHUNK if samples.dtype.kind == "f" else len(begins)
    made, lines = [], np.empty((min(step, len(begins)), len(chosen)), np.int64)
    pointer = ctypes.c_void_p
    function.argtypes = (ctypes.c_int, ctypes.c_int, pointer, ctypes.c_size_t, *(pointer,) * 3, ctypes.c_size_t,
                         *(pointer,) * 2)  # fmt: skip
    function.restype = None
    for start in range(0, len(begins), step):
        some = begins[start : start + step]
        function(code, parts, samples.ctypes.data, len(some), some.ctypes.data, ends[start:].ctypes.data,
                 chosen.ctypes.data, len(chosen), lines.ctypes.data,
                 None if state is None else state.ctypes.data)  # fmt: skip
        made.append(_trimmed(_described(lines[: len(some)], windows)))
        if step < len(begins) and np.shares_memory(made[-1], lines):
            made[-1] = made[-1].copy()
    return made[0] if len(made) == 1 else np.concatenate(alike(made))
