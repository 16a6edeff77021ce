"""Small ragged inputs for counts of keys: see all.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from kernels.common import device
from kernels.quantile import gpu
from kernels.quantile.cells import Cell, Cells, cells_of, combined, first_cells, gathering_cells
from kernels.quantile.keys import to_keys, to_samples
from kernels.quantile.reference import around_reference, cells_reference
from tests.cases.case import RANDOM, Case, same

WIDE = gpu.WIDE
TOP = 2**16  # keys that are gathered, at most


def samples_of(dtype: str, size: int, seed: int = 0) -> NDArray[Any]:
    """All kinds of samples: random bits, crowded ones, special ones, the ends of the range."""
    random, native = RANDOM(seed), np.dtype(dtype)
    samples = random.integers(0, 256, size * native.itemsize, np.uint8).view(native).copy()
    samples[::3] = np.arange(5).astype(native)[random.integers(0, 5, len(samples[::3]))]
    if native.kind == "f":
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(native).smallest_subnormal], native)
        samples[1::7] = special[np.arange(len(samples[1::7])) % 7]
    else:
        ends = np.iinfo(native)
        samples[1::7], samples[2::7] = ends.min, ends.max
    return samples


def cells_around(samples: NDArray[Any], number: int, gather: bool) -> Cells:
    """Cells of samples that hold some of them: different widths, neighbours, the last key; or what gathers them."""
    bits = 8 * samples.dtype.itemsize
    keys = np.unique(to_keys(samples[: 40 * number]))
    chosen = keys[np.linspace(0, len(keys) - 1, number).astype(int)].astype(np.uint64)
    widths = {int(key) >> (wide := 3 + place % (bits - 18)) << wide: wide for place, key in enumerate(chosen)}
    cells: list[Cell] = []
    for first, wide in sorted(widths.items()):
        if not cells or cells[-1].first + 2 ** cells[-1].bits <= first:
            cells.append(Cell(first, wide, 0, 0 if gather else TOP + 1))
    made = cells_of(bits, cells)
    if not gather:
        return made
    inside = cells_reference(samples, made.firsts, made.bits, made.slot_bits, 0).sum()
    return Cells(bits, made.firsts, made.bits, made.slot_bits, max(int(inside), 1))


def _reference(samples: NDArray[Any], cells: Cells) -> NDArray[np.int64]:
    return cells_reference(samples, cells.firsts, cells.bits, cells.slot_bits, cells.gathered)


def _top(dtype: str, size: int, start: int, shared: int, cp: Any) -> None:
    samples, cells = samples_of(dtype, size + start), first_cells(8 * np.dtype(dtype).itemsize)
    limits = device.Limits(3, 1024, 2048, 65536, 233472, shared)
    with patch.object(device, "limits", lambda: limits):
        got = gpu.count_cells_on_device(cp.asarray(samples)[start:], cells)
    same(got, _reference(samples[start:], cells))


def _one_block(dtype: str, size: int, start: int, cp: Any) -> None:
    """Several tiles to a block, runs of equal samples."""
    samples, cells = samples_of(dtype, size + start), first_cells(8 * np.dtype(dtype).itemsize)
    samples[size // 2 : size // 2 + 3000] = 3
    with patch.object(device.Limits, "resident_blocks", lambda *_: 1):
        got = gpu.count_cells_on_device(cp.asarray(samples)[start:], cells)
    same(got, _reference(samples[start:], cells))


def _crowded(cp: Any) -> None:
    """One block counts more than 2^16 equal samples."""
    samples = np.full(2**17 + 301, 7, np.uint16)
    samples[::2] = 6
    with patch.object(device.Limits, "resident_blocks", lambda *_: 1):
        got = gpu.count_cells_on_device(cp.asarray(samples), first_cells(16))
    same(got, _reference(samples, first_cells(16)))


def _too_many(cp: Any) -> None:
    """More keys than there is room for: they are counted, and left out."""
    samples = samples_of("float32", 1500)
    cells = cells_around(samples, 5, True)
    small = Cells(cells.key_bits, cells.firsts, cells.bits, cells.slot_bits, 3)
    got = gpu.count_cells_on_device(cp.asarray(samples), small).get()
    assert got[0] == -1 - cells.gathered and got.shape == (4,)


def _cells(dtype: str, number: int, gather: bool, cp: Any) -> None:
    """Those of samples; none: all keys, in two halves."""
    samples = samples_of(dtype, 2049)
    bits = 8 * samples.itemsize
    cells = cells_around(samples, number, gather) if number else gathering_cells(bits, samples.size + 5)
    on_device = cp.asarray(samples)
    same(gpu.count_cells_on_device(on_device, cells), _reference(samples, cells))
    parts = [gpu.count_cells_on_device(on_device[cut], cells) for cut in (slice(0, 701), slice(701, None))]
    same(combined(*parts), _reference(samples, cells))


def beside(dtype: str, size: int) -> NDArray[Any]:
    """Bits next to where the upper 16 change; zeros, infinities and NaN of all kinds, of both signs."""
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    low, random = 8 * unsigned.itemsize - 16, RANDOM(size)
    tops = np.concatenate([random.integers(0, 2**16, 40), np.array([0, 1, 0x7F7F, 0x7F80, 0x7FEF, 0x7FF0, 0x7FFF])])
    tops = np.concatenate([tops, tops ^ 0x8000]).astype(unsigned) << unsigned.type(low)
    bits = (tops[:, None] + np.array([-1, 0, 1, 2], np.int64).astype(unsigned)).reshape(-1)
    return np.resize(random.permutation(bits), size).view(dtype)


# Cells of floats by where they begin, in bits of a positive number, or of the size of a negative one.
EDGES = ("zero", "below zero", "across zero", "infinity", "-infinity", "beyond -infinity", "NaN", "one", "minus one")


def edge_cell(dtype: str, where: str, bits: int) -> Cells:
    """A cell there."""
    native, every = np.dtype(dtype), 2 ** (8 * np.dtype(dtype).itemsize)
    half, size = every // 2, 2**bits

    def at(x: float) -> int:
        return int(to_keys(np.array([x], native))[0]) if native.kind == "f" else half

    first = {"zero": half, "below zero": half - size, "across zero": half - size // 2, "infinity": at(np.inf),
             "-infinity": at(-np.inf), "beyond -infinity": at(-np.inf) - size // 2, "NaN": every - size, "one": at(1),
             "minus one": at(-1) - size // 2}[where]  # fmt: skip
    return cells_of(8 * native.itemsize, [Cell(first, bits, 0, TOP + 1)])


def _edge(dtype: str, where: str, bits: int, cp: Any) -> None:
    cells, plain = edge_cell(dtype, where, bits), np.dtype(dtype)
    keys = int(cells.firsts[0]) + RANDOM(bits).integers(0, 2**bits, 500, np.uint64)
    inside = to_samples(keys.astype(f"u{plain.itemsize}"), plain) if plain.kind == "f" else np.arange(500).astype(plain)
    samples = RANDOM(1).permutation(np.concatenate([inside, beside(dtype, 700)]))
    same(gpu.count_cells_on_device(cp.asarray(samples), cells), _reference(samples, cells))


def _beside(dtype: str, cp: Any) -> None:
    samples, cells = beside(dtype, 1300), first_cells(8 * np.dtype(dtype).itemsize)
    same(gpu.count_cells_on_device(cp.asarray(samples), cells), _reference(samples, cells))


def _beside_few(dtype: str, values: tuple[float, ...], cp: Any) -> None:
    samples, values_of = beside(dtype, 1300), np.array(values, dtype)
    same(gpu.count_around_on_device(cp.asarray(samples), to_keys(values_of)), around_reference(samples, values_of))


def _two_keys(cp: Any) -> None:
    """Fewer samples than there are before the first multiple of 16 bytes."""
    samples, cells = samples_of("float32", 40), cells_around(samples_of("float32", 40), 3, True)
    got = gpu.count_cells_on_device(cp.asarray(samples)[1:3], cells)
    same(got, _reference(samples[1:3], cells))


def _around(dtype: str, number: int, shared: int, cp: Any) -> None:
    samples = samples_of(dtype, 3001)
    values = np.unique(samples[samples == samples])
    values = values[np.linspace(0, len(values) - 1, number).astype(int)]
    limits = device.Limits(2, 1024, 2048, 65536, 233472, shared)
    with patch.object(device, "limits", lambda: limits), patch.object(gpu, "TILE_BYTES", 4096):  # several blocks
        got = gpu.count_around_on_device(cp.asarray(samples), to_keys(values))
    same(got, around_reference(samples, values))


def quantile_cases() -> Iterator[Case]:
    """Every kernel: types of every width, with room for counters in a block and without."""
    for number, dtype in enumerate(("int8", "uint8", "int16", "uint16", "float16", *WIDE)):
        tile = 1024 * 4 * 16 // np.dtype(dtype).itemsize
        size = tile + 517 if number % 3 == 0 else 1025
        for shared in (2**17, 2**8 if dtype.endswith("int8") else 2**12):
            check = partial(_top, dtype, size, number % 2, shared)
            yield Case("quantile/gpu", "quantile_top", f"{dtype}, {size}, {shared} bytes", check)
    for dtype, size, start in (("int32", 3 * 2**14 + 5, 0), ("float32", 5 * 2**14 + 7, 1), ("uint8", 3, 1),
                               ("int32", 2**14 + 2, 1)):  # fmt: skip
        check = partial(_one_block, dtype, size, start)
        yield Case("quantile/gpu", "quantile_top", f"{dtype}, {size} from {start} in one block", check)
    yield Case("quantile/gpu", "quantile_top", "uint16, counters above 16 bits", _crowded)
    yield Case("quantile/gpu", "quantile_cells", "more keys than room", _too_many)
    yield Case("quantile/gpu", "quantile_keys", "float32, 80 cells, gathered", partial(_cells, "float32", 80, True))
    yield Case("quantile/gpu", "quantile_keys", "float32, 2 from 1", _two_keys)
    yield Case("quantile/gpu", "quantile_around", "int32, 700, 131072 bytes", partial(_around, "int32", 700, 2**17))
    for dtype in ("int16", "uint16", "float16", *WIDE):
        yield Case("quantile/gpu", "quantile_keys", f"{dtype}, all gathered", partial(_cells, dtype, 0, True))
    for number, dtype in enumerate(WIDE):
        for cells, gather in ((1, number % 2 == 0), (9, number % 2 == 1), (30, False)):
            check = partial(_cells, dtype, cells, gather)
            yield Case("quantile/gpu", "quantile_cells", f"{dtype}, {cells} cells{', gathered' * gather}", check)
        for values, shared in ((1, 2**14), (2, 2**14), (4, 2**14), (9, 2**14), (11, 2**14), (40, 2**6), (0, 2**14)):
            check = partial(_around, dtype, values, shared)
            yield Case("quantile/gpu", "quantile_around", f"{dtype}, {values}, {shared} bytes", check)
    for dtype, edges in (("float32", EDGES), ("float64", EDGES), ("int32", ("zero",)), ("int64", ("zero",))):
        for where in edges:
            bits = (16,) if dtype.endswith("32") else (16, 20)
            for wide in bits if where in ("infinity", "minus one", "zero") else bits[-1:]:
                check = partial(_edge, dtype, where, wide)
                yield Case("quantile/gpu", "quantile_cell", f"{dtype}, {where}, {wide} bits", check)
    for dtype in ("float16", "float32", "float64"):
        check = partial(_beside, dtype)
        yield Case("quantile/gpu", "quantile_top", f"{dtype}, next to where the upper bits change", check)
    for dtype in ("float32", "float64"):
        for values in ((), (0.0,), (-np.inf, 1.0, np.inf)):
            check = partial(_beside_few, dtype, values)
            yield Case("quantile/gpu", "quantile_few", f"{dtype}, next to zeros and infinities, {values}", check)
