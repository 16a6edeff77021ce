"""The command `baru`, in a module whose name nobody else has: `pipeline` may be somebody else's package."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line, unless `pipeline` is not our own; of other packages it says so itself."""
    spec = find_spec("pipeline")
    origin = None if spec is None else spec.origin
    home = os.path.dirname(os.path.realpath(__file__))
    if origin is None or os.path.dirname(os.path.dirname(os.path.realpath(origin))) != home:
        sys.exit(f"error: expected the package pipeline of baru in {home}, got {origin or 'none'}; give baru a virtual "
                 "environment of its own")  # fmt: skip
    from pipeline.__main__ import main as run

    run()
