"""Layering: imports between folders follow one order, without cycles, and all names in strings resolve."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from pkgutil import resolve_name
from textwrap import dedent

import pytest

from pipeline.cli.main import cli

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels"
PACKAGES = ("pipeline", "workflows", "kernels")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
TESTS = sorted((ROOT / "tests").rglob("*.py"))
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
SUFFIXES = (".cu", ".cuh", ".cpp", ".hpp")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in SUFFIXES)

# Allowed imports besides the standard library: common ones, then those of each package.
THIRD_PARTY = {
    "kernels": {"numpy", "cupy", "cuda"}, "workflows": {"numpy", "matplotlib"},  # cuda: NVRTC's bindings
    "pipeline": {"numpy", "cupy", "dask", "dask_cuda", "distributed", "tornado", "kvikio", "pynvml", "click", "rich",
                 "cuda", "matplotlib", "h5py", "hdf5plugin", "numcodecs", "google_crc32c", "pyarrow", "tifffile",
                 "nvidia", "obstore", "prometheus_client", "psutil", "soundfile", "uhi"},
}  # fmt: skip
# Folders and modules of `pipeline`; each imports only from itself and from lines below its own. `api` is to Python
# what `cli` is to a terminal: it returns results instead of printing them, so it needs no `report`.
LAYERS = (
    {"baru", "dask_command"}, {"__main__"}, {"cli"}, {"study"}, {"doctor", "estimate"}, {"pipeline"}, {"background"},
    {"api", "compare", "report"}, {"by_kernel", "arguments"}, {"in_memory"}, {"rows"}, {"engine"}, {"settings"},
    {"cluster"}, {"gpu"}, {"storage"}, {"progress"}, {"timeline"}, {"process"}, {"threads", "errors", "packages"},
)  # fmt: skip
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# Modules of `kernels` that `pipeline` imports: compiling, memory, the studies' measurements, and reading arrays in
# Fortran order.
KERNELS_OF_PIPELINE = ("kernels.common", "kernels.study", "kernels.transpose.cpu", "kernels.transpose.check")
BESIDE = r"Path\(__file__\)\.with_(suffix|name)\('([\w.]*\.(?:cu|cpp))'\)"
DOTTED = re.compile(r"(?<!tests\.)\b(?:pipeline|kernels|workflows)(?!\.md\b)(?:\.[A-Za-z_][\w-]*)+")


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of all imports, including those inside functions, for types only, and by string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            words = [text for text in strings(node.args[0]) if re.match(r"[A-Za-z_][\w.]*$", text)]
            # A computed name may be any that is spelled out.
            yield from words or [text for text in strings(tree) if re.fullmatch(r"[a-z_]\w*(\.\w*)+", text)]


def called(call: ast.Call) -> str:
    """Name of a function, without its qualifier."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def strings(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def module_of(name: str) -> str | None:
    """The module of this project that a dotted name starts with; None for names of others."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name or None


@cache
def imports_of(module: str) -> frozenset[str]:
    """Modules of this project that one imports."""
    names = map(module_of, imported(parsed(MODULES[module])))
    return frozenset(name for name in names if name) - {module}


def folder_of(module: str) -> tuple[str, str]:
    """Package, and the folder or module right below it."""
    package, _, rest = module.partition(".")
    return package, rest.partition(".")[0] or package


def wrong(module: str, other: str) -> bool:
    """Whether the layering forbids a module to import another."""
    (package, folder), (target, part) = folder_of(module), folder_of(other)
    if part == "study" != folder and f"{package}.{folder}" not in ("pipeline.cli", "pipeline.by_kernel"):
        return True  # made for teaching
    if package == target == "pipeline":
        return folder != part and RANK[folder] >= RANK[part]
    if package == target == "kernels":
        return part not in (folder, "common") and folder not in ("study", "kernels")
    if (package, target) == ("pipeline", "kernels"):
        return not any(f"{other}.".startswith(f"{name}.") for name in KERNELS_OF_PIPELINE)
    return PACKAGES.index(package) > PACKAGES.index(target)


def test_imports_are_found() -> None:
    source = """
        import numpy as np, dask.array
        from pipeline.engine.aggregate import run
        from pipeline.engine import array
        if TYPE_CHECKING:
            from . import neighbour
        def function():
            import cupy
            import_module(f"kernels.{name}")
            importlib.import_module("rich.table")
    """
    tree = ast.parse(dedent(source))
    names = {"numpy", "dask.array", "pipeline.engine.aggregate.run", "pipeline.engine.array", "..neighbour", "cupy",
             "kernels.", "rich.table"}  # fmt: skip
    assert set(imported(tree)) == names
    modules = {module_of(name) for name in names}
    assert modules == {"pipeline.engine.aggregate", "pipeline.engine.array", "kernels", None}
    assert set(imported(ast.parse("names = ['rich.table']\nimport_module(computed())"))) == {"rich.table"}


def test_every_folder_has_its_place() -> None:
    assert {folder_of(module)[1] for module in MODULES if module.startswith("pipeline")} == set(RANK)


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("kernels.common.nvrtc", "kernels.map.gpu"), ("kernels.map.gpu", "kernels.reduce.gpu"),
        ("kernels.map.gpu", "kernels.study.matmul"), ("kernels.map.gpu", "workflows.map"),
        ("workflows.map", "pipeline.errors"), ("workflows.map", "workflows.study.registry"),
        ("workflows.map", "kernels.study.variant"), ("pipeline.errors", "pipeline.threads"),
        ("pipeline.storage.chunks", "pipeline.gpu.blocks"), ("pipeline.engine.array", "pipeline.report.panel"),
        ("pipeline.report.panel", "pipeline.api"), ("pipeline.api", "pipeline.report.panel"),
        ("pipeline.api", "pipeline"), ("pipeline.cli.flags", "kernels.histogram.binning"),
        ("pipeline.engine.array", "workflows.study.registry"),
    ],
)  # fmt: skip
def test_what_the_plan_forbids(module: str, other: str) -> None:
    assert wrong(module, other)
    assert not wrong(other, other)


def test_imports_go_one_way() -> None:
    pairs = ((module, other) for module in MODULES for other in sorted(imports_of(module)))
    assert [f"{module} imports {other}" for module, other in pairs if wrong(module, other)] == []


def test_imports_of_others() -> None:
    """Only pipeline imports Dask or terminal libraries; every module has one spelling."""
    foreign = {}
    for module, path in MODULES.items():
        names = {name.partition(".")[0] for name in imported(parsed(path))}
        foreign[module] = names - sys.stdlib_module_names - set(PACKAGES) - THIRD_PARTY[folder_of(module)[0]]
    assert {module: names for module, names in foreign.items() if names} == {}


def test_no_circle_of_imports() -> None:
    try:
        TopologicalSorter({module: imports_of(module) for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(f"expected imports without a cycle, got {' -> '.join(reversed(error.args[1]))}")


def test_includes_stay_in_their_family() -> None:
    """CUDA includes headers relative to `kernels/`, C++ those beside it; all exist; no family includes another's."""
    assert [problem for path in SOURCES for problem in wrong_includes(path, path.read_text())] == []


def wrong_includes(path: Path, text: str) -> Iterator[str]:
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
        cuda = path.suffix in (".cu", ".cuh")
        header = (KERNELS if cuda else path.parent) / name
        if not header.is_file() or (not cuda and header.parent != path.parent):
            yield f"{path}: {name} is not {'below kernels' if cuda else 'beside it'}"
        elif cuda and path.parent.name not in ("study", name.partition("/")[0]) and not name.startswith("common/"):
            yield f"{path}: {name} is of another family"


def test_wrong_includes_are_found() -> None:
    right = {"reduce/gpu.cu": "reduce/tile.cuh", "study/x.cu": "reduce/tile.cuh", "map/gpu.cu": "common/stream.cuh",
             "reduce/cpu.cpp": "cpu_lanes.hpp"}  # fmt: skip
    wrong = {"map/gpu.cu": "reduce/tile.cuh", "reduce/x.cuh": "tile.cuh", "reduce/cpu.cpp": "../stencil/cpu.cpp",
             "common/x.cuh": "reduce/tile.cuh", "map/x.cuh": "map/gone.cuh"}  # fmt: skip
    for expected, includes in ((0, right), (1, wrong)):
        for path, name in includes.items():
            assert len(list(wrong_includes(KERNELS / path, f'  # include "{name}"\n'))) == expected, path


def test_source_lies_beside_a_module_that_loads_it() -> None:
    """By stem or by file name; and the sources that a module loads exist."""
    loaded = {source for path in [*MODULES.values(), *TESTS, *EXAMPLES] for source in loaded_by(path)}
    compiled = {path for path in [*SOURCES, *ROOT.glob("docs/examples/*")] if path.suffix in (".cu", ".cpp")}
    assert compiled - loaded == set()
    assert {path for path in loaded if not path.is_file()} == set()


def loaded_by(path: Path) -> Iterator[Path]:
    """C++ and CUDA sources beside a module that it names."""
    if "Path(__file__).with_" not in path.read_text():
        return  # parsing takes a while
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.Call) or called(node) not in ("with_suffix", "with_name"):
            continue
        if match := re.fullmatch(BESIDE, ast.unparse(node)):
            yield path.with_suffix(match[2]) if match[1] == "suffix" else path.with_name(match[2])


def named_in(path: Path) -> set[str]:
    """Modules and their attributes that strings of a file name: to preload, to patch, in programs and docs."""
    names: set[str] = set()
    lines = (line for line in path.read_text().splitlines() if not line.startswith(("import ", "from ")))
    if not any(map(DOTTED.search, lines)):
        return names
    for text in strings(parsed(path)):
        names.update(DOTTED.findall(text))
        for module, listed in re.findall(
            r"^\s*from ((?:pipeline|kernels|workflows)[\w.]*) import ([\w, ]+)$", text, re.M
        ):
            names.update(f"{module}.{name.split()[0]}" for name in listed.split(","))
    return names


def test_what_strings_name_can_be_found() -> None:
    missing = {
        str(path.relative_to(ROOT)): names
        for path in [*MODULES.values(), *TESTS, *EXAMPLES]
        if (names := [name for name in sorted(named_in(path)) if not can_be_found(name)])
    }
    assert missing == {}


@cache
def can_be_found(name: str) -> bool:
    package, _, rest = name.partition(".")
    if package == "pipeline" and rest.replace("_", "-") in configurable():
        return True
    try:
        resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


@cache
def configurable() -> set[str]:
    """The section of `pipeline` in Dask's configuration: the flags."""
    return {word.lstrip("-") for command in cli.commands.values() for param in command.params for word in param.opts}


PROGRAM = """set("@.cluster.gone.connect", 1)
code = '''
    from @.api import gone, run
'''
set("@.chunk-size")
"""


def test_names_in_strings_are_found(tmp_path: Path) -> None:
    text = PROGRAM
    (tmp_path / "test.py").write_text(text.replace("@", "pipeline"))
    missing = {"cluster.gone.connect", "api.gone"}
    names = {f"pipeline.{name}" for name in {*missing, "api", "api.run", "chunk-size"}}
    assert named_in(tmp_path / "test.py") == names
    assert {name for name in names if not can_be_found(name)} == {f"pipeline.{name}" for name in missing}


def test_entry_points_can_be_found() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entries = [entry for group in (project["scripts"], *project["entry-points"].values()) for entry in group.values()]
    assert len(entries) == 3 and all(callable(resolve_name(entry)) for entry in entries)


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [("kernels", "pipeline workflows dask distributed rich click cupy"),
     ("workflows", "pipeline dask distributed rich click cupy"), ("pipeline", "numpy click dask distributed cupy"),
     ("pipeline.cli.main", "dask distributed cupy rich asyncio")],
)  # fmt: skip
def test_what_is_not_needed_is_not_loaded(package: str, forbidden: str) -> None:
    code = f"import sys, {package}; print(*[name for name in {forbidden.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True)
    assert done.stdout.split() == []
