"""Reads ranges of objects ahead, many at once and in order, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from pipeline.errors import PipelineError
from pipeline.storage.pieces import Piece
from pipeline.storage.remote.address import ObjectIdentity
from pipeline.storage.remote.waiting import threads

PART_BYTES = 2**22  # of a request, at most, where a piece may be cut: a second of a slow connection
AHEAD = 16  # requests of one reader that are under way or done and not used
AHEAD_BYTES = 2**25  # and their bytes, unless one alone has more

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], nbytes: Callable[[Item], int] = lambda item: 0
) -> Iterator[Result]:
    """The results of calls that wait for servers, in the order of their arguments; few of them are ahead.

    Parameters
    ----------
    function
        Has a limit of time.
    items
    nbytes
        Of a result.
    """
    under_way: deque[tuple[Any, int]] = deque()
    held = 0
    left = iter(items)
    following = next(left, None)
    try:
        while following is not None or under_way:
            while following is not None and len(under_way) < AHEAD:
                size = nbytes(following)
                if under_way and held + size > AHEAD_BYTES:
                    break
                under_way.append((threads().submit(function, following), size))
                held += size
                following = next(left, None)
            future, size = under_way[0]
            result: Result = future.result()
            under_way.popleft()
            del future
            yield result
            held -= size
    finally:
        for future, _ in under_way:
            future.cancel()


def read_stored(piece: Piece) -> memoryview:
    """The bytes of a remote piece, in one request."""
    if not isinstance(piece.identity, ObjectIdentity):
        raise PipelineError(f"{piece.path}: expected a remote object, got a file; report this")
    from pipeline.storage.remote import objects  # needed by few runs

    return objects.read(piece.identity, piece.offset, piece.nbytes) if piece.nbytes else memoryview(b"")


def read_ahead(pieces: Iterable[Piece]) -> Iterator[memoryview]:
    """The bytes of remote pieces, one request for each."""
    return in_order(read_stored, pieces, lambda piece: piece.nbytes)


def cut(piece: Piece, unit: int) -> Iterator[Piece]:
    """A piece in parts of whole units, as they are requested."""
    step = max(PART_BYTES // unit, 1) * unit
    for start in range(0, piece.nbytes, step):
        yield piece.cut(start, min(step, piece.nbytes - start))
