"""The benchmarks by name: what each needs, and the sizes with which the tests run it."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from shutil import which
from typing import Any

from pipeline.gpu.devices import find_devices
from tests.benchmarks.common import machine_name, save


@dataclass(frozen=True)
class Entry:
    """A function that returns figures: `measure` of the module of the entry's name, unless `of` names another one.

    Attributes
    ----------
    needs
        ``"gpu"``: one GPU; ``"gpus"``: all, at least one; ``"cpu"``: a machine without; ``"any"``.
    tiny
        Arguments of `measure` in the tests.
    tool
        Another program that it runs, if any.
    of
        MODULE.FUNCTION, of this folder.
    """

    needs: str
    tiny: dict[str, Any] = field(default_factory=dict)
    tool: str | None = None
    of: str | None = None

    def fits(self) -> bool:
        """Whether it can run on this machine."""
        gpus = find_devices().usable
        if self.tool and not which(self.tool):
            return False
        return self.needs == "any" or (self.needs != "cpu") == (gpus > 0)


TWICE = {"gpu": 2, "cpu": 2}

ENTRIES = {
    "histogram_kernel": Entry("gpu", {"nbytes": 2**20, "repeats": 1}),
    "rows_kernel": Entry("gpu", {"nbytes": 2**20, "repeats": 1}),
    "select_kernel": Entry("gpu", {"nbytes": 2**20, "repeats": 1}),
    "decompress_kernel": Entry("gpu", {"repeats": 1, "chunks_kib": (16,), "mebibytes": (1,), "kinds": ("held",)}),
    "reduce_kernel": Entry("gpu", {"nbytes": 2**27, "repeats": 1}),
    "question_kernels": Entry(
        "gpu", {"nbytes": 2**20, "repeats": 1, "dtypes": ("float32",), "distributions": ("uniform",)}
    ),
    "hostile_kernels": Entry("gpu", {"nbytes": 2**20, "repeats": 1, "dtypes": ("float32",), "seconds": 20}),
    "bracket_kernel": Entry(
        "gpu", {"nbytes": 2**24, "repeats": 1, "dtypes": ("float32",), "distributions": ("uniform",)}
    ),
    "arrays": Entry("gpu", {"repeats": 1, "sizes": {"1 GiB": 2**16, "2^20": 2**12}}),
    "stencil_kernel": Entry("gpu", {"repeats": 1}),
    "copy_kernel": Entry("gpu", {"nbytes": 2**16, "repeats": 1}),
    "matmul_kernel": Entry("gpu", {"repeats": 1, "sizes": (256,)}),
    "matmul_small": Entry("gpu", {"repeats": 1, "cases": ((10, 16), (10, 32))}),
    "counters": Entry("gpu", {"nbytes": 2**27, "names": ("sum float32", "transpose float64, 10001 x 12345")}, "ncu"),
    "histogram_file": Entry("gpus", {"gib": 1}),
    "cold_file": Entry("any", {"mebibytes": 4, "repeats": 1, "rest": 0.0}),
    "array_file": Entry("any", {"mebibytes": 1, "repeats": 1}),
    "jobs": Entry("any", {"mebibytes": 16, "every": 6}),
    "limits": Entry("any", {"mebibytes": 1}),
    "waiting": Entry("any", {"samples": 2**12, "chunks": 100, "planned": 1000, "repeats": 1, "whole": 2**20}),
    "command": Entry("cpu", {"mebibytes": 1, "repeats": 1, "jobs": ("histogram", "matmul")}),
    "product_errors": Entry("cpu", {"sizes": (32, 128), "trials": 100, "large": 200, "large_rows": 20}),
    "library_errors": Entry("cpu", {"sizes": (32, 128), "trials": 100}),
    "hidden_errors": Entry("any", {"trials": 1, "ways": ("short sums", "compiled sums", "library")}),
    "verified_streaming": Entry(
        "any", {"mebibytes": 1, "times": TWICE, "repeats": 1, "dtypes": ("int32",)}, of="verified_rates.streaming"
    ),
    "verified_writing": Entry("any", {"mebibytes": 1, "times": TWICE, "repeats": 1}, of="verified_rates.writing"),
    "verified_products": Entry("any", {"sizes": (("float32", 64),), "repeats": 1}, of="verified_rates.products"),
    "estimates": Entry("any", {"mebibytes": 1, "side": 64, "repeats": 1}),
    "formats": Entry("any", {"mebibytes": 16, "repeats": 1, "whole": 16}),
    "format_bits": Entry("any", {"every": 16}),
    "questions": Entry("cpu", {"gib": 2**-8, "repeats": 1}),
    "growth": Entry("any", {"sizes": (2**16, 2**14), "most": 2**15}),
    "planted_errors": Entry("any", {"scenarios": 14, "trials": 3, "processes": 1}),
    "on_gpu": Entry("gpus", tool="compute-sanitizer"),  # runs all tests, so no test can run it
}


def machine(name: str) -> str:
    """Machine name in the file of an entry's figures: the GPUs that it used, or the cores."""
    return machine_name(find_devices().gpus if ENTRIES[name].needs != "cpu" else (), ENTRIES[name].needs == "gpu")


def measure(name: str, path: Path, tiny: bool = False) -> None:
    """Run one entry and write its figures."""
    entry = ENTRIES[name]
    module, _, function = (entry.of or f"{name}.measure").partition(".")
    save(getattr(import_module(f"tests.benchmarks.{module}"), function)(**(entry.tiny if tiny else {})), path)
