"""Generated sample files: same arguments, same bytes; the named distribution; nothing left behind; bounded memory."""

from __future__ import annotations

import hashlib
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.generate import BLOCK, DISTRIBUTIONS, DTYPES, Block, generate

DATA = Path(__file__).parents[3] / "data"
RAGGED = BLOCK + 1025  # the last block is shorter
PINNED = {  # sha256, first 16 digits, of 1025 samples with seed 7: int32, float32
    "uniform": ("4ff451118bb2dc1c", "5c6ae59711a474b5"),
    "gaussian": ("1c815e38234ba7d1", "15126d224b8b062e"),
    "constant": ("38db960290b61ede", "8e71b57acebdfab6"),
    "sorted": ("1ae1002a4ae5af57", "21ef3e303ae5957a"),
    "zipf": ("b6ebeedd477dd994", "36a0e0cd58725355"),
    "hot": ("dd591add79ba0c23", "81c40fddfd7460df"),
}


def samples_of(folder: Path, samples: int, dtype: str = "int32", **options: Any) -> NDArray[Any]:
    path = folder / "samples.bin"
    generate(path, samples, dtype, **options)
    values = np.fromfile(path, np.dtype(dtype).newbyteorder("<"))
    path.unlink()  # pytest keeps the folders of three runs
    return values


def counts_of(folder: Path, distribution: str) -> NDArray[np.intp]:
    return np.bincount(samples_of(folder, RAGGED, distribution=distribution, seed=3), minlength=1024)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_bytes_are_pinned(tmp_path: Path, distribution: str) -> None:
    """A change here changes every file ever generated."""
    digests = []
    for dtype in ("int32", "float32"):
        values = samples_of(tmp_path, 1025, dtype, distribution=distribution, seed=7)
        digests.append(hashlib.sha256(values.tobytes()).hexdigest()[:16])
    assert tuple(digests) == PINNED[distribution]


@pytest.mark.parametrize("dtype", ["int16", "float32"])
@pytest.mark.parametrize("distribution", [name for name in DISTRIBUTIONS if name != "sorted"])
def test_shorter_file_is_prefix(tmp_path: Path, distribution: str, dtype: str) -> None:
    longer = samples_of(tmp_path, RAGGED, dtype, distribution=distribution)
    for samples in (1, 1023, BLOCK, BLOCK + 1):
        shorter = samples_of(tmp_path, samples, dtype, distribution=distribution)
        assert shorter.size == samples
        np.testing.assert_array_equal(shorter, longer[:samples])


@pytest.mark.parametrize("distribution", ["uniform", "gaussian", "zipf", "hot"])
def test_seeds_and_blocks_differ(tmp_path: Path, distribution: str) -> None:
    seed0 = samples_of(tmp_path, RAGGED, distribution=distribution, seed=0)
    seed1 = samples_of(tmp_path, RAGGED, distribution=distribution, seed=1)
    assert (seed0 != seed1).any()
    assert (seed0[:1025] != seed0[BLOCK:]).any()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_fit_dtype(tmp_path: Path, dtype: str, distribution: str) -> None:
    levels = {"int8": 128, "uint8": 256}.get(dtype, 1024)
    values = samples_of(tmp_path, 2**17, dtype, distribution=distribution)
    assert values.size == 2**17
    assert values.min() >= 0
    assert values.max() < levels
    if distribution in ("uniform", "sorted"):  # the whole range is used
        assert values.min() < 1
        assert values.max() >= levels - 1


def test_uniform_is_flat(tmp_path: Path) -> None:
    counts = counts_of(tmp_path, "uniform")
    assert counts.size == 1024
    assert np.abs(counts - RAGGED / 1024).max() < 6 * (RAGGED / 1024) ** 0.5


def test_gaussian_is_a_bell(tmp_path: Path) -> None:
    values = samples_of(tmp_path, RAGGED, distribution="gaussian").astype(float) + 0.5
    assert abs(values.mean() - 512) < 1
    assert abs(values.std() - 128) < 1
    assert abs(((values - 512) ** 4).mean() / 128**4 - 3) < 0.1  # of a uniform: 1.8
    assert abs((np.abs(values - 512) < 128).mean() - 0.6827) < 0.005


def test_constant_is_constant(tmp_path: Path) -> None:
    for dtype, value in (("int8", 64), ("uint8", 128), ("int32", 512), ("float32", 512)):
        assert (samples_of(tmp_path, RAGGED, dtype, distribution="constant") == value).all()


@pytest.mark.parametrize("samples", [1, 1023, 1024, 1025, RAGGED])
def test_sorted_is_sorted_and_even(tmp_path: Path, samples: int) -> None:
    expected = [i * 1024 // samples for i in range(samples)]
    assert samples_of(tmp_path, samples, distribution="sorted").tolist() == expected


def test_sorted_floats_have_fractions(tmp_path: Path) -> None:
    values = samples_of(tmp_path, RAGGED, "float32", distribution="sorted")
    assert (np.diff(values) > 0).all()
    assert np.abs(values - np.arange(RAGGED) * (1024 / RAGGED)).max() <= 2**-14


@pytest.mark.parametrize("samples", [2**37, 2**45 - 1])
@pytest.mark.parametrize("steps", [1, 2**14])
def test_sorted_does_not_overflow(samples: int, steps: int) -> None:
    """2**45 * 1024 * 2**14 does not fit 64 bits."""
    for first in (0, samples // 2, samples - BLOCK):
        codes = DISTRIBUTIONS["sorted"](Block(np.random.Philox(key=0), first, samples, 1024, steps))
        for i in (0, 1, BLOCK - 1):
            assert codes[i] == (first + i) * 1024 * steps // samples


def test_zipf_falls_as_one_over_rank(tmp_path: Path) -> None:
    counts = counts_of(tmp_path, "zipf")
    assert counts.min() > 0
    for rank in (2, 4, 16, 64):
        assert abs(counts[0] / counts[rank - 1] / rank - 1) < 0.1


@pytest.mark.parametrize("dtype", DTYPES)
def test_hot_has_eight_values(tmp_path: Path, dtype: str) -> None:
    values, counts = np.unique(samples_of(tmp_path, RAGGED, dtype, distribution="hot"), return_counts=True)
    order = np.argsort(counts)[::-1]
    assert values.size > 100
    assert abs(counts[order[:8]].sum() / RAGGED - 16 / 17) < 0.01
    assert counts[order[7]] > 5 * counts[order[8]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("distribution", ["uniform", "gaussian", "zipf"])
def test_floats_have_fractions(tmp_path: Path, distribution: str, dtype: str) -> None:
    fractions = samples_of(tmp_path, RAGGED, dtype, distribution=distribution) % 1
    assert abs(fractions.mean() - 0.5) < 0.01
    assert np.unique(fractions).size == 2**14


@pytest.mark.parametrize("dtype", DTYPES)
def test_npy_loads(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "samples.npy"
    generate(path, 1025, dtype, seed=5)
    loaded = np.load(path)
    assert loaded.shape == (1025,)
    assert loaded.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(loaded, samples_of(tmp_path, 1025, dtype, seed=5))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_memory_is_bounded(tmp_path: Path, distribution: str) -> None:
    """64 MiB are written in less than 32 MiB of memory."""
    generate(tmp_path / "warm.bin", 1, distribution=distribution)
    tracemalloc.start()
    try:
        generate(tmp_path / "large.bin", 2**24, distribution=distribution)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "large.bin").stat().st_size == 2**26
    (tmp_path / "large.bin").unlink()
    assert peak < 2**25


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("samples", 0, "1 or more, got 0"),
        ("samples", -1, "1 or more, got -1"),
        ("dtype", "int31", "int32, .*got 'int31'"),
        ("dtype", "complex64", "got 'complex64'"),
        ("distribution", "normal", "gaussian, .*got 'normal'"),
        ("seed", -1, "got -1"),
        ("seed", 2**64, f"got {2**64}"),
    ],
)
def test_wrong_argument(tmp_path: Path, argument: str, value: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=f"^{argument}: expected .*{expected}; ") as caught:
        generate(tmp_path / "samples.bin", **{argument: value})
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected an existing folder for the output, found none at .*/missing;"):
        generate(tmp_path / "missing" / "samples.bin", 1)
    assert list(tmp_path.iterdir()) == []


def test_not_a_regular_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a file name for the output, got a directory"):
        generate(tmp_path, 1)
    with pytest.raises(UsageError, match="expected a regular file to replace or none, got something else"):
        generate("/dev/null", 1)
    assert Path("/dev/null").is_char_device()


def test_not_writable(tmp_path: Path) -> None:
    """A name of more than 255 bytes, because permissions do not stop root."""
    with pytest.raises(UsageError, match="expected a name of at most 255 bytes, got 300; shorten it"):
        generate(tmp_path / ("x" * 300), 1)
    assert list(tmp_path.iterdir()) == []


def test_not_enough_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=4096)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    for name, needed in (("samples.bin", 4100), ("samples.npy", 4228)):
        with pytest.raises(PipelineError, match=f"expected {needed} free bytes in .*, got 4096; "):
            generate(tmp_path / name, 1025)
    assert list(tmp_path.iterdir()) == []
    generate(tmp_path / "samples.bin", 1024)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (MemoryError(), MemoryError), (OSError(28, "No space"), PipelineError)],
)
def test_failure_in_the_middle_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, raised: type[BaseException]
) -> None:
    whole: Callable[[Block], NDArray[Any]] = DISTRIBUTIONS["uniform"]
    present: list[int] = []

    def broken(block: Block) -> NDArray[Any]:
        present.append(len(list(tmp_path.iterdir())))
        if block.first:
            raise failure
        return whole(block)

    monkeypatch.setitem(DISTRIBUTIONS, "uniform", broken)
    path = tmp_path / "samples.bin"
    path.write_bytes(b"old")
    with pytest.raises(raised):
        generate(path, RAGGED)
    assert present == [3, 3]  # a temporary file and a lock were there, beside the old one
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


def test_success_replaces_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "samples.bin"
    path.write_bytes(b"old")
    generate(path, 1025)
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_size == 4100


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.bin").symlink_to("samples.bin")
    with pytest.raises(UsageError, match=r"link\.bin: expected a regular file to replace or none, got a symbolic link"):
        generate(tmp_path / "link.bin", 1)
    assert os.listdir(tmp_path) == ["link.bin"]


def test_shipped_recording_is_the_one_described() -> None:
    text = (DATA / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256((DATA / "ecg.npy").read_bytes()).hexdigest() in text
    ecg = np.load(DATA / "ecg.npy")
    assert (ecg.dtype, ecg.shape) == (np.dtype("<u2"), (108000,))
    assert f"{ecg.min()} (min) to {ecg.max()} (max)" in text
    millivolts = (ecg.astype(float) - 1024) / 200
    assert f"({millivolts.min():.3f} to {millivolts.max():.3f})" in text
