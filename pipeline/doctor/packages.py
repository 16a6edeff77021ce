"""The check of this project's own packages."""

from __future__ import annotations

from importlib.metadata import packages_distributions

from pipeline import packages as own
from pipeline.doctor.check import OK, PROBLEM, Finding

OWN = "baru"


def packages() -> Finding:
    """Where the packages come from, and which other distributions have one of the same name."""
    if problem := own.foreign():
        return Finding(PROBLEM, problem, own.REMEDY)
    owners = packages_distributions()
    others = sorted({other for name in own.NAMES for other in owners.get(name, ()) if other != OWN})
    if others:
        return Finding(PROBLEM, f"{', '.join(others)} installed packages called like those of baru",
                       f"uninstall that, then install baru again, or {own.REMEDY}")  # fmt: skip
    return Finding(OK, f"{', '.join(own.NAMES)} of {own.home()}")
