"""Shows how far a run is: lines that stay in place on a terminal, else a line or a JSON object every ten seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from pipeline.process import log_lines
from pipeline.process.last_words import say

LINE_SECONDS = 10.0
WIDTH = 79  # columns at most: most terminals can then be made narrower without breaking lines that are there
BAR, BAR_FROM = 16, 72  # columns of the bar, and of a terminal that has room for it
ROOM = 3  # columns that stay free: the last one, where some terminals wrap, and what they show for Ctrl-C
JOIN_SECONDS = 1.0
MOST_UNITS = 16  # in a line of a log
STAGES = {"read": "read", "read+copy": "read+copy", "to device": "copy", "kernel": "kernel", "write": "write",
          "verify": "check"}  # fmt: skip

Snapshot = Mapping[str, Any]


@contextmanager
def show_progress(snapshot: Callable[[], Snapshot], quiet: bool) -> Iterator[None]:
    """Show what `snapshot` returns (`pipeline.progress.RunProgress.snapshot`) on stderr during the body."""
    if log_lines.as_json():
        with every(LINE_SECONDS, lambda: say_event("progress", snapshot())):
            try:
                yield
            finally:
                say_event("progress", snapshot())
    elif quiet:
        yield
    elif sys.stderr is not None and sys.stderr.isatty():
        with _on_terminal(snapshot):
            yield
    else:
        with every(LINE_SECONDS, lambda: say(line(snapshot()))):
            yield


@contextmanager
def every(seconds: float, action: Callable[[], object]) -> Iterator[None]:
    """Do something every so many seconds, in a thread, even while nothing else happens."""
    ended = Event()

    def work() -> None:
        while not ended.wait(seconds):
            action()

    thread = Thread(target=work, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(JOIN_SECONDS)


def say_event(name: str, snapshot: Snapshot) -> None:
    """Write an event on stderr, whole, however long it is."""
    if sys.stderr is not None:
        try:
            print(log_lines.event(name, **snapshot), file=sys.stderr, flush=True)
        except (OSError, ValueError):  # nobody reads it
            return


def line(snapshot: Snapshot) -> str:
    """One line about a run, for a log."""
    parts = [f"{snapshot['job']}: {_amount(snapshot)}", *_how_long(snapshot)]
    return ", ".join([*parts, *(f"{one['name']} {_rate(one)}" for one in _several(snapshot))])


def _several(snapshot: Snapshot) -> list[Snapshot]:
    """The units, if there is more than one, and not too many for a line."""
    units = snapshot["units"]
    return list(units) if 1 < len(units) <= MOST_UNITS else []


def _amount(snapshot: Snapshot) -> str:
    if not snapshot["pass"]:
        return "starting"
    again = f"pass {snapshot['pass']}, " if snapshot["pass"] > 1 else ""
    done, total = snapshot["bytes"], snapshot["total_bytes"]
    if total is None:
        return f"{again}{_size(done)}"
    share = 100 * done // total if total else 100
    return f"{again}{share} % of {_size(total)}"


def _how_long(snapshot: Snapshot) -> list[str]:
    if not snapshot["pass"]:
        return [_duration(snapshot["seconds"])]
    if not snapshot["bytes"]:
        return ["first chunks under way", _duration(snapshot["seconds"])]
    left = snapshot["seconds_left"]
    if left is None:
        return [_rate(snapshot)]
    if not left:
        return [_rate(snapshot), "checks under way"]
    return [_rate(snapshot), f"{_duration(left)} left"]


def _size(nbytes: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if round(nbytes / size, 1) >= 1:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes / 1e3:.1f} kB"


def _rate(snapshot: Snapshot) -> str:
    return f"{snapshot['bytes_per_second'] / 1e9:.2f} GB/s"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}" if whole >= 3600 else f"{whole // 60} min"


def stages(unit: Snapshot) -> str:
    """What each stage of a GPU or process alone would reach, like `read+copy 12.3  kernel 410 GB/s`."""
    rates = unit["stages"]
    shown = [f"{name} {rates[stage] / 1e9:.3g}" for stage, name in STAGES.items() if stage in rates]
    return f"{'  '.join(shown)} GB/s" if shown else ""


def _chunks(number: int) -> str:
    return f"{number:,} chunk{'s'[: number != 1]}"


def lines(snapshot: Snapshot, width: int) -> list[str]:
    """Lines for a terminal of so many columns: the run, then one for each GPU or process."""
    share = 0.0
    if snapshot["total_bytes"]:
        share = min(snapshot["bytes"] / snapshot["total_bytes"], 1.0)
    full = int(BAR * share)
    bar = f"{'█' * full}{'░' * (BAR - full)}  " if width >= BAR_FROM else ""
    shown = [f"{snapshot['job']}  {bar}{', '.join([_amount(snapshot), *_how_long(snapshot)])}"]
    columns = max((len(unit["name"]) for unit in snapshot["units"]), default=0)
    shown += [
        f"{unit['name']:<{columns}}  {_rate(unit):>11}  {stages(unit)}, {_chunks(unit['chunks'])}"
        for unit in snapshot["units"]
    ]
    most = max(min(width - ROOM, WIDTH - ROOM), 1)
    return [one if len(one) <= most else f"{one[: most - 1]}…" for one in shown]


@contextmanager
def _on_terminal(snapshot: Callable[[], Snapshot]) -> Iterator[None]:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

    class Visible(Console):
        """Leaves the cursor visible: a command that is killed could not show it again."""

        def show_cursor(self, show: bool = True) -> bool:
            """Do nothing."""
            return False

    # COLUMNS and LINES, where they are exported, say what the terminal's size was once.
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    console = Visible(stderr=True, highlight=False, _environ=environ)

    def now() -> RenderableType:
        return Text("\n".join(lines(snapshot(), console.width)), no_wrap=True, overflow="crop")

    with Live(console=console, get_renderable=now, transient=True, redirect_stdout=False, refresh_per_second=4):
        yield
