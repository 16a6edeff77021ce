"""Workers reuse the memory of temporary arrays: with Dask's defaults each one faults in new pages."""

from __future__ import annotations

import resource

import numpy as np
import pytest

import pipeline.cluster.placement
from pipeline.cluster.placement import Placement, open_workers


def page_faults() -> int:
    """Page faults of temporary 1 MiB arrays, each of 256 pages."""
    np.ones(2**17)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(2**17)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.parametrize("own_process", [False, True], ids=["spawned", "forked"])
def test_temporary_arrays_take_pages_that_are_there(own_process: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.placement, "PROCESSES_FROM_BYTES", 0)
    monkeypatch.setattr(pipeline.cluster.placement, "processes", lambda compiled: 2)
    with open_workers(Placement(own_process=own_process), 0) as workers:
        faults = workers.client.run(page_faults)
    assert len(faults) == 2 and max(faults.values()) < 100 * 256 // 4
