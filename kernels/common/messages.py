"""Words for the user: the nearest name to a misspelt one; warnings, which are lines on stderr unless logging is set."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

GIVEN = "BARU_WARNINGS_GIVEN"  # environment variable: topics that a parent process has warned of


def warn_once(topic: str, text: str) -> None:
    """Log a warning, unless this process, or one that it comes from, has given one on the topic."""
    given = os.environ.get(GIVEN, "").split()
    if topic not in given:
        os.environ[GIVEN] = " ".join([*given, topic])
        logging.getLogger("baru").warning("warning: %s", text)


def meant(name: str, known: Iterable[str], least: float = 0.6) -> str:
    """What to add to a message about an unknown name: the nearest known one, if one is at least so similar."""
    from difflib import get_close_matches

    close = get_close_matches(name, [*known], 1, least)
    return f"; did you mean {close[0]!r}?" if close else ""
