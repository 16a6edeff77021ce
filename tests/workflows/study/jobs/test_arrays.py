"""Transposes, stencils and maps by every variant: the job's own bits, except for float windows, which have a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.common.dtypes import COURSE_TYPES
from kernels.study import map as maps
from kernels.study import stencil, transpose
from kernels.study.stencil import stencil_bound, stencil_reference
from pipeline.errors import VerificationError
from tests.workflows.study.jobs.test_matmul import saved
from tests.workflows.study.jobs.test_reduce import samples_of
from workflows.map import MapOptions
from workflows.stencil import StencilOptions
from workflows.study.jobs import stencil as by_stencil
from workflows.transpose import TransposeOptions


def right(ladder: Any) -> list[str]:
    """Correct variants but the job's own."""
    return [name for name, one in ladder.VARIANTS.items() if not (one.broken or one.unfit) and name != "production"]


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", right(transpose))
@pytest.mark.parametrize("dtype", ["uint8", ">i2", "float32", "complex128"])
def test_transposes(tmp_path: Path, run_by: Any, kernel: str, dtype: str) -> None:
    array = np.arange(70 * 133).reshape(70, 133).astype(dtype)
    outcome = run_by("transpose", TransposeOptions(), saved(tmp_path, array), kernel, chunk_bytes=5000)
    assert outcome.verdict.chunks > 1 and outcome.result.array.dtype == dtype
    np.testing.assert_array_equal(outcome.result.array, array.T)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", right(maps))
@pytest.mark.parametrize("dtype", COURSE_TYPES)
def test_maps(tmp_path: Path, run_by: Any, kernel: str, dtype: str) -> None:
    a, b = (samples_of(dtype, n)[:999].reshape(27, 37) for n in (1001, 1003))
    options = MapOptions("multiply" if kernel == "product" else "add")
    outcome = run_by("map", options, saved(tmp_path, a, b), kernel, chunk_bytes=4000)
    assert outcome.verdict.chunks > 1 and outcome.result.array.dtype == dtype
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(outcome.result.array, a * b if kernel == "product" else a + b)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", right(stencil))
@pytest.mark.parametrize("dtype", COURSE_TYPES)
@pytest.mark.parametrize("radius", [0, 3, 40])
@pytest.mark.parametrize("boundary", ["zero", "valid"])
def test_stencils(tmp_path: Path, run_by: Any, kernel: str, dtype: str, radius: int, boundary: str) -> None:
    """Halos reach across regions; the ends are zeros, or left out."""
    x = samples_of(dtype, 2003)
    options = StencilOptions(radius=radius, boundary=boundary)
    outcome = run_by("stencil", options, saved(tmp_path, x), kernel, chunk_bytes=6000)
    got = outcome.result.array
    assert outcome.verdict.chunks > 1 and outcome.verdict.checked == got.size
    inside = slice(radius, len(x) - radius) if boundary == "valid" else slice(None)
    windows = np.convolve(x.astype(np.longdouble), np.ones(2 * radius + 1, np.longdouble))
    expected = windows[radius : radius + len(x)][inside]
    if dtype == "int32":
        assert got.dtype == np.int64 and not outcome.verdict.rounding
        np.testing.assert_array_equal(got, expected.astype(np.int64))
    else:
        assert got.dtype == dtype and f"rounded by study/{kernel}" in str(outcome.verdict)
        assert (np.abs(got - expected) <= 1.01 * stencil_bound(x, radius)[inside]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_windows_with_what_is_no_ordinary_number(tmp_path: Path, run_by: Any, dtype: str) -> None:
    """Sums that overflow, infinities and NaN: only their own windows have them."""
    x = samples_of(dtype, 500)
    x[[100, 200, 300]] = np.inf, -np.inf, np.nan
    x[104] = -np.inf
    x[400:403] = 0.7 * np.finfo(dtype).max
    outcome = run_by("stencil", StencilOptions(radius=3), saved(tmp_path, x), "shared_halo", chunk_bytes=2000)
    got = outcome.result.array
    assert np.isnan(got[101:104]).all() and np.isnan(got[297:304]).all()
    assert (got[97:101] == np.inf).all() and (got[104:108] == -np.inf).all() and (got[197:204] == -np.inf).all()
    assert np.isinf(got[401]) and np.isfinite(got[320:396]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_wrong_window_is_found(dtype: str) -> None:
    """Also next to infinities, and where magnitudes add up to more than the dtype holds."""
    x = samples_of(dtype, 300)
    x[[50, 60]] = np.inf, np.nan
    x[100:104] = [0.9 * np.finfo(dtype).max, -0.9 * np.finfo(dtype).max] * 2
    with np.errstate(all="ignore"):
        good = stencil_reference(x, 2).astype(dtype)
        good[102] = 0
        assert by_stencil._judged(good, x, 2, slice(None))[1].all()
        for at in range(300):
            bad = good.copy()
            bad[at] = 1 if not np.isfinite(bad[at]) else bad[at] * 1.001 + np.finfo(dtype).smallest_normal
            if 98 <= at <= 105:
                bad[at] = np.nan
            assert not by_stencil._judged(bad, x, 2, slice(None))[1][at], at


@pytest.mark.gpu
def test_a_wrong_window_fails_the_run(tmp_path: Path, run_by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_stencil, "_first", lambda region, options: min(options.radius, region[0][0]) // 2)
    with pytest.raises(VerificationError, match="a number is wrong"):
        run_by("stencil", StencilOptions(), saved(tmp_path, samples_of("float32", 2000)), "shared_halo",
               chunk_bytes=4000)  # fmt: skip
    assert not list(tmp_path.glob("by*"))
