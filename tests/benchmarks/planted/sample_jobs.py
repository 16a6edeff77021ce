"""Jobs that read samples: quantiles, digests, bins that samples decide on; on rows, kept or calibrated ones, slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.planted import right_samples
from tests.benchmarks.planted.right import same
from tests.benchmarks.planted.right_samples import Asked, Question, answered
from tests.benchmarks.planted.scenario import (
    FLOATS,
    INTEGERS,
    KINDS,
    Array,
    Random,
    Scenario,
    array_job,
    numbers,
    sample_count,
    streamed,
)

METHODS = ("linear", "lower", "higher", "midpoint", "inverted_cdf")
QUANTILES = ("0", "0.001", "0.1", "1/3", "0.5", "0.75", "0.99", "1")
ORDER_STATISTICS = ("median", "iqr", "mad", "q0.01", "q0.9")
BESIDE_THEM = ("sum", "std", "min", "argmax", "count", "skewness")
RULES = ("auto", "fd", "doane", "scott", "rice", "sturges", "sqrt")
DTYPES = (*INTEGERS, "uint64", *FLOATS)


def _drawn(random: Random, dtypes: tuple[str, ...] = DTYPES, count: int | None = None) -> Array:
    dtype, kind = str(random.choice(dtypes)), str(random.choice(KINDS))
    return numbers(random, dtype, sample_count(random) if count is None else count, kind)


def _some(random: Random, names: tuple[str, ...], most: int) -> str:
    return ",".join(map(str, random.choice(names, int(random.integers(1, most + 1)), replace=False)))


# --- questions --------------------------------------------------------------------------------------------------------


def _ask_quantiles(random: Random) -> Question:
    options = {"q": _some(random, QUANTILES, 4), "method": str(random.choice(METHODS)), "nan": _nan(random)}
    return Question("quantile", options, lambda x, places, row, everything, got: right_samples.quantiles(
        options, x, got))  # fmt: skip


def _ask_statistics(random: Random) -> Question:
    names = f"{_some(random, ORDER_STATISTICS, 3)},{_some(random, BESIDE_THEM, 2)}"
    return _reduction(names, random)


def _ask_extremes(random: Random) -> Question:
    return _reduction(f"argmin,argmax,{_some(random, ('sum', 'mean', 'var', 'max', 'kurtosis'), 2)}", random)


def _reduction(names: str, random: Random) -> Question:
    options = {"op": names, "nan": _nan(random)}
    return Question("reduce", options, lambda x, places, row, everything, got: right_samples.statistics(
        options, x, places, got))  # fmt: skip


def _ask_counts(random: Random) -> Question:
    limits = "auto" if random.integers(3) == 0 else (-300.0, 400.0)
    return _counting({"bins": int(random.integers(2, 60)), "range": limits})


def _counting(options: dict[str, Any]) -> Question:
    return Question("histogram", options, lambda x, places, row, everything, got: right_samples.counts(
        options, x, row, everything, got))  # fmt: skip


def _ask_digest(random: Random) -> Question:
    return Question("digest", {}, lambda x, places, row, everything, got: right_samples.digested(x, got))


def _nan(random: Random) -> str:
    return str(random.choice(["propagate", "omit"]))


QUESTIONS = (_ask_quantiles, _ask_statistics, _ask_extremes, _ask_counts)


def _asked_of(
    job: str, question: Question, inputs: tuple[Array, ...], asked: Asked, options: dict[str, Any], random: Random,
    beside: dict[str, Array] | None = None,
) -> Scenario:  # fmt: skip
    samples = np.concatenate([array.reshape(-1) for array in inputs])
    return streamed(job, inputs, question.options | options, random, partial(answered, question, samples, asked),
                    workflow=question.workflow, beside=beside or {})  # fmt: skip


# --- jobs -------------------------------------------------------------------------------------------------------------


def _quantile(random: Random) -> Scenario:
    return _asked_of("quantile", _ask_quantiles(random), (_drawn(random),), Asked(), {}, random)


def _order_statistics(random: Random) -> Scenario:
    return _asked_of("order statistics", _ask_statistics(random), (_drawn(random),), Asked(), {}, random)


def _digest(random: Random) -> Scenario:
    return _asked_of("digest", _ask_digest(random), (_drawn(random),), Asked(), {}, random)


def _automatic_bins(random: Random) -> Scenario:
    options: dict[str, Any] = {"bins": None if random.integers(6) == 0 else str(random.choice(RULES))}
    options["range"] = (-500.0, 300.0) if random.integers(3) == 0 and options["bins"] else "auto"
    dtype = str(random.choice([*INTEGERS, *FLOATS]))
    kind = str(random.choice(KINDS if options["range"] != "auto" else ("ordinary", "few", "sorted")))
    samples = numbers(random, dtype, sample_count(random), kind)
    return streamed("automatic bins", (samples,), options, random,
                    lambda got: right_samples.automatic(samples, options, got), workflow="histogram")  # fmt: skip


def _rows(random: Random) -> Scenario:
    """Channels, segments, files, or an axis; some rows are of kept or calibrated samples."""
    question = [*QUESTIONS, _ask_digest][random.integers(5)](random)
    dtype, kind = str(random.choice(DTYPES)), str(random.choice(KINDS))
    rows, length = int(random.choice([2, 3, 5, 24])), int(random.integers(600, 4000))
    count, how = rows * length, str(random.choice(["interleaved", "planar", "segment", "file", "axis"]))
    flat, indices = numbers(random, dtype, count, kind), np.arange(count)
    inputs, options, of_rows = (flat,), {"channels": rows, "layout": how}, list(indices.reshape(rows, length))
    if how == "interleaved":
        of_rows = list(indices.reshape(length, rows).T)
    elif how == "segment":
        options, of_rows = {"segment": length}, [indices[at : at + length] for at in range(0, count, length)]
    elif how == "file":
        cuts = np.sort(random.choice(count - 200, rows - 1, replace=False)) + 100
        inputs, options, of_rows = tuple(np.split(flat, cuts)), {"by": "file"}, np.split(indices, cuts)
    elif how == "axis":
        inputs, options = (flat.reshape(length, rows),), {"axis": 0}
        of_rows = list(indices.reshape(length, rows).T)
    if question.workflow == "histogram" and random.integers(3) == 0:
        lines = np.sort(random.choice(2000, (rows, 9), replace=False) - 1000.0, axis=1)
        question = _counting({"edges": lines})
    beside: dict[str, Array] = {}
    kept = calibrate = None
    if question.workflow != "digest" and (more := random.integers(4)) < 2:
        if more:
            kept, beside = _random_mask(random, inputs[0].shape if len(inputs) == 1 else flat.shape)
        else:
            more_options, calibrate = _calibration_of(random, exact=True)
            options = options | more_options
    return _asked_of("rows", question, inputs, Asked(of_rows, kept, calibrate), options, random, beside)


def _random_mask(random: Random, shape: tuple[int, ...]) -> tuple[Array, dict[str, Array]]:
    mask = (random.random(shape) < random.uniform(0.2, 0.9)).astype(random.choice(["bool", "uint8"]))
    return mask != 0, {"mask": mask}


def _selection(random: Random) -> Scenario:
    question, samples = QUESTIONS[random.integers(4)](random), _drawn(random)
    if question.workflow == "histogram" and question.options["range"] == "auto":
        samples = _drawn(random, INTEGERS)  # some are finite
    options: dict[str, Any] = {}
    kept, beside, how = np.ones(len(samples), np.bool_), {}, int(random.integers(1, 8))
    conditions = []
    if how & 1:
        kept, beside = _random_mask(random, samples.shape)
    if how & 2:
        column = random.random(len(samples)).astype("float32")
        kept, beside = kept & (column < 0.75), beside | {"columns": column}
        conditions.append("c < 0.75")
    if how & 4:
        first = len(samples) // 3
        kept = kept & ((samples > 5) | (np.arange(len(samples)) >= first))
        conditions.append(f"(x > 5 or i >= {first})")
    if conditions:
        options["where"] = " and ".join(conditions)
    if random.integers(3) == 0 and np.isfinite(samples[7]):
        options["missing"] = samples[7].item()
        kept = kept & (samples != samples[7])
    return _asked_of("selection", question, (samples,), Asked((), kept), options, random, beside)


def _calibration_of(random: Random, exact: bool) -> tuple[dict[str, Any], Callable[[Array], Array]]:
    """Options, and what they make of samples; `exact`: no logarithms, which NumPy may have off by an ulp."""
    gain, bias = float(random.choice([0.5, -2.0, 0.1, 3.0])), float(random.choice([0.0, 7.0, -0.3]))
    transform = str(random.choice(["none", "abs", "square", "sqrt", *([] if exact else ["log", "log2", "log10"])]))
    function: Any = np.positive if transform == "none" else getattr(np, transform)

    def calibrate(samples: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(samples.astype(np.float64) * gain + bias))

    return {"gain": gain, "bias": bias, "transform": transform}, calibrate


def _calibration(random: Random) -> Scenario:
    question = QUESTIONS[random.integers(4)](random)
    fixed = question.workflow == "histogram" and question.options["range"] != "auto"
    options, calibrate = _calibration_of(random, exact=not fixed)
    dtypes = DTYPES if question.workflow != "histogram" or fixed else INTEGERS
    return _asked_of("calibration", question, (_drawn(random, dtypes),), Asked((), None, calibrate), options, random)


def _slices(random: Random) -> Scenario:
    """A part of an array, of one or two dimensions, with steps."""
    rows, columns = int(random.integers(150, 400)), int(random.integers(120, 300))
    array = _drawn(random, (*INTEGERS, *FLOATS), rows * columns).reshape(rows, columns)
    index, part = [
        (f"[{rows // 9}:, ::2]", array[rows // 9 :, ::2]),
        (f"[::3, 5:{columns - 3}]", array[::3, 5 : columns - 3]),
        (f"[:{rows - 7}]", array[: rows - 7]),
        ("[:, 1::3]", array[:, 1::3]),
    ][random.integers(4)]
    if random.integers(3) == 0:
        scenario = array_job("slices", (array,), {}, random, lambda got: False)
        order = array.dtype.newbyteorder() if scenario.swapped else array.dtype  # every bit of the file is kept
        expected = np.ascontiguousarray(part.T).astype(order)
        return replace(scenario, workflow="transpose", index=index, is_right=lambda got: same(expected, got))
    question = [*QUESTIONS, _ask_digest][random.integers(5)](random)
    if question.workflow == "histogram":
        question = _counting({"bins": 31, "range": (-300.0, 400.0)})
    made = _asked_of("slices", question, (array,), Asked(), {}, random)
    return replace(made, index=index, is_right=partial(answered, question, part, Asked()))


SAMPLE_MAKERS: dict[str, Callable[[Random], Scenario]] = {
    "quantile": _quantile, "order statistics": _order_statistics, "automatic bins": _automatic_bins,
    "digest": _digest, "rows": _rows, "selection": _selection, "calibration": _calibration, "slices": _slices,
}  # fmt: skip
