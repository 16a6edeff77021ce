"""Slices of an array, as text, and what NumPy and the whole path make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline

CUBE = np.random.default_rng(7).integers(-999, 999, (7, 11, 13)).astype("<i4")


def read(item: str, chunk_bytes: int = 300, **how: Any) -> Any:
    """All samples of an input, through the whole path."""
    source = open_source((item,), **how)
    blocks = (block.copy() for chunk in plan(source, chunk_bytes, "off", 0) for block in read_blocks(chunk, Timeline()))
    return np.concatenate([np.empty(0, source.dtype), *blocks])


def numpy_s(array: Any, text: str) -> Any:
    """What NumPy makes of the same brackets."""
    return eval(f"array[{text}]", {"array": array})


NUMBERS = st.integers(-16, 16)


@st.composite
def texts(draw: st.DrawFn, shape: tuple[int, ...]) -> str:
    """Slices of an array of a shape, of all kinds, not empty."""
    words = []
    axes = draw(st.integers(0, len(shape)))
    for length in shape[:axes]:
        kind = draw(st.sampled_from(["index", "slice", "slice", "step", "all"]))
        if kind == "index":
            words.append(str(draw(st.integers(-length, length - 1))))
        elif kind == "all":
            words.append(":")
        else:
            start, stop = (draw(st.none() | NUMBERS) for _ in range(2))
            step = draw(st.integers(1, 6)) if kind == "step" else None
            word = ":".join("" if one is None else str(one) for one in (start, stop))
            words.append(word if step is None else f"{word}:{step}")
    if axes < len(shape) and draw(st.booleans()):
        words = ["...", *words] if draw(st.booleans()) and all(w == ":" for w in words) else [*words, "..."]
    return ", ".join(words) or "..."
