"""A file of some format, with the array that its own library reads back."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from numpy.typing import NDArray


class Written(NamedTuple):
    """What to open, and what the format's own library reads there."""

    item: str
    array: NDArray[Any]


Writer = Callable[[Path], Written]


class Case(NamedTuple):
    """A file: how it is written, and the packages that this takes."""

    write: Writer
    packages: tuple[str, ...] = ()

    def written(self, folder: Path) -> Written:
        """The file in a folder; without the packages the test is skipped, but not in CI."""
        for package in self.packages:
            package_of(package)
        return self.write(folder)


def package_of(name: str) -> Any:
    """An optional package; without it the test is skipped, but not in CI."""
    return import_module(name) if os.environ.get("CI") == "true" else pytest.importorskip(name)
