"""Values that are imported when they are asked for."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest

from workflows import WORKFLOWS
from workflows.on_demand import OnDemand

SOURCE = """
import sys
from workflows import WORKFLOWS
assert len(WORKFLOWS) == 8 and "stencil" in WORKFLOWS and "nothing" not in WORKFLOWS
print("workflows.stencil" in sys.modules, WORKFLOWS.get("nothing"))
print(WORKFLOWS["stencil"].name, "workflows.stencil" in sys.modules, "workflows.matmul" in sys.modules)
"""


def test_a_job_imports_no_other() -> None:
    done = subprocess.run([sys.executable, "-c", SOURCE], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["False None", "stencil True False"]


def test_each_job_has_the_name_under_which_it_is_found() -> None:
    assert [workflow.name for workflow in WORKFLOWS.values()] == list(WORKFLOWS)


def test_values_are_made_once() -> None:
    made: list[int] = []
    some: OnDemand[object] = OnDemand({"list": lambda: made.append(1) or made, "class": "fractions:Fraction"})
    assert list(some) == ["list", "class"] and not made
    assert some["list"] is some["list"] is made and made == [1]
    assert some["class"] is Fraction


def test_values_can_be_set_and_taken_out() -> None:
    some: OnDemand[object] = OnDemand({"a": lambda: 1})
    some["a"], some["b"] = 2, 3
    assert dict(some) == {"a": 2, "b": 3} and some.setdefault("b", 4) == 3 and some.setdefault("c", 5) == 5
    del some["a"]
    assert "a" not in some and len(some) == 2
    with pytest.raises(KeyError, match="a"):
        some["a"]
