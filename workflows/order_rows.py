"""Order statistics of many rows beside other results: a line holds the others' line, with its length, and keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.quantile.rows import combine as combine_keys
from workflows import quantile_rows
from workflows.aggregation import Aggregation, Lines
from workflows.rows import Stretch

Table = NDArray[np.int64]


def joined(own: Table, keys: Table) -> Table:
    """The lines of both."""
    return np.concatenate((np.full((len(own), 1), own.shape[1]), own, keys), axis=1)


def parts(lines: Table) -> tuple[Table, Table]:
    """The lines of each; their length is the one that most lines state, because one may be wrong."""
    end = 1 + int(np.sort(lines[:, 0])[len(lines) // 2])
    return lines[:, 1:end], lines[:, end:]


def compute_rows(
    base: Aggregation[Any], block: Any, options: tuple[Any, ...], stretch: Stretch
) -> Table | None:  # fmt: skip
    """Lines of the rows of a stretch; None where there are none, or rows are long."""
    if base.compute_rows is None:
        return None
    samples = block if isinstance(block, np.ndarray) or stretch.long else block.get()  # once for both
    keys = quantile_rows.compute_rows(samples, options, stretch)
    own = None if keys is None else base.compute_rows(samples, options, stretch)
    return None if keys is None or own is None else joined(own, keys)


def lines_of(base: Lines[Any], results: Callable[[Table, Table, Any], Sequence[Any]], finalize: Any) -> Lines[Any]:
    """How such lines are treated; `results`: (lines of the base, keys, options) -> results, if these are all keys."""

    def every_result(lines: Table, options: Any) -> Sequence[Any]:
        if quantile_rows.in_lines(options.search):
            return results(*parts(lines), options)
        return [finalize(to_partials(line[None])[0], options) for line in lines]

    def combine(a: Table, b: Table) -> Table:
        (own, keys), (others, more) = parts(a), parts(b)
        return joined(base.combine(own, others), combine_keys(keys, more))

    def broken(lines: Table, samples: NDArray[np.int64]) -> int | None:
        own, keys = parts(lines)
        if (wrong := lines[:, 0] != own.shape[1]).any():
            return int(wrong.argmax())
        found = base.broken(own, samples), quantile_rows.broken(keys, samples)
        return min((line for line in found if line is not None), default=None)

    def check(samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], options: Any) -> Table | None:
        keys = quantile_rows.check_lines(samples, begins, ends, options)
        own = None if keys is None else base.check(samples, begins, ends, options)
        return None if keys is None or own is None else joined(own, keys)

    def relocate(lines: Table, index: Any) -> Table:
        own, keys = parts(lines)
        return joined(base.relocate(own, index), keys) if base.relocate else lines

    def alike(tables: Sequence[Table]) -> list[Table]:
        own, keys = zip(*map(parts, tables), strict=True)
        return list(map(joined, base.alike(own) if base.alike else own, keys))

    def to_lines(partials: Table) -> Table:
        own, keys = parts(partials)
        return joined(base.lines(own), keys)

    def to_partials(lines: Table) -> Table:
        own, keys = parts(lines)
        return joined(base.partials(own), keys)

    return Lines(every_result, combine, broken, check, relocate, alike, to_lines, to_partials)
