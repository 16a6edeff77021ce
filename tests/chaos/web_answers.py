"""Reads arrays from a web server on loopback whose answers are mutated: status, headers, and the length of the body.

It must show: the samples are those of the array, or the run ends in one line, within seconds. Bytes of a body are left
as they are, since nothing but a checksum could tell other ones.
"""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from io import BytesIO
from random import Random
from time import monotonic
from typing import Any
from unittest.mock import patch

import numpy as np

from pipeline.errors import PipelineError
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.web_server import Answer, Fault, WebServer, web_server
from tests.chaos.tools.harness import MissingError

SHORT = 40
SECONDS = 30.0  # limit of a trial
MOST_CHARACTERS = 700  # of a message
ARRAY = np.random.default_rng(0).integers(-999, 999, (300, 40)).astype("<i4")
STATUS = (200, 204, 206, 301, 304, 307, 400, 401, 403, 404, 412, 416, 429, 500, 503)
HEADERS = ("Content-Range", "Content-Length", "ETag", "Last-Modified", "Content-Encoding", "Transfer-Encoding",
           "Connection", "Location", "Accept-Ranges", "Retry-After")  # fmt: skip
WORDS = ("", "0", "-1", "9" * 30, "bytes */0", "bytes 0-0/1", "bytes 5-2/99", "*", '""', 'W/"a"', "gzip", "chunked",
         "close", "/", "bytes=0-1", "Thu, 01 Jan 1970 00:00:00 GMT", "nonsense", "\xff" * 9, "a" * 9000)  # fmt: skip


def mutation(random: Random) -> Fault:
    """A change of some answers: all, or those from a request on, or one."""
    first, last = random.choice([(0, 99), (0, 0), (1, 1), (1, 99), (2, 99)])
    changes = [random.choice(["header", "header", "drop", "digit", "status", "cut", "longer"])
               for _ in range(random.choice([1, 1, 1, 2, 3]))]  # fmt: skip
    numbers = [random.randrange(2**31) for _ in changes]

    def fault(answer: Answer, before: int) -> None:
        if first <= before <= last:
            for kind, number in zip(changes, numbers, strict=True):
                _change(answer, kind, Random(number))

    return fault


def _change(answer: Answer, kind: str, random: Random) -> None:
    name = random.choice(HEADERS[:4] if kind in ("drop", "digit") else HEADERS)
    if kind == "header":
        answer.headers[name] = random.choice(WORDS)
    elif kind == "drop":
        answer.headers.pop(name, None)
    elif kind == "digit" and (value := answer.headers.get(name)):
        at = random.randrange(len(value))
        answer.headers[name] = value[:at] + random.choice("0123456789 -/") + value[at + 1 :]
    elif kind == "status":
        answer.status = random.choice(STATUS)
    elif kind == "cut":
        answer.body = answer.body[: random.randrange(len(answer.body) + 1)]
    elif kind == "longer":
        answer.body += bytes(random.randrange(1, 100))


def _trial(server: WebServer, number: int, random: Random) -> tuple[str, str]:
    """Its outcome, and what went wrong."""
    path, began = f"/{number}.npy", monotonic()
    file = BytesIO()
    np.save(file, ARRAY)
    server.files[path], server.faults[path] = file.getvalue(), mutation(random)
    text = random.choice(["", "[::7, 3]"])
    expected = ARRAY[::7, 3] if text else ARRAY
    try:
        source = open_source((server.url(path) + text,))
        blocks = [block.copy() for chunk in plan(source, 2**14, "off", 0) for block in read_blocks(chunk, Timeline())]
        same = np.array_equal(np.concatenate([np.empty(0, source.dtype), *blocks]), expected.reshape(-1))
        outcome, problem = "read", "" if same else "other samples"
    except PipelineError as error:
        message = str(error)
        right = "\n" not in message and "expected" in message and len(message) < MOST_CHARACTERS
        outcome, problem = "refused", "" if right else message
    except Exception as error:
        outcome, problem = "raised", f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        server.files.pop(path), server.faults.pop(path)
    if (seconds := monotonic() - began) > SECONDS:
        problem = problem or f"{seconds:.0f} s"
    return outcome, problem


def run(seed: int, trials: int) -> dict[str, Any]:
    """Outcomes by kind, and what went wrong."""
    if find_spec("obstore") is None:
        raise MissingError("needs obstore")
    from pipeline.storage.remote import objects

    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    short = patch.multiple(objects, SILENT_SECONDS=0.5, RETRIES=1, PAUSE_SECONDS=0.01)
    with web_server() as server, short:
        objects._store.cache_clear()
        for number in range(trials):
            outcome, problem = _trial(server, number, Random(f"{seed} {number}"))
            outcomes[outcome] += 1
            failures += [f"trial {number}: {problem}"] if problem else []
    objects._store.cache_clear()
    return {"outcomes": dict(sorted(outcomes.items())), "failures": failures}
