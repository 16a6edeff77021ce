"""Samples that several requests bring."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from pipeline.storage.remote.ahead import PART_BYTES

SAMPLES = np.random.default_rng(0).integers(-9, 2000, 2 * PART_BYTES // 2 + 12_345).astype("<i2")  # three requests
COUNTS = np.histogram(SAMPLES, 50, (0, 2000))[0]
JOB: dict[str, Any] = {"bins": 50, "range": (0, 2000), "dtype": "int16", "verify": "full"}


def npy(array: Any) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


class Repeated:
    """Bytes that nobody holds: a pattern, repeated."""

    def __init__(self, start: bytes, pattern: bytes, nbytes: int) -> None:
        self.start, self.pattern, self.nbytes = start, pattern, nbytes

    def __len__(self) -> int:
        return len(self.start) + self.nbytes

    def __getitem__(self, part: slice) -> bytes:
        first, stop, _ = part.indices(len(self))
        head = self.start[first:stop]
        first, stop = max(first - len(self.start), 0), max(stop - len(self.start), 0)
        skipped = first % len(self.pattern)
        times = -(-(stop - first + skipped) // len(self.pattern))
        return head + (self.pattern * times)[skipped : skipped + stop - first]
