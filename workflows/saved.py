"""Rebuilds results from the documents in their files, and merges two of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workflows.columns import Columns
from workflows.digest import DigestResult
from workflows.histogram_result import Choice, HistogramResult
from workflows.quantile_result import QuantileResult
from workflows.reduce_result import ReduceResult
from workflows.rows import Rows
from workflows.rows_result import HistogramRows, RowsResult
from workflows.selection_result import SelectedResult, SelectedRows, selected_result


def loaded(document: Mapping[str, Any], selected_by: Mapping[str, Any]) -> Any:
    """The result that a document describes, as `Result.document` writes it.

    Parameters
    ----------
    document
    selected_by
        What selected the samples, by flag, if anything did.

    Raises
    ------
    ValueError
        If it is none.
    """
    try:
        result = _histogram(document) if "histogram" in document else _other(document)
        if "excluded" not in document:
            return result
        excluded = document["excluded"]
        if isinstance(excluded, Mapping):  # a histogram's
            excluded = np.asarray(excluded["storage"]["values"]).tolist()
        rows = isinstance(result, RowsResult)
        return (SelectedRows if rows else selected_result)(result, excluded, selected_by)
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _histogram(document: Mapping[str, Any]) -> HistogramResult | HistogramRows:
    described, nan = document["histogram"], np.asarray(document["nan"]["storage"]["values"])
    values, axes = np.asarray(described["storage"]["values"]), described["axes"]
    about = described.get("writer_info", {}).get("baru", {})
    if values.dtype.kind not in "iu" or values.ndim != len(axes) or not 1 <= len(axes) <= 2:
        raise ValueError("expected a histogram of integers with one axis, or one more for rows, got another one")
    axis = axes[-1]
    regular = axis["type"] == "regular"
    if not (axis["underflow"] and axis["overflow"]):
        raise ValueError("expected a histogram with underflow and overflow, got one without")
    edges = np.linspace(axis["lower"], axis["upper"], axis["bins"] + 1) if regular else np.asarray(axis["edges"], float)
    if values.shape[-1] != len(edges) + 1 or nan.shape != values.shape[:-1]:
        raise ValueError(f"expected {len(edges) + 1} counts, got {values.shape[-1]}")
    choice = Choice(about["rule"], about["width"], about["asked"]) if "rule" in about else None
    scale, surveyed = str(about.get("scale", "linear")), bool(about.get("surveyed", False))

    def one(line: Any, of_nan: Any) -> HistogramResult:
        return HistogramResult(line[1:-1].astype(np.int64), edges, int(line[0]), int(line[-1]), int(of_nan), regular,
                               scale, choice, surveyed)  # fmt: skip

    if values.ndim == 1:
        return one(values, nan)
    shape = tuple(map(int, filter(None, str(about["shape"]).split(","))))
    length = int(about["length"]) if "length" in about else None
    rows = Rows(str(about["by"]), shape, length, names=tuple(map(str, axes[0].get("categories", ()))))
    return HistogramRows(rows, tuple(map(one, values, nan)))


def _other(document: Mapping[str, Any]) -> Any:
    if "results" in document:
        names = tuple(map(str, document["rows"])) if document["named"] else ()
        rows = Rows(document["by"], tuple(document["shape"]), document["length"], names=names)
        return RowsResult(rows, tuple(loaded(one, {}) for one in document["results"]))
    if "blake3" in document:
        return DigestResult(document["blake3"], np.dtype(document["dtype"]), int(document["samples"]))
    if "q" in document:
        values = tuple(float(x) if isinstance(x, str) else x for x in document["values"])
        return QuantileResult(tuple(document["q"]), values, np.dtype(document["dtype"]), document["method"],
                              int(document["samples"]), int(document["nan"]))  # fmt: skip
    return ReduceResult.of_document(document)


def merged(a: Any, b: Any) -> Any:
    """The result of the samples of both, exact: as if those of the second followed.

    Raises
    ------
    ValueError
        If there is none, with the reason.
    """
    return _merged(a, b, None)


def _merged(a: Any, b: Any, start: int | None) -> Any:
    """The same, where the samples of the second begin at an index; after those of the first if it is None."""
    if type(a) is not type(b):
        raise ValueError("results of different kinds")
    if isinstance(a, SelectedRows):
        starts = [one.samples + left for one, left in zip(a.result.results, a.excluded, strict=True)]
        together = _rows(a.result, b.result, starts)
        return SelectedRows(together, [x + y for x, y in zip(a.excluded, b.excluded, strict=True)], a.asked)
    if isinstance(a, SelectedResult):
        together = _merged(a.result, b.result, a.samples + a.excluded)
        return selected_result(together, a.excluded + b.excluded, a.asked)
    if isinstance(a, RowsResult):
        return _rows(a, b, None)
    if not isinstance(a, HistogramResult | ReduceResult):
        raise ValueError("quantiles and digests, which cannot be added up")
    return a.merged(b, a.samples if start is None else start)


def _rows(a: RowsResult, b: RowsResult, starts: list[int] | None) -> RowsResult:
    if a.rows.by != "channel" or b.rows.by != "channel":
        raise ValueError(f"rows that are a {a.rows.by} each: both inputs together have other rows than each alone")
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} and {len(b)} channels")
    places: Sequence[int | None] = starts or [None] * len(a)
    results = tuple(_merged(one, other, start) for one, other, start in zip(a.results, b.results, places, strict=True))
    lengths = [one.rows.length for one in (a, b) if one.rows.length is not None]
    length = sum(lengths) if len(lengths) == 2 else None
    return type(a)(Rows(a.rows.by, a.rows.shape, length, names=a.rows.names), results)


def numbers(result: Any) -> dict[str, NDArray[Any]]:
    """All numbers of a result by name, with what they were rounded from where that is known."""
    arrays: dict[str, NDArray[Any]] = result.arrays()
    size, parts = _exact(result)
    return arrays | ({"exact partial": np.concatenate(list(parts))} if size else {})


def _exact(result: Any) -> tuple[int, Iterable[NDArray[np.int64]]]:
    """The exact partials of a result, one after another: how many entries, and these, some at a time."""
    inner = result.result if isinstance(result, SelectedResult) else result
    each = inner.results if isinstance(inner, RowsResult) else (inner,)
    if isinstance(each, Columns):
        return each.exact()
    exact = [one.exact.partial for one in each if getattr(one, "exact", None) is not None]
    return sum(map(len, exact)), exact


def fingerprint(result: Any) -> str:
    """SHA-256 of the numbers of a result: what shows that provenance in a file is not that of its numbers."""
    digest, (size, parts) = hashlib.sha256(), _exact(result)
    of_names: dict[str, Iterable[NDArray[Any]]] = {name: [array] for name, array in result.arrays().items()}
    heads = {name: f"{name} {array.dtype.str} {array.shape} " for name, (array,) in of_names.items()}
    if size:
        of_names["exact partial"], heads["exact partial"] = parts, f"exact partial <i8 {(size,)} "
    for name, arrays in sorted(of_names.items()):
        digest.update(heads[name].encode())
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
