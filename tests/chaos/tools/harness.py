"""The harnesses by name, and how one is run.

A harness is a module of `tests/chaos/` with

- a docstring that says what it does, and what it must show;
- ``run(seed, trials)``, which returns its figures: a dictionary with ``failures``, a list of lines of text, empty if
  all went as it must, and whatever else is worth keeping;
- ``SHORT``, the number of trials in the ordinary tests, for a few seconds.

It raises `MissingError` where it cannot run.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import tests.chaos

HARNESSES = tuple(
    module.name
    for module in pkgutil.iter_modules([str(Path(tests.chaos.__file__).parent)])
    if not (module.ispkg or module.name == "__main__" or module.name.startswith("test_"))
)


class MissingError(Exception):
    """The harness needs something that this machine lacks."""


def perform(name: str, seed: int, trials: int) -> dict[str, Any]:
    """Run a harness: its figures, with what was asked for, and the bound on the rate of failures at 95 % confidence."""
    began = perf_counter()
    figures = import_module(f"tests.chaos.{name}").run(seed, trials)
    asked = {"harness": name, "seed": seed, "trials": trials, "seconds": round(perf_counter() - began, 1)}
    bound = {} if figures["failures"] or not trials else {"rate of failures below": 3 / trials}
    return asked | figures | bound
