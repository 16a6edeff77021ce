"""Order statistics of arrays on a GPU: one read finds them, one pass proves them; others are found by passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeline
import workflows.order_statistics
import workflows.quantile
from kernels.quantile import bracket, bracket_steps
from kernels.quantile.search import Search
from pipeline.errors import VerificationError

pytestmark = pytest.mark.gpu

SIZE = 20_011
FLOATS = (np.random.default_rng(7).normal(size=SIZE) * 20 + 100).astype(np.float32)


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Few samples are drawn of few; what was counted since, or known, beside what was found by one read."""
    counted: list[str] = []

    def count(block: Any, search: Search) -> Any:
        partial = of_workflow(block, search)
        if block.size == SIZE:  # not a run that is checked
            known = isinstance(partial, np.ndarray)
            counted.append("known" if known else "proof" if search.cells is None else "survey")
        return partial

    of_workflow = workflows.quantile.count
    monkeypatch.setattr(workflows.quantile, "count", count)
    monkeypatch.setattr(workflows.order_statistics, "count", count)
    monkeypatch.setattr(bracket, "DRAWN_BYTES", 2**14)
    monkeypatch.setattr(bracket, "LEAST", 2048)
    return counted


@pytest.mark.parametrize("dtype", bracket.WIDE)
def test_nothing_but_the_proof_is_a_pass(cp: Any, passes: list[str], dtype: str) -> None:
    """Of integers each is that of many samples: then a pass proves what was found."""
    samples, proof = FLOATS.astype(dtype), "known" if dtype.startswith("float") else "proof"
    wide = samples.astype(np.float64)
    result = pipeline.run("quantile", cp.asarray(samples), q=[0.001, 0.25, 0.5, 0.75, 0.999])
    np.testing.assert_allclose(np.asarray(result), np.quantile(wide, [0.001, 0.25, 0.5, 0.75, 0.999]), rtol=1e-14)
    assert passes == [proof] and result.verification.samples == SIZE and result.verification.checked > 1000
    reduced = pipeline.run("reduce", cp.asarray(samples), op="median,max,q0")
    assert reduced.values == {"median": np.median(wide), "max": samples.max(), "q0": samples.min()}
    assert passes == [proof, proof]


def test_what_takes_all_counts_takes_passes(cp: Any, passes: list[str]) -> None:
    """The deviation from the median, samples that are selected or calibrated, rows, gaps, several arrays."""
    array, wide = cp.asarray(FLOATS), FLOATS.astype(np.float64)
    mad = np.median(np.abs(wide - np.median(wide)))
    assert pipeline.run("reduce", array, op="mad").values["mad"] == mad
    assert passes[0] == "survey" and passes[-1] == "proof"
    selected = pipeline.run("reduce", array, op="median", where="x < 100")
    assert selected.values["median"] == np.median(wide[wide < 100])
    assert pipeline.run("reduce", array, op="median", gain=2).values["median"] == 2 * np.median(wide)
    assert pipeline.run("quantile", array[::2], q=[0.5]).values[0] == np.median(wide[::2])
    rows = pipeline.run("quantile", array[: SIZE - 1].reshape(2, -1), q=[0.5], axis=1)
    assert [row.values[0] for row in rows] == [np.median(row) for row in wide[: SIZE - 1].reshape(2, -1)]
    both = pipeline.run("quantile", array, array, q=[0.5])
    assert both.values[0] == np.median(wide)


def test_nan(cp: Any, passes: list[str]) -> None:
    """Half of all, which make every result NaN or are left out."""
    samples = np.where(np.arange(SIZE) % 2, FLOATS, np.float32(np.nan))
    assert np.isnan(pipeline.run("quantile", cp.asarray(samples), q=[0.5]).values[0])
    passes.clear()
    result = pipeline.run("quantile", cp.asarray(samples), q=[0.1, 0.5], nan="omit", method="lower")
    expected = np.nanquantile(samples, [0.1, 0.5], method="lower")
    assert np.asarray(result).tolist() == expected.tolist() and passes == ["proof"]


@pytest.mark.parametrize("dtype", bracket.WIDE)
@pytest.mark.parametrize("verify", ["off", "auto", "full"])
def test_one_read_finds_and_proves_a_median(cp: Any, passes: list[str], dtype: str, verify: str) -> None:
    samples = FLOATS.astype(dtype)
    result = pipeline.run("quantile", cp.asarray(samples), q=[0.5], verify=verify)
    assert result.values[0] == np.median(samples.astype(np.float64))
    heavy = np.bincount(np.unique(samples, return_inverse=True)[1]).max() > SIZE // 64  # then a pass proves it
    assert heavy or passes == ["known"]
    reduced = pipeline.run("reduce", cp.asarray(samples), op="sum,median", verify=verify)
    assert reduced.values["median"] == result.values[0] and (heavy or passes == ["known", "known"])
    assert result.verification.checked == {"off": 0, "auto": 1024, "full": SIZE}[verify]


def test_a_run_that_differs_from_what_was_read_is_noticed(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts that are checked are made as those of the read are."""
    queue = bracket_steps.queue_proof

    def wrong(samples: Any, *others: Any) -> None:
        queue(samples, *others)
        if samples.size < SIZE:
            *_, proof, _, _ = others
            proof[bracket_steps.KEPT + 1] += 1
            proof[bracket_steps.KEPT + 2] -= 1

    monkeypatch.setattr(bracket_steps, "queue_proof", wrong)
    samples = cp.asarray(FLOATS.astype(np.float64) + np.arange(SIZE) / SIZE)
    for q in ([0.5], [0.1, 0.5, 0.9]):
        with pytest.raises(VerificationError, match="samples below"):
            pipeline.run("quantile", samples, q=q)


@pytest.mark.parametrize("q", [[0.1, 0.5], [0.5]])
def test_a_wrong_key_is_disproved(cp: Any, q: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    find = bracket.find_on_device
    monkeypatch.setattr(bracket, "find_on_device", lambda *given: _moved(find(*given)))
    with pytest.raises(VerificationError, match="rank"):
        pipeline.run("quantile", cp.asarray(FLOATS), q=q)


def _moved(found: bracket.Found | None) -> bracket.Found | None:
    """With keys that are one greater."""
    return found and found._replace(keys={rank: key + 1 for rank, key in found.keys.items()})
