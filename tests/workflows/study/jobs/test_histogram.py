"""Histograms by every variant: the same counts as the job's, from ragged chunks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.study.histogram import VARIANTS
from pipeline.errors import VerificationError
from pipeline.report.panel import panel, to_json
from workflows.histogram import HistogramOptions
from workflows.study.jobs import histogram as by_variant

RIGHT = [name for name, variant in VARIANTS.items() if not (variant.broken or variant.unfit)]


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", RIGHT)
@pytest.mark.parametrize("low", [0, -3])
def test_counts(tmp_path: Path, run_by: Any, kernel: str, low: int) -> None:
    """Those of NumPy, also of samples outside: 1024 is in the last bin."""
    samples = np.random.default_rng(0).integers(low, 1024 - low, 3001).astype(np.int32)
    samples.tofile(tmp_path / "a.bin")
    outcome = run_by("histogram", HistogramOptions(), [tmp_path / "a.bin"], kernel, chunk_bytes=4000)
    assert outcome.verdict.checked == len(samples) and outcome.verdict.chunks == 4
    np.testing.assert_array_equal(outcome.result.counts, np.histogram(samples, 1024, (0, 1024))[0])
    assert outcome.result.underflow == (samples < 0).sum() and outcome.result.overflow == (samples > 1024).sum()
    assert to_json(outcome)["job"]["kernel"] == f"study/{kernel}"
    assert any(line.split() == ["kernel", f"study/{kernel}"] for line in panel(outcome))


@pytest.mark.gpu
def test_the_job_itself_names_no_kernel(run_by: Any, tmp_path: Path) -> None:
    np.arange(9, dtype=np.int32).tofile(tmp_path / "a.bin")
    outcome = run_by("histogram", HistogramOptions(), [tmp_path / "a.bin"])
    assert to_json(outcome)["job"]["kernel"] is None and not any("study/" in line for line in panel(outcome))


@pytest.mark.gpu
def test_large_inputs_name_it_beside_its_rate(tmp_path: Path, run_by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.report.panel.RATED_BYTES", 1)
    np.arange(999, dtype=np.int32).tofile(tmp_path / "a.bin")
    (line,) = (line for line in panel(run_by("histogram", HistogramOptions(), [tmp_path / "a.bin"], "shared"))
               if line.startswith("kernel"))  # fmt: skip
    assert "GB/s by study/shared" in line


@pytest.mark.gpu
def test_a_wrong_count_fails_the_run(tmp_path: Path, run_by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an invariant, and where sums agree by the check."""
    np.arange(999, dtype=np.int32).tofile(tmp_path / "a.bin")
    for planted, line in (([1, 0], "every sample is counted once"), ([1, -1], "a number is wrong in chunk 0")):
        right = VARIANTS["shared"].run

        def wrong(*arguments: Any, right: Any = right, planted: Any = planted, **given: Any) -> Any:
            counts = right(*arguments, **given)
            for place, more in zip((5, 6), planted, strict=True):
                counts[place] = counts[place] + more
            return counts

        variants = {**VARIANTS, "shared": replace(VARIANTS["shared"], run=wrong)}
        monkeypatch.setattr(by_variant, "VARIANTS", variants)
        with pytest.raises(VerificationError, match=line):
            run_by("histogram", HistogramOptions(), [tmp_path / "a.bin"], "shared")
