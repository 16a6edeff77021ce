"""Inputs and references of a study, computed once and shared among the cases for which they are the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from workflows.study.study import Arrays, Case, Study

SEED = 0
KEPT = 2  # kept at a time, because one can take gigabytes; cases that share inputs mostly follow each other
FIELDS = frozenset(field.name for field in fields(Case))
ABSENT = object()

Value = TypeVar("Value")


class Watched(Case):
    """A case that records which of its attributes are read.

    Only a study's `inputs` and `reference` know what they depend on: a radius matters, the size of a block does not.
    """

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name not in FIELDS:
            return value
        of_case = vars(self).setdefault("read_fields", {})
        if name == "parameters":
            return _WatchedParameters(value, vars(self).setdefault("read_parameters", {}), of_case)
        of_case[name] = value
        return value

    def same_for(self, case: Case) -> bool:
        """Whether all that was read is the same in another case."""
        of_case = vars(self).get("read_fields", {})
        of_parameters = vars(self).get("read_parameters", {})
        return all(getattr(case, name) == value for name, value in of_case.items()) and all(
            case.parameters.get(name, ABSENT) == value for name, value in of_parameters.items()
        )


class _WatchedParameters(Mapping[str, Any]):
    def __init__(self, parameters: Mapping[str, Any], read: dict[str, Any], of_case: dict[str, Any]) -> None:
        self._parameters = parameters
        self._read = read
        self._of_case = of_case

    def __getitem__(self, name: str) -> Any:
        self._read[name] = self._parameters.get(name, ABSENT)
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        self._of_case["parameters"] = self._parameters  # the set of names matters, too
        return iter(self._parameters)

    def __len__(self) -> int:
        self._of_case["parameters"] = self._parameters
        return len(self._parameters)


class Shared(Generic[Value]):
    """Values of a function of a case, recomputed only for a case that differs in what the function read."""

    def __init__(self, compute: Callable[[Case], Value]) -> None:
        self._compute = compute
        self._kept: deque[tuple[Watched, Value]] = deque(maxlen=KEPT)

    def of(self, case: Case) -> Value:
        """The value for a case."""
        for watched, value in self._kept:
            if watched.same_for(case):
                return value
        watched = Watched(**vars(case))
        value = self._compute(watched)
        self._kept.append((watched, value))
        return value


class Data:
    """Host arrays and expected result of every case of a study; the same seed for all of them."""

    def __init__(self, study: Study) -> None:
        def inputs(case: Case) -> tuple[Arrays, Shared[NDArray[Any]]]:
            arrays = study.inputs(case, np.random.default_rng(SEED))
            for array in arrays:
                array.setflags(write=False)  # they outlive the case
            return arrays, Shared(lambda other: study.reference(arrays, other))

        self._inputs = Shared(inputs)

    def of(self, case: Case) -> tuple[Arrays, NDArray[Any]]:
        """Inputs and reference."""
        arrays, references = self._inputs.of(case)
        return arrays, references.of(case)
