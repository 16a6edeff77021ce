"""C++ kernels for the CPU: how they are compiled and cached, and the fallback without a compiler."""

from __future__ import annotations

import errno
import hashlib
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
from kernels.common import cache, cxx, messages, nvrtc

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
    monkeypatch.delenv(messages.GIVEN, raising=False)
    monkeypatch.setattr(cxx, "_hung", set())
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


@pytest.mark.parametrize("left", [0, 1, cache.SEAL, -cache.SEAL, -1])
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


@pytest.mark.parametrize(
    ("named", "told"),
    [("g++ \"", "expected a compiler and its options, got 'g++ \"': No closing quotation"),
     ("no-such-compiler -O3", "expected a compiler, found no 'no-such-compiler -O3'"), ("''", "found no \"''\"")],
)  # fmt: skip
def test_compiler_that_cannot_be_meant(
    sources: Path, named: str, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line, however many libraries there are."""
    monkeypatch.setenv("CXX", named)
    assert answer(sources) is None and answer(sources) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("warning: CXX: ") and told in line and "\n" not in line


@pytest.mark.parametrize("text", ["", 'extern "C" int other() { return 1; }'])
def test_library_without_its_functions_is_not_used(sources: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (sources / "other.cpp").write_text(text)
    made = f"c++ -shared -fPIC {sources}/other.cpp -o $last"
    monkeypatch.setenv("CXX", script(sources, f"for word; do last=$word; done; exec {made}"))
    assert answer(sources) is None
    assert len(kept(sources)) == 1
    monkeypatch.setenv("CXX", f"{shutil.which('c++')} -fvisibility=hidden")
    assert answer(sources) is None


def test_functions_that_a_source_exports() -> None:
    text = """
static int before(int x) { return x; }
extern "C" size_t* one(int x) {
    if (x) return 0;
}
extern "C" {

void two(int a,
         int b) {
    switch (a) {}
}

const char *three() { return f(1); }
}
"""
    assert cxx.functions(text) == ["one", "two", "three"]


@pytest.mark.parametrize("how", ["link", "mode", "hidden by a folder"])
def test_library_that_somebody_may_have_put_there_is_not_run(
    sources: Path, how: str, runs: list[Sequence[str]]
) -> None:
    """It would answer 13, with the right name and checksum."""
    subprocess.run(elsewhere(sources), check=True)
    (path,) = kept(sources)
    bad = sources / "bad.so"
    (sources / "bad.cpp").write_text('extern "C" int answer() { return 13; }')
    subprocess.run(["c++", "-shared", "-fPIC", sources / "bad.cpp", "-o", bad], check=True)
    content = bad.read_bytes()
    bad.write_bytes(content + hashlib.sha256(content).digest())
    path.unlink()
    if how == "link":
        path.symlink_to(bad)
    elif how == "mode":
        shutil.copy(bad, path)
        path.chmod(0o666)
    else:
        shutil.copy(bad, path)
        path.chmod(0o600)
        path.parent.chmod(0o777)
    assert answer(sources) == 42 and len(runs) == 1


def test_libraries_are_told_apart(sources: Path) -> None:
    """The system's loader knows them by the name that they are loaded by."""
    for number in range(5):
        (sources / f"{number}.cpp").write_text(SOURCE % number)
    libraries = [cxx.library(sources / f"{number}.cpp") for number in range(5)]
    assert [library and library.answer() for library in libraries] == list(range(5))


def test_full_disk_of_the_cache(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cxx, "write_cached", full)
    assert answer(sources) == 42 and kept(sources) == []


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


def test_compiler_that_does_not_end_is_ended(
    sources: Path, runs: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The user is told what is waited for, once; further libraries do not wait for it again. Its files are removed."""
    monkeypatch.setenv("TMPDIR", str(sources))
    text = f"echo > $TMPDIR/its.s; echo $TMPDIR > {sources}/where; sleep 3600 & echo $! > {sources}/child; wait"
    monkeypatch.setenv("CXX", script(sources, text))
    monkeypatch.setattr(cxx, "SECONDS", 0.6)
    monkeypatch.setattr(cxx, "PATIENCE_SECONDS", 0.3)
    began = time.monotonic()
    assert answer(sources) is None
    shutil.copy(sources / "answer.cpp", sources / "another.cpp")
    assert cxx.library(sources / "another.cpp") is None and len(runs) == 1
    assert time.monotonic() - began < 20
    assert [record.getMessage() for record in caplog.records] == [
        f"warning: waiting up to 0.6 s for {sources}/compiler to compile; without it NumPy computes, slower, the same "
        "bits"
    ]
    child = int((sources / "child").read_text())
    deadline = time.monotonic() + 20  # a busy machine takes a while to end what was killed
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert kept(sources) == [] and not Path((sources / "where").read_text().strip()).exists()


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
        library = cxx.library(source)
        assert library is not None
        names = cxx.functions(source.read_text(encoding="utf-8"))
        assert names and all(hasattr(library, name) for name in names)
        command = [*words, *cxx.OPTIONS, "-Wall", "-Wextra", "-Werror", str(source)]
        done = subprocess.run([*command, "-o", os.devnull], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
