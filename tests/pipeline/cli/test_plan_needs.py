"""What `plan` says that a run takes: the disk of each format, rows, blocks and chunks that are decoded."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import numpy as np
import pytest

from pipeline.estimate import aggregate, measured_speed
from tests.pipeline.cli.test_main import (
    Run,
    run,  # noqa: F401
)
from tests.pipeline.cli.test_plan import (
    planned,
    samples,  # noqa: F401
    small,  # noqa: F401
)


@pytest.mark.parametrize(
    "words", [["o.bin"], ["o.h5"], ["o.zarr"], ["o.zarr", "--chunks", "1,1"], ["o.zarr", "--chunks", "160,31"]]
)
def test_disk_of_each_format(
    words: list[str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    """As many bytes as the file has, with the index of chunks and what fills up those at the edges."""
    monkeypatch.chdir(tmp_path)
    np.save("m.npy", np.ones((30, 200)))
    (_, disk) = planned(run, "transpose", "m.npy", "-o", *words)["needs"]
    assert run("transpose", "m.npy", "-o", *words)[0] == 0
    assert disk["most"] == os.path.getsize("o.zarr/c/0/0" if words[0] == "o.zarr" else words[0])
    out = run("plan", "transpose", "m.npy", "-o", "t.bin")[1]
    assert re.search(r"^input, output +96,000 bytes in 1 chunk of at most 93.75 kiB$", out, re.M)


@pytest.mark.parametrize(
    ("words", "row", "grow"),
    [(["--axis", "1"], 8, True), (["--axis", "0"], 8, False), (["--segment", "10"], 10, True),
     (["--channels", "20"], 20, False), (["--channels", "400", "--layout", "planar"], 400, False)],
)  # fmt: skip
def test_rows_are_measured_as_they_are(
    words: list[str], row: int, grow: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    """As long, or as many, as those of the source, and not more than take some seconds."""
    monkeypatch.setattr(aggregate, "MOST_ROWS", 64)
    monkeypatch.setattr(measured_speed, "read_cached", lambda *_: None)
    shapes: list[tuple[int, ...]] = []
    generated = aggregate._generated
    monkeypatch.setattr(aggregate, "_generated", lambda *asked: (shapes.append(asked[2]), generated(*asked))[1])
    np.save(tmp_path / "m.npy", np.ones((5000, 8), "<i4"))
    assert planned(run, "reduce", tmp_path / "m.npy", "--op", "sum", *words)["time"]["run"] > 0
    sizes, most = [math.prod(shape) for shape in shapes], 64 * row if grow else 2**14
    assert sizes and all(size % row == 0 and size <= most for size in sizes) and max(sizes) > most // 2


def test_rows_take_memory(run: Run, tmp_path: Path) -> None:  # noqa: F811
    """All of them, as often as the run itself says."""
    np.save(tmp_path / "m.npy", np.ones(40_000, "<i4"))
    one, many = (planned(run, "histogram", tmp_path / "m.npy", "--bins", 100, "--segment", length)["needs"][0]["most"]
                 for length in (40_000, 10))  # fmt: skip
    assert many - one >= 4 * 3999 * 8 * 100


def test_blocks_that_are_decoded_take_memory(run: Run, tmp_path: Path) -> None:  # noqa: F811
    """As many as there are threads, or blocks; the least is one for each thread."""
    values = np.arange(3_000_000, dtype="<i4")
    np.save(tmp_path / "m.npy", values)
    np.savez_compressed(tmp_path / "m.npz", values)
    one, other = (planned(run, "histogram", tmp_path / name)["needs"][0] for name in ("m.npy", "m.npz"))
    assert other["most"] - one["most"] == pytest.approx(3 * values.nbytes, rel=0.02)  # and fewer parts
    assert "1 decoded block of 11.44 MiB" in other["how"]
    assert other["least"] > 2 * values.nbytes > one["least"]


def test_chunks_that_are_decoded_for_regions(run: Run, tmp_path: Path) -> None:  # noqa: F811
    """They take memory whatever the limit is, and time that is not known."""
    zarr = pytest.importorskip("zarr")
    np.save(tmp_path / "m.npy", np.ones((300, 200)))
    zarr.create_array(str(tmp_path / "m.zarr"), data=np.ones((300, 200)), chunks=(100, 200))
    words = ("-o", tmp_path / "t.npy", "--memory-limit", 100_000)
    one, other = (planned(run, "transpose", tmp_path / name, *words) for name in ("m.npy", "m.zarr"))
    chunk, (needed, needs) = 100 * 200 * 8, (plan["needs"][0] for plan in (one, other))
    assert needs["least"] == needed["least"] + chunk and needs["most"] >= needed["most"] + 2 * chunk
    assert (one["time"]["left_out"], other["time"]["left_out"]) == ("", "decoding what the file has in another form")


def test_runs_that_take_long_are_not_repeated(
    run: Run, samples: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    checks: list[str] = []
    real = aggregate.run_all
    monkeypatch.setattr(aggregate, "run_all", lambda jobs, source, how, **more: (
        checks.append(how.verify), real(jobs, source, how, **more))[1])  # fmt: skip
    monkeypatch.setattr(measured_speed, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(measured_speed, "read_cached", lambda *_: None)
    planned(run, "histogram", samples, "--bins", 77)
    assert checks == ["full", "off", "full"]


@pytest.mark.parametrize(
    ("words", "message"),
    [(["t.npz"], "got another name"), (["t.npy", "--chunks", "1,1"], "an output that is a Zarr store"),
     (["t.zarr", "--chunks", "1"], "expected 2 lengths")],
)  # fmt: skip
def test_outputs_that_a_run_refuses(words: list[str], message: str, run: Run, tmp_path: Path) -> None:  # noqa: F811
    np.save(tmp_path / "m.npy", np.ones((30, 200)))
    output, *more = words
    for before in ([], ["plan"]):
        status, _, err = run(*before, "transpose", tmp_path / "m.npy", "-o", tmp_path / output, *more)
        assert status == 2 and message in err
