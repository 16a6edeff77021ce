"""Slices on their way to a device: byte runs, samples picked on the host, and chunks decompressed there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.gpu.batches import DECOMPRESSED
from pipeline.storage.formats import slabs
from tests.cases.device_slabs import in_slabs, on_device, samples_of
from tests.cases.format_files import CASES
from tests.cases.slices import numpy_s

__all__ = ["on_device"]

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_device")]


@pytest.mark.parametrize("name", ["npz stored", "npz deflated", "hdf5 contiguous", "hdf5 deflate", "hdf5 lzf", "zarr 2",
                                  "zarr 3, transposed", "zarr 3, sharded", "zarr 2, Fortran"])  # fmt: skip
@pytest.mark.parametrize("text", ["5", ":, 3", "2:30, 4:25, 3:20", "::5, ::4, ::3", "..., 1", "13:14, 5:40"])
def test_as_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    written = CASES[name].written(tmp_path)
    expected = numpy_s(written.array, text)
    for most, least in ((slabs.SLAB_BYTES, slabs.LEAST_BYTES), (3000, 1)):
        in_slabs(monkeypatch, most, least)
        for start in (0, 3):
            got, timeline = samples_of(f"{written.item}[{text}]", start, expected.size - 2 * start, 10_000)
            np.testing.assert_array_equal(got, expected.reshape(-1)[start : expected.size - start])
            if text == "5":  # Zarr's first chunks are missing
                continue
            there = any(path.endswith(DECOMPRESSED) for path in timeline.transfer_paths)
            decompressed = name not in ("npz stored", "npz deflated", "hdf5 contiguous", "hdf5 lzf")
            assert there == (decompressed and "::" not in text)
