"""How slices are told from patterns and names, what is refused in one line, and what `info` says of them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.engine.journal_request import Request
from pipeline.errors import UsageError
from pipeline.storage.describe import describe
from pipeline.storage.sources import open_source
from tests.cases.files import refused
from tests.cases.format_files import CASES
from tests.cases.slices import CUBE, read


def test_patterns_lists_and_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice ends the name, and what is before it exists or is a pattern; each file is cut by itself."""
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        np.save(f"run-{number}.npy", np.arange(10 * number, 10 * number + 10))
    assert read("run-*.npy[2:4]").tolist() == [2, 3, 12, 13, 22, 23]
    assert read("run-[01].npy").tolist() == [*range(20)]
    assert read("run-[01].npy[::5]").tolist() == [0, 5, 10, 15]
    Path("list.txt").write_text("run-2.npy[0]\nrun-0.npy[8:]\n")
    assert read("@list.txt").tolist() == [20, 8, 9]
    np.savez("a.npz", **{"x": np.arange(9), "y[1:3]": np.zeros(4, int), "run-[01]": np.ones(2, int)})
    assert read("a.npz::x[::4]").tolist() == [0, 4, 8]
    assert read("a.npz::y[1:3]").tolist() == [0] * 4
    assert read("a.npz::y[1:3][1]").tolist() == [0]
    assert read("a.npz::run-[01]").tolist() == [1, 1]


def test_names_with_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, number in {
        "x.npy": 1,
        "x.npy[1:3]": 2,
        "run-1": 3,
        "run-2": 4,
        "b[1]": 5,
        "c-1[2]": 6,
        "c-2[2]": 7,
    }.items():
        with open(name, "wb") as file:
            np.save(file, np.full(5, number))
    assert read("x.npy[1:3]").tolist() == [2] * 5  # a file has this name
    assert read("x.npy[1:4]").tolist() == [1] * 3
    assert read("run-[12]").tolist() == [3] * 5 + [4] * 5
    assert read("run-[0-9]").tolist() == [3] * 5 + [4] * 5
    assert read("b[1]").tolist() == [5] * 5
    assert read("b[1][2:]").tolist() == [5] * 3
    assert read("c-[12][[]2]").tolist() == [6] * 5 + [7] * 5
    np.save("run-.npy", np.full(5, 8))
    os.rename("run-.npy", "run-")
    assert read("run-[3]").tolist() == [8]  # what is before a slice exists
    assert read("run-[0-9]").tolist() == [3] * 5 + [4] * 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1, 2, 3, 4", "expected at most 3 indices for shape (7, 11, 13), got 4"),
        ("7", "expected an index from -7 to 6 along axis 0, got 7"),
        (":, -12", "expected an index from -11 to 10 along axis 1, got -12"),
        ("::-1", "expected a step of 1 or more along axis 0, got -1; files are read forwards"),
        ("::0", "expected a step of 1 or more along axis 0, got 0"),
        ("5:5", "expected samples, got an empty array of shape (0, 11, 13)"),
        ("a", "expected a slice like [1000:5000], [:, 3] or [::10], got [a]"),
        ("", "expected a slice like"), ("1.5", "expected a slice like"), ("..., 1, ...", "expected a slice like"),
        ("1:2:3:4", "expected a slice like"), (",", "expected a slice like"), ("None", "expected a slice like"),
        ("9" * 30, "expected a slice like"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, text: str, expected: str) -> None:
    np.save(tmp_path / "x.npy", CUBE)
    assert f"{tmp_path}/x.npy[{text}]: {expected}" in refused(UsageError, f"{tmp_path}/x.npy[{text}]")


def test_missing_file_and_standard_input(tmp_path: Path) -> None:
    assert "expected at least one file to match, got none" in refused(UsageError, tmp_path / "y.npy[1:3]")
    assert "expected a file, got standard input, which is read in order" in refused(UsageError, "-[1:3]")
    written = CASES["npz deflated"].written(tmp_path)
    with pytest.raises(UsageError, match="expected an array that is stored in one piece"):
        pipeline.run("transpose", f"{written.item}[::2]", output=tmp_path / "t.npy")
    assert "expected a member 'second[a]'" in refused(UsageError, f"{written.item}[a]")


def test_info(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", CUBE)
    written = CASES["npz deflated"].written(tmp_path)
    for item, expected in {
        f"{tmp_path}/x.npy[:, 3]": CUBE[:, 3],
        f"{written.item}[5, :, 2:8]": written.array[5, :, 2:8],
    }.items():
        (described,) = describe(item)
        (member,) = described.members
        assert (member.dtype, member.shape) == (expected.dtype, expected.shape)
        command = described.command(member)
        assert command is not None and shlex.split(command)[4] == item


@pytest.mark.usefixtures("shared")
def test_rows(tmp_path: Path) -> None:
    """Of a slice, with its own name; --axis needs C order, also of slices and of parts."""
    np.save(tmp_path / "x.npy", CUBE)
    np.save(tmp_path / "f.npy", np.asfortranarray(CUBE))
    np.save(tmp_path / "c.npy", np.asfortranarray(CUBE[0].astype("c8")))
    view = CUBE[1::2, ::3]
    rows = pipeline.run("reduce", f"{tmp_path}/x.npy[1::2, ::3]", op="sum", axis=1, device="cpu")
    np.testing.assert_array_equal(rows.arrays()["sum"].ravel(), view.sum(axis=1).ravel())
    items = f"{tmp_path}/x.npy[0]", f"{tmp_path}/x.npy[1, ::2]"
    rows = pipeline.run("reduce", *items, op="sum", by="file", device="cpu")
    assert rows.arrays()["sum"].tolist() == [CUBE[0].sum(), CUBE[1, ::2].sum()]
    for item, how in (("f.npy[1::2, ::3]", {}), ("f.npy[1:5]", {}), ("c.npy", {"part": "real"})):
        with pytest.raises(UsageError, match="--axis: expected an array in C order, got"):
            pipeline.run("reduce", f"{tmp_path}/{item}", op="sum", axis=0, **how)


def test_a_run_is_continued_with_the_same_slice_only(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", CUBE)

    def key(text: str) -> str:
        source = open_source((f"{tmp_path}/x.npy{text}",))
        return Request((("reduce", None),), (source,), (), "auto", None).key()

    assert len({key(text) for text in ("", "[:4]", "[:5]", "[4:5]", "[4]", "[4, :]")}) == 6
    assert key("[:4]") == key("[:4]")
