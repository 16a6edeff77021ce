"""One of several kernels for the same thing, made to learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Variant:
    """One of several kernels for the same thing: naive first, each adding one idea.

    Attributes
    ----------
    name
        Of the variant, as in the header of the `.cu` file.
    idea
        What it adds to the one before it, in the words of that header.
    run
        Launch wrapper: (device arrays, **parameters) -> device array, on the current stream. Raises TypeError or
        ValueError, with the limit and the value, before anything is launched.
    parameters
        Launch parameters and their defaults, those of the course.
    broken
        Why the variant is wrong, for one that is kept to be caught; None for a right one.
    """

    name: str
    idea: str
    run: Callable[..., Any]
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    broken: str | None = None


def by_name(*variants: Variant) -> Mapping[str, Variant]:
    """Variants by name, in the order given: the registry of a family."""
    return MappingProxyType({variant.name: variant for variant in variants})
