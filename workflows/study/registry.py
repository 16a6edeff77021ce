"""The studies, of jobs and of two other subjects; each is imported on first use, so that listing them costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from workflows.study.study import Study

JOBS = ("histogram", "matmul", "transpose", "stencil", "reduce", "map")
NAMES = (*JOBS, "architecture", "failures")


class _Studies(Mapping[str, Study]):
    """Name -> study."""

    def __getitem__(self, name: str) -> Study:
        if name not in NAMES:
            raise KeyError(name)
        study: Study = import_module(f"workflows.study.{name}").STUDY
        return study

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def __contains__(self, name: object) -> bool:
        return name in NAMES


STUDIES: Mapping[str, Study] = _Studies()
