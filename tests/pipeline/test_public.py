"""What the packages offer: docstrings with examples that run, types; a caller's client, jobs in the background."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from threading import Event
from typing import Any

import dask.array
import numpy as np
import pytest
from distributed import Client, LocalCluster

import kernels
import pipeline
import pipeline.background
import workflows
from kernels.common import nvrtc
from pipeline.engine.array import ArrayResult
from pipeline.engine.verdict import Verdict
from pipeline.errors import PipelineError, PipelineWarning, UsageError, VerificationError
from workflows.digest import DigestResult
from workflows.histogram_result import HistogramResult
from workflows.quantile_result import QuantileResult
from workflows.reduce_result import ReduceResult
from workflows.rows_result import HistogramRows, RowsResult
from workflows.selection_result import SelectedResult

ROOT = Path(__file__).parents[2]
OF_RUNS = [HistogramResult, HistogramRows, RowsResult, ReduceResult, QuantileResult, DigestResult, SelectedResult,
           ArrayResult, Verdict]  # fmt: skip
ERRORS = [PipelineError, PipelineWarning, UsageError, VerificationError]
NO_EXAMPLE = {"WORKFLOWS": "a dict: that of `register` uses it"}
PUBLIC: list[Any] = [
    *(getattr(package, name) for package in (pipeline, workflows, kernels) for name in package.__all__
      if name not in NO_EXAMPLE),
    *OF_RUNS, HistogramResult.plot, HistogramRows.plot, *ERRORS,
]  # fmt: skip


def test_what_has_no_example() -> None:
    assert all(isinstance(getattr(workflows, name), Mapping) for name in NO_EXAMPLE)


@pytest.mark.filterwarnings("default")  # one of the examples ignores ours
@pytest.mark.parametrize(
    "thing",
    [pytest.param(thing, marks=[pytest.mark.gpu] if thing is kernels.load else []) for thing in PUBLIC],
    ids=lambda thing: thing.__qualname__,
)
def test_example_runs(thing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kernels, "load", nvrtc.load)  # the emulator's, without a GPU
    registry = dict(workflows.WORKFLOWS)
    for module in ("workflows", "pipeline.api", "pipeline.arguments"):
        monkeypatch.setattr(f"{module}.WORKFLOWS", registry)
    (test,) = doctest.DocTestFinder(recurse=False).find(thing, thing.__qualname__)
    assert test.examples, "expected an example in the docstring"
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(
        test, out=told.append
    )
    assert not result.failed, "".join(told)


@pytest.mark.parametrize("thing", PUBLIC)
def test_members_are_described(thing: Any) -> None:
    members = vars(thing) if inspect.isclass(thing) else {"": thing}
    for name, member in members.items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(function) and not name.startswith("_") and function.__name__ != "<lambda>":
            assert inspect.getdoc(function), name


def test_packages_have_types() -> None:
    for package in ("pipeline", "kernels", "workflows"):
        assert (ROOT / package / "py.typed").is_file()


def test_import_is_light() -> None:
    """Importing the package, and what is asked for by name, loads neither Dask's scheduler nor matplotlib."""
    heavy = {"distributed", "matplotlib", "cupy", "rich", "bokeh", "prometheus_client"}
    code = f"import sys, pipeline; pipeline.run, pipeline.submit; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n", done.stderr


# --- a caller's own client --------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> str:
    np.arange(2**18, dtype=np.int32).tofile(tmp_path / "data.bin")
    return str(tmp_path / "data.bin")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.filterwarnings("ignore")
def test_run_on_a_client(path: str, client: Client) -> None:
    before = {address for address in client.scheduler_info()["workers"]}
    alone = pipeline.run("histogram", path, bins=64, range=(0, 2**18), device="cpu")
    result = pipeline.run("histogram", path, bins=64, range=(0, 2**18), client=client, chunk_bytes=2**16)
    assert result.counts.tobytes() == alone.counts.tobytes() == np.full(64, 2**12).tobytes()
    assert result.verification.chunks == 16
    durations = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert "compute_chunks" in durations  # there, and nowhere else
    assert client.status == "running"
    assert set(client.scheduler_info()["workers"]) == before
    assert client.submit(sum, [1, 2]).result(30) == 3


@pytest.mark.filterwarnings("ignore")
def test_array_job_on_a_client(tmp_path: Path, client: Client) -> None:
    array = np.arange(60000.0).reshape(200, 300)
    np.save(tmp_path / "a.npy", array)
    result = pipeline.run("transpose", tmp_path / "a.npy", output=tmp_path / "t.npy", client=client)
    np.testing.assert_array_equal(result.array, array.T)


@pytest.mark.filterwarnings("ignore")
def test_many_at_once_on_a_client(path: str, client: Client) -> None:
    jobs = [pipeline.submit("reduce", path, op="sum", client=client) for _ in range(5)]
    assert {job.result(60).values["sum"] for job in jobs} == {2**17 * (2**18 - 1)}


def test_clients_that_do_not_do(path: str) -> None:
    with pytest.raises(UsageError, match=r"client: expected a distributed.Client, got 5"):
        pipeline.run("reduce", path, client=5)
    with LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster, Client(cluster) as client:
        with pytest.raises(UsageError, match="expected client= or scheduler=, got both"):
            pipeline.run("reduce", path, client=client, scheduler="tcp://127.0.0.1:1")
        with pytest.raises(UsageError, match="--gpus: expected none for an existing cluster"):
            pipeline.run("reduce", path, client=client, gpus=1)
        with pytest.raises(UsageError, match=r"client: expected none with .* computed where they lie"):
            pipeline.run("reduce", np.arange(3), client=client)
    with pytest.raises(UsageError, match="expected a connected client, got one that is closed"):
        pipeline.run("reduce", path, client=client)


@pytest.mark.filterwarnings("ignore")
def test_in_a_coroutine(path: str) -> None:
    """The event loop that the client needs goes on; a call that would stop it is refused."""

    async def main() -> tuple[Any, int]:
        ticks = 0
        async with (
            LocalCluster(n_workers=1, processes=False, asynchronous=True, dashboard_address=":0") as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            with pytest.raises(UsageError, match=r"which would deadlock; call `await pipeline.submit"):
                pipeline.run("reduce", path, client=client)
            array = dask.array.arange(100, chunks=10)
            for name in ("reduce", "transpose"):
                with pytest.raises(UsageError, match=r"does not block the event loop.*; call `await pipeline.submit"):
                    pipeline.run(name, array)
            assert (await pipeline.submit("reduce", array, op="max")).values == {"max": 99}
            job = pipeline.submit("reduce", path, op="max", client=client)
            while not job.done():
                ticks += 1
                await asyncio.sleep(0.01)
            return await job, ticks

    result, ticks = asyncio.run(main())
    assert result.values["max"] == 2**18 - 1
    assert ticks > 1


# --- in the background ------------------------------------------------------------------------------------------------


def test_submit_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without clusters of the caller; what has not started can be cancelled, what has cannot."""
    running, go_on = Event(), Event()

    def slow(job: str) -> str:
        running.set()
        assert go_on.wait(60)
        if job == "wrong":
            raise VerificationError("a bin differs")
        return job

    monkeypatch.setattr(pipeline.background, "run", slow)
    first, second, third = (pipeline.submit(name) for name in ("first", "wrong", "third"))
    ended: list[Any] = []
    first.add_done_callback(ended.append)
    assert running.wait(60)
    with pytest.raises(TimeoutError):
        first.result(0.01)
    assert repr(first) == "<Submitted: pending>"
    assert not first.cancel()
    assert third.cancel() and repr(third) == "<Submitted: cancelled>"
    go_on.set()
    assert first.result(60) == "first"
    with pytest.raises(VerificationError, match="a bin differs"):
        second.result(60)
    assert isinstance(second.exception(60), VerificationError)
    with pytest.raises(CancelledError):
        third.result(60)
    assert ended == [first]


def test_errors_of_submitted_jobs(tmp_path: Path) -> None:
    async def main() -> None:
        await pipeline.submit("reduce", tmp_path / "missing.bin")

    with pytest.raises(UsageError, match="expected a file of samples, found none"):
        asyncio.run(main())


# --- notebooks --------------------------------------------------------------------------------------------------------


def test_notebooks_show_a_table_and_a_drawing() -> None:
    result = pipeline.run("histogram", np.arange(100), bins=1000, range=(0, 100))
    html = result._repr_html_()
    assert html.count("<svg") == 1
    assert html.count(",") < 5000  # points, however many bins there are
    assert "100 % of 100 samples checked" in html


@pytest.mark.parametrize("options", [{"where": "x < 9 and x > 1"}, {"segment": 10}, {"segment": 10, "where": "x < 5"}])
def test_notebooks_show_wrapped_results(options: dict[str, Any]) -> None:
    """What selects samples is shown as text: it may have signs that HTML has a meaning for."""
    for job in ("histogram", "reduce"):
        html = pipeline.run(job, np.arange(100), **options)._repr_html_()
        assert html.startswith("<div>") and html.endswith("</div>")
        assert "x < 9" not in html
        assert ("excluded" in html) == ("where" in options)
    if "segment" not in options:
        assert "x &lt; 9" in html


def test_plot_of_a_selection() -> None:
    pytest.importorskip("matplotlib").use("agg")
    result = pipeline.run("histogram", np.arange(100), bins=10, range=(0, 100), where="x < 50")
    assert result.plot().get_title() == "50 samples"


def test_hint_where_matplotlib_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"a picture needs matplotlib; pip install 'baru\[plot\]'"):
        pipeline.run("histogram", np.arange(5)).plot()
