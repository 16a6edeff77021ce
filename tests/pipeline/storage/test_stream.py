"""Standard input: read once, in bounded memory and time; what is wrong with it is one line."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest

import pipeline
from pipeline.cluster.workers import Workers
from pipeline.errors import PipelineError, UsageError
from pipeline.storage import array_source, sources, stream
from pipeline.storage.describe import describe
from pipeline.storage.packed import Packing
from pipeline.storage.sources import open_source
from pipeline.storage.stream import BLOCK_BYTES, Stream, StreamSource

DATA = np.random.default_rng(0).integers(-9, 2000, BLOCK_BYTES + 12_345).astype(np.int16)  # more than two blocks
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}

Pipe = Callable[..., None]


def npy(array: Any) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Makes bytes the standard input of sources, through a pipe that stays open until an event."""
    threads: list[threading.Thread] = []
    ends: list[int] = []
    until = threading.Event()

    def pipe(data: bytes, *, stay_open: bool = False, step: int = 2**16) -> None:
        reading, writing = os.pipe()
        ends.append(reading)
        monkeypatch.setattr(sources, "Stream", lambda fd, seconds: Stream(reading, seconds))

        def write() -> None:
            with open(writing, "wb", buffering=0) as file:
                try:
                    for start in range(0, len(data), step):
                        left = memoryview(data)[start : start + step]
                        while left:
                            left = left[file.write(left) :]
                    until.wait(60 if stay_open else 0)
                except BrokenPipeError:
                    pass

        threads.append(threading.Thread(target=write))
        threads[-1].start()

    yield pipe
    until.set()
    for end in ends:
        os.close(end)
    for thread in threads:
        thread.join(60)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("kind", ["raw", "big", "npy", "fortran", "offset"])
def test_jobs_agree_with_numpy(piped: Pipe, kind: str) -> None:
    """Through writes of an odd length, and chunks of a part of a block and of several."""
    content = {
        "raw": DATA.tobytes(), "big": DATA.astype(">i2").tobytes(), "npy": npy(DATA), "offset": b"\x93NUMPY?" +
        DATA.tobytes(), "fortran": npy(np.asfortranarray(DATA[:90_000].reshape(300, 300))),
    }  # fmt: skip
    given: dict[str, Any] = {"raw": {"dtype": "int16"}, "big": {"dtype": "int16", "byteorder": "big"},
                             "offset": {"dtype": "int16", "offset": 7}}.get(kind, {})  # fmt: skip
    samples = DATA[:90_000].reshape(300, 300).T.ravel() if kind == "fortran" else DATA  # as it is stored
    jobs = [("histogram", {"bins": 100, "range": (-9, 2000)}), ("reduce", {"op": "sum,argmin"})]
    for chunk_bytes in (None, 2**17):
        piped(content[kind], step=10_001)
        counted, reduced = pipeline.run(jobs, "-", verify="full", chunk_bytes=chunk_bytes, **given)
        np.testing.assert_array_equal(counted.counts, np.histogram(samples, 100, (-9, 2000))[0])
        assert reduced.values == {"sum": samples.sum(), "argmin": samples.argmin()}
        assert counted.verification.checked == len(samples) and counted.verification.read_once


def test_fortran_order_is_not_forgotten(piped: Pipe) -> None:
    """A digest is of samples in C order."""
    samples = np.arange(12).reshape(3, 4)
    piped(npy(np.asfortranarray(samples)))
    with pytest.raises(UsageError, match="digest: expected arrays in C order, got standard input in Fortran order"):
        pipeline.run("digest", "-")


@pytest.mark.usefixtures("shared")
def test_after_files_and_packed(piped: Pipe, tmp_path: Path) -> None:
    """Packed groups do not fill a block, so some would be cut by it."""
    stored = np.random.default_rng(1).integers(0, 256, 3 * BLOCK_BYTES // 2, dtype=np.uint8)
    stored.tofile(tmp_path / "a")
    piped(stored.tobytes())
    both = pipeline.run("reduce", tmp_path / "a", "-", dtype="u12p", op="sum,argmax")
    once = pipeline.run("reduce", tmp_path / "a", dtype="u12p", op="sum,argmax")
    assert both.values == {"sum": 2 * once.values["sum"], "argmax": once.values["argmax"]}


@pytest.mark.usefixtures("shared")
def test_empty_array(piped: Pipe) -> None:
    piped(npy(np.empty((0, 3), np.float32)))
    assert pipeline.run("reduce", "-", op="sum").values == {"sum": 0}


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("content", "given", "text"),
    [
        (b"", {}, r"expected samples, got 0 bytes; did its writer fail"),
        (b"abc", {"offset": 3}, r"expected samples after --offset 3, got 3 bytes"),
        (b"abc", {"offset": 9}, r"expected samples after --offset 9, got 3 bytes"),
        (bytes(2**20 + 3), {}, r"expected a multiple of 4 bytes, got 3 left over at byte 1048579; check --dtype"),
        (bytes(8), {"dtype": "u10p"}, r"expected a multiple of 5 bytes, got 3 left over at byte 8"),
        (npy(DATA)[:-1], {}, r"expected a multiple of 2 bytes, got 1 left over"),
        (npy(DATA)[:-2], {}, rf"expected {DATA.nbytes} bytes .* \.npy header says, got {DATA.nbytes - 2}; did"),
        (npy(DATA) + b"x", {}, rf"expected {DATA.nbytes} bytes .* \.npy header says, got more; did"),
        (npy(DATA)[:100], {}, r"expected a \.npy header, got the first 90 of 118 bytes of one"),
        (npy(DATA), {"dtype": "int32"}, r"expected int32 as --dtype says, got int16"),
        (npy(np.array([b"x"])), {}, r"expected samples of int8, .*, got \|S1; convert"),
        (b"\x1f\x8b\x08" + bytes(99), {}, r"expected raw samples or \.npy, got gzip; unpack or convert it; "),
        (b"PAR1" + bytes(99), {"dtype": "int8"}, r"expected raw samples or \.npy, got parquet, .* say --offset 0"),
        (bytes(4), {"range": "auto"}, r"histogram: expected a source that can be read twice, .* got standard input"),
    ],
)
def test_what_is_wrong_is_one_line(piped: Pipe, content: bytes, given: dict[str, Any], text: str) -> None:
    piped(content)
    with pytest.raises(PipelineError, match=text if text.startswith("hist") else f"^standard input: {text}"):
        pipeline.run("histogram", "-", **given)


def test_what_asks_for_more_than_one_look(tmp_path: Path, piped: Pipe) -> None:
    """Nothing is read for it."""
    piped(b"", stay_open=True)
    with pytest.raises(UsageError, match=r"^-: expected files for a job that writes an array, got standard input"):
        pipeline.run("transpose", "-", output=tmp_path / "t.npy")
    with pytest.raises(UsageError, match=r"^-: expected files, got standard input, .* write it to a file"):
        list(describe("-"))
    piped(bytes(4))
    with pytest.raises(UsageError, match=r"^-: expected standard input once, got it twice"):
        open_source(("-", "-"))
    piped(bytes(4))
    source = open_source(("-",))
    assert len(list(source.pieces())) == 1
    with pytest.raises(PipelineError, match="expected to be read once, got a second pass"):
        list(source.pieces())


@pytest.mark.parametrize("given", [0, 1001, BLOCK_BYTES + 8])
def test_writer_that_stalls(piped: Pipe, given: int) -> None:
    """While the first bytes are looked at, and later."""
    piped(bytes(given), stay_open=True)
    with pytest.raises(PipelineError, match=rf"within 0\.2 s, got nothing after byte {given}; is its writer still"):
        list(open_source(("-",), "int8", stall_seconds=0.2).pieces())


def test_time_without_this_process_is_nobodys(piped: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumps by an hour at each look: a suspended process that goes on."""
    hours = iter(range(0, 10**6, 3600))
    monkeypatch.setattr(stream, "monotonic", lambda: float(next(hours)))
    monkeypatch.setattr(stream, "TICK_SECONDS", 0.01)
    piped(b"", stay_open=True)
    with pytest.raises(PipelineError, match=r"within 0\.1 s"):
        open_source(("-",), stall_seconds=0.1)
    assert next(hours) >= 5 * 3600


def test_another_process_takes_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there when it was looked for is gone: the wait still has its limit."""
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "wb") as file:
        taken = Stream(reading, 0.2)
        threading.Timer(5, file.close).start()  # the end of a read that waits
        monkeypatch.setattr(taken, "_poll", type("Ready", (), {"poll": lambda self, most: [1]})())
        began = monotonic()
        with pytest.raises(PipelineError, match=r"within 0\.2 s"):
            taken.read(1)
        assert monotonic() - began >= 0.2


def test_peeked_bytes_are_read_once(piped: Pipe) -> None:
    piped(b"abcdefghij")
    looked = sources.Stream(0, 1)
    assert (looked.peek(4), looked.peek(2), looked.done) == (b"abcd", b"ab", 0)
    assert (looked.read(1), looked.peek(5), looked.done) == (b"a", b"bcdef", 1)
    assert (looked.read(2), looked.peek(1), looked.done) == (b"bc", b"d", 3)
    assert (looked.read(99), looked.peek(1), looked.done) == (b"defghij", b"", 10)


def test_other_descriptors(tmp_path: Path) -> None:
    """A file from where it stands, a socket, a folder; a terminal and a closed one are refused."""
    (tmp_path / "a").write_bytes(b"abcdef")
    with open(tmp_path / "a", "rb", buffering=0) as file:
        file.read(2)
        assert Stream(file.fileno(), 1).read(100) == b"cdef"
    one, other = socket.socketpair()
    with one, other:
        other.sendall(b"xyz")
        other.shutdown(socket.SHUT_WR)
        assert Stream(one.fileno(), 1).read(100) == b"xyz"
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(PipelineError, match=r"^standard input: reading after byte 0 failed: Is a directory"):
        Stream(folder, 1).read(1)
    os.close(folder)
    with pytest.raises(UsageError, match=r"^standard input: expected samples, got 'Bad file descriptor'; name a file"):
        Stream(folder, 1)
    leader, terminal = os.openpty()
    with pytest.raises(UsageError, match=r"^standard input: expected samples from .*, got a terminal; pipe them in"):
        Stream(terminal, 1)
    os.close(leader)
    os.close(terminal)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("verify", ["auto", "full"])
def test_memory_is_bounded(piped: Pipe, workers: Workers, monkeypatch: pytest.MonkeyPatch, verify: str) -> None:
    most: list[int] = []
    real = stream.keep

    def counting(*arguments: Any) -> Any:
        most.append(len(array_source._kept))
        return real(*arguments)

    monkeypatch.setattr(stream, "keep", counting)
    monkeypatch.setattr(array_source, "_kept", WeakValueDictionary())  # earlier tests may have left some
    monkeypatch.setattr(stream, "BLOCK_BYTES", 2**15)
    data = np.arange(2**20, dtype=np.int32)
    piped(data.tobytes())
    result = pipeline.run("reduce", "-", op="sum", chunk_bytes=2**16, verify=verify)
    assert result.values == {"sum": data.sum()} and len(most) == 128
    if verify == "full":  # as many as pieces of the chunks under way
        assert max(most) <= 2 * 4 * workers.threads + 2


def test_blocks_hold_whole_samples(piped: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK_BYTES", 16)
    piped(bytes(21))
    source = open_source(("-",), "i14p")
    assert isinstance(source, StreamSource) and source.packing == Packing(14, True, False)
    assert [piece.nbytes for piece in source.pieces()] == [16, 8]


# --- the command ------------------------------------------------------------------------------------------------------


def command(*words: str, **how: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "pipeline", *words], stdout=-1, stderr=-1, env=ENVIRONMENT, **how)


def test_command_reads_its_standard_input() -> None:
    with command("reduce", "-", "--dtype", "int16", "--op", "sum", stdin=-1) as process:
        out, err = process.communicate(DATA.tobytes(), 60)
    assert (process.returncode, err) == (0, b"")
    assert re.search(rf"^sum +{DATA.sum(dtype=int)}$", out.decode(), re.MULTILINE), out


def test_command_that_waits_is_stopped() -> None:
    """By its limits and by a signal, while it waits for the first bytes."""
    for words, status, text in (
        (["--stall-timeout", "100ms"], 1, b"error: standard input: expected more samples or the end within 0.1 s"),
        (["--time-limit", "1500ms"], 75, b"stopped by the time limit of 1.5 s: nothing was written"),
        ([], -signal.SIGTERM, b"stopped by SIGTERM: nothing was written"),
    ):
        with command("histogram", "-", *words, stdin=-1) as process:
            assert process.stdin and process.stderr
            if not words:
                process.stdin.write(DATA.tobytes())  # more than a pipe holds: it reads
                process.stdin.flush()
                process.terminate()
            err = process.stderr.read()
            assert process.wait(60) == (128 - status if status < 0 else status) and err.startswith(text)
            assert err.count(b"\n") == 1


def test_closed_standard_input() -> None:
    with command("histogram", "-", preexec_fn=lambda: os.close(0)) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err == b"error: standard input: expected samples, got 0 bytes; did its writer fail?\n"
