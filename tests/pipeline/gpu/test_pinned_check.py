"""Checks beside a read: every sample of theirs once, whatever the device gets."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.reduce.check import reduce_check
from kernels.reduce.partial import MAX_AT, MIN_AT, PARTS, combine
from kernels.reduce.reference import reduce_reference
from pipeline.gpu.pinned import SOURCE as SOURCE
from pipeline.gpu.pinned import Beside, Checks
from tests.emulator.driver import LOST, HostDriver, HostReader, Target

pytestmark = pytest.mark.usefixtures("compiled")

SAMPLES, OTHERS = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 200_000)).astype(np.int32)
PLAIN = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Descriptors of a file that the device gets, and of one that is checked."""
    fds = []
    for name, samples in (("device", OTHERS), ("checks", SAMPLES)):
        samples.tofile(tmp_path / name)
        fds.append(os.open(tmp_path / name, os.O_RDONLY))
    yield fds[0], fds[1]
    for fd in fds:
        os.close(fd)


def checks_of(sets: int, each: int = 1) -> Checks:
    made = [[reduce_check(np.dtype(np.int32), PARTS[-1]) for _ in range(each)] for _ in range(sets)]
    return Checks(made, 4)  # type: ignore[arg-type]


def partial_of(checks: Checks, spent: Any, place: int = 0) -> Any:
    """Of all sets together."""
    used = [set_[place].partial() for set_, (nbytes, _) in zip(checks.sets, spent.tolist(), strict=True) if nbytes]
    total = used[0]
    for other in used[1:]:
        total = combine(total, other)
    return total


@PLAIN
@given(
    threads=st.integers(1, 5), sets=st.integers(1, 7), part=st.sampled_from([60, 4096, 2**18, 2**20]),
    first=st.integers(0, 150_000), length=st.integers(1, 50_000), each=st.integers(1, 3), data=st.data(),
)  # fmt: skip
def test_every_sample_once(
    files: tuple[int, int], threads: int, sets: int, part: int, first: int, length: int, each: int, data: st.DataObject
) -> None:
    """In parts of any length, by fewer sets than threads or more, also runs that the device does not get."""
    length = min(length, 200 * part // 4)  # more parts are slow with a driver in Python
    ends = sorted(data.draw(st.lists(st.integers(max(0, first - 300), first + length + 300), max_size=6, unique=True)))
    runs = [(4 * a, 4 * (b - a), a) for a, b in zip(ends[::2], ends[1::2], strict=False) if b <= len(SAMPLES)]
    reader, checks, target = HostReader(HostDriver(), threads, part), checks_of(sets, each), Target(4 * length)
    device, own = files
    beside = Beside(checks, own, np.array(runs, np.int64).reshape(-1, 3))
    assert reader.read(device, target, np.array([[4 * first, 4 * length]]), 0, beside).get() == 4 * length
    np.testing.assert_array_equal(target.host.view(np.int32), OTHERS[first : first + length])
    spent = checks.end()
    assert spent[:, 0].sum() == sum(nbytes for _, nbytes, _ in runs)
    assert (spent[:, 1] > 0).any() == bool(runs)
    if runs:
        seen = [SAMPLES[start : start + nbytes // 4] for _, nbytes, start in runs]
        for place in range(each):
            got, expected = partial_of(checks, spent, place), reduce_reference(np.concatenate(seen), PARTS[-1])
            at = np.concatenate([np.arange(start, start + nbytes // 4) for _, nbytes, start in runs])
            for position in (MIN_AT, MAX_AT):  # of the extremes: indices in the whole
                expected[position] = 2 * at[expected[position] // 2] + expected[position] % 2
            np.testing.assert_array_equal(got, expected)


def test_many_reads_share_the_checks(files: tuple[int, int]) -> None:
    reader, checks = HostReader(HostDriver(), 4, 4096), checks_of(3)
    device, own = files
    started = [
        reader.read(device, Target(20_000), np.array([[at, 20_000]]), at % 3,
                    Beside(checks, own, np.array([[at, 20_000, at // 4]])))
        for at in range(0, 800_000, 20_000)
    ]  # fmt: skip
    assert [read.get() for read in started] == [20_000] * 40
    np.testing.assert_array_equal(partial_of(checks, checks.end()), reduce_reference(SAMPLES, PARTS[-1]))


def test_a_file_that_ends_early_or_cannot_be_read(files: tuple[int, int]) -> None:
    """What checks miss shows in the bytes; the next read is none the worse."""
    reader, (device, own) = HostReader(HostDriver(), 2, 4096), files
    checks, where = checks_of(2), np.array([[0, 40_000]])
    beside = Beside(checks, own, np.array([[780_000, 40_000, 195_000]]))
    assert reader.read(device, Target(40_000), where, 0, beside).get() == 40_000
    assert checks.end()[:, 0].sum() < 40_000
    checks = checks_of(2)
    with pytest.raises(OSError) as caught:
        reader.read(device, Target(40_000), where, 0, Beside(checks, -1, np.array([[0, 40_000, 0]]))).get()
    assert caught.value.errno == errno.EBADF and checks.end()[:, 0].sum() == 0
    assert reader.read(device, Target(40_000), where, 0).get() == 40_000


def test_a_device_that_is_lost(files: tuple[int, int], refusal: list[int]) -> None:
    driver = HostDriver()
    reader, checks, (device, own) = HostReader(driver, 3, 4096), checks_of(1), files
    driver.refuses["to_device"] = LOST
    with pytest.raises(RuntimeError, match="refused"):
        beside = Beside(checks, own, np.array([[0, 40_000, 0]]))
        reader.read(device, Target(40_000), np.array([[0, 40_000]]), 0, beside).get()
    checks.end()
