"""Peak memory of all processes of a command, sampled.

The anonymous memory is what nobody else can have: buffers, heaps, data of libraries, a page that processes share once.
PSS adds the pages of files, each divided among the processes of the machine that map it: libraries, mapped samples. The
`ru_maxrss` of a finished command is that of its largest process alone.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import NamedTuple

import psutil

LOOK_SECONDS = 0.005
FIELD = re.compile(r"^(Pss|Pss_Anon):\s+(\d+) kB", re.MULTILINE)


class Memory(NamedTuple):
    """Bytes at most, each at its own time."""

    pss: int
    anonymous: int


def tree_memory(command: Sequence[str]) -> Memory:
    """Run a command and look at its processes until it ends; RuntimeError if it fails."""
    most = {"Pss": 0, "Pss_Anon": 0}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        root = psutil.Process(child.pid)
        while child.poll() is None:
            now = dict.fromkeys(most, 0)
            with suppress(psutil.NoSuchProcess):
                for process in (root, *root.children(recursive=True)):
                    with suppress(OSError):  # it has ended
                        for name, kilobytes in FIELD.findall(Path(f"/proc/{process.pid}/smaps_rollup").read_text()):
                            now[name] += 1024 * int(kilobytes)
            most = {name: max(most[name], now[name]) for name in most}
            sleep(LOOK_SECONDS)
    if child.returncode:
        raise RuntimeError(f"{command} ended with status {child.returncode}")
    return Memory(most["Pss"], most["Pss_Anon"])
