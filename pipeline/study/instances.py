"""Kernels to inspect: the instances declared by the modules next to the sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from kernels.common import nvrtc
from pipeline.errors import UsageError

_PREFERRED = (re.compile(r"\b[fF]loat(32)?\b"), re.compile(r"\bu32\b"))


@dataclass(frozen=True)
class Choice:
    """A kernel to inspect.

    Attributes
    ----------
    source
        Path of its `.cu` file.
    name
        Name of the kernel or of the variant of a study; the instance itself if that was requested.
    instance
        The kernel with its template arguments.
    further
        Other instances of the same name, which are not inspected.
    """

    source: Path
    name: str
    instance: str
    further: tuple[str, ...] = ()


def targets() -> dict[str, tuple[Path, ...]]:
    """What can be inspected: the `.cu` files of each job, and those of each study as ``study/<job>``."""
    sources: dict[str, tuple[Path, ...]] = {}
    studies = nvrtc.KERNELS / "study"
    for source in sorted(nvrtc.KERNELS.glob("*/*.cu")):
        name = f"study/{source.stem}" if source.parent == studies else source.parent.name
        sources[name] = (*sources.get(name, ()), source)
    return dict(sorted(sources.items(), key=lambda item: ("/" in item[0], item[0])))


def declared(source: Path) -> dict[str, tuple[str, ...]]:
    """Instances that the module next to a source declares, by name: its `INSTANCES` and `HOPPER_INSTANCES`.

    Each is a tuple of instances, named after their kernels, or a mapping from the variants of a study to instances.
    """
    if not source.with_suffix(".py").is_file():
        return {}
    module = _module(source)
    by_name: dict[str, tuple[str, ...]] = {}
    for attribute in ("INSTANCES", "HOPPER_INSTANCES"):
        instances = getattr(module, attribute, ())
        pairs = instances.items() if isinstance(instances, Mapping) else ((_kernel(one), one) for one in instances)
        for name, instance in pairs:
            by_name[name] = (*by_name.get(name, ()), instance)
    return by_name


def hopper_only(choice: Choice) -> bool:
    """Whether an instance compiles for sm_90a only."""
    return choice.instance in getattr(_module(choice.source), "HOPPER_INSTANCES", ())


def _module(source: Path) -> ModuleType:
    return import_module(".".join(source.relative_to(nvrtc.KERNELS.parent).with_suffix("").parts))


def _kernel(instance: str) -> str:
    return instance.partition("<")[0]


def choose(target: str, names: Sequence[str] = (), every: bool = False) -> list[Choice]:
    """Kernels of a job or of a study to inspect: one instance of each, for 4-byte elements if there is one.

    Parameters
    ----------
    target
        A name in `targets`.
    names
        Kernels, variants or whole instances; all kernels by default.
    every
        All instances, not one of each.

    Raises
    ------
    UsageError
        If there is no such target, kernel, variant or instance.
    """
    known = targets()
    if target not in known:
        raise UsageError(f"expected one of {', '.join(known)}, got {target}")
    everything = [(source, name, instances) for source in known[target] for name, instances in declared(source).items()]
    chosen = []
    for source, name, instances in everything:
        if names and name not in names:
            continue
        first = next((one for pattern in _PREFERRED for one in instances if pattern.search(one)), instances[0])
        for instance in instances if every else (first,):
            further = () if every else tuple(other for other in instances if other != first)
            chosen.append(Choice(source, instance if every and len(instances) > 1 else name, instance, further))
    by_name = {name: source for source, name, _ in everything}
    for name in names:
        if name in by_name:
            continue
        if "<" not in name or _kernel(name) not in by_name:
            raise UsageError(f"expected a kernel, one of {', '.join(by_name)}, or an instance of one, got {name}")
        chosen.append(Choice(by_name[_kernel(name)], name, name))
    return chosen
