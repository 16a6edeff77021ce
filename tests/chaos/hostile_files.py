"""Feeds mutated files and paths to everything that reads or names one: `.npy` headers, edges, locks, lists, paths.

A case is a valid file or path with random changes: bytes and words put in, left out, repeated, nested, cut off, counts
that lie. It must show: each is taken literally or refused in one line within a second; nothing of it is run, by
Python's own account (an audit hook); a header that is accepted says what NumPy's reader says; nothing outside of the
folder is written, and nothing in it but the file that was named.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.cluster.existing import _address_in
from pipeline.errors import PipelineError
from pipeline.storage import atomic_file
from pipeline.storage.atomic_file import write_file
from pipeline.storage.leftovers import OURS, parse_paths
from pipeline.storage.output_lock import parse_holder
from pipeline.storage.sources import open_source
from workflows.npy_header import read_header
from workflows.readers import explained, read_npy, read_text

SHORT = 4000
SECONDS = 1.0  # limit of a case
MOST_CHARACTERS = 700  # of a message, with a path of 200
MOST_NUMBERS = 1000
MOST_NAMES = 6  # in a path

HEADERS = (
    "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }",
    "{'descr': '>f8', 'fortran_order': True, 'shape': (5,)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': ()}",
    "{'shape':(2L,3),'fortran_order':False,'descr':\"<f4\"}",
    "{'descr': [('x', '<i4'), ('y', '<f8', (2,))], 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (4,)}",
)
WORDS = (
    " " * 16000 + "$", "(" * 300, "[" * 300, "-" * 300, "9" * 400, "9" * 19, "(1," * 70, "'" * 3, "\\", "\\x41", "\0",
    "#", "\n", "\t", "\x0b", "L", "True", "None",
    "lambda: 0", "__import__('os').system('true')", "print(1)", "f''", "b''",
    "'descr'", "'shape'", "fortran_order", "1e9", "0x10", "1_0", "0b1", "1j", "nan", "{", "}", ")", "]", ",", ":", "'",
    '"', "é", "\udcff", "'" + "a" * 3000 + "'", "i4,i4", "(2,)i4", "<i4", "O", "V9999999999", "S0", "2147483648",
    "18446744073709551616", "-1", "inf", "1 2", "..", "/", "\u2028", "0" * 50, "\ufeff",
)  # fmt: skip
NAMES = ("", ".", "..", "a", "file", "link", "dangling", "loop", "folder", "out", "fifo", "up", "x" * 255, "x" * 256,
         "é" * 127, "\udcff", "a\nb", "\x1b[31m", "~", "-", "*", "[a]", "\0", " ", "file/", ".file.lock",
         ".file.0123abcd.part")  # fmt: skip


def mutated(text: str, random: Random) -> str:
    """A text with a few random changes."""
    for _ in range(random.choice([0, 1, 1, 2, 3, 8])):
        first = random.randrange(len(text) + 1)
        last = min(len(text), first + random.choice([0, 0, 1, 2, 10, 10**6]))
        new = random.choice([random.choice(WORDS), chr(random.randrange(256)), text[first:last] * random.randrange(4)])
        text = (text[:first] + new + text[last:])[:70_000]
    return text


def npy(random: Random) -> bytes:
    """A `.npy` file with a mutated header, which may claim another length, and data for the unmutated one or not."""
    text = mutated(random.choice(HEADERS), random)
    version = random.choice([(1, 0), (1, 0), (2, 0), (3, 0), (random.randrange(256), random.randrange(256))])
    content = text.encode("utf-8" if version == (3, 0) else "latin1", "replace")
    content += b" " * (-len(content) % random.choice([1, 64])) + b"\n"
    length = random.choice([len(content)] * 8 + [random.randrange(70_000), 2**32 - 1])
    count = struct.pack("<H", length & 0xFFFF) if version == (1, 0) else struct.pack("<I", length & 0xFFFFFFFF)
    magic = random.choice([b"\x93NUMPY"] * 20 + [random.randbytes(6), b""])
    data = bytes(random.choice([0, 4, 24, 24, 40, 1000]))
    whole = magic + bytes(version) + count + content + data
    return whole[: random.choice([len(whole)] * 10 + [random.randrange(len(whole) + 1)])]


def _header(random: Random, folder: Path) -> str:
    """The reader itself, next to NumPy's."""
    content = npy(random)
    try:
        header = read_header(io.BytesIO(content))
    except ValueError as error:
        return _refused(error)
    shape, fortran, dtype, offset = header
    assert all(type(length) is int and length >= 0 for length in shape) and type(fortran) is bool
    file = io.BytesIO(content)
    with _unwatched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read: Any = np.lib._format_impl._read_array_header  # type: ignore[attr-defined]  # of any version
        try:
            numpy_s = (*read(file, np.lib.format.read_magic(file), max_header_size=2**17), file.tell())
        except Exception:
            return "accepted, not by NumPy"
    assert numpy_s == (shape, fortran, dtype, offset)
    return "accepted"


def _samples(random: Random, folder: Path) -> str:
    """A file of samples: the header's words against its size."""
    content = npy(random)
    (folder / "samples.npy").write_bytes(content)
    try:
        source = open_source((str(folder / "samples.npy"),), samples=random.random() < 0.5)
    except PipelineError as error:
        return _refused(error)
    assert source.nbytes is not None and not source.dtype.hasobject
    file = source.files[0]  # type: ignore[attr-defined]
    assert file.offset + source.nbytes == len(content)
    return "accepted"


def _edges(random: Random, folder: Path) -> str:
    """A file of edges or weights."""
    path = folder / random.choice(["edges.npy", "edges.txt"])
    if path.suffix == ".npy":
        path.write_bytes(npy(random))
        read: Callable[[str, int], Any] = read_npy
    else:
        path.write_bytes(
            mutated("0 1.5 2e3\n4,5\n", random).encode("utf-8", random.choice(["ignore", "surrogateescape"]))
        )
        read = read_text
    try:
        with explained(str(path), "numbers"):
            numbers = read(str(path), MOST_NUMBERS)
    except ValueError as error:
        return _refused(error)
    assert numbers.dtype.kind in "iuf" and numbers.size <= MOST_NUMBERS
    return "accepted"


def _records(random: Random, folder: Path) -> str:
    """A lock, a list of what a run leaves, a scheduler's file, as somebody else may have written them."""
    holder = json.dumps(["host", 2**60, 4242, "123456"])
    content = mutated(holder, random).encode("utf-8", "replace")
    got = parse_holder(content)
    assert got is None or list(got) == json.loads(content)
    listing = "\n".join(json.dumps(f"/{name}/.out.0123abcd.part") for name in ("a", "b/../c", "\n"))
    paths = list(parse_paths(mutated(listing, random).encode("utf-8", "replace")))
    assert all(os.path.isabs(path) and OURS.fullmatch(os.path.basename(path)) for path in paths)
    (folder / "scheduler.json").write_bytes(mutated('{"type": "Scheduler", "address": "tls://a:1"}', random).encode(
        "utf-8", "replace"))  # fmt: skip
    try:
        _address_in(str(folder / "scheduler.json"))
    except PipelineError as error:
        return _refused(error)
    return "accepted" if got or paths else "refused"


def _path(random: Random, folder: Path) -> str:
    """A name for an output, through folders, links and `..`; written if it is accepted."""
    names = [random.choice(NAMES) for _ in range(random.randrange(1, MOST_NAMES))]
    path = os.path.join(random.choice([os.getcwd(), "", ".", os.path.join(os.getcwd(), "up")]), *names)
    before = _tree(folder)
    try:
        write_file(path, b"content")
    except PipelineError as error:  # the command line writes control characters of a path as escapes
        assert _tree(folder) == before and len(str(error)) < MOST_CHARACTERS + 2 * len(path), path
        return "refused"
    target = Path(path).parent.resolve() / os.path.basename(path)
    assert target.read_bytes() == b"content" and folder in target.parents, path
    after = _tree(folder)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {str(target)} and before.keys() <= after.keys(), path
    if str(target) in before:
        target.write_bytes(b"old")
    else:
        target.unlink()
    return "accepted"


def _tree(folder: Path) -> dict[str, bytes | str]:
    """All files below a folder, with their contents, and links, with where they lead."""
    found: dict[str, bytes | str] = {}
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(base, name)
            if path.is_symlink():
                found[str(path)] = os.readlink(path)
            elif path.is_file():
                found[str(path)] = path.read_bytes()
            else:
                found[str(path)] = b""
    return found


def _plant(folder: Path) -> Path:
    """A tree with links that lead out of it, so deep in a folder that no path of a case leaves that."""
    tree = folder.joinpath(*"0" * MOST_NAMES, "tree")
    (tree / "folder" / "out").mkdir(parents=True)
    (tree.parent / "victim").write_bytes(b"victim")
    (tree / "file").write_bytes(b"old")
    links = {"link": "../victim", "dangling": "../new", "loop": "loop", "up": "..", "out": "folder/out"}
    for name, leads in links.items():
        (tree / name).symlink_to(leads)
    os.mkfifo(tree / "fifo")
    return tree


def _refused(error: Exception) -> str:
    message = str(error)
    assert len(message) < MOST_CHARACTERS and "\n" not in message, message
    return "refused"


# --- what Python does meanwhile ---------------------------------------------------------------------------------------

FORBIDDEN = ("compile", "exec", "import", "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen",
             "pickle.", "ctypes.dlopen", "socket.connect", "marshal.", "code.__new__", "function.__new__")  # fmt: skip
_watching = [False]
_events: list[str] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching[0] and event.startswith(FORBIDDEN):
        _events.append(f"{event} {arguments!r}"[:200])


@contextmanager
def _unwatched() -> Iterator[None]:
    before, _watching[0] = _watching[0], False
    yield
    _watching[0] = before


CASES: dict[str, tuple[int, Callable[[Random, Path], str]]] = {
    "npy header": (80, _header), "npy file": (1, _samples), "edges": (10, _edges),
    "locks, lists, schedulers": (8, _records), "output path": (1, _path),
}  # fmt: skip


def run(seed: int, trials: int) -> dict[str, Any]:
    """So many cases; the number of a case and the seed give it again."""
    sys.addaudithook(_hook)
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in CASES}
    slowest: dict[str, float] = dict.fromkeys(CASES, 0.0)
    failures: list[str] = []
    kinds, weights = list(CASES), [weight for weight, _ in CASES.values()]
    real, here = atomic_file.os.fsync, Path.cwd()
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name).resolve()
        tree = _plant(folder / "files")
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        atomic_file.os.fsync = lambda file: None
        os.chdir(tree)
        try:
            for number in range(-200, trials):  # the first ones import what NumPy imports late
                random = Random(f"{seed} {number}")
                kind = random.choices(kinds, weights)[0]
                _events.clear()
                began = perf_counter()
                try:
                    _watching[0] = number >= 0
                    outcome = CASES[kind][1](random, folder / "files")
                except Exception as error:
                    outcome = f"{type(error).__name__}: {str(error)[:200]}"
                finally:
                    _watching[0] = False
                seconds = perf_counter() - began
                if number < 0:
                    continue
                slowest[kind] = max(slowest[kind], seconds)
                if not outcome.startswith(("accepted", "refused")) or _events or seconds > SECONDS:
                    failures.append(f"case {number}, {kind}: {outcome}, {seconds:.3f} s, {_events[:3]}")
                    outcome = "failed"
                outcomes[kind][outcome] += 1
        finally:
            atomic_file.os.fsync = real
            os.chdir(here)
            del os.environ["XDG_STATE_HOME"]
    return {
        "outcomes": {kind: dict(sorted(counts.items())) for kind, counts in outcomes.items()},
        "slowest, seconds": {kind: round(seconds, 4) for kind, seconds in slowest.items()},
        "failures": failures,
    }
