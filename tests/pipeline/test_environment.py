"""The command in its users' environments, which are not those of a developer: locales, a system without /proc."""

from __future__ import annotations

import csv
import errno
import os
import resource
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

import pipeline
from pipeline.errors import unexpected
from pipeline.report.result_file import render

ECG = str(Path(__file__).parents[2] / "data" / "ecg.npy")


@pytest.mark.parametrize("job", ["histogram", "reduce"])
def test_locale_without_utf_8(job: str, tmp_path: Path) -> None:
    """Constants are read from sources whose comments have mathematical signs."""
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-m", "pipeline", job, ECG, "-o", tmp_path / "result.json"],
                          capture_output=True, env={**os.environ, **locale}, timeout=100)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_proc() -> None:
    program = """if True:
        import os
        real = os.path.exists
        os.path.exists = lambda path: not str(path).startswith("/proc/") and real(path)
        from pipeline.__main__ import main
        main(["histogram", "x.bin"])
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (
        1,
        "error: expected /proc, got none; mount it: mount -t proc proc /proc\n",
    )


def test_working_folder_that_was_removed(tmp_path: Path) -> None:
    """Files are found by their whole path only."""
    result = tmp_path / "result.json"
    program = """if True:
        import os, sys
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
        from pipeline.__main__ import main
        main(sys.argv[1:])
    """
    done = [subprocess.run([sys.executable, "-c", program, "histogram", path, "-o", result], capture_output=True,
                           text=True, timeout=100, cwd=tmp_path) for path in (ECG, "ecg.npy")]  # fmt: skip
    assert (done[0].returncode, done[0].stderr) == (0, "") and done[0].stdout.startswith(f"histogram of {ECG} (uint16)")
    assert (done[1].returncode, done[1].stderr) == (1, "error: expected a working folder, got one that was removed; go "
                                                    "to another one (cd), or name whole paths\n")  # fmt: skip


@pytest.mark.parametrize(
    ("error", "remedy"), [(OSError(errno.EMFILE, "Too many open files", "x.py"), "ulimit -n"),
                          (RuntimeError("can't start new thread"), "ulimit -u")],
)  # fmt: skip
def test_limits_are_named(error: Exception, remedy: str) -> None:
    line = unexpected(error)
    assert remedy in line and "python -X dev" not in line


def test_library_that_cannot_be_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `ulimit -v` an import says no more than that it failed."""
    assert "ulimit" not in unexpected(ImportError())
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (400_000 * 1024, resource.RLIM_INFINITY))
    assert unexpected(ImportError()) == (
        "expected to import all modules, got 'no reason' under a limit of 409,600,000 bytes; if the module is "
        "installed, raise the limit (ulimit -v)"
    )


def test_malformed_configuration_of_dask(tmp_path: Path) -> None:
    """Dask's message has many lines: the first says which file, those behind it where."""
    (tmp_path / "a.yaml").write_text("distributed:\n  - : [\n")
    done = subprocess.run([sys.executable, "-m", "pipeline", "reduce", ECG], capture_output=True, text=True,
                          timeout=100, env={**os.environ, "DASK_CONFIG": str(tmp_path)})  # fmt: skip
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert f"{tmp_path / 'a.yaml'}" in done.stderr and "line 2, column 5" in done.stderr


@pytest.mark.parametrize("suffix", ["csv", "parquet", "h5", "json", "zip", "npz", "png"])
def test_rows_of_files_with_any_name(suffix: str, tmp_path: Path) -> None:
    """Result files hold text; of a name that is none, escapes."""
    names = [os.fsdecode(tmp_path.name.encode() + b"\xe9.npy"), "\u00fc\n$.npy"]
    for name in names:
        (tmp_path / name).write_bytes(Path(ECG).read_bytes())
    rows = pipeline.run("histogram", *(str(tmp_path / name) for name in names), by="file", bins=4, device="cpu")
    assert rows.names == [str(tmp_path / tmp_path.name) + r"\xe9.npy", str(tmp_path / names[1])]
    content = render(f"x.{suffix}", rows)
    if suffix == "csv":
        lines = [*csv.reader(StringIO(content.decode(), newline=""))]
        assert {line[0] for line in lines[1:]} == set(rows.names)


def test_list_of_jobs_with_any_name(tmp_path: Path) -> None:
    """Names of files are bytes."""
    path = tmp_path / os.fsdecode(b"j\xe9.toml")
    path.write_text(f'[[jobs]]\njob = "reduce"\nfiles = ["{ECG}"]\n')
    done = subprocess.run([sys.executable, "-m", "pipeline", "run", path], capture_output=True, timeout=100,
                          env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})  # fmt: skip
    assert done.returncode == 0 and b"1 of 1 job" in done.stdout, done.stderr
