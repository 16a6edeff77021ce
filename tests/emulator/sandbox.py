"""Where mutants run: what they call, which of them compile, and a process that may crash or not end."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable

from tests.emulator.build import HERE, compiler
from tests.emulator.inputs import digest
from tests.emulator.mutate import Mutant
from tests.emulator.operators import KINDS

# Arithmetic of half the width, and roundings another way.
HELPERS = """#line 1 "helpers"
template <typename T> T& host_width(int, T& cell) { return cell; }
#define HOST_WIDTH(T, Half)                                         \\
    inline T& host_width(int mutant, T& cell) {                     \\
        if (host_mutant(mutant)) cell = (T)(Half)cell;               \\
        return cell;                                                \\
    }
HOST_WIDTH(int, short)
HOST_WIDTH(unsigned, unsigned short)
HOST_WIDTH(long, int)
HOST_WIDTH(unsigned long, unsigned)
HOST_WIDTH(long long, int)
HOST_WIDTH(unsigned long long, unsigned)
HOST_WIDTH(double, float)
inline int host_other___float2int_rn(float x) { return int(x); }
inline long long host_other___double2ll_rn(double x) { return (long long)(x); }
inline float host_other___fadd_rd(float a, float b) { return a + b; }
inline double host_other___dadd_rd(double a, double b) { return a + b; }
template <typename T> T host_other_fma(T a, T b, T c) { return a * b + c; }
"""


def compiling(
    generate: Callable[[set[tuple[str, int]]], tuple[str, list[Mutant]]], whole: Callable[[str], str]
) -> tuple[str, list[Mutant]]:
    """Text and mutants, without those in lines that do not compile.

    Raises
    ------
    RuntimeError
        If there are errors in other lines.
    """
    refused: set[tuple[str, int]] = set()
    while True:
        text, mutants = generate(refused)
        errors = syntax_errors(whole(text))
        lines = {(mutant.file, mutant.line) for mutant in mutants if mutant.kind in KINDS}
        if not errors:
            return whole(text), mutants
        if not errors & lines:
            raise RuntimeError(f"mutants do not compile: {sorted(errors)}")
        refused |= errors & lines


def syntax_errors(text: str) -> set[tuple[str, int]]:
    """File and line of each error in a translation unit, as its `#line` directives name them."""
    command = [compiler(), "-std=c++17", "-w", "-fsyntax-only", f"-I{HERE}", "-x", "c++", "-"]
    done = subprocess.run(command, capture_output=True, text=True, input=text)
    errors = re.findall(r"^(.+?):(\d+):\d+: (?:fatal )?error: ", done.stderr, re.MULTILINE)
    return {(file, int(line)) for file, line in errors}


def few(mutants: list[Mutant], most: int) -> list[Mutant]:
    """At most so many of each of `operators.KINDS`, and all others."""
    ranked = sorted(mutants, key=lambda mutant: digest(mutant.kind, mutant.site))
    kept = {mutant for kind in KINDS for mutant in [one for one in ranked if one.kind == kind][:most]}
    return [mutant for mutant in mutants if mutant.kind not in KINDS or mutant in kept]


def part_of(mutants: list[Mutant], part: str) -> list[Mutant]:
    """Those of ``"2 of 3"``: every third one from the second on, since neighbours take similar times."""
    number, count = map(int, part.split(" of "))
    return mutants[number - 1 :: count]


def limit_time(seconds: float) -> None:
    """End this process after so many seconds of its own, instead of the last limit."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def contained(check: Callable[[], str | None]) -> str | None:
    """What `check` returns in a process of its own, or how that ended: a mutant may crash, or not end."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the C library says what it found wrong with the heap
            os.write(writing, json.dumps(check()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    if not answer:
        return "ended by a sanitizer"
    caught: str | None = json.loads(answer)
    return caught
