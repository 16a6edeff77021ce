"""The kernel that copies what is kept, and what its wrapper refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.select.gpu import SOURCE, compact, launch
from kernels.select.tree import TRUE
from kernels.select.typed import Typed, typed
from tests.cases.case import RANDOM, Case
from tests.cases.select_small import PATTERNS, kept_by, samples_of, select_cases
from tests.cases.sizes import first_of_each
from workflows.expression import parse

pytestmark = pytest.mark.gpu


def of_samples(text: str, dtype: str) -> Typed:
    """A condition of samples and their indices."""
    return typed(parse(text, ["x", "i"]), {"x": np.dtype(dtype), "i": np.dtype(np.int64)})


@pytest.mark.parametrize("case", first_of_each(select_cases()), ids=str)
def test_small_inputs(cp: Any, case: Case) -> None:
    case.check(cp)


@pytest.mark.hardware
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
def test_blocks_that_wait_for_each_other(cp: Any, dtype: str, pattern: str) -> None:
    """Thousands of tiles at a time, from an address beside a multiple of 16 bytes."""
    samples, indices = samples_of(pattern, dtype, 40_000_001), range(40_000_000)
    on_device, expected = cp.asarray(samples)[1:], samples[1:][kept_by(samples[1:], indices)]
    for _ in range(5):
        _, got = launch(SOURCE, on_device, indices, ())
        np.testing.assert_array_equal(got.get(), expected)


def test_places(cp: Any) -> None:
    """Of the first, the last and others; tiles that keep nothing are in between, and indices have gaps."""
    samples = np.zeros(30_000, np.int32)
    places = [0, 1, 8190, 8191, 8192, 24_600, 29_998]
    samples[places] = 5
    on_device = cp.asarray(np.append(samples[:1], samples))[1:]
    kept = compact(of_samples("x == 5 and i >= 10", "int32"), on_device, range(10, 10 + 2 * 30_000, 2), {})
    assert kept.samples.get().tolist() == [5] * len(places)
    assert [kept.place(number) for number in range(len(places))] == places


def test_nothing(cp: Any) -> None:
    kept = compact(typed(TRUE, {}), cp.zeros(0, np.int16), range(0), {})
    assert kept.samples.shape == (0,) and kept.samples.dtype == np.int16


def test_the_text_of_a_user_is_not_compiled(cp: Any) -> None:
    """A name may be anything."""
    column = "c) { } /* \\"
    condition = Typed("not_equal", np.dtype(bool), (Typed("name", np.dtype(np.int8), value=column),
                      Typed("number", np.dtype(np.int8), value=np.int8(0))), (np.dtype(np.int8),) * 2)  # fmt: skip
    samples, numbers = RANDOM(0).random(100), RANDOM(1).integers(-1, 2, 100, np.int8)
    kept = compact(condition, cp.asarray(samples), range(100), {column: cp.asarray(numbers)})
    np.testing.assert_array_equal(kept.samples.get(), samples[numbers != 0])


def test_what_is_refused(cp: Any) -> None:
    condition, samples = of_samples("x > 3", "int32"), cp.zeros(100, np.int32)
    beside = typed(parse("c > 3", ["x", "i", "c"]), {"c": np.dtype(np.int16)})
    for wrong, columns, text in (
        (samples.astype(np.complex64), {}, "samples: expected int8 or .*, got complex64"),
        (samples.reshape(4, 25), {}, "samples: expected 1 dimension|an index for each of 4 samples"),
        (cp.zeros(200, np.int32)[::2], {}, "samples: expected C-contiguous memory"),
        (samples, {"c": cp.zeros(99, np.int16)}, "column: expected a number for each of 100 samples, got 99"),
        (samples, {"c": cp.zeros(200, np.int16)[::2]}, "column: expected C-contiguous memory"),
        (cp.zeros(401, np.uint8)[1:].view(np.int32), {}, "multiples of 4 bytes"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            launch(SOURCE, wrong, range(100), tuple(columns.values()))
    with pytest.raises(ValueError, match="an index for each of 100 samples, got 99"):
        compact(condition, samples, range(99), {})
    with pytest.raises(KeyError):
        compact(beside, samples, range(100), {})
