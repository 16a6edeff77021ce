"""Variants of every kernel family: the header of the source and `VARIANTS` list the same."""

from __future__ import annotations

import re

import pytest

from kernels.common import nvrtc
from workflows.study.registry import STUDIES


@pytest.mark.parametrize("family", STUDIES)
def test_header_lists_the_variants(family: str) -> None:
    """In the same order, one line each; broken variants with the reason why they are wrong."""
    header = (nvrtc.KERNELS / f"study/{family}.cu").read_text(encoding="utf-8").partition("\n\n")[0]
    listed = re.findall(r"^//   (\w+)  +(.+)$", header, re.MULTILINE)
    production = [line for line in listed if line[0].startswith("histogram_")]  # kernels that studies call by one name
    variants = STUDIES[family].kernels.values()
    assert [line for line in listed if line not in production] == [
        (variant.name, variant.idea + (f"; broken: {variant.broken}" if variant.broken else "")) for variant in variants
    ]
