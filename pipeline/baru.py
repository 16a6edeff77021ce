"""The command `baru`, installed beside the packages as `baru.py`, since `pipeline` may be somebody else's package."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

OWN = "dask_command.py"


def main() -> None:
    """Run the command line, if `pipeline` is our own package, which has `OWN`; it checks the other packages itself."""
    spec = find_spec("pipeline")
    origin = None if spec is None else spec.origin
    if origin is None or not os.path.exists(os.path.join(os.path.dirname(origin), OWN)):
        sys.exit(f"error: expected the package pipeline of baru, got {origin or 'none'}; give baru a virtual "
                 "environment of its own")  # fmt: skip
    from pipeline.__main__ import main as run

    run()
