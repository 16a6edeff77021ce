"""The record of a result: which files it names."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.report.record import identities
from pipeline.storage.sources import open_source


def write(path: Path, samples: int) -> None:
    if path.suffix == ".npy":
        np.save(path, np.arange(samples))
        return
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=np.arange(samples), chunks=(25,), compression="gzip")


@pytest.mark.parametrize("item", ["a.npy", "a.npy[::2]", "a.h5::a", "a.h5::a[::2]"])
def test_files_are_those_that_were_read(tmp_path: Path, item: str) -> None:
    """Even if one is replaced as soon as the run has looked at it for the last time."""
    path = tmp_path / item.partition("[")[0].partition("::")[0]
    write(path, 100)
    source = open_source((f"{tmp_path}/{item}",))
    read = path.stat()
    write(tmp_path / f"other{path.suffix}", 200)
    os.replace(tmp_path / f"other{path.suffix}", path)
    (named,) = identities(source)
    assert [named[key] for key in ("size", "mtime_ns", "inode")] == [read.st_size, read.st_mtime_ns, read.st_ino]
