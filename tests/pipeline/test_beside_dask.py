"""Programs that use Dask themselves: in its tasks, and in other threads while a run lasts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_client

import pipeline
from workflows import WORKFLOWS
from workflows.reduce import REDUCE

SECONDS = 30  # of a task, which takes less than one


def of_dask_array(path: Path) -> Any:
    return pipeline.run("reduce", da.arange(100, chunks=30), op="sum").values


def of_file_on_the_same_cluster(path: Path) -> Any:
    return pipeline.run("reduce", path, op="sum", client=get_client()).values


def of_file(path: Path) -> Any:
    return pipeline.run("reduce", path, op="sum").values


@pytest.mark.parametrize("run", [of_dask_array, of_file_on_the_same_cluster, of_file])
def test_task_that_runs_a_job(tmp_path: Path, run: Any) -> None:
    """Where it took the only thread, its job's tasks waited for it, and it for them."""
    np.save(tmp_path / "a.npy", np.arange(100))
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        futures = client.map(run, [tmp_path / "a.npy"] * 3, pure=False)
        assert [future.result(SECONDS) for future in futures] == [{"sum": 4950}] * 3
        assert client.submit(sum, [1, 2]).result(SECONDS) == 3


def test_own_cluster_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other threads computed with Dask meanwhile went to it, and was lost when it closed; so were their clusters'
    scratch folders, which lay in its own."""
    np.save(tmp_path / "a.npy", np.arange(100))
    seen: list[Any] = []

    def look(partial: Any, samples: int) -> None:
        seen.append((dask.base.get_scheduler(), dask.config.get("temporary-directory", None)))

    monkeypatch.setitem(WORKFLOWS, "looking", dataclasses.replace(REDUCE, name="looking", invariants=(look,)))
    pipeline.run("looking", tmp_path / "a.npy")
    assert set(seen) == {(None, None)}
