"""Only the module of the format that a file has is imported, and nothing that makes requests for files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cases.format_files import CASES

ROOT = Path(__file__).parents[4]
CODE = """
import sys, pipeline.cli.main
from pipeline.storage.sources import open_source
open_source(sys.argv[1:])
folders = "pipeline.storage.formats.", "pipeline.storage.remote."
print(*sorted(name.rpartition(".")[2] for name in sys.modules if name.startswith(folders)))
"""


def imported(item: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", CODE, item], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("suffix", [".bin", ".npy"])
def test_none_for_raw_samples(tmp_path: Path, suffix: str) -> None:
    path, array = tmp_path / f"a{suffix}", np.arange(4)
    if suffix == ".npy":
        np.save(path, array)
    else:
        array.tofile(path)
    assert imported(str(path)) == {"table", "address", "ahead", "waiting"}


def test_one_for_one(tmp_path: Path) -> None:
    modules = imported(CASES["npz stored"].written(tmp_path).item)
    assert "npz" in modules and not {"hdf5", "zarr", "wav", "tiff", "arrow", "parquet", "sigmf"} & modules
