"""Where and when: files, chunks, clusters, the run loop, reports.

pipeline decides where, workflows decide what, kernels do it; imports point that way only.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["register", "run"]


def __getattr__(name: str) -> Any:
    """`run` and `register`, loaded when asked for: `import pipeline` alone answers at once."""
    if name in __all__:
        from pipeline import api

        return getattr(api, name)
    raise AttributeError(f"module 'pipeline' has no attribute {name!r}")
