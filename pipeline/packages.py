"""Whether this project's import packages are its own: other distributions have packages of these names, too."""

from __future__ import annotations

import os
from importlib.util import find_spec

NAMES = ("pipeline", "kernels", "workflows")
REMEDY = "give baru a virtual environment of its own"


def home() -> str:
    """The folder that has this package, and should have the others."""
    return os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def foreign() -> str:
    """What is imported in the place of one of our packages: expected, got; empty if all are our own."""
    for name in NAMES:
        spec = find_spec(name)
        origin = None if spec is None else spec.origin
        if origin is None or os.path.dirname(os.path.dirname(os.path.realpath(origin))) != home():
            return f"expected the package {name} of baru in {home()}, got {origin or 'none'}"
    return ""
