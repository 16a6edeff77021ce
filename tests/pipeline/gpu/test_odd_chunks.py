"""Chunks that are right, but not one plain stream of their codec, on the way to a device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.gpu.batches import DECOMPRESSED
from tests.cases.device_slabs import in_slabs, on_device, samples_of
from tests.cases.format_case import package_of
from tests.cases.format_files import CASES
from tests.cases.odd_chunks import ENCODINGS, odd_zarr

__all__ = ["on_device"]

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_device")]

STEPS = np.cumsum(np.random.default_rng(0).integers(-100, 100, (37, 41)), 0, dtype="i4")


@pytest.mark.parametrize("most", [2**27, 3000])
@pytest.mark.parametrize("chunks", [(6, 41), (6, 9), (37, 41)])
@pytest.mark.parametrize("name", ENCODINGS)
def test_samples_are_right(
    tmp_path: Path, name: str, chunks: tuple[int, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever decodes them."""
    item = odd_zarr(tmp_path, name, STEPS, chunks, 2)
    in_slabs(monkeypatch, most)
    got, _ = samples_of(item, 0, STEPS.size)
    np.testing.assert_array_equal(got, STEPS.reshape(-1))


@pytest.mark.parametrize("name", [name for name in CASES if "left out" in name or "edges without" in name])
def test_chunks_without_filters_are_for_the_host(tmp_path: Path, name: str) -> None:
    """A device would take their samples for compressed ones."""
    package_of("h5py")
    written = CASES[name].written(tmp_path)
    got, timeline = samples_of(written.item, 0, written.array.size)
    np.testing.assert_array_equal(got, written.array.reshape(-1))
    assert not any(path.endswith(DECOMPRESSED) for path in timeline.transfer_paths)
