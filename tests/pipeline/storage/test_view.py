"""Views, by their ranges: runs of them as boxes, and what is before a position."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.storage.view import View, boxes, parse
from tests.cases.slices import CUBE, numpy_s, texts

LENGTHS = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@settings(max_examples=200, deadline=None)
@given(LENGTHS, st.data())
def test_boxes_are_a_run(lengths: tuple[int, ...], data: st.DataObject) -> None:
    numbers = np.arange(np.prod(lengths, dtype=int)).reshape(lengths)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, numbers.size)] * 2)))
    runs = (
        [numbers[tuple(slice(*one) for one in box)].ravel() for box in boxes(lengths, start, stop)]
        if stop > start
        else []
    )
    assert [*np.concatenate([np.empty(0, int), *runs])] == [*range(start, stop)]
    assert len(runs) <= 2 * max(len(lengths), 1)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_elements_before_a_position(data: st.DataObject) -> None:
    text = data.draw(texts(CUBE.shape))
    indices = parse(text)
    assert indices is not None
    view, places = View.of("x", indices, CUBE.shape), numpy_s(np.arange(CUBE.size).reshape(CUBE.shape), text)
    for position in data.draw(st.lists(st.integers(0, CUBE.size), max_size=20)):
        assert view.before(position) == (places < position).sum()
