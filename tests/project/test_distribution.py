"""What is made besides the wheel: the container's file, the conda recipe, the citation and the bill of materials."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tomllib
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import pipeline
from tests.project.conftest import dependencies, python

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "distribution"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("/source", "/wheels", "/build", "/opt/baru")  # that the container's file names


def test_versions_are_those_of_the_package() -> None:
    citation = yaml.safe_load((FOLDER / "CITATION.cff").read_text())
    recipe = yaml.safe_load((FOLDER / "recipe.yaml").read_text())
    assert {pipeline.__version__, PROJECT["version"], str(citation["version"]), recipe["context"]["version"]} == {
        PROJECT["version"]
    }


def test_citation() -> None:
    """What the format 1.2.0 asks for, and what pyproject.toml says."""
    citation = yaml.safe_load((FOLDER / "CITATION.cff").read_text())
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert citation["message"] and citation["authors"] and all(author["name"] for author in citation["authors"])
    assert (citation["title"], citation["license"]) == (PROJECT["name"], PROJECT["license"])
    assert (citation["abstract"], citation["keywords"]) == (PROJECT["description"], PROJECT["keywords"])


def parsed(text: str) -> tuple[str, SpecifierSet]:
    """A requirement as conda or pip spell it: name and versions."""
    name, _, versions = text.partition(" ")
    if not versions:
        requirement = Requirement(name)
        return canonicalize_name(requirement.name), requirement.specifier
    return canonicalize_name(name), SpecifierSet(versions if versions[0] in "<>=!~" else f"=={versions}")


def test_recipe() -> None:
    recipe = yaml.safe_load((FOLDER / "recipe.yaml").read_text())
    wanted = [parsed(text) for text in (*PROJECT["dependencies"], f"python{PROJECT['requires-python']}")]
    assert sorted(map(parsed, recipe["requirements"]["run"]), key=str) == sorted(wanted, key=str)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {*map(parsed, build), wanted[-1]} <= {*map(parsed, recipe["requirements"]["host"])}
    assert recipe["build"]["python"]["entry_points"] == [f"{k} = {v}" for k, v in PROJECT["scripts"].items()]
    assert recipe["package"]["name"] == PROJECT["name"]
    about = recipe["about"]
    assert (about["license"], [about["license_file"]]) == (PROJECT["license"], PROJECT["license-files"])
    assert about["summary"] == PROJECT["description"]
    assert (FOLDER / recipe["source"]["path"]).resolve() == ROOT


def instructions() -> list[tuple[str, str]]:
    """Of the container's file."""
    text = io.BytesIO((FOLDER / "Containerfile").read_bytes())
    parser = pytest.importorskip("dockerfile_parse").DockerfileParser(fileobj=text)
    return [(one["instruction"], one["value"]) for one in parser.structure if one["instruction"] != "COMMENT"]


def test_container_is_not_run_by_root() -> None:
    several = instructions()
    assert [value for name, value in several if name == "FROM"] == ["${BASE} AS build", "${BASE}"]
    assert several[0][0] == "ARG" and several[0][1].startswith("BASE=")
    (user,) = (value for name, value in several if name == "USER")
    assert all(int(number) > 0 for number in user.split(":"))
    assert ("ENTRYPOINT", json.dumps([*PROJECT["scripts"]])) in several
    (extras,) = (value for name, value in several if name == "ARG" and value.startswith("EXTRAS="))
    assert set(extras.partition("=")[2].split(",")) <= set(PROJECT["optional-dependencies"])


def test_container_builds_and_installs_the_wheel(tmp_path: Path) -> None:
    """Its copies and pip commands, in folders of this test, with the packages of this environment."""

    def moved(text: str) -> str:
        for folder in FOLDERS:
            text = text.replace(folder, f"{tmp_path}{folder}")
        return text

    # pip's own negation: 0 builds without an environment of its own, with the hatchling that is here.
    here = os.pathsep.join([*dependencies(), *(path for path in sys.path if path.endswith("site-packages"))])
    environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0",
                                "EXTRAS": "plot", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": here}  # fmt: skip
    for name, value in instructions():
        if name == "COPY" and not value.startswith("--from="):
            *sources, target = value.split()
            place = Path(moved(target))
            for source in sources:
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    place.mkdir(exist_ok=True)
                    shutil.copy(ROOT / source, place)
        elif name == "RUN" and "pip " in value:
            done = subprocess.run(["sh", "-c", moved(value)], env=environment, text=True, capture_output=True,
                                  cwd=tmp_path, timeout=180)  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
    command = tmp_path / "opt/baru/bin/baru"
    done = subprocess.run([command, "histogram", ROOT / "data/ecg.npy", "-q"], env=environment | {"HOME": "/proc/home"},
                          text=True, capture_output=True, cwd=tmp_path, timeout=180)  # fmt: skip
    assert done.returncode == 0 and "equal to the reference" in done.stdout, done.stderr


def test_bill_of_materials(wheel: Path, installed: Path, tmp_path: Path) -> None:
    """Made as documented, of the installed wheel: every dependency is in it, and baru is said to need it."""
    if importlib.util.find_spec("cyclonedx_py") is None:
        pytest.skip("no cyclonedx-bom")
    output, others = tmp_path / "baru.cdx.json", tmp_path / "others"
    others.mkdir()  # without the checkout, which this environment has as baru, too
    for path in (path for folder in sys.path for path in Path(folder).glob("*.dist-info")):
        if not path.name.startswith("baru-") and not (others / path.name).exists():
            (others / path.name).symlink_to(path)
    python("-m", "cyclonedx_py", "environment", "-S", sys.executable, "--output-format", "JSON",
           "--output-file", str(output), "--no-validate", cwd=tmp_path,
           PYTHONPATH=os.pathsep.join([str(installed), str(others), *dependencies()]))  # fmt: skip
    document = json.loads(output.read_text())
    components = {canonicalize_name(one["name"]): one for one in document["components"]}
    ours = components["baru"]
    assert (document["bomFormat"], ours["version"]) == ("CycloneDX", PROJECT["version"])
    assert ours["licenses"][0]["license"]["id"] == PROJECT["license"]
    (metadata,) = installed.glob("baru-*.dist-info/METADATA")
    texts = Parser().parsestr(metadata.read_text()).get_all("Requires-Dist") or []
    needed = {canonicalize_name(one.name) for one in map(Requirement, texts)
              if one.marker is None or one.marker.evaluate({"extra": ""})}  # fmt: skip
    assert len(needed) == len(PROJECT["dependencies"])
    (edges,) = (one for one in document["dependencies"] if one["ref"] == ours["bom-ref"])
    assert {components[name]["bom-ref"] for name in needed} <= set(edges["dependsOn"])
