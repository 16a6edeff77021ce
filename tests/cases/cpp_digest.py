"""Cases of the compiled digest and of its check."""

from __future__ import annotations

import numpy as np

LENGTHS = (1, 1023, 1024, 1025, 2048, 7 * 1024, 16 * 1024, 17 * 1024 + 3, 67 * 1024, 150_001)
STARTS = (0, 1, 1023, 1024, 3 * 1024, 2**20 - 5, 2**42)


def check_digest() -> int:
    """Partials are those of the reference, computed, combined and checked; how many were compared."""
    from kernels.digest import cpu
    from kernels.digest.check import digest_check
    from kernels.digest.reference import digest_reference

    assert cpu._functions() is not None
    compared = 0
    for length in LENGTHS:
        for start in STARTS:
            raw = np.random.default_rng(length).bytes(length + 1)
            data = np.frombuffer(raw, np.uint8, length, start % 2)
            expected = digest_reference(data, start)
            check, cut = digest_check(data.dtype), length // 3
            assert check is not None
            for first, part in ((cut, data[cut:]), (0, data[:cut])):
                check.add(part, start + first)
            parts = [cpu.digest_cpu(part, start + first) for first, part in ((0, data[:cut]), (cut, data[cut:]))]
            for partial in (cpu.digest_cpu(data, start), cpu.combine(parts[1], parts[0]), check.partial()):
                np.testing.assert_array_equal(partial, expected)
                compared += 1
    return compared
