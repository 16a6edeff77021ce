"""Mutants of the CPU's C++: compiled together as a library that stands for the real one while checks run.

They run in a process of their own, under AddressSanitizer: a check alone does not see what is read beside an array.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest

from kernels.common import cxx, nvrtc
from kernels.histogram.cpu import _compiled_function
from tests.cases import cpp
from tests.emulator.build import NoCompilerError, _compiled, compiler
from tests.emulator.mutate import Mutant, mutate
from tests.emulator.sandbox import HELPERS, compiling, contained, few, limit_time, part_of

# By source, a check of tests/cases/cpp.py.
CHECKS = MappingProxyType({
    "histogram/cpu": "histogram", "reduce/cpu": "reduce", "stencil/cpu": "sums", "transpose/cpu": "transpose",
    "quantile/cpu": "quantile", "common/turns_check": "turns",
})  # fmt: skip
DRAWN, MOST = 24, 7  # of each kind: as many are compiled, and as many of those that are executed run
SIZES = (0, 63, 4097)
# No more features than every CPU has: which code is compiled must not depend on the machine.
OPTIONS = (*(option for option in cxx.OPTIONS if not option.startswith("-march")), "-fsanitize=address")
SWITCH = """#line 1 "switch"
extern "C" { int cpp_chosen; unsigned char cpp_reached[1024]; }
static inline int host_mutant(int number) {
    cpp_reached[number] = 1;
    return cpp_chosen == number;
}
"""


def source_of(stem: str) -> Path:
    """The C++ file of a stem."""
    return nvrtc.KERNELS / f"{stem}.cpp"


def flatten(source: Path) -> str:
    """A source with the headers beside it inlined, each once."""
    seen: set[str] = set()

    def text(path: Path) -> str:
        seen.add(path.name)
        name = path.relative_to(nvrtc.KERNELS).as_posix()
        lines = [f'#line 1 "{name}"']
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if included := re.match(r'#include "(\w+\.hpp)"', line):
                inner = "" if included[1] in seen else text(path.with_name(included[1]))
                lines += [inner, f'#line {number + 1} "{name}"']
            elif not line.startswith("#pragma once"):
                lines.append(line)
        return "\n".join(lines)

    return text(source)


def caught_mutants(stem: str, part: str) -> list[tuple[Mutant, str | None]]:
    """Every mutant of a part of a source, and how it was caught.

    Raises
    ------
    NoCompilerError
        Where there is no compiler with AddressSanitizer.
    RuntimeError
        If the process fails.
    """
    asked = [compiler(), "-print-file-name=libasan.so"]
    library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(library).is_absolute():
        raise NoCompilerError("no C++ compiler with AddressSanitizer: expected g++ with libasan; install it")
    # Python itself leaks: it ends without freeing.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": library}
    command = [sys.executable, "-W", "ignore", "-m", "tests.emulator.cpp_mutants", stem, part]
    done = subprocess.run(command, cwd=nvrtc.KERNELS.parent, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"mutants of {stem}: {done.stderr[-2000:]}")
    return [(Mutant(**mutant), caught) for mutant, caught in json.loads(done.stdout)]


def _run(stem: str, part: str) -> list[tuple[Mutant, str | None]]:
    source, check = source_of(stem), cpp.CHECKS[CHECKS[stem]]
    text, mutants = compiling(
        lambda refused: mutate(flatten(source), set(), DRAWN, refused),
        lambda text: SWITCH + HELPERS + text + '\n#line 1 "end"\n',
    )
    library = ctypes.CDLL(str(_compiled("library", text, [], OPTIONS, ())))
    real = cxx.library
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(cxx, "library", lambda path: library if path == source else real(path))
        monkeypatch.setattr(cpp, "SIZES", SIZES)
        _compiled_function.cache_clear()
        try:
            began = time.process_time()
            check()
            seconds = time.process_time() - began
            seen = bytes((ctypes.c_uint8 * 1024).in_dll(library, "cpp_reached"))
            own = part_of(few([mutant for mutant in mutants if seen[mutant.number]], MOST), part)
            chosen = ctypes.c_int.in_dll(library, "cpp_chosen")
            return [(mutant, contained(partial(_caught, mutant, chosen, check, seconds))) for mutant in own]
        finally:
            _compiled_function.cache_clear()


def _caught(mutant: Mutant, chosen: ctypes.c_int, check: Callable[[], int], seconds: float) -> str | None:
    chosen.value = mutant.number
    _compiled_function.cache_clear()  # a plan depends on what the library says
    limit_time(3 * seconds + 2)
    try:
        check()
    except Exception as error:
        return " ".join(str(error).split())[:150] or type(error).__name__
    return None


if __name__ == "__main__":
    print(json.dumps([(asdict(mutant), caught) for mutant, caught in _run(*sys.argv[1:])]))
