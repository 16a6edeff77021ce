"""Many runs of a file in one call: the same bytes, and the runs that could not be read."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.common import cxx
from pipeline.storage import array_file
from pipeline.storage import read_runs as read_runs_module
from pipeline.storage.array_file import join, read_region
from pipeline.storage.read_runs import read_runs
from pipeline.storage.sources import open_source
from tests.cases import cpp as native_cases

SOURCE = read_runs_module.SOURCE


def some_runs(number: int, size: int, seed: int = 0) -> NDArray[np.int64]:
    """Runs of 1 to 99 bytes anywhere in a file, one after another in memory."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 100, number)
    places = np.cumsum(lengths) - lengths
    return np.stack([random.integers(0, size - 100, number), places, lengths], axis=1)


def expected(data: NDArray[np.uint8], runs: NDArray[np.int64]) -> NDArray[np.uint8]:
    return np.concatenate([data[start : start + nbytes] for start, _, nbytes in runs])


@pytest.fixture
def data(tmp_path: Path) -> NDArray[np.uint8]:
    content = np.random.default_rng(1).integers(0, 256, 200_000, dtype=np.uint8)
    content.tofile(tmp_path / "data.bin")
    return content


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("number", [0, 1, 255, 775])
def test_runs_are_read(tmp_path: Path, data: NDArray[np.uint8], number: int) -> None:
    runs = some_runs(number, len(data))
    memory = np.zeros(int(runs[:, 2].sum()), np.uint8)
    with open(tmp_path / "data.bin", "rb") as file:
        assert not len(read_runs(file.fileno(), memory, runs))
    if number:
        np.testing.assert_array_equal(memory, expected(data, runs))


@pytest.mark.usefixtures("compiled")
def test_threads_read_at_a_time(tmp_path: Path, data: NDArray[np.uint8]) -> None:
    def one(seed: int) -> bool:
        runs = some_runs(1000, len(data), seed)
        memory = np.zeros(int(runs[:, 2].sum()), np.uint8)
        with open(tmp_path / "data.bin", "rb") as file:
            return not len(read_runs(file.fileno(), memory, runs)) and bool((memory == expected(data, runs)).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(40)))


@pytest.mark.usefixtures("compiled")
def test_runs_begin_at_an_offset(tmp_path: Path, data: NDArray[np.uint8]) -> None:
    runs = some_runs(261, len(data) - 1000)
    memory = np.zeros(int(runs[:, 2].sum()), np.uint8)
    with open(tmp_path / "data.bin", "rb") as file:
        assert not len(read_runs(file.fileno(), memory, runs, 777))
    np.testing.assert_array_equal(memory, expected(data[777:], runs))


@pytest.mark.usefixtures("compiled")
def test_runs_beyond_the_end_are_not_read(tmp_path: Path, data: NDArray[np.uint8]) -> None:
    runs = np.array([[0, 0, 10], [len(data) - 5, 10, 10], [len(data) + 5, 20, 10], [50, 30, 10]])
    memory = np.zeros(40, np.uint8)
    with open(tmp_path / "data.bin", "rb") as file:
        assert read_runs(file.fileno(), memory, runs).tolist() == [1, 2]


@pytest.mark.usefixtures("compiled")
def test_runs_of_all_lengths() -> None:
    assert native_cases.check_scattered() == 299


@pytest.mark.usefixtures("compiled")
def test_file_that_cannot_be_read_is_not(tmp_path: Path, data: NDArray[np.uint8]) -> None:
    fd = os.open(tmp_path / "data.bin", os.O_WRONLY)
    assert read_runs(fd, np.zeros(1000, np.uint8), some_runs(10, len(data))).tolist() == list(range(10))
    os.close(fd)


def test_nothing_is_read_without_a_compiler(data: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cxx, "library", lambda source: None)
    assert read_runs(-1, np.zeros(1000, np.uint8), some_runs(7, len(data))).tolist() == list(range(7))


@pytest.mark.parametrize("missing", ["compiler", "cache"])
def test_runs_that_are_left_are_read_one_by_one(tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler, and if runs are not cached."""
    if missing == "compiler":
        monkeypatch.setattr(cxx, "library", lambda source: None)
    else:
        real = array_file.read_runs
        monkeypatch.setattr(
            array_file, "read_runs", lambda *given: np.union1d(real(*given), np.arange(0, len(given[2]), 3))
        )
    array = np.random.default_rng(2).integers(0, 9, (500, 60))
    np.save(tmp_path / "a.npy", array)
    got = read_region(join(open_source((str(tmp_path / "a.npy"),), samples=False)), ((3, 499), (7, 50)))
    np.testing.assert_array_equal(got, array[3:499, 7:50])
