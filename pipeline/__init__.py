"""Where and when: command line, clusters, the run loop, transfers, files and reports.

pipeline decides where, workflows decide what, kernels do it; imports go in this direction only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.api import register, run
    from pipeline.background import Submitted, submit

__version__ = "0.1.0"
__all__ = ["Submitted", "register", "run", "submit"]
_MODULES = {"register": "api", "run": "api", "Submitted": "background", "submit": "background"}


def __getattr__(name: str) -> Any:
    """Load what the package offers on first use, so that `import pipeline` alone is fast."""
    if name in _MODULES:
        globals()[name] = value = getattr(import_module(f"pipeline.{_MODULES[name]}"), name)  # not asked for again
        return value
    raise AttributeError(f"module 'pipeline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", *__all__]
