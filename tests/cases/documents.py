"""What the documents ask their readers to type, and a folder in which all of it can run."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.cases.format_files import CASES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = ("sh", "bash", "console")
NOT_TYPED = ("text", "yaml")  # what is printed, drawings, and configuration of other programs
FORMATS = ("npz stored", "hdf5 lz4", "zarr 3", "parquet", "arrow", "tiff", "wav of 24 bits", "sigmf", "edf",
           "flac of 16 bits")  # fmt: skip


class Fence(NamedTuple):
    """A block of code: its language, its text, and the line of the page on which it begins."""

    language: str
    text: str
    line: int


def fences(text: str) -> list[Fence]:
    return [Fence(match[1], match[2], text[: match.start()].count("\n") + 1) for match in FENCE.finditer(text)]


def commands_of(fence: Fence) -> Iterator[str]:
    """Each command of a block of the shell, without its comment; what `&&` joins are several."""
    if fence.language in SHELL:
        for line in re.sub(r"\\\n\s*", "", fence.text).splitlines():
            yield from filter(None, (part.strip() for part in re.sub(r"(^|\s+)# .*", "", line).split(" && ")))


def commands(text: str) -> Iterator[str]:
    for fence in fences(text):
        yield from commands_of(fence)


def synopses(text: str) -> Iterator[str]:
    """Commands that are shown or named, but not to be typed as they are: in blocks without a language, and in prose."""
    for fence in fences(text):
        if not fence.language:
            yield from (line for line in fence.text.splitlines() if line.startswith("python -m pipeline "))
    for code in re.findall(r"`([^`]+)`", FENCE.sub("", text)):
        yield from re.findall(r"(?:python -m pipeline|baru|dask pipeline) [a-z].*", " ".join(code.split()))


def prepare(folder: Path) -> None:
    """Small files of every name that a command in the documents reads."""
    random = np.random.default_rng(0)
    for name in FORMATS:
        CASES[name].written(folder)
    import h5py

    with h5py.File(folder / "a.h5", "a") as file:
        file["x"] = np.arange(1000)
    (folder / "b.sigmf-meta").write_text(json.dumps({"global": {"core:datatype": "ci16_le"}}))
    np.arange(20, dtype="<i2").tofile(folder / "b.sigmf-data")
    (folder / "data").symlink_to(ROOT / "data")
    np.save(folder / "x.npy", random.integers(0, 1000, (6000, 600)).astype("<i4"))
    with h5py.File(folder / "file.h5", "w") as file:
        file["data"] = random.integers(0, 1000, (8, 30, 20)).astype("<i4")
    for name in ("a", "b", "s-a", "s-b", "left-0", "left-1", "right-0", *(f"run-{number}" for number in (1, 2))):
        np.save(folder / f"{name}.npy", random.integers(0, 1000, (40, 40)).astype("<f4"))
    for side, count in (("left", 2), ("right", 1)):
        (folder / f"{side}.txt").write_text("".join(f"{side}-{number}.npy\n" for number in range(count)))
    for name in ("trace", "baseline", "samples", "gain", "offset"):
        np.save(folder / f"{name}.npy", random.normal(size=5000).astype("<f4"))
    (folder / "runs").mkdir()
    (folder / "recordings").mkdir()
    (folder / "results").mkdir()
    for name in ("run-1", "run-2", "runs/a", "runs/b", "recordings/r1", "recordings/r2"):
        random.integers(0, 1000, 600_000).astype("<i2").tofile(folder / f"{name}.bin")
    random.integers(0, 1024, 100_000).astype("<i4").tofile(folder / "data.bin")
    random.normal(size=5000).astype("<f4").tofile(folder / "trace.f32")
    random.integers(0, 256, 3000).astype("u1").tofile(folder / "camera.raw")
    np.save(folder / "W.npy", np.ones(3))
    (folder / "edges.txt").write_text("-1\n0\n0.5\n3\n")
    (folder / "list.txt").write_text("run-1.bin\nrun-2.bin\n")
    shutil.copy(ROOT / "docs" / "examples" / "night.toml", folder)
