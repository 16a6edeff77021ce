"""Fixtures of all tests: GPU tests are skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.devices import find_devices


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs more GPUs than there are, and say so."""
    gpus = find_devices().usable
    for item in items:
        for marker, needed in (("gpu", 1), ("multigpu", 2)):
            if item.get_closest_marker(marker) and gpus < needed:
                item.add_marker(pytest.mark.skip(reason=f"needs {needed} GPU(s), {gpus} usable here"))


@pytest.fixture
def cp() -> Iterator[Any]:
    """CuPy; what it keeps of the device's memory is given back after the test."""
    import cupy

    yield cupy
    cupy.get_default_memory_pool().free_all_blocks()
