"""What a kernel compiles to: registers, memory, instructions by kind. Needs NVRTC, but no GPU."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.common import device, nvrtc
from pipeline.errors import PipelineError, UsageError
from pipeline.study.instances import Choice, hopper_only

EXTRA = "pip install 'baru[inspect]', or the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm"
TOOLS = ("cuobjdump", "nvdisasm")
RESERVED = 1024  # bytes of shared memory that the system reserves on sm_90 and newer, on top of what a kernel declares

# Opcode without modifiers, by kind, in the order of the table.
KINDS: Mapping[str, tuple[str, ...]] = {
    "global loads": ("LDG", "LD", "LDGSTS", "UBLKCP"),
    "global stores": ("STG", "ST"),
    "shared loads": ("LDS", "LDSM"),
    "shared stores": ("STS", "STSM"),
    "local loads and stores": ("LDL", "STL"),
    "shared atomics": ("ATOMS",),
    "global atomics": ("ATOM", "ATOMG", "RED", "REDG"),
    "branches": ("BRA", "BRX", "BRXU", "JMP", "JMX", "CALL", "RET"),
    "barriers": ("BAR",),
    "shuffles": ("SHFL",),
    "FFMA": ("FFMA", "FFMA2"),
    "DFMA": ("DFMA",),
    "DMMA": ("DMMA",),
}
ALWAYS = ("registers", "static shared bytes", "stack bytes")  # shown even where they are zero
_KIND_OF = {opcode: kind for kind, opcodes in KINDS.items() for opcode in opcodes}

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+([^;]*\S)\s*;")
_RESOURCE = re.compile(r"Function (\S+):\s*\n\s*(.*)")


@dataclass(frozen=True)
class Inspected:
    """A compiled kernel.

    Attributes
    ----------
    source, name, instance
        Its file below `kernels/`, its name, and the kernel with its template arguments.
    registers
        Per thread.
    shared, stack
        Bytes of static shared memory (per block), and of local memory (per thread): spills and indexed arrays.
    counts
        Number of instructions in the machine code by kind, and ``"total"``; not how often each runs.
    listing
        The machine code, one instruction a line.
    """

    source: str
    name: str
    instance: str
    registers: int
    shared: int
    stack: int
    counts: Mapping[str, int]
    listing: tuple[str, ...]

    def figures(self) -> dict[str, int]:
        """All its figures, by name."""
        return dict(zip(ALWAYS, (self.registers, self.shared, self.stack), strict=True)) | dict(self.counts)


def inspect(source: Path, instances: Mapping[str, str], architecture: str) -> list[Inspected]:
    """Compile kernels of a source and disassemble them.

    Parameters
    ----------
    source
        Path of the `.cu` file.
    instances
        Kernels with their template arguments, by name.
    architecture
        Like ``"sm_86"``.

    Raises
    ------
    UsageError
        If the architecture is unknown or a tool is missing.
    PipelineError
        If the kernels do not compile for it.
    """
    tools = find_tools()
    _check_architecture(architecture)
    try:
        names, cubin, _ = nvrtc.compile_source(source, list(dict.fromkeys(instances.values())), architecture)
    except RuntimeError as error:
        raise PipelineError(" ".join(str(error).split())) from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{source.stem}.cubin")
        path.write_bytes(cubin)
        resources = _resources(_run(tools, "--dump-resource-usage", path))
        listings = _listings(_run(tools, "--dump-sass", path))
    reserved = RESERVED if int(architecture.strip("sm_a")) >= 90 else 0
    inspected = []
    for name, instance in instances.items():
        used, listing = resources[names[instance]], listings[names[instance]]
        shared = used["SHARED"] - reserved if used["SHARED"] else 0
        where = f"{source.parent.name}/{source.name}"
        figures = (used["REG"], shared, used["STACK"], count(listing), listing)
        inspected.append(Inspected(where, name, instance, *figures))
    return inspected


def inspect_all(choices: Sequence[Choice], architecture: str) -> tuple[list[Inspected], list[Choice]]:
    """The chosen kernels, each source compiled once; and those that this architecture cannot run."""
    left_out = [] if architecture == device.HOPPER else [choice for choice in choices if hopper_only(choice)]
    kept = [choice for choice in choices if choice not in left_out]
    inspected = []
    for source in dict.fromkeys(choice.source for choice in kept):
        instances = {choice.name: choice.instance for choice in kept if choice.source == source}
        inspected += inspect(source, instances, architecture)
    return inspected, left_out


def count(listing: Sequence[str]) -> dict[str, int]:
    """Instructions by kind, without padding and without the jump to itself that ends every kernel."""
    kinds: Counter[str] = Counter()
    for line in listing:
        address, _, text = line.partition("  ")
        opcode = text.split()[1 if text.startswith("@") else 0].partition(".")[0]
        if opcode == "NOP" or (opcode == "BRA" and text.endswith(f" {int(address, 16):#x}")):
            continue
        kinds["total"] += 1
        kinds[_KIND_OF.get(opcode, "other")] += 1
    return {kind: kinds[kind] for kind in (*KINDS, "total")}


def find_tools() -> dict[str, str]:
    """Paths of cuobjdump and nvdisasm: from the packages in this environment, else on PATH.

    Raises
    ------
    UsageError
        If one is missing.
    """
    paths = {name: _packaged(name) or shutil.which(name) for name in TOOLS}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        raise UsageError(f"inspect needs {' and '.join(missing)}; {EXTRA}")
    return {name: path for name, path in paths.items() if path}


def _packaged(name: str) -> str | None:
    try:
        files = importlib.metadata.files(f"nvidia-cuda-{name}") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = (str(file.locate()) for file in files if file.name == name and file.parent.name == "bin")
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def _run(tools: Mapping[str, str], option: str, path: Path) -> str:
    # cuobjdump runs nvdisasm, which it looks up on PATH.
    folders = os.pathsep.join([os.path.dirname(tools["nvdisasm"]), os.environ.get("PATH", os.defpath)])
    done = subprocess.run([tools["cuobjdump"], option, str(path)], capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": folders})  # fmt: skip
    if done.returncode:
        raise UsageError(f"cuobjdump {option} failed with {done.stderr.strip() or done.returncode}; {EXTRA}")
    return done.stdout


def _resources(text: str) -> dict[str, dict[str, int]]:
    """REG, SHARED, STACK, ... of each function."""
    return {
        name: {key: int(value) for key, value in re.findall(r"(\w+)(?:\[\d+\])?:(\d+)", line)}
        for name, line in _RESOURCE.findall(text)
    }


def _listings(text: str) -> dict[str, tuple[str, ...]]:
    """Instructions of each function, one a line: address, instruction."""
    listings = {}
    for part in text.split("Function : ")[1:]:
        name, _, body = part.partition("\n")
        matches = filter(None, map(_INSTRUCTION.match, body.splitlines()))
        listings[name.strip()] = tuple(f"{match[1]}  {match[2].strip()}" for match in matches)
    return listings


def _check_architecture(architecture: str) -> None:
    try:
        from cuda.bindings import nvrtc as bindings

        status, numbers = bindings.nvrtcGetSupportedArchs()
    except (ImportError, RuntimeError) as error:
        raise UsageError(f"inspect needs NVRTC, got {str(error).strip()}; pip install 'baru[inspect]'") from error
    known = [*(f"sm_{number}" for number in numbers), device.HOPPER]
    if int(status) or architecture not in known:
        raise UsageError(f"expected an architecture, one of {', '.join(known)}, got {architecture}")


def to_json(target: str, architecture: str, kernels: Sequence[Inspected], listing: bool) -> dict[str, Any]:
    """The JSON object of an inspection, with the machine code or without."""
    return {
        "target": target,
        "architecture": architecture,
        "kernels": [
            {"source": kernel.source, "name": kernel.name, "instance": kernel.instance, **kernel.figures(),
             **({"listing": list(kernel.listing)} if listing else {})}
            for kernel in kernels
        ],
    }  # fmt: skip


def table(kernels: Sequence[Inspected]) -> list[list[str]]:
    """Header and rows to print: two kernels side by side, otherwise one per row; columns of zeros are left out."""
    figures = [kernel.figures() for kernel in kernels]
    names = [name for name in figures[0] if name in ALWAYS or any(of[name] for of in figures)]
    if len(kernels) == 2:
        before, after = figures
        rows = [[name, str(before[name]), str(after[name]), f"{after[name] - before[name]:+d}"] for name in names]
        return [["", *(kernel.name for kernel in kernels), "difference"], *rows]
    rows = [[kernel.name, *(str(of[name]) for name in names)] for kernel, of in zip(kernels, figures, strict=True)]
    return [["kernel", *names], *rows]
