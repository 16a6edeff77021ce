"""Measure what fits this machine: GPU entries on GPUs, the others on the CPU; one JSON file each.

python -m tests.benchmarks OUT_FOLDER [--only NAME ...] [--tiny]

If OUT_FOLDER is tests/benchmarks/results, `python -m tests.benchmarks.tables` then makes the tables of README.md and
docs/ from them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.entries import ENTRIES, machine, measure


def main(arguments: list[str] | None = None) -> int:
    """Exit status: the number of failed entries."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", metavar="OUT_FOLDER", type=Path, help="where NAME_MACHINE.json is written")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=ENTRIES, help=", ".join(ENTRIES))
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to see that everything runs")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    chosen = given.only or [name for name, entry in ENTRIES.items() if entry.fits()]
    if len(chosen) == 1:
        measure(chosen[0], given.folder / f"{chosen[0]}_{machine(chosen[0])}.json", given.tiny)
        return 0
    failed = []
    for name in chosen:  # each in its own process, so that neither its memory nor a crash affects the next one
        print(f"-- {name}", flush=True)
        again = [sys.executable, "-m", "tests.benchmarks", str(given.folder), "--only", name, *["--tiny"] * given.tiny]
        if subprocess.run(again).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
