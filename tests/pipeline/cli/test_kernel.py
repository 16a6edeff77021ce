"""`--kernel`: what is refused, in one line, before anything starts; and where the kernel's name appears."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest
from click.testing import CliRunner, Result

import pipeline
import pipeline.cluster.placement
from kernels.study import histogram, matmul, reduce, stencil, transpose
from kernels.study import map as maps
from kernels.study.variant import Variant
from pipeline.by_kernel import by_kernel
from pipeline.cli.jobs import _named, job_command
from pipeline.engine.journal_request import Request
from pipeline.errors import UsageError
from pipeline.gpu.devices import Devices
from pipeline.storage.sources import open_source
from workflows import WORKFLOWS, Aggregation
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.study import jobs
from workflows.study.registry import JOBS, STUDIES

LADDERS = {"histogram": histogram, "matmul": matmul, "reduce": reduce, "stencil": stencil, "transpose": transpose,
           "map": maps}  # fmt: skip
BROKEN = [(job, name) for job, ladder in LADDERS.items() for name, one in ladder.VARIANTS.items() if one.broken]
WORDS = {"histogram": [], "matmul": [], "reduce": ["--op", "sum"], "stencil": [], "transpose": [], "map": ["add"]}
FILES = {"matmul": 2, "map": 2}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Arrays in the working folder, and no GPU."""
    monkeypatch.chdir(tmp_path)
    none = Devices((), None, None, "no NVIDIA driver is loaded")
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: none)
    for name, array in {
        "i": np.arange(100, dtype=np.int32), "f": np.ones((8, 8), np.float32), "d": np.ones((8, 8)),
        "j": np.ones((8, 8), np.int32), "v": np.ones(50, np.float32), "w": np.ones(2000, np.float32),
        "h": np.ones(50, np.int16), "k": np.ones((4, 4, 4), np.float32), "u": np.ones((4, 4), "M8[s]"),
    }.items():  # fmt: skip
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def command(job: str, *words: str) -> Result:
    output = [] if isinstance(WORKFLOWS[job], Aggregation) else ["-o", "out.npy"]
    return CliRunner().invoke(job_command(WORKFLOWS[job]), [*words, *output])


def refused(job: str, *words: str) -> str:
    done = command(job, *words)
    assert done.exit_code == 2 and not Path("out.npy").exists() and done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(("job", "name"), BROKEN)
def test_broken_variants_say_why(job: str, name: str) -> None:
    line = refused(job, *WORDS[job], *["f.npy"] * FILES.get(job, 1), "--kernel", name)
    assert f"error: {job}: --kernel {name}: expected a correct variant, one of " in line
    assert f"got one that is broken on purpose: {LADDERS[job].VARIANTS[name].broken}; `study {job}" in line


@pytest.mark.parametrize(
    ("job", "words", "line"),
    [
        ("histogram", "i.npy --kernel shred", "--kernel: expected one of global_atomics, .*production, got 'shred'"),
        ("histogram", "i.npy --kernel shared --bins 5", "expected the ladder's bins, --bins 1024 --range 0 1024, got "
         "--bins 5 --range 0 1024"),
        ("histogram", "i.npy --kernel shared --range auto", "got --bins 1024 --range auto"),
        ("histogram", "h.npy --kernel shared", "expected samples of int32, got int16; leave --kernel out"),
        ("reduce", "i.npy --kernel modulo", "expected --op with some of sum,mean,count or of max,count"),
        ("reduce", "i.npy --op sum,max --kernel modulo", "which one launch gives, got sum,max"),
        ("reduce", "i.npy --op sum --kernel atomic_max", "expected --op with some of max,count, .*got sum"),
        ("reduce", "i.npy --op count --kernel modulo", "got count"),
        ("reduce", "v.npy --op sum --nan omit --kernel modulo", "expected --nan propagate"),
        ("reduce", "h.npy --op sum --kernel modulo", "expected samples of int32 or float32 or float64, got int16"),
        ("matmul", "j.npy j.npy --kernel blocks_1d", "expected two factors of float32 or of float64, got int32 8×8"),
        ("matmul", "f.npy d.npy --kernel cublas", "got float32 8×8 and float64 8×8; leave --kernel out, or convert"),
        ("matmul", "f.npy v.npy --kernel blocks_1d", "expected as many columns"),
        ("matmul", "f.npy f.npy --arithmetic float --kernel blocks_1d", "expected no --arithmetic and no --output"),
        ("stencil", "f.npy --kernel shared_halo", "expected one axis of int32, float32, float64, got float32 8×8"),
        ("stencil", "v.npy --boundary wrap --kernel shared_halo", "expected plain sums with --boundary zero or valid"),
        ("stencil", "v.npy --radius 5000 --kernel shared_halo", "expected --radius 4096 at most, got 5000; leave"),
        ("stencil", "w.npy --radius 2000 --boundary valid --kernel global_memory", "expected at most 999"),
        ("transpose", "k.npy --kernel naive", "expected a matrix of bool, .*, got float32 4×4×4"),
        ("transpose", "u.npy --kernel naive", r"expected a matrix of bool, .*, got datetime64\[s\] 4×4"),
        ("map", "subtract v.npy v.npy --kernel grid", "expected the operation add, .*, got subtract"),
        ("map", "add v.npy v.npy --kernel product", "expected the operation multiply, .*, got add"),
        ("map", "add v.npy f.npy --kernel grid", "expected two arrays of one shape and of one dtype"),
        ("map", "add h.npy h.npy --kernel grid", "of one dtype: int32, float32, float64, got int16 50 and int16 50"),
        ("map", "add v.npy v.npy --kernel matrix_2d", "expected matrices, got float32 50"),
        ("map", "multiply w.npy w.npy --kernel product", "expected at most 1024 elements, since one block"),
        ("histogram", "i.npy --kernel shared --device cpu", "--kernel shared: expected a GPU, since variants are CUDA "
         "kernels, got --device cpu; leave one of them out"),
    ],
)  # fmt: skip
def test_what_a_variant_does_not_do(job: str, words: str, line: str) -> None:
    assert re.search(line, refused(job, *words.split()))


@pytest.mark.parametrize("job", LADDERS)
def test_no_gpu(job: str) -> None:
    """For the job's own kernel, too, if it is asked for as a variant."""
    files = {"histogram": "i", "matmul": "f", "reduce": "i", "stencil": "v", "transpose": "f", "map": "v"}[job]
    for name in ("production", next(iter(LADDERS[job].VARIANTS))):
        line = refused(job, *WORDS[job], *[f"{files}.npy"] * FILES.get(job, 1), "--kernel", name)
        assert line == (f"error: --kernel {name}: expected a GPU, but no NVIDIA driver is loaded; variants are CUDA "
                        "kernels: leave --kernel out")  # fmt: skip


def test_a_variant_that_needs_its_own_data(monkeypatch: pytest.MonkeyPatch) -> None:
    unfit = {"bare": Variant("bare", "", print, unfit="needs sizes that divide")}
    monkeypatch.setattr(histogram, "VARIANTS", histogram.VARIANTS | unfit)
    line = refused("histogram", "i.npy", "--kernel", "bare")
    assert "--kernel bare: expected a variant for any data, one of global_atomics, " in line
    assert line.endswith("got one that needs sizes that divide; `study histogram --variant bare` runs it")


def test_another_job_and_a_job_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--also` takes it; jobs without a ladder do not."""
    line = refused("reduce", "i.npy", "--op", "sum", "--also", "histogram --kernel no_barrier")
    assert "--also histogram: --kernel no_barrier: expected a correct variant" in line
    monkeypatch.setattr(jobs, "JOBS", ("reduce",))
    assert "expected a job with a ladder of kernels, reduce, got histogram" in refused("histogram", "i.npy", "--kernel",
                                                                                      "shared")  # fmt: skip


def test_from_python() -> None:
    with pytest.raises(UsageError, match="histogram: --kernel: expected one of global_atomics, "):
        pipeline.run("histogram", "i.npy", kernel="x")
    with pytest.raises(UsageError, match="--kernel shared: expected a GPU, but no NVIDIA driver is loaded"):
        pipeline.run("histogram", "i.npy", kernel="shared")
    with pytest.raises(UsageError, match="kernel: expected none with an array in memory, got 'shared'; variants read"):
        pipeline.run("histogram", np.arange(9, dtype=np.int32), kernel="shared")


def test_what_one_kernel_began_another_one_does_not_continue() -> None:
    source, options = open_source(("i.npy",)), HistogramOptions()
    requests = [Request(((_named(by_kernel(HISTOGRAM, options, name)), options),), (source,), (), "auto", None)
                for name in (None, "shared", "banks")]  # fmt: skip
    assert len({request.key() for request in requests}) == 3
    assert requests[1].describe() == f"histogram by study/shared of {source.names[0]}"


def test_every_study_ends_with_the_kernel_of_the_job() -> None:
    for job in JOBS:
        study = STUDIES[job]
        assert "production" in {case.variant for case in study.cases if case.quick}, job
        on_gpu = [name for name, one in study.variants.items() if not (one.broken or one.on_host)]
        assert on_gpu[-1] in ("production", "cublas"), job


def test_configuration() -> None:
    with dask.config.set({"pipeline.kernel": "shared"}):
        assert "--kernel shared: expected a GPU" in refused("histogram", "i.npy")


def test_no_job_is_changed() -> None:
    """A variant makes another job; without one it is the same object."""
    kept: Any = HISTOGRAM
    assert by_kernel(kept, HistogramOptions(), None) is kept and kept.kernel == ""
    assert by_kernel(kept, HistogramOptions(), "shared").kernel == "shared" and kept.kernel == ""
