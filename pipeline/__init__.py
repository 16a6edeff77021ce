"""Where and when: command line, clusters, the run loop, transfers, files and reports.

pipeline decides where, workflows decide what, kernels do it; imports go in this direction only.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["register", "run"]


def __getattr__(name: str) -> Any:
    """Load `run` and `register` on first use, so that `import pipeline` alone is fast."""
    if name in __all__:
        from pipeline import api

        return getattr(api, name)
    raise AttributeError(f"module 'pipeline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", *__all__]
