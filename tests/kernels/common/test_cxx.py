"""C++ kernels for the CPU: how they are compiled and cached, and the fallback without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

import pipeline
from kernels.common import cxx, nvrtc

SOURCE = '#include "more.hpp"\nextern "C" int answer() { return %d + MORE; }'


def forget() -> None:
    """Clear the caches, as in a process that has loaded nothing."""
    for function in (cxx._library, cxx.compiler, cxx.features):
        function.cache_clear()


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private folder of sources with a function to compile; compiled code is not kept after the test."""
    if cxx.compiler() is None:
        if os.environ.get("CI") == "true":
            raise RuntimeError("expected a C++ compiler")
        pytest.skip("no C++ compiler")
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "answer.cpp").write_text(SOURCE % 42)
    (folder / "more.hpp").write_text("enum { MORE = 0 };")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", shutil.which("c++") or "")
    forget()
    yield folder
    forget()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Command lines of compilers that were run."""
    commands: list[Sequence[str]] = []
    run = cxx._run
    monkeypatch.setattr(cxx, "_run", lambda command: (commands.append(command), run(command)))
    return commands


def answer(sources: Path) -> int | None:
    """Result of the function in a process that has loaded nothing."""
    forget()
    library = cxx.library(sources / "answer.cpp")
    return None if library is None else int(library.answer())


def elsewhere(sources: Path) -> list[str]:
    """The same as a command."""
    code = f"""
import pathlib
from kernels.common import cxx
from pipeline.storage import read_runs
print(cxx.library(pathlib.Path({str(sources / "answer.cpp")!r})).answer())
"""
    return [sys.executable, "-c", code]


def kept(sources: Path) -> list[Path]:
    return sorted((sources.parent / "cache" / "baru").iterdir())


def script(folder: Path, text: str) -> str:
    """A compiler."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_it_is_compiled_once(sources: Path, runs: list[Sequence[str]]) -> None:
    assert [answer(sources), answer(sources)] == [42, 42]
    assert len(runs) == 1 and set(cxx.OPTIONS) <= set(runs[0])
    assert [path.suffix for path in kept(sources)] == [".so"]
    assert cxx.library(sources / "answer.cpp") is cxx.library(sources / "answer.cpp")


def test_whatever_it_is_made_from_is_told_apart(
    sources: Path, runs: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source, headers, options, the CPU, the compiler and its arguments."""
    assert answer(sources) == 42
    (sources / "more.hpp").write_text("enum { MORE = 2 };")
    assert answer(sources) == 44
    (sources / "answer.cpp").write_text(SOURCE % 41)
    assert answer(sources) == 43
    monkeypatch.setattr(cxx, "OPTIONS", (*cxx.OPTIONS, "-O1"))
    assert answer(sources) == 43
    with monkeypatch.context() as patch:
        patch.setattr(cxx, "features", lambda: "another")
        cxx._library.cache_clear()
        assert cxx.library(sources / "answer.cpp")
    wrapper = script(sources, f'exec {cxx.compiler()[0]} "$@"')  # type: ignore[index]
    monkeypatch.setenv("CXX", wrapper)
    assert answer(sources) == 43
    monkeypatch.setenv("CXX", f"{wrapper} -O0")
    assert answer(sources) == 43
    assert runs[-1][:2] == [wrapper, "-O0"]
    os.utime(wrapper, ns=(0, 0))  # as if it were another version
    assert answer(sources) == 43
    assert len(runs) == len(kept(sources)) == 8
    assert answer(sources) == 43 and len(runs) == 8


@pytest.mark.parametrize("left", [0, 1, cxx.SEAL, -cxx.SEAL, -1])
def test_library_that_was_cut_short_is_compiled_again(sources: Path, runs: list[Sequence[str]], left: int) -> None:
    """Loading it might crash the process."""
    subprocess.run(elsewhere(sources), check=True)
    (path,) = kept(sources)
    content = path.read_bytes()
    path.write_bytes(content[:left])
    assert answer(sources) == 42 and len(runs) == 1
    assert path.stat().st_size == len(content) and kept(sources) == [path]


def test_without_a_compiler_there_is_none(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cxx.expected(sources / "answer.cpp") and not cxx.expected(sources / "missing.cpp")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert answer(sources) is None and not cxx.expected(sources / "answer.cpp")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(sources))
    assert answer(sources) is None and not cxx.expected(sources / "answer.cpp")
    for name in cxx.COMPILERS:
        shutil.move(script(sources, "exit 1"), sources / name)
    forget()
    assert cxx.compiler() == (str(sources / "c++"),)


def test_compiler_that_fails_says_nothing(
    sources: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (sources / "answer.cpp").write_text("no C++")
    assert answer(sources) is None
    monkeypatch.setenv("CXX", script(sources, "echo said; echo cried >&2; exit 3"))
    assert answer(sources) is None
    monkeypatch.setenv("CXX", script(sources, "exit 0"))  # and nothing is created
    assert answer(sources) is None
    monkeypatch.setenv("CXX", script(sources, 'while [ "$1" != -o ]; do shift; done; echo text > "$2"'))  # no library
    assert answer(sources) is None
    assert capfd.readouterr() == ("", "")
    assert all(path.suffix == ".so" for path in kept(sources))


def test_compiler_that_does_not_end_is_ended(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", script(sources, f"sleep 3600 & echo $! > {sources}/child; wait"))
    monkeypatch.setattr(cxx, "SECONDS", 0.5)
    began = time.monotonic()
    assert answer(sources) is None
    assert time.monotonic() - began < 20
    child = int((sources / "child").read_text())
    deadline = time.monotonic() + 20  # a busy machine takes a while to end what was killed
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert kept(sources) == []


def test_processes_compile_at_the_same_time(sources: Path) -> None:
    several = [subprocess.Popen(elsewhere(sources), stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in several] == ["42\n"] * 3
    assert len(kept(sources)) == 1


def test_features_are_those_of_one_processor() -> None:
    got = cxx.features()
    assert got.count("\n") <= 1 and len(got) > len(os.uname().machine)


def test_kernels_are_compiled_here() -> None:
    """Without a warning, if there is a compiler."""
    words = cxx.compiler()
    if words is None:
        pytest.skip("no C++ compiler")
    sources = [*nvrtc.KERNELS.glob("*/*.cpp"), *Path(pipeline.__file__).parent.glob("*/*.cpp")]
    assert len(sources) > 3
    for source in sources:
        assert cxx.library(source) is not None
        command = [*words, *cxx.OPTIONS, "-Wall", "-Wextra", "-Werror", str(source)]
        done = subprocess.run([*command, "-o", os.devnull], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
