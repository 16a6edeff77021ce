"""Small runs in this process, undisturbed or interrupted, and what they leave; each takes a fraction of a second."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.array import run_array
from pipeline.engine.journal_file import SUFFIX
from pipeline.engine.outcome import Outcome
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.pipeline.engine.journaled import Runner
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.map import MAP, MapOptions
from workflows.matmul import MATMUL, MatmulOptions
from workflows.reduce import REDUCE, ReduceOptions
from workflows.stencil import STENCIL, StencilOptions
from workflows.transpose import TRANSPOSE, TransposeOptions

CHUNKS, CHUNK_BYTES = 8, 12_000  # Dask takes milliseconds for each
REGION_BYTES = 2**17  # about as many

HISTOGRAMS = Job(HISTOGRAM, HistogramOptions())
AGGREGATIONS: dict[str, list[Job]] = {
    "histogram": [HISTOGRAMS],
    "survey": [Job(HISTOGRAM, HistogramOptions(range="auto"))],
    "reduce": [Job(REDUCE, ReduceOptions("sum,std,argmax"))],
    "both": [HISTOGRAMS, Job(REDUCE, ReduceOptions("sum,min"))],
}
ARRAYS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "transpose": (TRANSPOSE, TransposeOptions(), ("m",)),
    "stencil": (STENCIL, StencilOptions(), ("m",)),
    "map": (MAP, MapOptions("multiply-add"), ("m", "n", "m")),
    "matmul": (MATMUL, MatmulOptions(), ("m", "s")),
}
SHAPES = {"m": (300, 200), "n": (300, 200), "s": (200, 220)}


class State(NamedTuple):
    """What an interrupted run has left: its job, the files of its journal, and its temporary file, if any."""

    job: str
    files: dict[Path, bytes]
    part: dict[Path, bytes]


class SmallRuns:
    """Jobs over small files of integers.

    Attributes
    ----------
    expected
        The undisturbed result of each job: JSON, or the file that it writes; these have been compared with NumPy.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.output = folder, folder / "out.npy"
        random = np.random.default_rng(0)
        samples = random.integers(-500, 1500, CHUNKS * CHUNK_BYTES // 4).astype("<i4")
        samples.tofile(folder / "a.bin")
        arrays = {name: random.integers(-(2**20), 2**20, shape) for name, shape in SHAPES.items()}
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        self.runner = Runner(patch, folder / "state")
        self.expected = {name: self.run(name) for name in (*AGGREGATIONS, *ARRAYS)}
        self._compare_with_numpy(samples, arrays)

    def _compare_with_numpy(self, samples: Any, arrays: dict[str, Any]) -> None:
        counts = json.loads(self.expected["histogram"])[0][0]["histogram"]["storage"]["values"]
        assert counts[1:-1] == np.histogram(samples, 1024, (0, 1024))[0].tolist()
        m, n, s = arrays.values()
        padded = np.pad(m, ((0, 0), (3, 3)))
        sums = np.sum([padded[:, first : first + m.shape[1]] for first in range(7)], axis=0)
        for name, array in {"transpose": m.T, "stencil": sums, "map": m * n + m, "matmul": m @ s}.items():
            assert self.expected[name].endswith(np.ascontiguousarray(array).tobytes())

    def run(self, name: str, verify: str = "auto") -> bytes:
        """Result of a job without a journal; the output is removed."""
        nbytes = CHUNK_BYTES if name in AGGREGATIONS else REGION_BYTES
        settings = Settings(Placement("cpu"), verify, chunk_bytes=nbytes)
        if name in AGGREGATIONS:
            return _json(*run_all(AGGREGATIONS[name], open_source([str(self.folder / "a.bin")]), settings))
        workflow, options, inputs = ARRAYS[name]
        sources = [open_source([str(self.folder / f"{one}.npy")], samples=False) for one in inputs]
        run_array(workflow, options, sources, str(self.output), settings)
        return self._taken()

    def journaled(self, name: str, after: int = 0, resume: bool = False) -> bytes | None:
        """Result of a job, of one input and one result, with a journal; None if interrupted after so many items."""
        if name in AGGREGATIONS:
            path = self.folder / "a.bin"
            outcome = self.runner.aggregate(AGGREGATIONS[name], path, after, resume, chunk_bytes=CHUNK_BYTES)
            return _json(outcome) if outcome else None
        workflow, options, (input_,) = ARRAYS[name]
        path = self.folder / f"{input_}.npy"
        outcome = self.runner.array(workflow, options, path, self.output, after, resume, chunk_bytes=REGION_BYTES)
        return self._taken() if outcome else None

    def _taken(self) -> bytes:
        content = self.output.read_bytes()
        self.output.unlink()
        return content

    def interrupted(self, name: str, random: Random) -> State:
        """What a run leaves that is interrupted at a random moment; at times in the middle of a commit, too."""
        self.clear()
        if self.journaled(name, random.randrange(2, CHUNKS)) is not None:
            raise RuntimeError(f"{name}: expected an interrupted run")
        state = State(name, _contents(self.runner.journals()), _contents(self.hidden()))
        if random.random() < 0.5:
            return state
        (journal,) = (path for path in state.files if path.name.endswith(SUFFIX))
        with closing(sqlite3.connect(journal, isolation_level=None)) as database:
            database.execute("PRAGMA cache_size = 1")  # so that pages are written before the commit
            database.execute("BEGIN IMMEDIATE")
            database.execute("UPDATE state SET content = zeroblob(length(content)), digest = zeroblob(32)")
            database.execute("INSERT INTO state VALUES ('new', 0, '', zeroblob(100000), '')")
            return state._replace(files=_contents(self.runner.journals()))

    def restore(self, state: State) -> None:
        """Only what the interrupted run has left."""
        self.clear()
        for path, content in (state.files | state.part).items():
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(file, content)
            os.close(file)

    def clear(self) -> None:
        """Remove all that runs have left."""
        for path in (*self.runner.journals(), *self.hidden(), self.output):
            path.unlink(missing_ok=True)

    def hidden(self) -> list[Path]:
        """Temporary files and locks beside outputs."""
        return [path for path in self.folder.iterdir() if path.name.startswith(".")]

    def left(self) -> list[str]:
        """What should not be there when a run has ended that cannot be continued."""
        output = [self.output] if self.output.exists() else []
        return [f"left {path.name}" for path in (*self.runner.journals(), *self.hidden(), *output)]


def _json(*outcomes: Outcome) -> bytes:
    return json.dumps([[outcome.result.to_json(), outcome.verdict.samples] for outcome in outcomes]).encode()


def _contents(paths: list[Path]) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in paths}
