"""Histograms by every variant: the same counts as the job's, from ragged chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.study.histogram import VARIANTS
from workflows.histogram import HistogramOptions

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
    assert outcome.workflow.kernel == f"study/{kernel}"
