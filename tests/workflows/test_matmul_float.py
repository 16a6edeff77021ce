"""Products by the library: labelled everywhere, never the same bits by promise, checked within their bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner

import pipeline
from kernels.matmul.library import LibraryProduct
from pipeline.cli.jobs import job_command
from pipeline.cluster.placement import Placement
from pipeline.engine.array import run_array
from pipeline.engine.journal_request import Request
from pipeline.engine.outcome import Outcome
from pipeline.errors import UsageError, VerificationError
from pipeline.report.panel import panel, to_json
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.benchmarks.jobs import JOBS
from tests.cases.matmul import FLOATS, Array, factors, generator
from tests.emulator.cupy import MATH_MODES, on_host
from workflows.matmul import BY_LIBRARY, MATMUL, MatmulOptions
from workflows.regions import Spec

pytestmark = pytest.mark.usefixtures("shared")
FLOAT = MatmulOptions(arithmetic="float")


def outcome_of(folder: Path, a: Array, b: Array, options: MatmulOptions = FLOAT, **keywords: Any) -> Outcome:
    for name, array in (("a", a), ("b", b)):
        np.save(folder / f"{name}.npy", array)
    sources = [open_source((str(folder / f"{name}.npy"),), samples=False) for name in "ab"]
    return run_array(MATMUL, options, sources, str(folder / "c.npy"), Settings(Placement("cpu"), **keywords))


def closely(got: Array, a: Array, b: Array) -> None:
    """Within the conventional bound, of long doubles."""
    a, b = (factor.astype(np.longdouble) for factor in (a, b))
    unit = {"float16": 2.0**-24, "float32": 2.0**-24, "float64": 2.0**-53}[got.dtype.name]
    bound = a.shape[-1] * unit * (np.abs(a) @ np.abs(b)) * 1.01
    if got.dtype == np.float16:
        bound += np.abs(a @ b) * 2.0**-11
    assert (np.abs(got - a @ b) <= bound).all()


@pytest.mark.parametrize(
    "dtypes", [(dtype, dtype) for dtype in FLOATS] + [("float32", "float64"), ("int16", "float32")]
)
def test_from_file_to_file(tmp_path: Path, dtypes: tuple[str, str]) -> None:
    a, b = factors("ordinary", "float64", 70, 200, 90)
    a, b = (100 * a).astype(dtypes[0]), b.astype(dtypes[1])
    outcome = outcome_of(tmp_path, a, b, chunk_bytes=2**14)
    got = outcome.result.array
    assert got.dtype == np.result_type(a, b) and outcome.verdict.chunks > 1
    closely(got, a.astype(got.dtype), b.astype(got.dtype))
    assert outcome.verdict.checked == got.size


def test_it_is_labelled_everywhere(tmp_path: Path) -> None:
    a, b = factors("ordinary", "float32", 30, 40, 50)
    outcome = outcome_of(tmp_path, a, b)
    document = to_json(outcome)
    bound = "within γ(40) Σ|a||b|"
    assert document["job"]["options"]["arithmetic"] == "float"
    assert BY_LIBRARY in document["result"]["notes"]["arithmetic"]
    assert bound in document["verification"]["rounding"] and BY_LIBRARY in document["verification"]["rounding"]
    assert bound in document["verification"]["verdict"] and BY_LIBRARY in document["verification"]["verdict"]
    lines = "\n".join(panel(outcome))
    assert lines.count(BY_LIBRARY) == 2 and "goes unnoticed" in lines  # of the arithmetic, of the verdict
    assert BY_LIBRARY in str(outcome_of(tmp_path, a, b, verify="off").verdict)


def test_what_is_exact_is_not_labelled(tmp_path: Path) -> None:
    """Integers are exact whatever is asked for, and it is said."""
    a, b = factors("ordinary", "int16", 20, 30, 40)
    outcome = outcome_of(tmp_path, a, b)
    assert (outcome.result.array == a.astype(np.int64) @ b).all() and outcome.verdict.rounding is None
    note = outcome.result.notes["arithmetic"]
    assert note.startswith("exact, of integers (--arithmetic float is for floats)") and BY_LIBRARY not in note
    outcome = outcome_of(tmp_path, a.astype("float32"), b.astype("float32"), MatmulOptions())
    assert BY_LIBRARY not in "\n".join(panel(outcome)) and "rounding" not in to_json(outcome)["verification"]


def test_a_replay_is_refused_and_one_of_integers_is_not(tmp_path: Path) -> None:
    a, b = factors("ordinary", "float32", 20, 30, 40)
    with pytest.raises(UsageError, match=r"expected no --replay of what is within .* bits differ between machines"):
        outcome_of(tmp_path, a, b, replay=0.5)
    assert not (tmp_path / "c.npy").exists()
    assert outcome_of(tmp_path, *factors("ordinary", "int16", 20, 30, 40), replay=1.0).verdict.replayed


def test_a_journal_of_one_arithmetic_is_not_continued_with_the_other(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((4, 4)))
    source = open_source((str(tmp_path / "a.npy"),), samples=False)
    keys = {
        Request((("matmul", MatmulOptions(arithmetic=name)),), (source, source), ("c.npy",), "auto", None).key()
        for name in ("exact", "float")
    }
    assert len(keys) == 2


def test_by_name_from_python_on_the_command_line_and_by_configuration(tmp_path: Path) -> None:
    a, b = factors("ordinary", "float32", 20, 30, 40)
    for name, array in (("a", a), ("b", b)):
        np.save(tmp_path / f"{name}.npy", array)
    paths = [str(tmp_path / f"{name}.npy") for name in "ab"]
    result = pipeline.run("matmul", *paths, output=tmp_path / "c.npy", arithmetic="float", device="cpu")
    closely(result.array, a, b)
    with pytest.raises(UsageError, match="--arithmetic: expected exact or float, got 'fast'"):
        pipeline.run("matmul", *paths, output=tmp_path / "c.npy", arithmetic="fast", device="cpu")
    words = [*paths, "-o", str(tmp_path / "d.npy"), "--device", "cpu"]
    done = CliRunner().invoke(job_command(MATMUL), [*words, "--arithmetic", "float"])
    assert done.exit_code == 0 and BY_LIBRARY in done.output
    with dask.config.set({"pipeline.arithmetic": "float"}):
        assert BY_LIBRARY in CliRunner().invoke(job_command(MATMUL), words).output


def test_no_measured_row_of_identical_bits_is_by_the_library() -> None:
    """Rows of all jobs in all places claim the same bits."""
    assert any(name == "matmul" for name, *_ in JOBS)
    assert not any("arithmetic" in word for _, options, _ in JOBS for word in options)


def test_a_wrong_element_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = LibraryProduct.add

    def wrong(self: Any, a: Any, b: Any) -> None:
        add(self, a, b)
        self._total[3, 4] = 0

    monkeypatch.setattr(LibraryProduct, "add", wrong)
    with pytest.raises(VerificationError, match="a number is wrong"):
        outcome_of(tmp_path, *factors("ordinary", "float32", 20, 30, 40))
    assert not (tmp_path / "c.npy").exists()


@pytest.mark.parametrize("lazy", [False, True])
def test_arrays_in_memory(lazy: bool) -> None:
    """Labelled, and integers are not."""
    pair = factors("ordinary", "float32", 60, 200, 70)
    given = [da.from_array(array, chunks=40) for array in pair] if lazy else pair
    result = pipeline.run("matmul", *given, arithmetic="float", device="cpu")
    closely(np.asarray(result.array), *pair)
    assert BY_LIBRARY in str(result.verification) and BY_LIBRARY in result.notes["arithmetic"]
    if not lazy:
        exact = pipeline.run("matmul", *factors("ordinary", "int16", 5, 6, 7), arithmetic="float", device="cpu")
        assert BY_LIBRARY not in str(exact.verification)


@pytest.mark.parametrize("inner", [30, 20_000])
@pytest.mark.parametrize("dtype", FLOATS)
def test_on_a_device(monkeypatch: pytest.MonkeyPatch, dtype: str, inner: int) -> None:
    """Emulated: whole factors, and slabs of a long sum; float16 without sums in float16."""
    random = generator("device", dtype, inner)
    pair = [random.standard_normal(shape).astype(dtype) for shape in ((5, inner), (inner, 7))]
    specs = [Spec(array.shape, array.dtype) for array in pair]
    with on_host(monkeypatch) as cupy:
        MATH_MODES.clear()

        def read(number: int, bounds: Any) -> Any:
            return cupy.asarray(pair[number][tuple(slice(*ends) for ends in bounds)])

        computed = MATMUL.compute(read, ((0, 5), (0, 7)), specs, FLOAT)
        got = computed.elements.get()
        assert ([16, 0] if dtype == "float16" and inner == 30 else []) == MATH_MODES
    assert not computed.counts and got.dtype == dtype
    closely(got, *pair)
