"""Compiles the kernels of a `.cu` file for the CPU, with every access instrumented or under sanitizers."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kernels.common import nvrtc
from kernels.common.cache import cache_folder

HERE = Path(__file__).parent
HEADERS = ("cuda.h", "runtime.h")
RUNTIME = ("threads.cpp", "waiting.cpp", "memory.cpp", "switch.cpp")
WATCHING = {"watched": "races.cpp", "sanitized": "unwatched.cpp"}
RUNTIME_HEADERS = ("internal.h", "memory.h", "runtime.h", "switch.h", "threads.h")
OPTIONS = (
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-shared",
    "-g1",
    "-gdwarf-4",
    "-ffp-contract=off",
    "-Wno-unknown-pragmas",
    "-w",
)
# -fsanitize=thread serves only to insert calls: races.cpp defines them, libtsan is not linked.
FLAVOURS = {
    "watched": (
        "-O1",
        "-fsanitize=thread",
        "--param=tsan-instrument-func-entry-exit=0",
        "-nodefaultlibs",
        "-lm",
        "-lc",
    ),
    "sanitized": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-sanitize=vptr"),
}


class NoCompilerError(Exception):
    """This machine has no C++ compiler."""


@cache
def compiler() -> str:
    """The host's C++ compiler.

    Raises
    ------
    NoCompilerError
        Where there is none.
    """
    found = shutil.which(os.environ.get("CXX") or "g++")
    if not found:
        raise NoCompilerError("no C++ compiler: expected g++, or another GCC that CXX names; install it")
    return found


@cache
def _version() -> str:
    return subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout


def flatten(source: Path) -> str:
    """A source with its headers inlined, each once."""
    seen: set[str] = set()

    def text(path: Path, name: str) -> str:
        seen.add(name)
        lines = [f'#line 1 "{name}"']
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            included = re.match(r'\s*#include "([\w/]+\.cuh)"', line)
            header = nvrtc.find_header(path, included[1]) if included else None
            if included and header:
                lines += ["" if included[1] in seen else text(header, included[1]), f'#line {number + 1} "{name}"']
            elif not line.startswith("#pragma once"):
                lines.append(line)
        return "\n".join(lines)

    return text(source, name_of(source))


def sources() -> list[Path]:
    """Every `.cu` file under kernels/."""
    return sorted(nvrtc.KERNELS.glob("*/*.cu"))


def stem_of(source: Path) -> str:
    """Path under kernels/ without its suffix, as in `Case.stem`; for a source elsewhere its file name."""
    return name_of(source).removesuffix(".cu")


def source_of(stem: str) -> Path:
    """The source under kernels/ with this stem."""
    return nvrtc.KERNELS / f"{stem}.cu"


def name_of(source: Path) -> str:
    """Path under kernels/, as in an include; for a source elsewhere its file name."""
    inside = source.is_relative_to(nvrtc.KERNELS)
    return source.relative_to(nvrtc.KERNELS).as_posix() if inside else source.name


def translate(source: str) -> str:
    """Shared arrays become memory of the runtime; cuda.h defines everything else that CUDA adds to C++."""
    return re.sub(r"(extern\s+)?\b__shared__\s+([^;]+);", _shared, source)


def _shared(declaration: re.Match[str]) -> str:
    found = []
    text = re.sub(r"^(?:(?:alignas|__align__)\s*\([^)]*\)\s*)+", "", declaration[2].strip())
    first, *others = _split(text)
    match = re.fullmatch(r"(.+[\s>*])(\w+)\s*((?:\[.*\])?)", first, re.DOTALL)
    assert match, f"a declaration of shared memory that is not understood: {declaration[0]}"
    kind = match[1].strip()
    if declaration[1]:
        name = match[2]
        return f'{kind}* const {name} = static_cast<{kind}*>(host_dynamic_shared("{name}", sizeof({kind})));'
    for name, size in [(match[2], match[3]), *(re.fullmatch(r"(\w+)\s*(.*)", other).groups() for other in others)]:  # type: ignore[union-attr]
        key, type_ = f"host_key_{name}", f"host_type_{name}"
        found.append(
            f"static const char {key} = 0; using {type_} = {kind}{size}; {type_}& {name} = *static_cast<{type_}*>"
            f'(host_shared(&{key}, "{name}", sizeof({type_}), sizeof({kind})));'
        )
    return " ".join(found)


def _split(text: str) -> list[str]:
    """Parts between commas outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def unit(source: str, instances: Sequence[str]) -> str:
    """A translation unit: the kernels and a table of their instances."""
    table = ",\n".join(f'host_kernel<&{instance}>("{instance}")' for instance in instances)
    return (
        f'#include "cuda.h"\n{translate(source)}\n#line 1 "table"\n'
        f'extern "C" const HostKernel host_kernels[] = {{{table}}};\n'
        f'extern "C" const unsigned host_kernel_count = {len(instances)};\n'
    )


def compile_unit(text: str, flavour: str) -> Path:
    """A library of the kernels in a translation unit, compiled once for its text, headers, options and compiler.

    Raises
    ------
    RuntimeError
        If it does not compile, with the compiler's messages.
    """
    return _compiled("kernel", text, [HERE / name for name in HEADERS], (*OPTIONS, *FLAVOURS[flavour]), ())


def compile_runtime(flavour: str) -> Path:
    """The library that runs the kernels."""
    sources = (*RUNTIME, WATCHING[flavour])
    texts = "".join((HERE / name).read_text(encoding="utf-8") for name in sources)
    # The runtime itself is not sanitized: it abandons stacks that no call returns to.
    sanitize = ("-DHOST_SANITIZED",) if flavour == "sanitized" else ()
    options = ("-std=c++17", "-fPIC", "-shared", "-O2", "-g1", "-gdwarf-4", "-Wall", "-Wextra", "-Werror", *sanitize)
    headers = [HERE / name for name in RUNTIME_HEADERS]
    return _compiled("runtime", "// " + hashlib.sha256(texts.encode()).hexdigest(), headers, options, sources)


def _compiled(kind: str, text: str, headers: Sequence[Path], options: Sequence[str], more: Sequence[str]) -> Path:
    key = hashlib.sha256(repr((text, [path.read_bytes() for path in headers], options, _version())).encode())
    folder = cache_folder()
    path = folder / f"host-{kind}-{key.hexdigest()}.so"
    if path.is_file():
        return path
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        source, made = Path(temporary, f"{kind}.cpp"), Path(temporary, "made.so")
        source.write_text(text, encoding="utf-8")
        command = [
            compiler(),
            *options,
            f"-I{HERE}",
            str(source),
            *(str(HERE / name) for name in more),
            "-o",
            str(made),
        ]
        # The sanitizer that is preloaded here must not reach the compiler.
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the host's compiler fails:\n{done.stderr[:4000]}")
        os.replace(made, path)  # atomic: other processes may compile the same text
    return path
