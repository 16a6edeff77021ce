"""`show` draws saved results: how a picture is drawn, and two histograms with their ratio."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import pipeline
from pipeline.cli.main import cli
from pipeline.report.pictures import content, picture
from workflows import pictures
from workflows.shown import two_axes

REQUEST = ("--dtype", "int16", "--range", "0", "100", "--device", "cpu", "-q", "-o")


def call(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stderr


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """a.json, b.json of the same bins; other.json of others; sum.json; rows.json."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("ab"):
        np.random.default_rng(seed).integers(0, 100, 4000).astype("<i2").tofile(f"{name}.bin")
        assert call("histogram", f"{name}.bin", "--bins", "20", *REQUEST, f"{name}.json")[0] == 0
    assert call("histogram", "a.bin", "--bins", "10", *REQUEST, "other.json")[0] == 0
    assert call("histogram", "a.bin", "--bins", "20", "--segment", "1000", *REQUEST, "rows.json")[0] == 0
    assert call("reduce", "a.bin", "--dtype", "int16", "--device", "cpu", "-q", "-o", "sum.json")[0] == 0


def histogram(name: str) -> pipeline.HistogramResult:
    samples = np.fromfile(f"{name}.bin", "<i2")
    result: pipeline.HistogramResult = pipeline.run("histogram", samples, bins=20, range=(0, 100))
    return result


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("how", pictures.HOW)
def test_a_saved_result_is_drawn_as_the_run_would_draw_it(how: str) -> None:
    assert call("show", "a.json", "--draw", how, "-o", "a.png") == (0, "")
    assert Path("a.png").read_bytes() == picture(histogram("a"), ".png", how)


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("how", pictures.HOW)
def test_two_histograms_and_their_ratio(how: str) -> None:
    assert call("show", "a.json", "--against", "b.json", "--draw", how, "-o", "both.png") == (0, "")
    figure = pictures.new_figure(pictures.SIZE[1] * 1.4)
    histogram("a").plot(two_axes(figure), how, histogram("b"), ("a.json", "b.json"))
    assert Path("both.png").read_bytes() == content(figure, ".png")
    assert call("show", "b.json", "--against", "a.json", "--draw", how, "-o", "turned.png") == (0, "")
    assert Path("turned.png").read_bytes() != Path("both.png").read_bytes()


@pytest.mark.usefixtures("saved")
def test_results_of_one_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    Path("b.json").rename("old/a.json")
    assert call("show", "a.json", "--against", "old/a.json", "-o", "both.svg") == (0, "")
    assert "old/a.json" in Path("both.svg").read_text()


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--draw", "log"), "--draw log: expected a picture, got none; name one with -o (.png, .svg, .pdf)"),
        (("--against", "b.json"), "--against b.json: expected a picture, got none; name one with -o "
         "(.png, .svg, .pdf)"),
        (("--against", "b.json", "-o", "c.csv"), "--against b.json: expected a picture, got c.csv; name one with -o "
         "(.png, .svg, .pdf)"),
        (("--against", "other.json", "-o", "c.png"), "--against other.json: expected the same bins, 20 in [0, 100], "
         "got 10 in [0, 100]"),
        (("--against", "sum.json", "-o", "c.png"), "sum.json: --against expected two histograms, got the result of a "
         "reduce"),
        (("--against", "rows.json", "-o", "c.png"), "rows.json: --against expected two histograms, got the result of a "
         "histogram in rows"),
        (("--against", "no.json", "-o", "c.png"), "no.json: expected a result, found no file there; check the path"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn(words: tuple[str, ...], message: str) -> None:
    assert call("show", "a.json", *words) == (2, f"error: {message}\n")
    assert not Path("c.png").exists()


@pytest.mark.usefixtures("saved")
def test_what_is_compared_is_not_written_over() -> None:
    Path("b.png").symlink_to("b.json")
    before = Path("b.json").read_bytes()
    status, message = call("show", "a.json", "--against", "b.json", "-o", "b.png")
    assert status == 2 and message.startswith("error: ")
    assert Path("b.json").read_bytes() == before


@pytest.mark.usefixtures("saved")
def test_selected_samples_are_drawn_like_all() -> None:
    assert call("histogram", "a.bin", "--bins", "20", "--where", "x < 50", *REQUEST, "low.json")[0] == 0
    for pair in (("low.json", "a.json"), ("a.json", "low.json")):
        assert call("show", pair[0], "--against", pair[1], "-o", "both.png") == (0, "")
    words = ("--bins", "20", "--segment", "1000", "--where", "x < 50", *REQUEST)
    assert call("histogram", "a.bin", *words, "low-rows.json")[0] == 0
    status, message = call("show", "low-rows.json", "--draw", "cumulative", "-o", "rows.png")
    assert status == 2 and message.startswith("error: --draw cumulative: expected one histogram, got one for each row")


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("where", [(), ("--where", "x < 50")])
def test_rows_with_edges_of_their_own_have_no_axis_to_draw(where: tuple[str, ...]) -> None:
    np.save("edges.npy", np.arange(20.0).reshape(4, 5))
    words = ("--dtype", "int16", "--segment", "1000", "--edges", "edges.npy", *where, "--device", "cpu", "-q")
    assert call("histogram", "a.bin", *words, "-o", "each.json")[0] == 0
    for suffix in (".h5", ".zip", ".png"):
        status, message = call("show", "each.json", "-o", f"c{suffix}")
        assert status == 2 and "expected an output ending in .json, .npz, .csv, .parquet, got" in message, suffix
        assert not Path(f"c{suffix}").exists()
    assert call("show", "each.json", "-o", "c.npz") == (0, "")
