"""The studies by family; each is imported when it is asked for, so that naming them costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec

from workflows.study.study import Study

FAMILIES = ("histogram", "matmul", "transpose", "stencil", "reduce", "map")


class _Studies(Mapping[str, Study]):
    """Family -> study, for the families that are there."""

    def __getitem__(self, family: str) -> Study:
        if family not in FAMILIES or find_spec(_module(family)) is None:
            raise KeyError(family)
        study: Study = import_module(_module(family)).STUDY
        return study

    def __iter__(self) -> Iterator[str]:
        return (family for family in FAMILIES if find_spec(_module(family)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, family: object) -> bool:
        return family in tuple(self)


def _module(family: str) -> str:
    return f"workflows.study.{family}"


STUDIES: Mapping[str, Study] = _Studies()
