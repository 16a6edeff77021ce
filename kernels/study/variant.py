"""Variants: several kernels for one job, for study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Variant:
    """One of several kernels for one job: naive first, each adding one idea.

    Attributes
    ----------
    name
        As in the header of the `.cu` file.
    idea
        What it adds to the variant before it, in the words of that header.
    run
        Launch wrapper: (device arrays, **parameters) -> device array, on the current stream. Raises TypeError or
        ValueError, with the limit and the value, before anything is launched.
    parameters
        Launch parameters with the course's values as defaults.
    broken
        What is wrong with a variant that is kept to be caught by verification; None for a correct one.
    unfit
        Why no job may use a correct one: what it needs of its data that files need not have; None if jobs may.
    timed
        (device arrays, **parameters) -> a function that only launches: padded copies and checks of the data, which
        `run` makes too, are done before it. None if `run` does nothing else.
    on_host
        A baseline for the CPU: `run` takes and returns NumPy arrays.
    """

    name: str
    idea: str
    run: Callable[..., Any]
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    broken: str | None = None
    unfit: str | None = None
    timed: Callable[..., Callable[[], Any]] | None = None
    on_host: bool = False


def by_name(*variants: Variant) -> Mapping[str, Variant]:
    """Variants by name, in the order given."""
    return MappingProxyType({variant.name: variant for variant in variants})
