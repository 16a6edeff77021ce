"""Feeds mutated files of every format to the readers: bytes changed, put in, left out, repeated, cut off.

It must show: each is read, or refused in one line, within seconds and in bounded memory; no process dies, and nothing
runs code or asks the network. Trials run in a process of their own, since what a library does to its process, no
exception tells.
"""

from __future__ import annotations

import math
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.array_file import join, read_region
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.describe import describe
from pipeline.storage.paths import split_member
from pipeline.storage.protocol import Byteorder, Source
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.format_case import Case, Written
from tests.cases.format_files import CASES
from tests.cases.recordings import sigmf
from tests.chaos.tools.harness import MissingError

SHORT = 400
SECONDS = 20.0  # limit of a trial
ADDRESS_SPACE = 8 * 2**30  # limit of the process
MOST_CHARACTERS = 700  # of a message
MOST_READ = 2**26  # bytes of an accepted file; a header may claim any number of missing chunks
FORBIDDEN = ("pickle.find_class", "os.system", "os.exec", "subprocess.Popen", "socket.connect")
WORDS = (b"\0", b"\xff" * 8, b"\0" * 8, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"9" * 30, b"-1", b"[", b'"', b"null",
         b"1e999", b"\x80", b"\1\0\0\0\0\0\0\0")  # fmt: skip


def _packed(folder: Path) -> Written:
    """Whole groups of 10, 12 and 14 bits; what they decode to is checked elsewhere."""
    path = folder / "a.bin"
    path.write_bytes(Random(0).randbytes(10_500))
    return Written(str(path), np.empty(0))


COMPLEX = {f"sigmf, {datatype}": sigmf(datatype, dtype) for datatype, dtype in (("ci16_le", "<i2"), ("cf32_be", ">f4"))}
PACKED: dict[str, tuple[str, Byteorder]] = {
    "raw packed, 10 bits": ("u10p", "little"), "raw packed, 12 bits": ("u12p", "big"),
    "raw packed, 14 bits": ("i14p", "little"),
}  # fmt: skip
EVERY = CASES | COMPLEX | dict.fromkeys(PACKED, Case(_packed))

Trials = Sequence[tuple[str, str]]  # kind, under which outcomes are counted, and case


def opened(name: str, item: str) -> Source:
    """A file as the command would open it."""
    if name in PACKED:
        dtype, order = PACKED[name]
        return open_source((item,), dtype=dtype, byteorder=order)
    return open_source((item,), part="abs" if name in COMPLEX else None)


def mutated(content: bytes, random: Random) -> bytes:
    """Content with a few random changes, most of them where the headers are."""
    for _ in range(random.choice([1, 1, 1, 2, 3, 8])):
        near = random.choice([64, 512, 4096, len(content) + 1])
        first = min(random.randrange(near), len(content))
        if random.random() < 0.3:
            first = len(content) - first
        last = min(len(content), first + random.choice([0, 1, 1, 2, 4, 8, 100]))
        same = random.randbytes(last - first)
        new = random.choice([same, same, same, random.choice(WORDS), content[first:last] * random.randrange(3)])
        content = content[:first] + new + content[last:]
    return content[: random.choice([len(content)] * 9 + [random.randrange(len(content) + 1)])]


def _region(source: Source, random: Random) -> None:
    """Read a small region, as jobs that write an array do, if they take the source."""
    try:
        array = join(source)
    except UsageError:
        return
    starts = [random.randrange(length + 1) for length in array.spec.shape]
    lengths = zip(starts, array.spec.shape, strict=True)
    read_region(array, tuple((start, min(start + random.randrange(20), length)) for start, length in lengths))


def _trial(folder: Path, name: str, item: str, originals: dict[Path, bytes], random: Random) -> str:
    path = random.choice(sorted(originals))
    if random.random() < 0.5:  # of a store of many files, the metadata as often as all others together
        path = min(originals, key=lambda path: (path.suffix == "", len(path.parts), path.name))
    path.write_bytes(mutated(originals[path], random))
    try:
        try:
            if random.random() < 0.1:
                list(describe(split_member(item)[0]))
            text = random.choice(["", "", "[3:9]", "[..., 0]", "[::7]", "[5]"])  # of what is read; slices, too
            left = MOST_READ
            source = opened(name, f"{item}{text}")
            for chunk in islice(plan(source, 2**20, "off", 0), 100):
                left -= sum(block.nbytes for block in read_blocks(chunk, Timeline()))
                if left < 0:
                    break
            if random.random() < 0.3:
                _region(source, random)
        except PipelineError as error:
            message = str(error)
            assert "\n" not in message and "expected" in message and len(message) < MOST_CHARACTERS, message
            return "refused"
        return "read"
    finally:
        path.write_bytes(originals[path])


def child(pipe: Any, folder: str, names: list[str], seed: int, first: int, trials: int) -> None:
    """Run trials and send the outcome of each."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bases = {}
    for name in dict.fromkeys(names):
        base = Path(folder) / name
        base.mkdir(exist_ok=True)
        item = EVERY[name].write(base).item
        files = [path for path in base.rglob("*") if path.is_file()]
        bases[name] = base, item, {path: path.read_bytes() for path in files}
    asked: list[str] = []
    sys.addaudithook(lambda event, _: asked.append(event) if event in FORBIDDEN else None)
    for trial in range(first, trials):
        name = names[trial % len(names)]
        base, item, originals = bases[name]
        try:
            outcome = _trial(base, name, item, originals, Random(f"{seed} {trial}"))
            problem = f"did {asked[0]}" if asked else ""
        except Exception as error:
            outcome, problem = "raised", f"{type(error).__name__}: {str(error)[:200]}"
        asked.clear()
        pipe.send((trial, name, outcome, problem))


def run(seed: int, trials: int) -> dict[str, Any]:
    """Outcomes by kind, and what went wrong, of all formats in turn."""
    return run_cases([(name.split()[0].strip(","), name) for name in CASES], seed, trials)


def in_turn(kinds: Mapping[str, Sequence[str]]) -> Trials:
    """Cases such that each kind has the same share of the trials, and each case the same share of its kind's."""
    turns = math.lcm(*map(len, kinds.values()))
    return [(kind, cases[turn % len(cases)]) for turn in range(turns) for kind, cases in kinds.items()]


def run_cases(trials_of: Trials, seed: int, trials: int) -> dict[str, Any]:
    """The same of some cases, again and again."""
    able = [pair for pair in trials_of if all(find_spec(package) for package in EVERY[pair[1]].packages)]
    names = [name for _, name in able]
    if not names:
        raise MissingError("needs the packages of a format")
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    spawning, first = get_context("spawn"), 0
    while first < trials:
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = spawning.Pipe(duplex=False)
            process = spawning.Process(target=child, args=(theirs, folder, names, seed, first, trials))
            process.start()
            theirs.close()
            try:
                while first < trials:
                    if not ours.poll(SECONDS * (4 if not outcomes else 1)):
                        failures.append(f"trial {first} ({names[first % len(names)]}): longer than {SECONDS:g} s")
                        break
                    trial, name, outcome, problem = ours.recv()
                    outcomes[f"{able[trial % len(able)][0]} {outcome}"] += 1
                    failures += [f"trial {trial} ({name}): {problem}"] if problem else []
                    first = trial + 1
            except EOFError:
                process.join(SECONDS)
                failures.append(f"trial {first} ({names[first % len(names)]}): exit status {process.exitcode}")
            if first < trials:
                first += 1
            process.kill()
            process.join(SECONDS)
    return {"outcomes": dict(sorted(outcomes.items())), "failures": failures}
