"""This project's import packages: whether they are its own, and which version of their sources is here.

Other distributions have packages of these names, too.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

NAMES = ("pipeline", "kernels", "workflows")
SOURCES = (".py", ".cu", ".cuh", ".cpp", ".hpp")
COMMAND = "baru.py"  # computes nothing, and a wheel has it beside the packages
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


@cache
def code_version() -> str:
    """A digest of the sources, the version of the package among them. Takes 50 ms."""
    from hashlib import sha256  # the command's start does not wait for these
    from pathlib import Path

    digest, root = sha256(), Path(home())
    for path in sorted(path for package in NAMES for path in (root / package).rglob("*")):
        if path.suffix in SOURCES and path.name != COMMAND:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16]
