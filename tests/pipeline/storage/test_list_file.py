"""`@FILE` stands for the names in a file, in their order, for every format and job; what is no list is one line."""

from __future__ import annotations

import os
from pathlib import Path

import click
import numpy as np
import pytest

import pipeline
from pipeline.cli.main import cli
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.describe import describe
from pipeline.storage.list_file import MOST_BYTES
from pipeline.storage.sources import open_source
from tests.cases.files import refused, values_of
from tests.cases.format_files import CASES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files whose numbers are those in their names."""
    (tmp_path / "a b").mkdir()
    for number, name in enumerate(["1.bin", "a b/2.bin", "3.bin", "#4.bin", "run-5.bin", "run-6.bin"], 1):
        np.full(2, number, "<i4").tofile(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, encoding: str = "utf-8") -> list[int]:
    """The file numbers that a list has, in its order."""
    Path("list.txt").write_text(text, encoding, newline="")
    values: list[int] = values_of(open_source(("@list.txt",))).tolist()
    assert values[::2] == values[1::2]
    return values[::2]


def test_names_in_their_order(folder: Path) -> None:
    assert read("3.bin\n\n  # a comment\n1.bin\n./#4.bin\n3.bin") == [3, 1, 4, 3]
    assert read("a b/2.bin\r\n  1.bin \r\n") == [2, 1]
    assert read("3.bin\n", "utf-8-sig") == [3]
    assert read(f"{folder}/1.bin\nrun-*.bin\n") == [1, 5, 6]
    assert [file.path for file in describe("@list.txt")] == [
        str(folder / name) for name in ("1.bin", "run-5.bin", "run-6.bin")
    ]


def test_names_are_meant_from_the_current_folder(folder: Path) -> None:
    (folder / "a b" / "list.txt").write_text("1.bin")
    assert values_of(open_source(("3.bin", "@a b/list.txt"))).tolist() == [3, 3, 1, 1]


def test_name_of_any_bytes(folder: Path) -> None:
    name = os.fsdecode(b"\xff\xfe.bin")
    np.full(2, 9, "<i4").tofile(name)
    (folder / "list.txt").write_bytes(b"\xff\xfe.bin\n")
    assert values_of(open_source(("@list.txt",))).tolist() == [9, 9]


def test_file_that_is_called_so(folder: Path) -> None:
    np.full(2, 8, "<i4").tofile("@1.bin")
    assert values_of(open_source(("@1.bin",))).tolist() == [8, 8]
    assert read("@1.bin\n1.bin") == [8, 1]


@pytest.mark.parametrize("name", ["npz stored", "hdf5 deflate", "zarr 3", "arrow", "flac of 16 bits", "sigmf"])
@pytest.mark.usefixtures("shared")
def test_formats(tmp_path: Path, name: str) -> None:
    items = []
    for number in "12":
        (tmp_path / number).mkdir()
        written = CASES[name].written(tmp_path / number)
        items.append(written.item)
    (tmp_path / "list.txt").write_text("\n".join(items))
    result = pipeline.run("reduce", f"@{tmp_path}/list.txt", op="sum,count,argmax", device="cpu")
    twice = np.tile(written.array.reshape(-1), 2)
    assert result.values["count"] == twice.size and result.values["argmax"] == twice.argmax()


@pytest.mark.usefixtures("shared")
def test_jobs_that_write_an_array(tmp_path: Path) -> None:
    """A list is one array, concatenated; each operand may have its own."""
    a, b = np.arange(12.0).reshape(4, 3), np.arange(6.0).reshape(3, 2)
    for name, part in {"a1": a[:1], "a2": a[1:], "b": b}.items():
        np.save(tmp_path / f"{name}.npy", part)
    (tmp_path / "a.txt").write_text(f"{tmp_path}/a1.npy\n{tmp_path}/a2.npy\n")
    (tmp_path / "b.txt").write_text(f"{tmp_path}/b.npy\n")
    product = pipeline.run("matmul", f"@{tmp_path}/a.txt", f"@{tmp_path}/b.txt", output=tmp_path / "c.npy")
    np.testing.assert_array_equal(product.array, a @ b)
    turned = pipeline.run("transpose", f"@{tmp_path}/a.txt", output=tmp_path / "t.npy")
    np.testing.assert_array_equal(turned.array, a.T)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "@list.txt: expected a text file with a path on each line, got none there; check the path after @"),
        (b"", "list.txt: expected a path on each line, got none"),
        (b"# nothing\n\n", "list.txt: expected a path on each line, got none"),
        (b"\x93NUMPY\1\0", "list.txt: expected a text file with a path on each line, got null bytes"),
        (b"1.bin\n@other.txt", "list.txt: expected files, got another list on line 2, '@other.txt'; name it on the"),
        (b"1.bin\n@list.txt", "got another list on line 2, '@list.txt'"),
        (b"#\n-\n", "list.txt: expected files, got standard input on line 2, '-'"),
        (b"-::x", "got standard input on line 1"),
        (b"1.bin\n7.bin", "7.bin: expected a file of samples, found none there"),
        (b"7-*.bin", "7-*.bin: expected at least one file to match, got none"),
    ],
)
def test_what_is_no_list(content: bytes | None, expected: str) -> None:
    if content is not None:
        Path("list.txt").write_bytes(content)
    assert expected in refused(UsageError, "@list.txt")


def test_too_long_and_no_file(folder: Path) -> None:
    with open("list.txt", "wb") as file:
        file.write(b"a" * 100)
        file.truncate(MOST_BYTES + 1)
    assert "got null bytes" in refused(UsageError, "@list.txt")
    (folder / "list.txt").write_bytes(b"1.bin\n" * (MOST_BYTES // 6 + 1))
    assert "list.txt: expected a text file with a path on each line, got more than 64 MiB" in refused(
        UsageError, "@list.txt"
    )
    os.mkfifo("pipe")  # nobody waits for it
    for name in ("pipe", "a b"):
        assert "got something else" in refused(UsageError, f"@{name}")
    assert "got a URL; fetch the list first" in refused(UsageError, "@https://host/list.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(folder: Path) -> None:
    (folder / "list.txt").write_text("1.bin")
    (folder / "list.txt").chmod(0)
    assert "expected a list that can be read, got 'Permission denied'" in refused(PipelineError, "@list.txt")


@pytest.mark.usefixtures("folder", "shared")
def test_list_is_not_overwritten() -> None:
    Path("list.json").write_text("1.bin\n3.bin\n")
    with pytest.raises(click.ClickException, match=r"list\.json"):
        cli.main(["reduce", "@list.json", "-o", "list.json"], standalone_mode=False)
    assert Path("list.json").read_text() == "1.bin\n3.bin\n"
    with pytest.raises(click.ClickException, match=r"list\.npy"):
        Path("list.npy").write_text("1.bin")
        cli.main(["transpose", "@list.npy", "-o", "list.npy"], standalone_mode=False)
