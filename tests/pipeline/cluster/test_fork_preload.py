"""What the fork server's workers inherit: uncaught exceptions of a new worker, unless its server was killed."""

from __future__ import annotations

import os
import pickle
from multiprocessing import forkserver
from pathlib import Path

import pytest

from pipeline.cluster.fork_server import WORKER, fork_server


def tell_a_new_worker(sent: bytes) -> None:
    """Start a worker, and wait until it has failed."""
    with fork_server(WORKER):
        answers, tells = forkserver.connect_to_new_process(())
        os.write(tells, sent)
        os.close(tells)
        while (read := forkserver.read_signed(answers)) != 1:  # its process number, then its status
            assert read > 1
        os.close(answers)


@pytest.mark.parametrize("sent", [b"", b"\x80\x04"])
def test_worker_that_is_told_nothing_ends_in_silence(sent: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    """As where the server is killed while a worker starts, so that this process sends it no more."""
    tell_a_new_worker(sent)
    assert capfd.readouterr() == ("", "")


def test_exception_of_the_main_module_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A worker imports the main module of a program, which may ask for input that nobody types."""
    (tmp_path / "program.py").write_text("raise EOFError('planted')")
    tell_a_new_worker(pickle.dumps({"init_main_from_path": str(tmp_path / "program.py")}))
    assert "EOFError: planted" in capfd.readouterr().err
