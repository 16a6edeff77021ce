"""The commands of docs/use.md about lists and slices run, on files of these names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipeline.cli.main import cli
from tests.cases.format_case import package_of
from tests.project.test_documents import ROOT, commands

PAGE = ROOT / "docs" / "use.md"


def section(title: str) -> list[list[str]]:
    """Its commands, as words."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n### {title}\n")[2]
    return commands(re.split(r"^#+ ", text, maxsplit=1, flags=re.MULTILINE)[0])


@pytest.mark.usefixtures("shared")
def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").symlink_to(ROOT / "data")
    random = np.random.default_rng(0)
    matrix = random.integers(0, 1000, (6000, 600)).astype("i4")
    np.save("x.npy", matrix)
    with package_of("h5py").File("file.h5", "w") as file:
        file.create_dataset("data", data=matrix[:480].reshape(8, 60, 600), chunks=(1, 60, 100), compression="gzip")
    Path("runs").mkdir()
    for name in ("run-1.bin", "run-2.bin", "runs/a.bin", "runs/b.bin"):
        random.integers(0, 1000, 600_000).astype("<i2").tofile(name)
    for name, count in {"left": 2, "right": 1}.items():
        for number in range(count):
            np.save(f"{name}-{number}.npy", matrix[:4, :4].astype("f4"))
        Path(f"{name}.txt").write_text("".join(f"{name}-{number}.npy\n" for number in range(count)))
    ran = 0
    for words in section("Lists") + section("Slices"):
        if words[:3] == ["python", "-m", "pipeline"]:
            cli.main(words[3:], standalone_mode=False)
            assert len(capfd.readouterr().out.splitlines()) > 1, words
            ran += 1
        else:
            subprocess.run(" ".join(words).replace("*.bin", "'*.bin'"), shell=True, check=True)
    assert ran == 9 and Path("list.txt").read_text() == "runs/a.bin\nruns/b.bin\n"
    np.testing.assert_array_equal(np.load("t.npy"), matrix[::10, -500:].T)
    square = matrix[:4, :4].astype("f4")
    np.testing.assert_allclose(np.load("c.npy"), np.vstack([square, square]) @ square, rtol=1e-6)
