"""What a pass of an aggregation has finished: the sum of all chunks that have passed their mandatory check.

Signals interrupt anywhere, so one assignment replaces the state; the state itself never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.engine.aggregate_check import Partials
from pipeline.engine.aggregate_plan import Pass
from pipeline.engine.aggregate_totals import Totals
from pipeline.engine.journal import Journal, damaged
from pipeline.engine.journal_file import Row
from pipeline.errors import PipelineError
from pipeline.storage.chunks import Chunk, Plan

FOLDED = 16  # chunks that wait until they are added up


class _Finished(NamedTuple):
    """Number of a chunk, its samples, those of them that were checked, and its partials; or only further checks."""

    chunk: int | None
    samples: int
    checked: int
    partials: Partials


@dataclass(frozen=True)
class _State:
    totals: Totals
    done: NDArray[np.bool_]
    samples: int
    checked: int
    waiting: list[_Finished] = field(default_factory=list)


class ChunksDone:
    """The finished chunks of a pass, those of an earlier run included.

    Parameters
    ----------
    journal
    number
        Of the pass: the jobs themselves come last, after the surveys.
    pass_

    Raises
    ------
    PipelineError
        If what an earlier run has left is not what it should be.
    """

    def __init__(self, journal: Journal, number: int, pass_: Pass) -> None:
        self._journal, self._number, self._pass = journal, number, pass_
        self._cut, self._items = (0, 0), 0
        self._held: dict[int, tuple[int, _Finished]] = {}  # computed: how many parts are still to be checked
        self._state = _State(Totals(pass_.jobs), np.zeros(0, bool), 0, 0)
        self._written: _State | None = None
        if (row := journal.row("pass", number)) is not None:
            try:
                self._load(row)
            except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
                raise damaged(error) from None

    def _load(self, row: Row) -> None:
        header, pass_ = row.header, self._pass
        first, second = header["cut"]
        self._cut, self._items = (int(first), int(second)), int(header["items"])
        nbytes = -(-self._items // 8)
        if not 0 < nbytes <= len(row.content):
            raise ValueError(f"{self._items} chunks in {len(row.content)} bytes")
        done = np.unpackbits(np.frombuffer(row.content[:nbytes], np.uint8), count=self._items).astype(bool)
        place, partials = nbytes, []
        for dtype, shape in header["partials"]:
            kind = np.dtype(str(dtype))
            size = kind.itemsize * int(np.prod(shape, dtype=object))
            partials.append(np.frombuffer(row.content[place : place + size], kind).reshape(shape).copy())
            place += size
        if place != len(row.content) or done.sum() != header["done"] or len(partials) != len(pass_.jobs) * done.any():
            raise ValueError("sizes that do not agree")
        totals = Totals(pass_.jobs)
        if done.any():
            totals = totals.plus([partials])
        self._state = self._written = _State(totals, done, int(header["samples"]), int(header["checked"]))

    @property
    def samples(self) -> int:
        """Samples of the chunks of the earlier run."""
        return self._state.samples

    @property
    def checked(self) -> int:
        """Samples of these that were checked."""
        return self._state.checked

    @property
    def totals(self) -> Totals:
        """Sums over these."""
        return self._state.totals

    def cut(self, chunk_bytes: int, part_bytes: int) -> tuple[int, int]:
        """Bytes of chunks and parts: those given, or of the earlier run, since its chunks have to be the same."""
        if not self._items:
            self._cut = chunk_bytes, part_bytes
        return self._cut

    def left(self, chunks: Plan) -> Plan:
        """The chunks that are still to be computed; from now on, the journal gets what is finished."""
        if not isinstance(chunks, tuple):  # of unknown length: they may not come again
            return chunks
        if self._items not in (0, len(chunks)):
            raise damaged(f"{self._items} chunks, {len(chunks)} now")
        if not self._items:
            self._items, self._state = len(chunks), replace(self._state, done=np.zeros(len(chunks), bool))
        if self._journal.possible:
            self._journal.record(self)
        return tuple(chunk for chunk, done in zip(chunks, self._state.done, strict=True) if not done)

    def hold(self, chunk: Chunk, partials: Partials) -> None:
        """A chunk is computed. It is finished once all of its parts that are always checked agree."""
        if not self._journal.possible:
            return
        finished = _Finished(chunk.index, chunk.samples, 0, partials)
        if chunk.always:
            self._held[chunk.index] = len(chunk.always), finished
        else:
            self._wait(finished)

    def check(self, index: int, samples: int, always: bool) -> None:
        """A part of a chunk, of so many samples, agrees; `always`: it is one of those that are always checked."""
        missing, held = self._held.get(index, (0, _Finished(None, 0, 0, ())))
        held = held._replace(checked=held.checked + samples)
        if missing > always:
            self._held[index] = missing - always, held
        else:
            self._wait(held)
            self._held.pop(index, None)

    def _wait(self, finished: _Finished) -> None:
        if self._journal.possible:
            self._state.waiting.append(finished)
            if len(self._state.waiting) >= FOLDED:
                self._fold()

    def _fold(self) -> _State:
        """Add up what waits."""
        state = self._state
        chunks = [finished for finished in state.waiting if finished.chunk is not None]
        done = state.done.copy()
        done[[finished.chunk for finished in state.waiting if finished.chunk is not None]] = True
        if done.sum() != state.done.sum() + len(chunks):
            raise PipelineError("a chunk was finished twice; report this")
        self._state = _State(
            state.totals.plus([finished.partials for finished in chunks]), done,
            state.samples + sum(finished.samples for finished in chunks),
            state.checked + sum(finished.checked for finished in state.waiting),
        )  # fmt: skip
        return self._state

    def changes(self) -> Sequence[Row]:
        """The row of this pass."""
        if not self._state.waiting and self._state is self._written:
            return []
        state = self._fold()
        partials: list[NDArray[Any]] = state.totals.agreed(state.samples) if state.done.any() else []
        if any(np.dtype(partial.dtype.str) != partial.dtype for partial in partials):
            raise OSError("partials of this dtype cannot be kept")
        header = {"cut": self._cut, "items": self._items, "done": int(state.done.sum()), "samples": state.samples,
                  "checked": state.checked, "partials": [[one.dtype.str, one.shape] for one in partials]}  # fmt: skip
        content = b"".join([np.packbits(state.done).tobytes(), *(partial.tobytes() for partial in partials)])
        return [Row("pass", self._number, header, content)]

    def written(self) -> None:
        """Note that everything is written until the next change."""
        self._written = self._state if not self._state.waiting else None
