"""Generated sources are files of the cache, and hold what they should."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from kernels.common import cache


def test_a_generated_source_is_that_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written once, and again if somebody changed it; elsewhere if the disk is full."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = cache.cached_source("// one")
    assert path.read_text() == "// one" and path.parent == tmp_path / "baru" and cache.cached_source("// two") != path
    before = path.stat()
    assert cache.cached_source("// one") == path and path.stat() == before and stat.S_IMODE(before.st_mode) == 0o600
    path.write_text("// other")
    assert cache.cached_source("// one").read_text() == "// one"
    write = cache.write_private_file

    def full(folder: int, name: str, content: bytes) -> None:
        if os.path.samestat(os.fstat(folder), path.parent.stat()):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(folder, name, content)

    monkeypatch.setattr(cache, "write_private_file", full)
    monkeypatch.setattr(cache, "warn_once", lambda *_: None)
    elsewhere = cache.cached_source("// three")
    assert elsewhere.read_text() == "// three" and elsewhere.parent != path.parent
