"""Variants of every kernel family: what the header of the source says of them, `VARIANTS` says, too."""

from __future__ import annotations

import re

import pytest

from kernels.common import nvrtc
from workflows.study.registry import STUDIES


@pytest.mark.parametrize("family", STUDIES)
def test_header_lists_the_variants(family: str) -> None:
    """In their order, a line each, with why a variant is wrong that is kept to be caught."""
    header = (nvrtc.KERNELS / f"study/{family}.cu").read_text(encoding="utf-8").partition("\n\n")[0]
    listed = re.findall(r"^//   (\w+)  +(.+)$", header, re.MULTILINE)
    production = [line for line in listed if line[0].startswith("histogram_")]  # kernels that studies call by one name
    variants = STUDIES[family].variants.values()
    assert [line for line in listed if line not in production] == [
        (variant.name, variant.idea + (f"; broken: {variant.broken}" if variant.broken else "")) for variant in variants
    ]
