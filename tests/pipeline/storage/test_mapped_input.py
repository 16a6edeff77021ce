"""Regions that are views of files have the elements that reading gives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import PipelineError
from pipeline.storage.array_file import ArrayFile, join, read_region
from pipeline.storage.mapped_input import MappedFiles
from pipeline.storage.planned_file import open_planned
from pipeline.storage.sources import open_source

SHAPE = 300, 70, 3


def array_file(tmp_path: Path, array: Any, name: str = "a.npy") -> ArrayFile:
    np.save(tmp_path / name, array)
    return join(open_source((str(tmp_path / name),)))


def numbers(dtype: str) -> Any:
    return np.random.default_rng(0).integers(0, 200, SHAPE).astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", "<f2", "<f8", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_as_reading(tmp_path: Path, dtype: str, order: str) -> None:
    array = np.asarray(numbers(dtype), order=order)
    file, mapped, random = array_file(tmp_path, array), MappedFiles(), np.random.default_rng(1)
    assert file.fortran == (order == "F")

    def compare(region: Any) -> None:
        got = mapped.region(file, region, np.empty, open_planned)
        expected = read_region(file, region)
        assert got.dtype == expected.dtype and got.shape == expected.shape
        assert np.array_equal(got, expected)
        assert np.array_equal(got, array[tuple(slice(*bounds) for bounds in region)])

    ends = [np.sort(random.integers(length + 1, size=2)) for _ in range(50) for length in SHAPE]
    regions = [tuple((int(a), int(b)) for a, b in ends[at : at + 3]) for at in range(0, len(ends), 3)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(compare, [tuple((0, length) for length in SHAPE), *regions]))
    assert len(mapped._memory) == (order == "C" and dtype != ">f4")


def test_what_is_no_view_is_read(tmp_path: Path) -> None:
    """Several files, a file whose elements do not lie on multiples of their size, nothing at all."""
    array = numbers("<f8")
    for half, name in ((array[:100], "a.npy"), (array[100:], "b.npy")):
        np.save(tmp_path / name, half)
    mapped, region = MappedFiles(), ((90, 110), (0, 70), (0, 3))
    two = join(open_source((str(tmp_path / "a.npy"), str(tmp_path / "b.npy"))))
    assert np.array_equal(mapped.region(two, region, np.empty, open_planned), array[90:110])
    (tmp_path / "odd.bin").write_bytes(b"x" * 3 + array.tobytes())
    piece = two.pieces[0]
    identity = join(open_source((str(tmp_path / "odd.bin"),), dtype="int8")).pieces[0].identity
    odd = ArrayFile(two.spec, (type(piece)(str(tmp_path / "odd.bin"), 3, array.nbytes, identity),))
    assert np.array_equal(mapped.region(odd, region, np.empty, open_planned), array[90:110])
    one = array_file(tmp_path, array)
    assert mapped.region(one, ((5, 5), (0, 70), (0, 3)), np.empty, open_planned).shape == (0, 70, 3)
    assert not mapped._memory


def test_another_file_is_found(tmp_path: Path) -> None:
    """One that took its place, before and after it was mapped."""
    array = numbers("<f8")
    file, mapped = array_file(tmp_path, array), MappedFiles()
    region = (0, 10), (0, 70), (0, 3)
    for _ in range(2):
        np.save(tmp_path / "new.npy", array + 1)
        (tmp_path / "new.npy").replace(tmp_path / "a.npy")
        with pytest.raises(PipelineError, match=r"a\.npy: "):
            mapped.region(file, region, np.empty, open_planned)
        file = array_file(tmp_path, array)
        assert np.array_equal(mapped.region(file, region, np.empty, open_planned), array[:10])
