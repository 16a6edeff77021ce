"""Plants errors in some scenarios, in this process, and prints what became of each as a line of JSON.

python -m tests.benchmarks.planted FIRST LAST TRIALS DEVICE [--job NAME ...] [--only TRIAL]
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from dataclasses import asdict

import pipeline.cluster.placement
from pipeline.cluster.placement import Placement
from tests.benchmarks.planted.jobs import JOBS, job_of
from tests.benchmarks.planted.limits import own_folder
from tests.benchmarks.planted.trials import Trials


def main() -> None:
    """Scenarios FIRST to LAST - 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.planted")
    for name in ("first", "last", "trials"):
        parser.add_argument(name, type=int)
    parser.add_argument("device", choices=("cpu", "gpu"))
    parser.add_argument("--job", nargs="+", choices=JOBS, metavar="NAME", help="scenarios of these jobs, among others")
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # Dask tells of every task that fails
    where = pipeline.cluster.placement._in_this_process(Placement(given.device), given.device)
    with own_folder() as folder, where as workers:
        trials = Trials(workers, folder)
        with trials.installed():
            for number in range(given.first, given.last):
                if given.job and job_of(number) not in given.job:
                    continue
                print(json.dumps({"begins": number}), flush=True)
                for outcome in trials.of_scenario(number, given.trials, given.only):
                    print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
