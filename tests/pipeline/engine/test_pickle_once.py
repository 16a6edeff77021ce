"""Arguments shared by tasks are pickled once, and unpickled to one object per thread."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pipeline.engine.pickle_once import PickledOnce


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
