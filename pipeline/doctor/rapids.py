"""The checks as a plug-in of `rapids doctor`, found through the entry point `rapids_doctor_check`."""

from __future__ import annotations

import warnings
from typing import Any

from pipeline.doctor.check import NOTE, PROBLEM, examine
from pipeline.doctor.checks import CHECKS


def baru_check(verbose: bool = False, **_: Any) -> str:
    """Check what jobs of baru need.

    Raises
    ------
    ValueError
        If something is wrong: what, and what to do. What is only slower is a warning.
    """
    lines = [(line.name, line.finding) for line in examine(CHECKS)]
    for name, finding in lines:
        if finding.state == NOTE:
            warnings.warn(f"baru: {name}: {finding.text}; {finding.remedy}", stacklevel=2)
    if problems := [f"{name}: {one.text}; {one.remedy}" for name, one in lines if one.state == PROBLEM]:
        raise ValueError("baru: " + " | ".join(problems))
    return "; ".join(f"{name}: {finding.text}" for name, finding in lines)
