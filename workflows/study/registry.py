"""The studies, by job but for the last two; each is imported on first use, so that listing them costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from workflows.study.study import Study

JOBS = ("histogram", "matmul", "transpose", "stencil", "reduce", "map", "architecture", "failures")


class _Studies(Mapping[str, Study]):
    """Job -> study."""

    def __getitem__(self, job: str) -> Study:
        if job not in JOBS:
            raise KeyError(job)
        study: Study = import_module(f"workflows.study.{job}").STUDY
        return study

    def __iter__(self) -> Iterator[str]:
        return iter(JOBS)

    def __len__(self) -> int:
        return len(JOBS)

    def __contains__(self, job: object) -> bool:
        return job in JOBS


STUDIES: Mapping[str, Study] = _Studies()
