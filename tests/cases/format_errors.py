"""How files of a format are refused: in one line, when they are opened or read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import PipelineError
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.format_files import CASES


def write(name: str, folder: Path) -> str:
    """What to open of the file of a case."""
    return CASES[name].written(folder).item


def read(item: str) -> None:
    """Open it and read all samples."""
    for chunk in plan(open_source((item,)), 2**20, "off", 0):
        for _ in read_blocks(chunk, Timeline()):
            pass


def message_of(item: str) -> str:
    """The line in which it is refused."""
    with pytest.raises(PipelineError) as caught:
        read(item)
    assert "\n" not in str(caught.value)
    return str(caught.value)
