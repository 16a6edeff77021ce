"""Counts of keys on the CPU, compiled and by NumPy, and their checks, against the references."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.quantile import cpu
from kernels.quantile.cells import combined, first_cells
from kernels.quantile.check import around_check, patterns_check
from kernels.quantile.keys import key_from, to_keys, to_number, to_sample, to_samples
from kernels.quantile.reference import around_reference, cells_reference, positions
from tests.cases.cpp_quantile import check_counts_of_keys
from tests.cases.quantile_small import WIDE, cells_around, samples_of

SOURCE = cpu.SOURCE


@pytest.mark.parametrize("dtype", cpu.TYPES)
def test_keys_are_places_in_the_order_of_samples(dtype: str) -> None:
    samples = samples_of(dtype, 3001)
    keys = to_keys(samples)
    assert keys.dtype == f"u{samples.itemsize}"
    np.testing.assert_array_equal(keys, positions(samples))
    np.testing.assert_array_equal(to_samples(keys, samples.dtype), samples)  # NaN are equal here, and zeros
    order = np.argsort(keys, kind="stable")
    numbers = samples[order][~np.isnan(samples[order])]
    assert (numbers[:-1] <= numbers[1:]).all()


@pytest.mark.parametrize("dtype", cpu.TYPES)
def test_samples_of_single_keys(dtype: str) -> None:
    """Also of keys of no sample, as the ends of slots are."""
    native, top = np.dtype(dtype), 256 ** np.dtype(dtype).itemsize
    drawn = np.random.default_rng(0).integers(0, top, 2000, dtype=np.uint64).tolist()
    keys = [
        0,
        1,
        top // 2 - 1,
        top // 2,
        top // 2 + 1,
        top - 2,
        top - 1,
        *map(int, to_keys(samples_of(dtype, 301))),
        *drawn,
    ]
    for key, sample in zip(keys, to_samples(np.array(keys, np.uint64), native).tolist(), strict=True):
        one = to_sample(key, native)
        assert type(one) is type(sample) and (repr(one) == repr(sample))


@pytest.mark.parametrize("dtype", cpu.TYPES)
def test_the_key_of_a_number_is_that_of_the_sample_above(dtype: str) -> None:
    native = np.dtype(dtype)
    for sample in samples_of(dtype, 60).tolist():
        if not np.isfinite(sample):
            continue
        key = int(to_keys(np.array([sample], native))[0])
        number = to_number(key, native)
        assert key_from(number, native) == key
        assert key_from(number + (number == 0) + abs(number) / 10**30, native) > key
    assert to_sample(int(to_keys(np.array([0], native))[0]), native) == 0


@pytest.mark.usefixtures("by")
def test_counts_are_those_of_the_references() -> None:
    assert check_counts_of_keys((1, 63, 64, 65, 1023, 1024, 1025, 5000)) > 100


@pytest.mark.parametrize("dtype", WIDE)
def test_parts_combine_in_any_order(dtype: str) -> None:
    samples = samples_of(dtype, 4000)
    for gather in (False, True):
        cells = cells_around(samples, 5, gather)
        parts = [cpu.count_cells(part, cells) for part in np.split(samples, [1, 700, 2000])]
        whole = cpu.count_cells(samples, cells)
        for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
            total = parts[order[0]]
            for place in order[1:]:
                total = combined(total, parts[place])
            np.testing.assert_array_equal(total, whole)


def test_checks_take_both_byte_orders_and_gaps() -> None:
    samples = samples_of("float32", 2000)
    values = np.unique(samples[samples == samples])[::97]
    expected = around_reference(samples, values)
    for view in (samples, samples.astype(">f4"), np.repeat(samples, 2)[::2]):
        check = around_check(values)
        assert check is not None
        check.add(view, 0)
        np.testing.assert_array_equal(check.partial(), expected)
    narrow = samples_of("float16", 2000)
    patterns = patterns_check(narrow.dtype)
    assert patterns is not None
    patterns.add(narrow, 0)
    cells = first_cells(16)
    np.testing.assert_array_equal(
        patterns.partial(), cells_reference(narrow, cells.firsts, cells.bits, cells.slot_bits, 0)
    )
