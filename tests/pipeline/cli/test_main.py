"""The command line as its user sees it: output on stdout and stderr, and right results."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uhi.schema

from pipeline.cli.main import main
from pipeline.cli.progress import LINE_SECONDS
from workflows import WORKFLOWS
from workflows.array_job import ArrayJob
from workflows.histogram import HISTOGRAM

ECG = Path(__file__).parents[3] / "data" / "ecg.npy"
NO_DASK_CONFIG = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs the command line here: (exit status, stdout, stderr)."""
    handler = signal.getsignal(signal.SIGTERM)

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in words])
        return int(caught.value.code or 0), *capsys.readouterr()

    yield call
    signal.signal(signal.SIGTERM, handler)


def spawn(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments."""
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, timeout=60, env=NO_DASK_CONFIG | environment
    )


def counts_of(run: Run, *words: object) -> dict[str, Any]:
    """Result of a histogram that must succeed: underflow, the counts, overflow."""
    status, out, err = run("histogram", *words, "--json")
    assert (status, err) == (0, "")
    result: dict[str, Any] = json.loads(out)["result"]
    return result | {"values": result["histogram"]["storage"]["values"], "axis": result["histogram"]["axes"][0]}


@pytest.mark.parametrize("bins", [1024, 20])  # with 20 the first ten are not all zero
def test_panel_of_the_recording(run: Run, bins: int) -> None:
    status, out, err = run("histogram", ECG, "--bins", bins, "--range", 0, 2048)
    assert (status, err) == (0, "")
    counts, _ = np.histogram(np.load(ECG), bins, (0, 2048))
    lines = out.splitlines()
    assert lines[0] == "histogram of data/ecg.npy (uint16)"
    assert f"first ten counts  {counts[:10].tolist()}" in lines
    assert "samples           108,000" in lines
    assert not [line for line in lines if "GB/s" in line]
    assert lines[-2] == "verdict           100 % of 108,000 samples checked: equal to the reference"
    assert lines[-1] == "                  every invariant holds on the chunk"


def test_first_ten_counts_are_those_of_the_course(run: Run, tmp_path: Path) -> None:
    """A file of 10-bit int32 samples needs no options."""
    path = tmp_path / "data.bin"
    assert run("generate", path, "--samples", 5000) == (0, "", "")
    _, out, _ = run("histogram", path)
    counts, _ = np.histogram(np.fromfile(path, "<i4"), 1024, (0, 1024))
    assert f"\nfirst ten counts  {counts[:10].tolist()}\n" in out


def test_json_is_one_object(run: Run) -> None:
    status, out, err = run("histogram", ECG, "--range", 300, 1024, "--json")
    assert (status, err, out.count("\n")) == (0, "", 1)
    document = json.loads(out)
    assert list(document) == ["job", "input", "result", "verification", "performance", "environment"]
    assert list(document["result"]) == ["histogram", "samples", "underflow", "overflow", "nan", "choice"]
    assert document["result"]["choice"] == {"rule": "", "width": 1, "asked": 724, "bins": 724}
    uhi.schema.validate({"ecg": document["result"]["histogram"]})
    samples = np.load(ECG)
    counts, _ = np.histogram(samples, 724, (300, 1024))
    above = int((samples > 1024).sum())
    assert document["result"]["histogram"]["storage"]["values"] == [0, *counts.tolist(), above]
    assert [document["result"][name] for name in ("samples", "underflow", "overflow", "nan")] == [108000, 0, above, 0]


def test_streams_of_a_process(tmp_path: Path) -> None:
    """In a real process: stdout is the JSON object alone, stderr is empty, the result file exists."""
    path = tmp_path / "result.json"
    done = spawn("-m", "pipeline", "histogram", ECG, "--json", "-o", path)
    assert (done.returncode, done.stderr) == (0, "")
    written, printed = json.loads(path.read_bytes())["histogram"], json.loads(done.stdout)
    assert json.loads(written["writer_info"]["baru"].pop("run"))["verification"] == printed["verification"]
    assert written == printed["result"]["histogram"]


@pytest.mark.parametrize("suffix", HISTOGRAM.formats)
def test_output(run: Run, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"result{suffix}"
    status, out, err = run("histogram", ECG, "-o", path)
    assert (status, err) == (0, "")
    assert "verdict" in out
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_size > 1000


def test_result_does_not_depend_on_chunks(run: Run) -> None:
    """The same bytes for 1, 2, 3 and 7 chunks, for all modes of verification, on one file or two."""
    results, chunks = set(), []
    for size, verify in ((216000, "full"), (108000, "sample"), (72000, "off"), (32000, "full")):
        _, out, _ = run("histogram", ECG, "--json", "-c", size, "--verify", verify)
        document = json.loads(out)
        results.add(json.dumps(document["result"]))
        chunks.append(document["verification"]["chunks"])
        assert document["verification"]["mode"] == verify
    assert chunks == [1, 2, 3, 7]
    assert len(results) == 1


def test_several_files_count_as_one(run: Run, tmp_path: Path) -> None:
    for number in range(3):
        np.arange(number + 1, dtype="<i4").tofile(tmp_path / f"run-{number}.bin")
    for files in ([tmp_path / "run-*.bin"], sorted(tmp_path.iterdir())):
        got = counts_of(run, *files)
        assert (got["samples"], got["values"][1:5]) == (6, [3, 2, 1, 0])


@pytest.mark.parametrize(
    ("dtype", "distribution"),
    [("int8", "uniform"), ("uint16", "hot"), ("int64", "zipf"), ("float16", "sorted"), ("float32", "gaussian"),
     ("float64", "constant")],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".bin", ".npy"])
def test_generated_file(run: Run, tmp_path: Path, dtype: str, distribution: str, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    arguments = ("--samples", 3001, "--dtype", dtype, "--distribution", distribution, "--seed", 7)
    assert run("generate", path, *arguments) == (0, "", "")
    samples = np.load(path) if suffix == ".npy" else np.fromfile(path, dtype)
    got = counts_of(run, path, "--dtype", dtype, "--bins", 100, "--range", 0, 1024)
    counts, _ = np.histogram(samples.astype(float), 100, (0, 1024))
    assert (got["samples"], got["values"]) == (3001, [0, *counts.tolist(), 0])


@pytest.mark.parametrize(
    ("samples", "lower", "upper"),
    [
        ([-3.5, 8.0, 2.0], -3.5, 8.0),
        ([np.nan, -np.inf, 2.0, 7.0, np.inf], 2.0, 7.0),
        ([4.0, 4.0], 3.5, 4.5),
        ([0.0], -0.5, 0.5),
    ],
)
def test_range_auto(run: Run, tmp_path: Path, samples: list[float], lower: float, upper: float) -> None:
    array = np.array(samples, "<f4")
    array.tofile(tmp_path / "data.bin")
    for words in (["--range", "auto"], ["--range=auto"]):
        got = counts_of(run, *words, tmp_path / "data.bin", "--dtype", "float32", "--bins", 4)
        assert (got["axis"]["lower"], got["axis"]["upper"]) == (lower, upper)
        inside = array[np.isfinite(array)]
        counts, _ = np.histogram(inside, 4, (lower, upper))
        assert got["values"] == [int((array < lower).sum()), *counts.tolist(), int((array > upper).sum())]
        assert got["nan"] == int(np.isnan(array).sum())


def test_negative_range(run: Run, tmp_path: Path) -> None:
    np.array([-6, -5, -1, 4, 5, 6], "<i4").tofile(tmp_path / "data.bin")
    got = counts_of(run, tmp_path / "data.bin", "--bins", 2, "--range", -5, 5)
    assert got["values"] == [1, 2, 2, 1]


def test_edges(run: Run, tmp_path: Path) -> None:
    edges = [327, 900.5, 1000, 1754]
    (tmp_path / "edges.txt").write_text("\n".join(map(str, edges)))
    np.save(tmp_path / "edges.npy", edges)
    counts, _ = np.histogram(np.load(ECG), edges)
    for name in ("edges.txt", "edges.npy"):
        got = counts_of(run, ECG, "--edges", tmp_path / name)
        assert got["values"] == [0, *counts.tolist(), 0]
        assert (got["axis"]["type"], got["axis"]["edges"]) == ("variable", edges)


def test_progress_goes_to_stderr(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.cli.progress.LINE_SECONDS", 0.001)
    arguments = ("histogram", ECG, "--json", "-c", 108000)
    status, out, err = run(*arguments)
    assert status == 0
    assert "histogram: starting, 0 s" in err.splitlines()
    assert set(json.loads(out)["result"]) == {"histogram", "samples", "underflow", "overflow", "nan"}
    assert run(*arguments, "-q")[2] == ""
    assert LINE_SECONDS == 10


def test_configuration(tmp_path: Path) -> None:
    """An environment variable overrides a default, and a flag overrides both."""
    environment = {"DASK_PIPELINE__CHUNK_SIZE": "108kB", "DASK_PIPELINE__BINS": "16", "DASK_PIPELINE__JSON": "true"}
    done = spawn("-m", "pipeline", "histogram", ECG, "--bins", 32, DASK_CONFIG=str(tmp_path), **environment)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["verification"]["chunks"] == 2
    assert document["result"]["histogram"]["axes"][0]["bins"] == 32


def test_help_is_light() -> None:
    """No --help imports slow modules."""
    program = """if True:
        import sys
        from pipeline.cli.main import cli, main
        for words in ([], *([name] for name in cli.commands)):
            try:
                main([*words, "--help"])
            except SystemExit as end:
                assert not end.code
        heavy = {"cupy", "dask_cuda", "distributed", "kvikio", "matplotlib", "rich"} & set(sys.modules)
        print("heavy:", sorted(heavy))
    """
    done = spawn("-c", program)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("heavy: []\n")
    for text in ("histogram [OPTIONS] FILES...", "transpose [OPTIONS] FILE\n", "matmul [OPTIONS] FILES...",
                 "map [OPTIONS] OPERATION FILES...", "stencil [OPTIONS] FILES...", "generate [OPTIONS] FILE",
                 "devices [OPTIONS]", "[OPTIONS] [COMMAND]"):  # fmt: skip
        assert f"Usage: python -m pipeline {text}" in done.stdout


def test_help_names_every_flag(run: Run) -> None:
    status, out, err = run("histogram", "--help")
    assert (status, err) == (0, "")
    for flag in ("--bins", "--range LO HI", "--edges FILE", "--dtype", "--byteorder", "--offset", "--verify",
                 "-o, --output", "--json", "-q, --quiet", "--scheduler ADDRESS", "--scheduler-file"):  # fmt: skip
        assert flag in out
    text = " ".join(out.split())
    assert "1 to 1048576, or a rule of NumPy that chooses it: auto, fd, doane," in text
    assert "in one extra pass. [default: 0 1024]" in text


def sections(text: str) -> dict[str, str]:
    """Text of each section of a help by its heading."""
    parts = re.split(r"^(\S.*):$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_help_has_groups_and_an_example(run: Run) -> None:
    for name, workflow in WORKFLOWS.items():
        parts = sections(run(name, "--help")[1])
        assert list(parts) == ["Example", "Input", "Computation", "Output", "Where it runs", "Other"]
        assert parts["Example"].strip() == f"python -m pipeline {name} {workflow.example}"
        own = "--chunks" if isinstance(workflow, ArrayJob) else "--draw"
        outputs = ["-o,", own, "--json", "--trace", "--performance-report", "--log-format", "-q,"]
        assert re.findall(r"^  (\S+)", parts["Output"], re.MULTILINE) == outputs
        own = [f"--{f.name.replace('_', '-')}" for f in fields(workflow.options) if f.default is not MISSING]
        assert re.findall(r"^  (--\S+)", parts["Computation"], re.MULTILINE)[: len(own)] == own
        assert max(map(len, "".join(parts.values()).splitlines())) <= 80


def test_help_lists_jobs_before_other_commands(run: Run) -> None:
    parts = sections(run("--help")[1])
    assert re.findall(r"^  (\w+)", parts["Jobs"], re.MULTILINE) == list(WORKFLOWS)
    assert re.findall(r"^  (\w+)", parts["Other commands"], re.MULTILINE) == [
        "generate", "demo", "doctor", "plan", "compare", "config", "devices", "info", "runs", "study", "inspect",
    ]  # fmt: skip
    assert re.findall(r"^  (\w+)", parts["Batches"], re.MULTILINE) == ["run", "slurm"]
    assert re.findall(r"^  (\w+)", parts["Results"], re.MULTILINE) == ["show", "merge", "diff", "verify"]
    assert "..." not in "".join(parts.values())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_example_of_the_help_runs(run: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for file in ("data.bin", "run-1.bin", "run-2.bin"):
        np.arange(64, dtype="<i4").tofile(file)
    for file in ("a.npy", "b.npy", "c.npy", "trace.npy"):
        np.save(file, np.arange(64.0).reshape(8, 8))
    status, out, _ = run(name, *shlex.split(WORKFLOWS[name].example))
    assert status == 0 and "verdict" in out


def test_dask_pipeline(tmp_path: Path) -> None:
    done = spawn("-m", "dask", "pipeline", "histogram", ECG, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["result"]["samples"] == 108000
    done = spawn("-m", "dask", "pipeline", "histogram", tmp_path, "--bins", 0)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --bins: expected 1 to 1048576, got 0\n"
