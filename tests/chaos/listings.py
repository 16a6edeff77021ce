"""Reads all objects of a bucket from a server on loopback whose list of objects is mutated.

It must show: the samples are those of objects that there are, or the run ends in one line, within seconds: also where a
list says that it goes on for ever.
"""

from __future__ import annotations

import os
from collections import Counter
from importlib.util import find_spec
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
from tests.cases.listings import OBJECTS, listing, store
from tests.cases.web_server import WebServer, web_server
from tests.chaos.tools.harness import MissingError

SHORT = 60
SECONDS = 30.0  # limit of a trial
MOST_CHARACTERS = 700  # of a message
WORDS = (
    b"true", b"false", b"-1", b"9" * 30, b"<", b">", b"</Key>", b"<Key>", b"p/../../etc/passwd", b"p/\xc3\xa9",
    b"\xff\xfe", b"&amp;", b"&x;", b"&#0;", b"<!DOCTYPE x [<!ENTITY y SYSTEM 'file:///etc/passwd'>]>", b"<!--",
    b"<![CDATA[", b"a" * 3000,
    b"<NextContinuationToken>t</NextContinuationToken>", b"<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>",
    b"<CommonPrefixes><Prefix>p/q/</Prefix></CommonPrefixes>", b"1601-01-01T00:00:00Z", b"", b"\n", b"//", b"p/b.bin",
)  # fmt: skip


def mutated(content: bytes, random: Random) -> bytes:
    """A page with a few random changes."""
    for _ in range(random.choice([1, 1, 2, 3, 8])):
        first = random.randrange(len(content) + 1)
        last = min(len(content), first + random.choice([0, 1, 4, 10, 60]))
        if random.random() < 0.5:  # at a tag, or what is within one
            first = content.find(random.choice([b"<", b">"]), first) % (len(content) + 1)
            last = max(first, content.find(b"<", first + 1))
        new = random.choice(
            [random.choice(WORDS), random.randbytes(last - first), content[first:last] * random.randrange(3)]
        )
        content = content[:first] + new + content[last:]
    return content[: random.choice([len(content)] * 9 + [random.randrange(len(content) + 1)])]


def _trial(server: WebServer, random: Random) -> tuple[str, str]:
    """Its outcome, and what went wrong."""
    token, began = random.choice(["", "", "", "more"]), monotonic()
    server.files["/samples"] = mutated(listing(tuple(OBJECTS), token), random)
    try:
        source = open_source((f"s3://samples/{random.choice(['p/*.bin', 'p/*', '**', 'p/**'])}",), "uint8")
        blocks = [block.copy() for chunk in plan(source, 2**14, "off", 0) for block in read_blocks(chunk, Timeline())]
        expected = [OBJECTS[name.removeprefix("s3://samples/")] for name in source.names]
        same = np.concatenate(blocks).tobytes() == b"".join(expected)
        return "read", "" if same else "other samples"
    except PipelineError as error:
        message = str(error)
        right = "\n" not in message and "expected" in message and len(message) < MOST_CHARACTERS
        return "refused", "" if right else message
    except Exception as error:
        return "raised", f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        server.files["/samples"] = listing(())  # which ends the calls that were left to themselves
        if (seconds := monotonic() - began) > SECONDS:
            raise TimeoutError(f"{seconds:.0f} s")


def run(seed: int, trials: int) -> dict[str, Any]:
    """Outcomes by kind, and what went wrong."""
    if find_spec("obstore") is None:
        raise MissingError("needs obstore")
    from pipeline.storage.remote import objects

    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    short = patch.multiple(objects, SILENT_SECONDS=0.5, RETRIES=1, PAUSE_SECONDS=0.01, LISTING_SECONDS=1.0)
    with web_server() as server, short, patch.dict(os.environ, kept | store(server), clear=True):
        objects._store.cache_clear()
        for number in range(trials):
            try:
                outcome, problem = _trial(server, Random(f"{seed} {number}"))
            except TimeoutError as error:
                outcome, problem = "waited", str(error)
            outcomes[outcome] += 1
            failures += [f"trial {number}: {problem}"] if problem else []
        objects._store.cache_clear()
    return {"outcomes": dict(sorted(outcomes.items())), "failures": failures}
