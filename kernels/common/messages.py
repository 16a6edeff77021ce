"""Warnings for the user, through Python's logging; without other settings they are lines on stderr."""

from __future__ import annotations

import logging
import os

GIVEN = "BARU_WARNINGS_GIVEN"  # environment variable: topics that a parent process has warned of


def warn_once(topic: str, text: str) -> None:
    """Log a warning, unless this process, or one that it comes from, has given one on the topic."""
    given = os.environ.get(GIVEN, "").split()
    if topic not in given:
        os.environ[GIVEN] = " ".join([*given, topic])
        logging.getLogger("baru").warning("warning: %s", text)
