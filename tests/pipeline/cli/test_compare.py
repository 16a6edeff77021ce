"""`python -m pipeline compare`: formats, lengths, byte orders, what it prints, exit statuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import pipeline.compare
import pipeline.storage.blocks
from pipeline.cli.main import cli

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", 1000)
    return tmp_path


def compared(*words: str) -> tuple[int, str]:
    """Exit status and what was printed."""
    done = CliRunner().invoke(cli, ["compare", *words])
    return done.exit_code, done.stdout


def as_json(*words: str) -> dict[str, Any]:
    status, out = compared(*words, "--json")
    document: dict[str, Any] = json.loads(out)
    assert status == (0 if document["equal"] else 1)
    return document


def save(**arrays: Any) -> None:
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)


@pytest.mark.usefixtures("folder")
def test_equal() -> None:
    a = np.arange(5000, dtype=np.float32)
    save(a=a, b=a.astype(">f4"))
    a.tofile("raw.bin")
    assert compared("a.npy", "b.npy") == (0, "a.npy and b.npy are equal: 5,000 samples of float32, shape (5000,)\n")
    assert compared("a.npy", "raw.bin", "--dtype", "float32")[0] == 0
    assert as_json("a.npy", "b.npy") == {
        "equal": True, "as_values": False, "compared": 5000, "differing": 0, "first": None, "values": [], "bits": [],
        "inputs": [{"file": f"{name}.npy", "dtype": "float32", "shape": [5000]} for name in "ab"],
        "largest_ulp": None, "nan": 0,
    }  # fmt: skip


@pytest.mark.usefixtures("folder")
def test_formats() -> None:
    h5py = pytest.importorskip("h5py")
    a = np.random.default_rng(0).integers(0, 99, (70, 30)).astype("int16")
    save(a=a)
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("x", data=a, chunks=(9, 11), compression="gzip")
        other = a.copy()
        other[61, 29] += 7
        file.create_dataset("y", data=other, chunks=(64, 30))
    assert compared("a.npy", "a.h5::x")[0] == 0
    got = as_json("a.h5::y", "a.h5::x")
    assert (got["first"], got["differing"], got["largest_ulp"]) == ([61, 29], 1, 7)
    assert got["values"] == [int(other[61, 29]), int(a[61, 29])]


@pytest.mark.usefixtures("folder")
def test_single_numbers() -> None:
    """They have no axes, however they are stored: as byte runs, chunks or deflated."""
    h5py = pytest.importorskip("h5py")
    a = np.arange(5)
    save(a=a, number=a[3])
    np.savez_compressed("deflated.npz", x=a[3])
    np.savez("stored.npz", x=a[3])
    with h5py.File("a.h5", "w") as file:
        file["number"] = a[3]
        file.create_dataset("chunks", data=a, chunks=(2,))
    every = ["number.npy", "a.npy[3]", "stored.npz", "deflated.npz", "a.h5::number", "a.h5::chunks[3]"]
    for name in every:
        assert as_json(name, "number.npy")["inputs"] == [
            {"file": one, "dtype": "int64", "shape": []} for one in (name, "number.npy")
        ]
    assert as_json("a.npy[3:4]", "number.npy")["equal"] is False


@pytest.mark.usefixtures("folder")
def test_where_and_by_how_much() -> None:
    a = np.ones((100, 30))
    b = a.copy()
    b[3, 7], b[99, 29] = np.nextafter(1, 2), np.nan
    save(a=a, b=b)
    status, out = compared("a.npy", "b.npy")
    assert (status, out.splitlines()) == (1, [
        "a.npy and b.npy differ",
        "  2 of the 3,000 samples differ",
        "  first at [3, 7]: 1.0 (0x3ff0000000000000) and 1.0000000000000002 (0x3ff0000000000001)",
        "  largest distance: 1 ulp",
        "  1 of them are NaN on one side or both, without a distance",
    ])  # fmt: skip
    got = as_json("b.npy", "a.npy")
    assert (got["first"], got["nan"], got["bits"][1]) == ([3, 7], 1, "0x3ff0000000000000")


@pytest.mark.usefixtures("folder")
def test_as_values() -> None:
    a = np.array([np.nan, 0.0, 5.0])
    b = a.copy()
    b.view("u8")[0] |= 99
    b[1] = -0.0
    save(a=a, b=b)
    assert compared("a.npy", "b.npy", "--as-values")[0] == 0
    got = as_json("a.npy", "b.npy")
    assert (got["differing"], got["nan"], got["largest_ulp"], got["values"]) == (2, 1, 0, ["nan", "nan"])
    assert got["bits"] == ["0x7ff8000000000000", "0x7ff8000000000063"]


@pytest.mark.usefixtures("folder")
def test_int64_distances_are_exact() -> None:
    save(a=np.array([-(2**63), 2**53]), b=np.array([2**63 - 1, 2**53 + 1]))
    got = as_json("a.npy", "b.npy")
    assert (got["largest_ulp"], got["values"]) == (2**64 - 1, [-(2**63), 2**63 - 1])


@pytest.mark.usefixtures("folder")
def test_shapes_and_dtypes() -> None:
    a = np.arange(3000, dtype=np.int32)
    b = a[:1999].copy()
    save(a=a, short=b, other=a.astype(np.int64), table=a.reshape(30, 100), empty=a[:0], none=a[:0])
    status, out = compared("a.npy", "short.npy")
    assert (status, out.splitlines()[1:]) == (
        1, ["  shapes differ: (3000,) and (1999,)", "  the first 1,999 samples are equal"])  # fmt: skip
    b[1500] = 0
    save(short=b)
    got = as_json("short.npy", "a.npy")
    assert (got["compared"], got["first"], got["equal"]) == (1999, [1500], False)
    status, out = compared("a.npy", "other.npy")
    assert (status, out.splitlines()[1:]) == (1, ["  dtypes differ: int32 and int64; no samples were compared"])
    status, out = compared("a.npy", "table.npy")
    assert (status, out.splitlines()[1]) == (1, "  shapes differ: (3000,) and (30, 100)")
    assert compared("empty.npy", "none.npy")[0] == 0
    assert compared("empty.npy", "a.npy") == (
        1,
        "empty.npy and a.npy differ\n  shapes differ: (0,) and (3000,)\n  the first 0 samples are equal\n",
    )


@pytest.mark.usefixtures("folder")
def test_blocks_that_end_elsewhere() -> None:
    """Several files against one; the first difference counts from the beginning."""
    a = np.random.default_rng(1).integers(0, 2**16, 9000).astype(np.uint16)
    for number, part in enumerate(np.split(a, [1, 777, 4000])):
        np.save(f"part-{number}.npy", part)
    save(a=a)
    assert compared("a.npy", "part-*.npy")[0] == 0
    for place in (0, 1, 776, 777, 3999, 8999):
        b = a.copy()
        b[place:] ^= 1
        save(b=b)
        got = as_json("b.npy", "part-*.npy")
        assert (got["first"], got["differing"]) == ([place], 9000 - place)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.npy", "gone.npy"], "gone.npy: expected a file"),
        (["gone.npy", "a.npy"], "gone.npy: expected a file"),
        (["a.npy", "torn.npy"], "torn.npy"),
        (["a.npy", "complex.npy"], "choose a part"),
        (["-", "-"], "standard input twice"),
        (["a.npy"], "expected B, got none; for example: "),
    ],
)
def test_errors_are_not_differences(words: list[str], message: str, folder: Path) -> None:
    """As those of cmp: 2."""
    save(a=np.arange(999), torn=np.arange(999), complex=np.ones(3, complex))
    (folder / "torn.npy").write_bytes((folder / "torn.npy").read_bytes()[:-9])
    done = CliRunner().invoke(cli, ["compare", *words])
    assert done.exit_code == 2 and message in done.stderr and done.stdout == ""


def test_a_failure_while_reading_is_no_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(a=np.arange(999))
    monkeypatch.setattr("pipeline.compare.read_blocks", lambda *_: 1 / 0)
    done = CliRunner().invoke(cli, ["compare", "a.npy", "a.npy"])
    assert done.exit_code == 2 and "compare failed: ZeroDivisionError" in done.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ["compare a.npy a.npy", "compare a.npy b.npy --json", "diff a.json a.json"])
def test_an_answer_that_nobody_can_read_is_no_difference(command: str) -> None:
    save(a=np.arange(9), b=np.arange(10))
    assert CliRunner().invoke(cli, ["reduce", "a.npy", "-o", "a.json"]).exit_code == 0
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "pipeline", *command.split()]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, "expected to write to standard output" in done.stderr) == (2, True)


def test_a_file_that_changes_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(a=np.arange(999), b=np.arange(999))
    read = pipeline.compare.read_blocks

    def changed(*arguments: Any) -> Any:
        yield from read(*arguments)
        with (folder / "b.npy").open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(pipeline.compare, "read_blocks", changed)
    done = CliRunner().invoke(cli, ["compare", "a.npy", "b.npy"])
    assert done.exit_code == 2 and "b.npy" in done.stderr


def test_standard_input(folder: Path) -> None:
    """Its length is known only afterwards."""
    a = np.arange(5000, dtype=np.int32)
    save(a=a)
    words = [sys.executable, "-m", "pipeline", "compare", "-", "a.npy", "--dtype", "int32"]
    for data, status, last in ((a, 0, "shape (5000,)"), (a[:-1], 1, "4,999 samples are equal"),
                               (np.append(a, 1), 1, "5,000 samples are equal")):  # fmt: skip
        done = subprocess.run(words, input=data.astype("<i4").tobytes(), stdout=subprocess.PIPE, timeout=60)
        assert (done.returncode, done.stdout.decode().strip().endswith(last)) == (status, True)
        if status:
            assert f"shapes differ: ({len(data)},) and (5000,)" in done.stdout.decode()


def test_npy_on_standard_input(folder: Path) -> None:
    """Its header says the shape, and the order of its elements."""
    a = np.arange(12).reshape(3, 4)
    save(a=a, flat=a.ravel(), fortran=np.asfortranarray(a))
    words = [sys.executable, "-m", "pipeline", "compare", "-"]
    for name, other, status, text in (
        ("a", "a", 0, "- and a.npy are equal: 12 samples of int64, shape (3, 4)"),
        ("flat", "a", 1, "shapes differ: (12,) and (3, 4)"),
        ("fortran", "a", 2, "compare: expected arrays in C order, got standard input in Fortran order"),
    ):
        with (folder / f"{name}.npy").open("rb") as file:
            done = subprocess.run([*words, f"{other}.npy"], stdin=file, capture_output=True, text=True, timeout=60)
        assert (done.returncode, text in done.stdout + done.stderr) == (status, True)


def test_programs_of_the_page(folder: Path) -> None:
    """They run, and the last command prints what is below it; test_examples.py runs the other commands."""
    (folder / "data").symlink_to(ROOT / "data")
    page = (ROOT / "docs/digest.md").read_text(encoding="utf-8")
    for program in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        exec(program, {})
    ((command, shown),) = re.findall(r"^```sh\n([^`]*)^```\n\n```\n([^`]*)^```", page, re.M)
    done = CliRunner().invoke(cli, command.split()[3:])
    assert (done.exit_code, done.stdout, done.stderr) == (1, shown, "")
