"""A test that hangs ends, however it hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from tests import watchdog

watchdog.GRACE = 0.5

def pytest_configure(config):
    config.pluginmanager.register(watchdog.Watchdog(config))
"""
HANGS = {
    "the GIL is held": """
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    """,
    "the signal is blocked": """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        threading.Event().wait()
    """,
    "the handler's exception is ignored": """
        class Ends:
            def __del__(self):
                threading.Event().wait()
        Ends()
        threading.Event().wait()
    """,
    "a fixture is torn down after a failure": """
        request.addfinalizer(threading.Event().wait)
        assert False
    """,
    "a thread stays": """
        threading.Thread(target=threading.Event().wait).start()
    """,
}


@pytest.mark.parametrize("how", HANGS)
def test_a_test_that_hangs_ends(how: str, tmp_path: Path) -> None:
    head = "import ctypes, signal, threading\ndef test_that_hangs(request):"
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_that_hangs.py").write_text(head + HANGS[how])
    command = [sys.executable, "-m", "pytest", "--timeout", "0.5", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60)
    assert done.returncode and "Timeout (0:00:0" in done.stderr, done.stdout + done.stderr
