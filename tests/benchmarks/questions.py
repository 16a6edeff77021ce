"""Questions about one file of float32 samples: whole commands, beside other libraries' on the same cores.

python -m tests.benchmarks OUT_FOLDER --only questions
python -m tests.benchmarks.questions OUT.json [GIB] [REPEATS]

Quantiles, channels, selections, moments, rules for bins and digests. The file lies in memory, and was read before. The
commands take turns, and the least seconds count; the first run compiles Python, as `pip install` has done for others.
PEERS_PYTHON names the interpreter that has the peers. The second way writes the file after each question.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.benchmarks.common import Process, command, process, save, with_bytecode
from tests.benchmarks.jobs import MEMORY
from tests.benchmarks.markdown import table
from tests.benchmarks.question_peers import BINS, CHANNELS, PEERS, RANGE

PEERS_FILE = str(Path(__file__).with_name("question_peers.py"))
PEERS_PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
SLOW = 5.0  # seconds: a peer that takes longer, and twice as long as we do, runs once
TILE = 2**24  # samples, written again and again with another sign or scale
CLOSE = 1e-6  # other libraries round moments and edges, and some leave the last edge out of the last bin


class Question(NamedTuple):
    """The words of our command, and the part of its result that peers print."""

    words: tuple[str, ...]
    answer: Any


LIMITS = ("--bins", str(BINS), "--range", *map(str, RANGE))
QUESTIONS: Mapping[str, Question] = {
    "median": Question(("quantile", "--q", "0.5"), lambda result: result["values"][0]),
    "channels": Question(
        ("histogram", *LIMITS, "--channels", str(CHANNELS)),
        lambda result: [sum(row[1:-1]) for row in result["histogram"]["storage"]["values"]],
    ),
    "selected": Question(
        ("histogram", *LIMITS, "--where", "-1 <= x < 2"),
        lambda result: sum(result["histogram"]["storage"]["values"][1:-1]),
    ),
    "moments": Question(
        ("reduce", "--op", "skewness,kurtosis"), lambda result: [result["skewness"], result["kurtosis"]]
    ),
    "rule": Question(
        ("histogram", "--bins", "fd", "--range", "auto"),
        lambda result: len(result["histogram"]["storage"]["values"]) - 2,
    ),
    "digest": Question(("digest",), lambda result: result["blake3"]),
}


def write(path: Path, gib: float) -> None:
    """Normal samples; no two tiles are the same."""
    tile = np.random.default_rng(0).standard_normal(TILE).astype(np.float32)
    with path.open("wb") as file:
        for number in range(max(1, round(gib * 2**28 / TILE))):
            file.write((tile[: min(TILE, round(gib * 2**28))] * np.float32(1 + number / 64)).tobytes())


def agrees(ours: Any, theirs: Any) -> bool:
    """Whether both are the same, numbers up to what the other library rounds."""
    if isinstance(ours, float | int):
        return math.isclose(ours, theirs, rel_tol=CLOSE, abs_tol=CLOSE)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(agrees, ours, theirs))
    return bool(ours == theirs)


def installed(peer: str) -> bool:
    """Whether the interpreter of the peers has one."""
    return not subprocess.run([PEERS_PYTHON, "-c", f"import {peer.lower()}"], stderr=subprocess.DEVNULL).returncode


def answered(name: str, path: Path, repeats: int) -> dict[str, Any]:
    """Least seconds of all and of the CPU, and peak bytes, of our command, verified by default and not at all, and of
    each installed peer."""
    question = QUESTIONS[name]
    words = command(*question.words, str(path), "--dtype", "float32", "-q", "--json")
    works = {"ours": words, "ours, unverified": [*words, "--verify", "off"]}
    works |= {peer: [PEERS_PYTHON, PEERS_FILE, peer, asked, str(path)] for peer, asked in PEERS
              if asked == name and installed(peer)}  # fmt: skip
    runs: dict[str, list[Process]] = {who: [] for who in works}
    environment = with_bytecode(path.parent)
    for _ in range(repeats):
        for who, of_one in works.items():
            if not (runs[who] and runs[who][0].seconds > max(SLOW, 2 * runs["ours"][0].seconds)):
                runs[who].append(process(of_one, environment))
    report = json.loads(runs["ours"][0].printed)
    ours, verdict = question.answer(report["result"]), report["verification"]
    right = {
        who: agrees(ours, json.loads(taken[0].printed)) for who, taken in runs.items() if not who.startswith("ours")
    }
    return {
        "agrees": all(right.values()), "share": verdict["checked"] / verdict["samples"],
        "seconds": {who: min(run.seconds for run in taken) for who, taken in runs.items()},
        "cpu seconds": {who: min(run.cpu_seconds for run in taken) for who, taken in runs.items()},
        "peak bytes": {who: max(run.peak_bytes for run in taken) for who, taken in runs.items()},
    }  # fmt: skip


def measure(
    gib: float = 4, repeats: int = 3, done: Callable[[dict[str, Any]], object] = lambda figures: None
) -> dict[str, Any]:  # fmt: skip
    """All questions; `done` gets the figures after each."""
    figures: dict[str, Any] = {"GiB": gib, "repeats": repeats, "questions": {}}
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        path = Path(scratch, "samples.bin")
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # the peak of a command counts from its parent's
            pool.submit(write, path, gib).result()
        for name in QUESTIONS:
            figures["questions"][name] = answered(name, path, repeats)
            print(name, figures["questions"][name], flush=True)
            done(figures)
    return figures


def described(figures: Mapping[str, Any]) -> str:
    """A table: our seconds and memory, and each peer's."""
    lines = []
    for name, row in figures["questions"].items():
        seconds, peak = row["seconds"], row["peak bytes"]
        peers = ", ".join(f"{who} {taken:.2f} s, {peak[who] / 2**20:,.0f} MiB" for who, taken in seconds.items()
                          if not who.startswith("ours"))  # fmt: skip
        words = " ".join(QUESTIONS[name].words)
        lines.append([f"`{words}`", f"{seconds['ours']:.2f}", f"{seconds['ours, unverified']:.2f}",
                      f"{peak['ours'] / 2**20:,.0f}", f"{100 * row['share']:.0f} %", peers])  # fmt: skip
    columns = ["", "verified, s", "unverified, s", "MiB", "checked", "others"]
    return f"{figures['GiB']:g} GiB of float32.\n\n{table(columns, lines)}"


if __name__ == "__main__":
    size, repeats = (float(given) for given in (*sys.argv[2:], *(4, 3)[len(sys.argv) - 2 :]))
    print(described(measure(size, int(repeats), lambda figures: save(figures, sys.argv[1]))))
