"""Break something on purpose, many times, and say what came of it; exit status 1 if anything went wrong.

python -m tests.chaos HARNESS [--seed N] [--trials N] [-o FOLDER]

With -o the figures also go to FOLDER/chaos_HARNESS_MACHINE.json; records are kept in tests/benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pipeline.gpu.devices import find_devices
from tests.benchmarks.common import machine_name, save
from tests.chaos.tools.harness import HARNESSES, MissingError, perform


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 if everything that had to hold did, 1 if not, 2 if the harness cannot run here."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("harness", metavar="HARNESS", choices=HARNESSES, help=", ".join(HARNESSES))
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="the same seed draws the same trials")
    parser.add_argument("--trials", type=int, default=100, metavar="N")
    parser.add_argument("-o", "--output-directory", type=Path, metavar="FOLDER", help="also write the figures there")
    given = parser.parse_args(arguments)
    try:
        figures = perform(given.harness, given.seed, given.trials)
    except MissingError as error:
        print(f"{given.harness}: {error}", file=sys.stderr)
        return 2
    if given.output_directory is None:
        print(json.dumps(figures, indent=1))
    else:
        given.output_directory.mkdir(parents=True, exist_ok=True)
        machine = machine_name(find_devices().gpus, one=False)
        save(figures, given.output_directory / f"chaos_{given.harness}_{machine}.json")
    return int(bool(figures["failures"]))


if __name__ == "__main__":
    sys.exit(main())
