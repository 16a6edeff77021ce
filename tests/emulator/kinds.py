"""The kinds of recorded outcomes: their units and their inputs."""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

from kernels.common import cxx
from tests.emulator.build import HERE, NoCompilerError, compiler, source_of, sources, stem_of
from tests.emulator.inputs import c_code, cuda_texts, digest, imported_by, path_of, python_code, python_texts
from tests.emulator.recording import Kind
from tests.emulator.records import Unit

ROOTS = ("tests.emulator.cupy", "tests.emulator.device", "tests.cases.case")  # what runs every case
# Explanations of mutants that nobody catches: they change no outcome. Nor do mutants of the CPU's C++ those of kernels.
WITHOUT = ("tests.cases.all", "tests.emulator.survivors", "tests.emulator.kinds", "tests.emulator.recording",
           "tests.emulator.cpp_mutants")  # fmt: skip
# How code that is compiled is kept, and how NVRTC compiles: the emulator does neither.
KEEPING = ("kernels.common.cache", "kernels.common.private", "kernels.common.messages")
COMPILING = (*KEEPING, "kernels.common.cxx", "kernels.common.nvrtc")


@cache
def _gcc() -> str:
    """The major version of the compiler of the emulator."""
    try:
        asked = [compiler(), "-dumpversion"]
    except NoCompilerError:
        return "none"  # the tests are skipped
    return f"g++ {subprocess.run(asked, capture_output=True, text=True, check=True).stdout.partition('.')[0].strip()}"


@cache
def _nvrtc() -> str:
    """The minor version of NVRTC."""
    try:
        from cuda.bindings import nvrtc

        return "NVRTC {}.{}".format(*nvrtc.nvrtcVersion()[1:])
    except (ImportError, RuntimeError):
        return "none"  # the tests are skipped


@cache
def _emulator() -> list[tuple[str, str]]:
    """C++ sources of the emulator."""
    return [(path.name, c_code(path.read_text("utf-8"))) for path in sorted(HERE.glob("*")) if _is_cpp(path)]


def _is_cpp(path: Path) -> bool:
    return path.suffix in (".h", ".cpp")


@cache
def _of_cases(modules: tuple[str, ...], *values: object) -> dict[str, str]:
    """By source: its kernels, its case modules and their imports, the emulator, and the code that runs the cases."""
    from tests.cases.all import DRIVERS

    inputs = {}
    for stem in map(stem_of, sources()):
        python = python_texts({*ROOTS, *modules, *DRIVERS.get(stem, ())}, (*WITHOUT, *COMPILING))
        # Wrappers of a family launch kernels of each other's sources.
        family = f"kernels.{stem.partition('/')[0]}."
        beside = {name.removeprefix("kernels.").replace(".", "/") for name, _ in python if name.startswith(family)}
        cuda = [cuda_texts(path) for path in map(source_of, sorted({stem, *beside})) if path.is_file()]
        inputs[stem] = digest(cuda, python, _emulator(), values)
    return inputs


def _cases(right_only: bool = False) -> list[Unit]:
    from tests.cases.all import CASES

    return [(case.stem, case.name) for case in CASES if not (right_only and case.broken)]


def _mutants_inputs() -> dict[str, str]:
    """With those sites of its texts that are left out; and the CPU's C++."""
    from tests.emulator import cpp_mutants
    from tests.emulator.survivors import ELSEWHERE

    inputs = {
        stem: digest(own, sorted(site for site in ELSEWHERE if site[0] == stem))
        for stem, own in _of_cases(("tests.emulator.mutants",)).items()
    }
    own = python_code(Path(cpp_mutants.__file__).read_text("utf-8"))
    generator = python_texts(("tests.emulator.sandbox",), KEEPING)
    return inputs | {stem: digest(_cxx_inputs()[name], own, generator) for stem, name in cpp_mutants.CHECKS.items()}


def _mutants_units() -> list[Unit]:
    from tests.emulator.mutants import units

    return units()


def _machine_code_inputs() -> dict[str, str]:
    from tests.kernels.common.machine_code import inputs

    return inputs()


def _machine_code_units() -> list[Unit]:
    from tests.kernels.common.machine_code import TASKS

    return list(TASKS)


@cache
def _cxx() -> str:
    """The major version of the compiler for CPU kernels."""
    asked = [*(cxx.compiler() or ("false",)), "-dumpversion"]
    return f"C++ {subprocess.run(asked, capture_output=True, text=True).stdout.partition('.')[0].strip() or 'none'}"


def modules_of(check: Callable[[], int]) -> set[str]:
    """Those that a check imports, and those of tests whose functions it calls."""
    called = filter(inspect.isfunction, map(check.__globals__.get, check.__code__.co_names))
    return imported_by(check) | {one.__module__ for one in called} - {check.__module__}


@cache
def _cxx_inputs() -> dict[str, str]:
    """By check: the modules that it imports, and all C++ in their folders."""
    from tests.cases import cpp

    inputs = {}
    for name, check in cpp.CHECKS.items():
        own = [python_code(Path(file).read_text("utf-8")) for file in sorted({cpp.__file__, inspect.getfile(check)})]
        python = python_texts([*modules_of(check), "kernels.common.cxx"], KEEPING)
        folders = {path.parent for module, _ in python if (path := path_of(module)) and not module.startswith("tests.")}
        texts = sorted(path for folder in folders for path in folder.glob("*.[ch]pp"))
        inputs[name] = digest(own, python, [(path.name, c_code(path.read_text("utf-8"))) for path in texts])
    return inputs


def _cxx_units() -> list[Unit]:
    from tests.cases.cpp import CHECKS

    return [(check, name) for check in CHECKS for name in ("sanitized", "x86-64", "x86-64-v3")]


ORDERS = 20  # thread schedules that each case runs under
SCHEDULES = Kind("schedules", _gcc, partial(_of_cases, (), ORDERS), _cases)
SANITIZED = Kind("sanitized", _gcc, partial(_of_cases, ("tests.emulator.sanitized",)), partial(_cases, True))
MUTANTS = Kind("mutants", _gcc, _mutants_inputs, _mutants_units)
MACHINE_CODE = Kind("machine_code", _nvrtc, _machine_code_inputs, _machine_code_units)
CXX = Kind("cxx", _cxx, _cxx_inputs, _cxx_units)
KINDS = MappingProxyType({kind.name: kind for kind in (SCHEDULES, SANITIZED, MUTANTS, MACHINE_CODE, CXX)})
