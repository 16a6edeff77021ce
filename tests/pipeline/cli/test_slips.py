"""Slips of the hand that must not cost a recording, and warnings that users can do nothing about."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import jobs
from tests.pipeline.cli.test_main import (
    Run,
    run,  # noqa: F401
)

SAMPLES = np.arange(999, dtype="<i4")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("data.bin", "other.bin"):
        SAMPLES.tofile(name)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("flag", "suffixes"), [("--trace", ".json, .png, .svg, .pdf"), ("--performance-report", ".html")]
)
def test_a_recording_is_not_replaced_by_what_tells_about_the_run(run: Run, flag: str, suffixes: str) -> None:  # noqa: F811
    """As if the flag took no file: the word behind it was meant as another input."""
    status, out, err = run("histogram", flag, "other.bin", "data.bin")
    assert (status, out) == (2, "") and f"{flag}: expected a file to write that ends in {suffixes}, got 'other" in err
    np.testing.assert_array_equal(np.fromfile("other.bin", SAMPLES.dtype), SAMPLES)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["data.h5", "data.zarr", "data.npz", "data.wav", "data.parquet", "-"])
def test_generated_files_are_called_what_they_are(run: Run, name: str) -> None:  # noqa: F811
    status, _, err = run("generate", name, "--samples", 9)
    assert status == 2 and f"{name}: expected a file that ends in .npy, or a raw one with a suffix of no other" in err
    assert not Path(name).exists()


@pytest.mark.usefixtures("folder")
def test_advice_on_programs_that_use_dask_is_not_for_users(
    run: Run, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    """Tasks of many rows are large."""
    real = jobs.run_all

    def warning(*arguments: Any) -> Any:
        warnings.warn("Sending large graph of size 14.52 MiB.", UserWarning, stacklevel=1)
        return real(*arguments)

    monkeypatch.setattr(jobs, "run_all", warning)
    assert run("digest", "data.bin")[::2] == (0, "")
