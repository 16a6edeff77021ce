"""The form of lines on stderr: text for people, or one JSON object a line for machines (`--log-format json`)."""

from __future__ import annotations

import json
from typing import Any

FORMATS = ("text", "json")
LEVELS = ("error", "warning")

_json = False


def use_json(json_lines: bool) -> None:
    """Whether this process, and those that it forks, writes JSON from now on."""
    global _json
    _json = json_lines


def as_json() -> bool:
    """Whether lines are JSON."""
    return _json


def rendered(line: str) -> str:
    """A message as a line: as it is, or an object with its level and text."""
    if not _json:
        return line
    level, _, text = line.partition(": ")
    if level in LEVELS:
        return event("message", level=level, text=text)
    return event("message", level="info", text=line)


def event(name: str, **fields: Any) -> str:
    """An event as one line of JSON."""
    return json.dumps({"event": name, **fields})
