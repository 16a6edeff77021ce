"""A job for tests of the run loop that writes an array: multiply by a number; its input and cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.cluster.placement import Placement, open_workers
from pipeline.cluster.workers import Workers
from pipeline.engine.array import run_array
from pipeline.engine.outcome import Outcome
from pipeline.settings import Settings
from pipeline.storage.sources import Source, open_source
from workflows.array_job import ArrayJob, Checked, differing
from workflows.regions import Bounds, Spec, in_rows

ON_CPU = Placement(device="cpu")


@dataclass(frozen=True)
class Factor:
    """The factor."""

    factor: int = 3


def compute(blocks: Sequence[NDArray[Any]], region: Bounds, specs: Sequence[Spec], options: Factor) -> NDArray[Any]:
    return blocks[0] * options.factor


def check(
    read: Any, got: NDArray[Any], region: Bounds, specs: Sequence[Spec], options: Factor, random: np.random.Generator
) -> Checked:
    return Checked(differing(got, options.factor * read(0, region), region), got.size, 2.0**-40)


SCALED: ArrayJob[Factor] = ArrayJob(
    name="scaled",
    summary="Multiply.",
    options=Factor,
    operands=lambda options: None,
    outline=lambda specs, options: specs[0],
    regions=lambda specs, output, options, elements: in_rows(output, elements),
    needs=lambda region, specs, options: (region,),
    compute=compute,
    check=check,
)


def scaled(source: Source, *, workflow: Any = SCALED, name: str = "out.npy", **keywords: Any) -> Outcome:
    path = os.path.join(os.path.dirname(source.files[0].path), name)
    keywords = {"verify": "full", "chunk_bytes": 5000, **keywords}
    return run_array(workflow, Factor(), [source], path, Settings(placement=ON_CPU, **keywords))


def left(folder: Path) -> list[str]:
    return sorted(set(os.listdir(folder)) - {"in.npy"})


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """One cluster for all tests."""
    with open_workers(ON_CPU, 0) as workers:
        yield replace(workers, threads=2)  # so that more regions than eight have to wait for others


@pytest.fixture
def array() -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(-(2**60), 2**60, (83, 31))


@pytest.fixture
def source(tmp_path: Path, array: NDArray[Any]) -> Source:
    np.save(tmp_path / "in.npy", array)
    return open_source((str(tmp_path / "in.npy"),), samples=False)
