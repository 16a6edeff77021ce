"""What tests of checks beside computing ask of a chunk: which parts were checked, and what the pace was asked."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.engine.aggregate_parts import Parts
from pipeline.engine.aggregate_plan import Pass
from pipeline.engine.aggregate_task import ChunkResult, compute_chunk
from pipeline.engine.pace import Check
from pipeline.storage.chunks import Chunk


def compared(pass_: Pass, chunk: Chunk, result: ChunkResult) -> tuple[int, list[int]]:
    """Samples that were checked, and the lengths of the parts that agreed."""
    agreed: list[int] = []
    parts = Parts(pass_, 1, False, lambda part: agreed.append(part.chunk.samples))
    parts.compare_beside(chunk, result)
    return parts.checked, agreed


def ask_pace(pace: Any, when: Check, pass_: Pass, chunk: Chunk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pace is asked, with `auto` alone, for every part of int32, and obeyed but for the part that is always
    checked."""
    asked: list[int] = []
    monkeypatch.setattr(pace, "check", lambda self, nbytes: asked.append(nbytes) or when)
    result = compute_chunk(pass_, chunk)
    auto = pass_.verify == "auto"
    other = when if auto else Check.NOT
    assert result.checks == tuple(Check.BESIDE if part in chunk.always else other for part in chunk.parts)
    assert asked == ([4 * part.samples for part in chunk.parts] if auto else [])
    (always,) = chunk.always
    assert compared(pass_, chunk, result)[0] == (chunk.samples if other is Check.BESIDE else always.samples)
