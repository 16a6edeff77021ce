"""Variants of every kernel family: the header of the source and `VARIANTS` list the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from kernels.common import nvrtc
from kernels.study.architecture import chain_of
from tests.emulator.device import HOST
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


RAGGED = np.arange(100, dtype=np.int32)
SMALL: dict[str, tuple[tuple[Any, ...], dict[str, int]]] = {  # by family, inputs and parameters
    "histogram": ((RAGGED[:96],), {"blocks": 2, "threads": 4, "slice": 12}),
    "map": ((RAGGED[:61], RAGGED[:61]), {"block": 32}),
    "matmul": ((np.ones((9, 5)), np.ones((5, 7))), {"x": 8, "y": 4}),
    "reduce": ((RAGGED,), {"op": "sum", "block": 64}),  # type: ignore[dict-item]
    "architecture": ((chain_of(64),), {"steps": 9}),
}


# The emulator ends these, which leave the part of an array that they were given.
WATCHED = {("stencil", "past_the_end"), ("transpose", "past_the_end")}


@pytest.mark.parametrize(
    ("family", "name"),
    [(job, name) for job, study in STUDIES.items() for name, one in study.variants.items()
     if one.timed and name != "missing_barrier" and (job, name) not in WATCHED],
)  # fmt: skip
def test_what_is_timed_is_what_runs(host: Any, family: str, name: str) -> None:
    """`timed` prepares once; each call of what it returns launches the same kernel of the study and nothing else."""
    variant, (arrays, own) = STUDIES[family].variants[name], SMALL[family]
    inputs = [host.asarray(array) for array in arrays]
    result = np.asarray(variant.run(*inputs, **own).get())
    launched = {instance for stem, instance in HOST.launched if stem == f"study/{family}"}
    launch = variant.timed(*inputs, **own)  # type: ignore[misc]
    for _ in range(2):
        HOST.launched.clear()
        np.testing.assert_array_equal(np.asarray(launch().get()), result)
        assert {instance for _, instance in HOST.launched} == launched
        assert {stem for stem, _ in HOST.launched} == {f"study/{family}"}
