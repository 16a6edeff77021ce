"""Names of the places for errors, and how functions of the jobs are replaced so that runs come through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any

from tests.benchmarks.planted.injector import COMPUTE, INJECTOR

READER, KERNEL, PARTIAL, MERGED = "reader", "kernel", "partial", "merge"
BESIDE_READER, KEPT, CALIBRATED = "reader of a mask", "kept samples", "calibration"
ROWS, POSITION, SUM = "rows", "position", "sum of a pass"
WRITER, WRITTEN, TASK, SURVEY = "writer", "written file", "task", "survey"
# Outside of what is promised.
DELIVERED, AFTER, STRAY = "reader of both", "file after its check", "writer, beside its region"
OUTSIDE = (DELIVERED, AFTER, STRAY)
NO_ROLE = (WRITTEN, TASK, PARTIAL, KERNEL, WRITER, SURVEY, KEPT, CALIBRATED, ROWS, SUM, "host to device",
           "device to host", "planes on the device", "pinned writer", *OUTSIDE)  # fmt: skip


class Patches:
    """Attributes that are replaced, until `undo`."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute, also of a frozen dataclass."""
        self._replaced.append((owner, name, getattr(owner, name)))
        self._assign(owner, name, value)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace a function by what `make` makes of it; does nothing where there is none."""
        if hasattr(owner, name):
            self.set(owner, name, make(getattr(owner, name)))

    def before(self, owner: Any, name: str) -> Any:
        """What an attribute was when it was replaced last."""
        return next(value for of, called, value in reversed(self._replaced) if of is owner and called == name)

    def undo(self) -> None:
        """Put back everything, the last first."""
        while self._replaced:
            self._assign(*self._replaced.pop())

    @staticmethod
    def _assign(owner: Any, name: str, value: Any) -> None:
        frozen = is_dataclass(owner) and not isinstance(owner, type)
        (object.__setattr__ if frozen else setattr)(owner, name, value)


def result_of(
    place: str,
    kinds: Sequence[str],
    pick: Callable[..., Any] = lambda result, *_: result,
    roles: Sequence[str] = (COMPUTE,),
) -> Any:
    """What makes of a function one whose result may be wrong; `pick` names the array that it has filled, if any."""

    def make(real: Any) -> Any:
        def filled(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            if INJECTOR.active and (array := pick(result, *arguments)) is not None:
                INJECTOR.note(place, kinds, array, roles)
            return result

        return filled

    return make


def delivered(name: str, runs: Iterable[tuple[int, int, int]]) -> Iterator[int]:
    """Where in memory the byte of a file comes to lie that every read has wrong, if runs have it: their places in the
    file and in memory, and their lengths."""
    if INJECTOR.delivered is None or INJECTOR.delivered[0] != name:
        return
    byte = INJECTOR.delivered[1]
    for start, at, nbytes in runs:
        if start <= byte < start + nbytes:
            yield at + byte - start
