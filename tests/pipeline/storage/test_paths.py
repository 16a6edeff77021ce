"""A folder stands for all files below it: each once, in order, or one line and a table of what differs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.describe import describe
from pipeline.storage.paths import expand
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.files import values_of
from tests.cases.format_files import CASES


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files at several depths, hidden ones, and links."""
    for number, name in enumerate(
        ("b.bin", "a/z.bin", "a/b/c.bin", "B.bin", ".hidden.bin", ".hidden/a.bin", "b-10.bin")
    ):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.array([number] * 3, "<i4").tofile(path)
    (tmp_path / "outside").mkdir()
    np.array([100], "<i4").tofile(tmp_path / "outside" / "one.bin")
    return tmp_path / "tree"


def test_all_files_below_sorted(tree: Path) -> None:
    expected = [str(tree / name) for name in ("B.bin", "a/b/c.bin", "a/z.bin", "b-10.bin", "b.bin")]
    assert expand(str(tree), True) == expected == sorted(expected)
    source = open_source((str(tree),), recursive=True)
    assert values_of(source).tolist() == np.repeat([3, 2, 1, 6, 0], 3).tolist()
    assert expand(f"{tree.parent}/t*", True) == expected


def test_links(tree: Path) -> None:
    """To files they are followed, to folders not; a file with several names counts once."""
    (tree / "a" / "loop").symlink_to("..")
    (tree / "out").symlink_to("../outside")
    (tree / "c.bin").symlink_to("../outside/one.bin")
    (tree / "zzz.bin").symlink_to("b.bin")
    os.link(tree / "b.bin", tree / "again.bin")
    names = [os.path.relpath(path, tree) for path in expand(str(tree), True)]
    assert names == ["B.bin", "a/b/c.bin", "a/z.bin", "again.bin", "b-10.bin", "c.bin"]
    assert expand(str(tree / "out"), True) == [str(tree / "out" / "one.bin")]
    (tree / "d.bin").symlink_to("nowhere")
    with pytest.raises(UsageError, match=r"d\.bin: expected a file of samples, found none there"):
        open_source((str(tree),), recursive=True)


def test_two_stars(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand for folders below, not for links, however many lead back; no file counts twice."""
    (tree / "a" / "a").mkdir()
    os.link(tree / "b.bin", tree / "a" / "a" / "deep.bin")
    tree.joinpath("below", *"mnopqrstuvwx").mkdir(parents=True)  # 40 pairs of stars would match it in 10^11 ways
    expected = [str(tree / name) for name in ("B.bin", "a/a/deep.bin", "a/b/c.bin", "a/z.bin", "b-10.bin", "b.bin")]
    for name in ("loop", "again", "a/up"):
        (tree / name).symlink_to(tree)
    assert expand(f"{tree}/**/*.bin") == expand(f"{tree}/{'**/' * 40}*.bin") == expected
    assert expand(f"{tree}/**/a/**/*.bin") == expand(f"{tree.parent}/t*/a/**/*.bin") == expected[1:4]
    assert expand(f"{tree}/**", True) == expected[:-1]  # deep.bin is b.bin
    assert expand(f"{tree}/**/a", True) == expected[1:4]  # a/a is below a
    monkeypatch.chdir(tree)
    assert expand("**/*.bin") == expected
    assert open_source(("**/*.bin[1:3]",)).samples == 2 * len(expected)


@pytest.mark.parametrize("name", ["zarr 3", "sigmf", "npz stored"])
def test_a_store_or_a_recording_is_one_file(tmp_path: Path, name: str) -> None:
    for folder in ("1", "2"):
        (tmp_path / folder).mkdir()
        written = CASES[name].written(tmp_path / folder)
    member = f"::{written.item.partition('::')[2]}" if "::" in written.item else ""
    source = open_source((f"{tmp_path}{member}",), recursive=True)
    assert source.samples == 2 * written.array.size
    chunks = plan(source, 2**24, "off", 0)
    blocks = [block.copy() for chunk in chunks for block in read_blocks(chunk, Timeline())]
    np.testing.assert_array_equal(np.concatenate(blocks), np.tile(written.array.reshape(-1), 2))
    assert len(list(describe(str(tmp_path), recursive=True))) == 2


def test_damaged_store_is_not_taken_for_its_chunks(tmp_path: Path) -> None:
    written = CASES["zarr 3"].written(tmp_path)
    (Path(written.item) / "zarr.json").unlink()
    with pytest.raises(UsageError, match=r"a\.zarr: expected one array, got none"):
        open_source((str(tmp_path),), recursive=True)


def test_none(tmp_path: Path, tree: Path) -> None:
    (tmp_path / "empty" / ".a").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"empty: expected files below this folder, got none; hidden ones"):
        open_source((str(tmp_path / "empty"),), recursive=True)
    with pytest.raises(UsageError, match=r"got a directory; .* say --recursive for all files below"):
        open_source((str(tree),))


@pytest.mark.parametrize("item", ["", "::x", "[0:5]"])
def test_nothing_is_not_the_current_folder(tree: Path, monkeypatch: pytest.MonkeyPatch, item: str) -> None:
    """As of a variable of the shell that is not set."""
    monkeypatch.chdir(tree)
    with pytest.raises(UsageError):
        pipeline.run("digest", item, recursive=True)
    with pytest.raises(UsageError, match="got an empty one"):
        expand("", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_folder_that_cannot_be_read(tree: Path) -> None:
    (tree / "a" / "b").chmod(0)
    for pattern in (str(tree), f"{tree}/**/*.bin"):
        with pytest.raises(PipelineError, match=r"a/b: expected a folder that can be read, got 'Permission denied'"):
            expand(pattern, True)


def test_unreadable_folder_is_no_empty_one(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for pattern in (str(tree), f"{tree}/**/*.bin"):
        with pytest.raises(PipelineError, match=r"a/b: expected a folder that can be read, got 'Permission denied'"):
            expand(pattern, True)


def test_table_of_what_differs(tmp_path: Path) -> None:
    for name, array in {"a": np.arange(3), "b": np.arange(4), "c": np.ones(3, "f4"), "d": np.ones(5, ">f4"),
                        **{f"e{n}": np.arange(2) for n in range(9)}}.items():  # fmt: skip
        np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(UsageError, match=r"c\.npy: expected int64 as in .*a\.npy, got float32; run them") as caught:
        open_source((str(tmp_path),), recursive=True)
    lines = caught.value.__notes__
    assert lines == [
        f"  int64      11 files: {tmp_path}/a.npy, {tmp_path}/b.npy, {tmp_path}/e0.npy and 8 more",
        f"  float32      1 file: {tmp_path}/c.npy",
        f"  >f4          1 file: {tmp_path}/d.npy",
    ]


def test_table_of_shapes(tmp_path: Path) -> None:
    for name, shape in {"a": (3, 4), "b": (2, 4), "c": (3, 5)}.items():
        np.save(tmp_path / f"{name}.npy", np.ones(shape))
    with pytest.raises(UsageError, match=r"c\.npy: expected an array that goes on with the rows of .*a\.npy") as caught:
        pipeline.run("transpose", tmp_path, output=tmp_path / "out.npy", recursive=True)
    assert caught.value.__notes__ == [
        f"  (rows, 4)     2 files: {tmp_path}/a.npy, {tmp_path}/b.npy", f"  (rows, 5)      1 file: {tmp_path}/c.npy",
    ]  # fmt: skip


def test_arrays_in_memory_have_no_folders() -> None:
    with pytest.raises(UsageError, match="recursive: expected none with"):
        pipeline.run("reduce", np.arange(3), op="sum", recursive=True)
