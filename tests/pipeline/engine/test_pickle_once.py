"""Arguments shared by tasks are pickled once, and unpickled to one object per thread."""

from __future__ import annotations

import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.engine.pickle_once import InThisProcess, PickledOnce
from pipeline.errors import PipelineError
from pipeline.storage.chunks import Chunk


@dataclass(frozen=True)
class Part(PickledOnce):
    value: Any


class Counted:
    """Counts how often it is pickled."""

    pickled = 0

    def __reduce__(self) -> Any:
        Counted.pickled += 1
        return Counted, ()


def test_same_object_in_one_thread() -> None:
    part, other = Part([1]), Part([2])
    first = pickle.loads(pickle.dumps(part))
    assert first == part and first is not part
    assert pickle.loads(pickle.dumps(part)) is first
    assert pickle.loads(pickle.dumps(other)) == other
    assert pickle.loads(pickle.dumps(part)) == part
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(pickle.loads, pickle.dumps(part)).result() is not pickle.loads(pickle.dumps(part))


def test_pickled_once_and_from_where_it_came_too() -> None:
    part = Part(Counted())
    again = pickle.loads(pickle.dumps(part))
    pickle.dumps(part)
    assert Counted.pickled == 1
    assert isinstance(pickle.loads(pickle.dumps(again)).value, Counted)


def test_what_plain_pickle_cannot() -> None:
    assert pickle.loads(pickle.dumps(Part(lambda: 5))).value() == 5


def test_items_of_this_process_are_passed_as_they_are() -> None:
    """As long as somebody keeps them; any number of times. What was passed keeps none of them."""
    items = InThisProcess([Counted(), "b"])
    passed = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(items))))
    assert passed[0] is items[0] and [*passed] == [*items] and (len(passed), passed[-1]) == (2, "b")
    kept = weakref.ref(items[0])
    del items
    assert kept() is None
    for use in (len, list):
        with pytest.raises(PipelineError, match="in the process that planned it"):
            use(passed)


def test_a_run_in_this_process_pickles_no_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(chunk: Chunk) -> Any:
        raise RuntimeError("planted")

    np.arange(1000, dtype=np.int32).tofile(tmp_path / "a.bin")
    monkeypatch.setattr(Chunk, "__reduce__", planted)
    result = pipeline.run("histogram", tmp_path / "a.bin", device="cpu", bins=10, chunk_bytes=400, verify="off")
    assert result.counts.tolist() == np.histogram(np.arange(1000), 10, (0, 1024))[0].tolist()
