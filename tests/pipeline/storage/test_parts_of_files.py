"""Parts of complex samples of several files: aggregations count all, jobs that write an array take one array."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import UsageError
from pipeline.storage.protocol import PARTS
from tests.cases.format_case import package_of

WAVE = np.random.default_rng(5).normal(size=(31, 120)).astype("<f4").view("<c8")  # 31 × 60
PART = {"real": np.real, "imag": np.imag, "abs": lambda x: np.abs(x.astype("c16")).astype("f4"),
        "phase": lambda x: np.angle(x.astype("c16"))}  # fmt: skip


def _npy(folder: Path, number: int, samples: Any) -> str:
    np.save(folder / f"{number}.npy", samples)
    return str(folder / f"{number}.npy")


def _sigmf(folder: Path, number: int, samples: Any) -> str:
    samples.tofile(folder / f"{number}.sigmf-data")
    described = {"core:datatype": "cf32_le", "core:num_channels": samples.shape[1]}
    (folder / f"{number}.sigmf-meta").write_text(json.dumps({"global": described}))
    return str(folder / f"{number}.sigmf-meta")


def _hdf5(folder: Path, number: int, samples: Any) -> str:
    with package_of("h5py").File(folder / f"{number}.h5", "w") as file:
        file["a"] = samples
    return str(folder / f"{number}.h5")


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("write", [_npy, _sigmf, _hdf5])
def test_as_numpy(tmp_path: Path, write: Any, part: Any) -> None:
    items = [write(tmp_path, number, WAVE[rows]) for number, rows in
             enumerate([slice(0, 7), slice(7, 8), slice(8, 31)])]  # fmt: skip
    expected = PART[part](WAVE)
    turned = pipeline.run("transpose", *items[:1], part=part, output=tmp_path / "one.npy", device="cpu")
    np.testing.assert_array_equal(turned.array, expected[:7].T)
    (tmp_path / "list.txt").write_text("\n".join(items))
    turned = pipeline.run("transpose", f"@{tmp_path}/list.txt", part=part, output=tmp_path / "t.npy", device="cpu",
                          verify="full")  # fmt: skip
    assert turned.array.dtype == expected.dtype
    np.testing.assert_array_equal(turned.array, expected.T)
    reduced = pipeline.run("reduce", *items, part=part, op="argmax,count", device="cpu")
    assert reduced.values == {"argmax": expected.argmax(), "count": expected.size}


@pytest.mark.usefixtures("shared")
def test_refused(tmp_path: Path) -> None:
    """Rows of several lengths, and chunks."""
    for number, shape in enumerate([(2, 3), (2, 4), (5, 3)]):
        _npy(tmp_path, number, np.ones(shape, "c8"))
    with pytest.raises(UsageError, match=r"1\.npy: expected an array that goes on with the rows of .*0\.npy") as caught:
        pipeline.run("transpose", f"{tmp_path}/*.npy", part="abs", output=tmp_path / "t.npy")
    assert [line.split(":")[0] for line in caught.value.__notes__] == [
        "  (rows, 3)     2 files", "  (rows, 4)      1 file",
    ]  # fmt: skip
    for number in "12":
        with package_of("h5py").File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("a", data=WAVE, chunks=(3, 7), compression="gzip")
    with pytest.raises(UsageError, match="expected one array, or several that are byte runs, got 2, some"):
        pipeline.run("transpose", f"{tmp_path}/*.h5", part="abs", output=tmp_path / "t.npy")
    assert not (tmp_path / "t.npy").exists()
