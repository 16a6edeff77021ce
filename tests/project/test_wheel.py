"""The installed package: the wheel holds exactly the three packages, and runs where it is installed."""

from __future__ import annotations

import json
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from kernels.common import cxx
from kernels.common.nvrtc import include_closure
from pipeline.packages import code_version
from tests.project.conftest import dependencies, python

ROOT = Path(__file__).parents[2]
PACKAGES = ("pipeline", "kernels", "workflows")


def test_wheel_holds_the_packages_whole_and_nothing_else(wheel: Path) -> None:
    """With the module of the command and the kernel sources, which are compiled on the target machine."""
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if ".dist-info/" not in name}
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    expected = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    assert packed == expected - {"pipeline/baru.py"} | {"baru.py"}
    assert {".py", ".cu", ".cuh", ".cpp", ".hpp"} <= {Path(name).suffix for name in packed}


def test_installed_command_runs_on_a_recording(installed: Path, tmp_path: Path) -> None:
    """From an empty folder, with an empty cache, so that C++ is compiled from the installed source."""
    (tmp_path / "empty").mkdir()
    environment = {"PYTHONPATH": os.pathsep.join([str(installed), *dependencies()]), "XDG_CACHE_HOME": str(tmp_path)}
    words = ("-m", "pipeline", "histogram", str(ROOT / "data/ecg.npy"), "--range", "0", "2048", "--json", "-q")
    done = json.loads(python(*words, cwd=tmp_path / "empty", **environment))
    counts, _ = np.histogram(np.load(ROOT / "data/ecg.npy"), 1024, (0, 2048))
    assert done["result"]["histogram"]["storage"]["values"] == [0, *counts.tolist(), 0]
    assert list((tmp_path / "empty").iterdir()) == []
    if cxx.compiler() or os.environ.get("CI") == "true":
        assert done["environment"]["cpu kernels"] == ["compiled"]
        assert list((tmp_path / "baru").glob("cpu-*.so"))


def test_version_of_the_sources_is_that_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    """A cluster's workers may have the wheel where the command runs in a checkout."""
    environment = {"PYTHONPATH": os.pathsep.join([str(installed), *dependencies()])}
    program = "from pipeline import packages; print(packages.__file__); print(packages.code_version())"
    where, version = python("-c", program, cwd=tmp_path, **environment).split()
    assert where.startswith(str(installed)) and version == code_version()


def test_installed_module_of_the_command(installed: Path, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": os.pathsep.join([str(installed), *dependencies()])}
    program = "import sys, baru; sys.argv = ['baru', '--version']; print(baru.__file__, flush=True); baru.main()"
    assert python("-c", program, cwd=tmp_path, **environment).split("\n")[:2] == [f"{installed}/baru.py", "baru 0.1.0"]


@pytest.mark.parametrize("home", ["a folder", "nowhere"])
def test_installed_command_runs_without_a_compiler(installed: Path, tmp_path: Path, home: str) -> None:
    """Also where nothing can be kept: below /proc not even root makes folders."""
    place = str(tmp_path / "home") if home == "a folder" else "/proc/home"
    folders = {"HOME": place, "XDG_CACHE_HOME": f"{place}/cache", "XDG_STATE_HOME": f"{place}/state"}
    environment = {"PYTHONPATH": os.pathsep.join([str(installed), *dependencies()]), "CXX": "/nowhere/c++", **folders}
    words = ("-m", "pipeline", "histogram", str(ROOT / "data/ecg.npy"), "--range", "0", "2048", "--json", "-q")
    done = json.loads(python(*words, cwd=tmp_path, **environment))
    counts, _ = np.histogram(np.load(ROOT / "data/ecg.npy"), 1024, (0, 2048))
    assert done["result"]["histogram"]["storage"]["values"] == [0, *counts.tolist(), 0]
    assert done["environment"]["cpu kernels"] == ["NumPy"]


def test_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """From what is in it alone."""
    python("-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path), cwd=ROOT)
    (packed,) = tmp_path.iterdir()
    with tarfile.open(packed) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (root,) = (tmp_path / "unpacked").iterdir()
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "built"), cwd=root)
    (built,) = (tmp_path / "built").iterdir()
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(built) as theirs:
        assert [(one.filename, one.CRC) for one in theirs.infolist()] == [
            (one.filename, one.CRC) for one in ours.infolist()
        ]


def test_installed_packages_are_those_that_run(installed: Path, tmp_path: Path) -> None:
    """Each CUDA source includes the same headers as in the checkout, byte for byte."""
    program = """if True:
        import json, kernels, pipeline, workflows
        from pathlib import Path
        from kernels.common.nvrtc import KERNELS, include_closure
        closures = {str(path.relative_to(KERNELS)): sorted(include_closure(path)) for path in KERNELS.rglob("*.cu")}
        print(json.dumps([[package.__file__ for package in (kernels, pipeline, workflows)], closures]))
    """
    environment = {"PYTHONPATH": os.pathsep.join([str(installed), *dependencies()])}
    files, closures = json.loads(python("-c", program, cwd=tmp_path, **environment))
    assert files == [str(installed / name / "__init__.py") for name in ("kernels", "pipeline", "workflows")]
    sources = {str(path.relative_to(ROOT / "kernels")): path for path in (ROOT / "kernels").rglob("*.cu")}
    assert closures == {name: sorted(include_closure(path)) for name, path in sources.items()}
    for name in ("kernels", "pipeline"):
        for path in (path for path in (ROOT / name).rglob("*") if path.suffix in (".cu", ".cuh", ".cpp", ".hpp")):
            assert (installed / path.relative_to(ROOT)).read_bytes() == path.read_bytes()
