"""The machine code of the course's own loops is that of its listings, on the GPU of its room."""

from __future__ import annotations

import re

from kernels.common import nvrtc
from kernels.study.histogram import INSTANCES
from pipeline.study.inspection import inspect
from tests.kernels.common.test_nvrtc import require_compiler

SAMPLE = "LDG IMAD RED "  # a load, a multiply-add for the address of the counter, a reduction


def opcodes(*variants: str) -> list[str]:
    """Opcodes of each variant in order, one string each, without the jump to itself at the end and what pads it."""
    require_compiler()
    inspected = inspect(nvrtc.KERNELS / "study/histogram.cu", {name: INSTANCES[name] for name in variants}, "sm_86")
    words = [[line.partition("  ")[2].split() for line in kernel.listing] for kernel in inspected]
    return ["".join(f"{word[word[0].startswith('@')].partition('.')[0]} " for word in one).partition("NOP")[0]
            for one in words]  # fmt: skip


def test_a_sample_takes_three_instructions() -> None:
    """Histogramme 2c: 512 samples follow each other without a test or a jump."""
    slices, unrolled = opcodes("course_slices", "course_unrolled")
    assert re.search(f"(?:{SAMPLE}){{500}}", unrolled)
    assert unrolled.count("RED ") == unrolled.count("LDG ") == 512 + 1  # and a loop for what is left
    assert slices.count("RED ") == slices.count("LDG ") == 4 + 1  # the compiler unrolls four by itself, as there
    assert unrolled.count("BRA ") <= slices.count("BRA ") + 2


def test_a_guard_is_a_branch_for_every_sample() -> None:
    (guarded,) = opcodes("unrolled")
    assert guarded.count("BRA ") > 512 and not re.search(f"(?:{SAMPLE}){{2}}", guarded)
