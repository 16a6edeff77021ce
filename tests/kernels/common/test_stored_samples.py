"""Kernels that make samples of stored bytes: bits against NumPy's, and what their wrappers refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.common.stored_samples import unpack, unshuffle
from tests.cases.case import Case
from tests.cases.stored_small import decode_cases, stored_bytes, unpacked

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", list(decode_cases()), ids=str)
def test_small_inputs(cp: Any, case: Case) -> None:
    case.check(cp)


@pytest.mark.hardware
@pytest.mark.parametrize("bits", [10, 12, 14])
def test_more_than_2_to_the_31_bits(cp: Any, bits: int) -> None:
    stored = np.resize(stored_bytes(105 * 1000), 105 * 2**22)
    got = unpack(cp.asarray(stored), bits, True, True)
    part = 2**14 * bits // 8
    np.testing.assert_array_equal(got[-(2**14) :].get(), unpacked(stored[-part:], bits, True, True))
    np.testing.assert_array_equal(got[: 2**14].get(), unpacked(stored[:part], bits, True, True))


def test_nothing(cp: Any) -> None:
    assert unpack(cp.zeros(0, np.uint8), 12, True, False).shape == (0,)
    assert unshuffle(cp.zeros(0, np.uint8), 4, 8).shape == (0,)


def test_what_is_refused(cp: Any) -> None:
    stored = cp.zeros(140, np.uint8)
    for wrong, bits, text in (
        (stored, 11, r"bits: expected one of \(10, 12, 14\), got 11"),
        (stored.view(np.int8), 12, "stored: expected uint8, got int8"),
        (stored.reshape(2, 70), 12, r"stored: expected 1 dimension"),
        (stored[::2], 14, "stored: expected C-contiguous memory"),
        (stored[:136], 10, "stored: expected a multiple of 5 bytes for 10 bits, got 136"),
        (stored[:139], 12, "stored: expected a multiple of 3 bytes for 12 bits, got 139"),
        (stored[:139], 14, "stored: expected a multiple of 7 bytes for 14 bits, got 139"),
        (stored[2:137], 10, "stored: expected an address that is a multiple of 4, got 0x"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            unpack(wrong, bits, False, False)
    for wrong, itemsize, chunk, text in (
        (stored, 3, 6, r"itemsize: expected one of \(2, 4, 8\), got 3"),
        (stored.view(np.int8), 2, 4, "shuffled: expected uint8, got int8"),
        (stored, 4, 10, "shuffled: expected chunks of whole items of 4 bytes, got 140 bytes in chunks of 10"),
        (stored, 4, 48, "got 140 bytes in chunks of 48"),
        (stored, 4, 0, "got 140 bytes in chunks of 0"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            unshuffle(wrong, itemsize, chunk)
