"""Products by every variant: within the conventional bound, checked and labelled so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.study.matmul import VARIANTS, error_bound
from pipeline.errors import VerificationError
from workflows.matmul import MatmulOptions
from workflows.study.jobs import matmul as by_variant

RIGHT = [name for name, variant in VARIANTS.items() if not (variant.broken or variant.unfit) and name != "production"]
EMULATED = [pytest.param(name, marks=pytest.mark.hardware if name == "cublas" else ()) for name in RIGHT]


def saved(folder: Path, *arrays: np.ndarray[Any, Any]) -> list[Path]:
    for number, array in enumerate(arrays):
        np.save(folder / f"{number}.npy", array)
    return [folder / f"{number}.npy" for number in range(len(arrays))]


def pair(dtype: str, *shapes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(len(shapes[0]))
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", EMULATED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiles_and_slabs(tmp_path: Path, run_by: Any, kernel: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ragged, in several tiles of C, each in several slabs of the sum."""
    monkeypatch.setattr(by_variant, "SLAB", 17)
    a, b = pair(dtype, (45, 51), (51, 39))
    outcome = run_by("matmul", MatmulOptions(), saved(tmp_path, a, b), kernel, chunk_bytes=6000)
    got = outcome.result.array
    assert got.dtype == dtype and outcome.verdict.chunks > 1 and outcome.verdict.checked == got.size
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    assert (np.abs(got - exact) <= error_bound(a, b)).all()
    assert f"within γ(51) Σ|a||b|, rounded by study/{kernel}" in str(outcome.verdict)
    assert f"rounded by study/{kernel}" in outcome.result.notes["arithmetic"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shapes", [((3, 5, 7), (3, 7, 4)), ((2, 3, 5, 7), (3, 7, 4)), ((3, 1, 5, 7), (2, 7, 4)), ((7,), (7, 4)),
               ((5, 7), (7,)), ((2, 5, 7), (7,)), ((5, 0), (0, 4)), ((1, 1), (1, 1))],
)  # fmt: skip
def test_stacks_and_vectors(tmp_path: Path, run_by: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = pair("float64", *shapes)
    outcome = run_by("matmul", MatmulOptions(), saved(tmp_path, a, b), "shared_tile", chunk_bytes=400)
    got = outcome.result.array
    assert got.shape == (a @ b).shape
    np.testing.assert_allclose(got, a @ b, rtol=0, atol=1e-13)


@pytest.mark.gpu
def test_more_rows_than_a_grid_has_blocks_for(tmp_path: Path, run_by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_variant, "SIDE", 10)
    a, b = pair("float32", (33, 5), (5, 21))
    outcome = run_by("matmul", MatmulOptions(), saved(tmp_path, a, b), "blocks_2d")
    assert outcome.verdict.chunks == 12
    np.testing.assert_allclose(outcome.result.array, a @ b, rtol=0, atol=1e-4)


@pytest.mark.gpu
def test_a_wrong_product_fails_the_run(tmp_path: Path, run_by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = by_variant._products

    def wrong(*arguments: Any) -> Any:
        product = right(*arguments)
        product[3, 4] = product[3, 4] * np.float32(1.0001)
        return product

    monkeypatch.setattr(by_variant, "_products", wrong)
    with pytest.raises(VerificationError, match="a number is wrong"):
        run_by("matmul", MatmulOptions(), saved(tmp_path, *pair("float32", (20, 30), (30, 20))), "shared_tile")
    assert not list(tmp_path.glob("by*"))
