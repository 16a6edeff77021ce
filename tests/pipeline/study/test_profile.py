"""The table in the manner of nvprof: what is run, what is added up."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.study.variant import Variant, by_name
from pipeline.study import profile as module
from pipeline.study.profile import ACTIVITIES, CALLS, TO_DEVICE, TO_HOST, by_nsys, lines, profile, profile_table
from tests.cases.toy_study import ToyTracer, case, double, toy
from workflows.study.study import parameters


def test_one_run_of_each_right_kernel() -> None:
    """The smallest case of each; neither broken ones nor baselines, nor what is refused."""
    study = toy(
        case("double", parameters=parameters(block=2048)), case("twice", n=3), case("twice", n=5), case("racy"),
        case("cpu"),
    )  # fmt: skip
    tracer = ToyTracer()
    table = {(line.kind, line.name): line.calls for line in profile(study, study.cases, tracer)}
    assert table == {(ACTIVITIES, TO_DEVICE): 1, (ACTIVITIES, "twice"): 1, (ACTIVITIES, TO_HOST): 1,
                     (CALLS, "cudaMalloc"): 1}  # fmt: skip


def test_the_smallest_case_is_run() -> None:
    seen: list[int] = []
    variants = by_name(Variant("double", "", lambda x: seen.append(len(x)) or double(x)))
    study = toy(*(case("double", n=n) for n in (5, 3, 3, 7)), variants=variants, work=lambda case: 1.0 * case.sizes[0])
    profile(study, study.cases, ToyTracer())
    assert seen == [3]


def test_results_are_those_of_the_variant() -> None:
    seen: list[Any] = []
    variants = by_name(Variant("double", "", lambda x: seen.append(x) or double(x)))
    study = toy(case("double", n=4), variants=variants)
    profile(study, study.cases, ToyTracer())
    assert len(seen) == 1 and seen[0].shape == (4,)


def test_lines() -> None:
    steps = [(CALLS, "cudaMalloc", 6.0), (ACTIVITIES, "kernel", 1.0), (ACTIVITIES, TO_HOST, 2.0),
             (CALLS, "cudaMemcpy", 2.0), (ACTIVITIES, TO_HOST, 5.0)]  # fmt: skip
    copies, kernel, malloc, memcpy = lines(steps)
    assert (copies.name, copies.share, copies.total, copies.calls) == (TO_HOST, 7 / 8, 7.0, 2)
    assert (copies.mean, copies.least, copies.most) == (3.5, 2.0, 5.0)
    assert (kernel.name, kernel.share, malloc.share, memcpy.share) == ("kernel", 1 / 8, 0.75, 0.25)
    assert profile_table((copies,))[1] == [ACTIVITIES, "87.50%", "7", "2", "3.5", "2", "5", TO_HOST]
    assert lines([]) == ()


@pytest.mark.parametrize(
    ("path", "start"), [("/usr/bin/nsys", "the driver's own records: nsys"), (None, "nsys is not")]
)
def test_nsys_is_named(path: str | None, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: path)
    assert by_nsys("map").startswith(start)


@pytest.mark.gpu
@pytest.mark.hardware
def test_steps_on_a_gpu() -> None:
    from pipeline.study.tracer import CupyTracer
    from workflows.study.registry import STUDIES

    study = STUDIES["transpose"]
    cases = [case for case in study.cases if case.sizes == (1024, 1024)]
    table = {(line.kind, line.name): line for line in profile(study, cases, CupyTracer())}
    assert table[ACTIVITIES, TO_DEVICE].calls == table[ACTIVITIES, TO_HOST].calls == 4
    assert table[CALLS, "cudaMalloc"].calls >= 8 and table[CALLS, "cudaMemcpy"].calls == 8
    assert table[ACTIVITIES, "padded_tile"].total > 0
