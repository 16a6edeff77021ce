"""Pictures against reference images, within a tolerance that one shifted bin exceeds; no combs; plain labels; grey.

Run as a module, it writes the reference images again: look at them.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.report.pictures import COLUMNS, busy_rows, content, picture, timeline
from pipeline.report.pictures import ratio as ratio_of
from pipeline.timeline import Span, Traced
from workflows import pictures
from workflows.histogram_result import HistogramResult
from workflows.rows import Rows
from workflows.rows_result import HistogramRows
from workflows.shown import two_axes

REFERENCES = Path(__file__).parents[2] / "cases" / "data" / "pictures"
TOLERANCE = 4.0  # root mean square of the differences, out of 255; a bin that is shifted by one makes 9 to 19


def result(shift: int = 0, bins: int = 300, scale: str = "linear", seed: int = 1) -> HistogramResult:
    random = np.random.default_rng(seed)
    samples = np.concatenate([random.normal(500, 60, 90000), random.normal(700, 20, 10000)])
    edges = np.linspace(0, 1000, bins + 1) if scale == "linear" else np.geomspace(10, 1000, bins + 1)
    counts = np.roll(np.histogram(samples, edges)[0], shift)
    return HistogramResult(counts.astype(np.int64), edges, 3, 12345, 1, scale == "linear", scale)


def rows(shift: int = 0) -> HistogramRows:
    each = [result(shift, 100, seed=seed) for seed in range(20)]
    return HistogramRows(Rows("segment", (20,), length=100000), tuple(each))


def ratio(shift: int = 0) -> bytes:
    figure = pictures.new_figure(6.3)
    result(shift).plot(two_axes(figure), against=result(seed=2), names=("Tuesday", "Wednesday"))
    return content(figure, ".png")


def traces(shift: int = 0) -> list[Traced]:
    spans = [
        (Span("read+copy", 100.0 + i, 0.8, 1), Span("kernel", 100.9 + i + 0.02 * shift, 0.1, 1),
         Span("verify", 101.0 + i, 0.3, 1)) for i in range(10)
    ]  # fmt: skip
    return [Traced(i, f"tcp://{i % 2}", "NVIDIA H200", list(some)) for i, some in enumerate(spans)]


PICTURES: dict[str, Callable[[int], bytes]] = {
    "counts": lambda shift: picture(result(shift), ".png"),
    "log": lambda shift: picture(result(shift), ".png", "log"),
    "cumulative": lambda shift: picture(result(shift), ".png", "cumulative"),
    "log_scale": lambda shift: picture(result(shift, scale="log"), ".png", "log"),
    "rows": lambda shift: picture(rows(shift), ".png"),
    "rows_log": lambda shift: picture(rows(shift), ".png", "log"),
    "ratio": ratio,
    "timeline": lambda shift: timeline(traces(shift), ".png"),
}


def difference(name: str, drawn: bytes, folder: Path) -> float:
    from matplotlib.testing.compare import compare_images

    actual = folder / f"{name}.png"
    actual.write_bytes(drawn)
    failed: Any = compare_images(str(REFERENCES / f"{name}.png"), str(actual), 0.0, in_decorator=True)
    return float(failed["rms"]) if failed else 0.0


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_the_reference(name: str, tmp_path: Path) -> None:
    assert difference(name, PICTURES[name](0), tmp_path) <= TOLERANCE


@pytest.mark.parametrize("name", PICTURES)
def test_one_shifted_bin_is_seen(name: str, tmp_path: Path) -> None:
    assert difference(name, PICTURES[name](1), tmp_path) > TOLERANCE


def pixels(drawn: bytes) -> NDArray[Any]:
    from matplotlib.image import imread

    image: NDArray[Any] = imread(io.BytesIO(drawn))[..., :3]
    return image


@pytest.mark.parametrize("name", PICTURES)
def test_grey_alone_tells_all(name: str) -> None:
    image = pixels(PICTURES[name](0))
    assert (image.max(axis=2) - image.min(axis=2)).max() < 0.01


@pytest.mark.parametrize("bins", [599, 600, 601, 1024, 4096, 99991, 2**20])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_equal_counts_are_a_flat_picture(bins: int, scale: str) -> None:
    """No comb, whatever the number of bins, and no step at the last column, which may have fewer of them."""
    edges = np.linspace(0, 1, bins + 1) if scale == "linear" else np.geomspace(1, 1000, bins + 1)
    flat = HistogramResult(np.full(bins, 7), edges, 0, 0, 0, True, scale)
    steps = pictures.drawn_steps(*flat.steps(), scale)
    assert len(steps.heights) <= pictures.COLUMNS
    assert (steps.heights == 7).all()
    assert (steps.edges[0], steps.edges[-1]) == (edges[0], edges[-1])
    row = pixels(picture(flat, ".png"))[270, :, 0]
    inside = np.flatnonzero(np.isclose(row, 0.25, atol=0.01))
    assert len(inside) > 900
    assert (np.diff(inside) == 1).all()  # no lighter seam between the columns


@pytest.mark.parametrize("bins", [700, 12345])
def test_columns_have_all_samples(bins: int) -> None:
    """Means times numbers of bins are the counts: nothing is lost or counted twice; edges of any width."""
    random = np.random.default_rng(bins)
    counts, edges = random.integers(0, 1000, bins), np.sort(random.random(bins + 1)) ** 3
    steps = pictures.drawn_steps(counts, edges)
    borders = np.searchsorted(edges, steps.edges)
    assert len(steps.heights) <= pictures.COLUMNS
    totals = [counts[start:stop].sum() for start, stop in pairwise(borders)]
    np.testing.assert_allclose(steps.heights * np.diff(borders), totals)
    assert steps.together == np.diff(borders).max()


def test_shares_count_what_lies_outside() -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    HistogramResult(np.array([1, 2]), np.array([0.0, 1.0, 2.0]), 3, 4, 100, True).plot(axes, "cumulative")
    at, shares = axes.lines[0].get_data()
    np.testing.assert_allclose(at, [0, 1, 2])
    np.testing.assert_allclose(shares, [0.3, 0.4, 0.6])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1e6, "1,000,000"), (0.1, "0.1"), (0.30000000000000004, "0.3"), (-1234.5, "−1,234.5"), (1e-4, "0.0001"),
     (3e-9, "3e-09"), (2.0**40, "1.09951e+12"), (9999999, "10,000,000")],
)  # fmt: skip
def test_plain_numbers(value: float, text: str) -> None:
    assert pictures.plain(value) == text


@pytest.mark.parametrize("how", pictures.HOW)
@pytest.mark.parametrize("counts", [[0, 0], [0, 1], [2**62, 1], [10**8, 0]])
def test_extreme_counts(counts: list[int], how: str) -> None:
    """Labels have no exponents, and nothing warns; also where no sample lies in a bin."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.add_subplot()
    HistogramResult(np.array(counts), np.array([0.0, 1.0, 2.0]), 0, 0, 0, True).plot(axes, how)
    figure.draw_without_rendering()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert not any("e" in label or "{" in label for label in labels), labels


def test_wrong_ways_are_refused() -> None:
    with pytest.raises(ValueError, match="how: expected one of counts, log, cumulative, got 'bars'"):
        result().plot(object(), how="bars")
    with pytest.raises(ValueError, match=r"against: expected the same bins, 300 in \[0, 1000\], got 100 in"):
        result().plot((object(), object()), against=result(bins=100))
    with pytest.raises(ValueError, match="against: expected the result of a histogram without rows, got HistogramRows"):
        result().plot((object(), object()), against=rows())
    with pytest.raises(ValueError, match="expected counts or log for rows, got 'cumulative'"):
        rows().plot(object(), how="cumulative")


@pytest.mark.parametrize("suffix", pictures.SUFFIXES)
def test_the_same_result_gives_the_same_bytes(suffix: str) -> None:
    first = picture(result(), suffix)
    assert first == picture(result(), suffix)
    assert first.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])


def test_busy_rows_have_all_seconds() -> None:
    """Whatever the spans: shorter than a moment, longer, and at the same time."""
    random = np.random.default_rng(0)
    spans = [Span("read", 5 + 10 * float(random.random()), float(random.random() ** 8), 1) for _ in range(3000)]
    names, busy, seconds = busy_rows([Traced(0, "a", "cpu", spans)])
    assert names == ["cpu: read"]
    np.testing.assert_allclose(busy.sum() * seconds / COLUMNS, sum(span.seconds for span in spans), rtol=1e-9)
    assert busy.min() >= -1e-9


def test_timeline_of_nothing() -> None:
    assert timeline([], ".png").startswith(b"\x89PNG")


if __name__ == "__main__":
    REFERENCES.mkdir(exist_ok=True)
    for each, draw in PICTURES.items():
        (REFERENCES / f"{each}.png").write_bytes(draw(0))


NAMES = (r"$\frac{$.npy", "\udce9.npy")  # a formula that has no end; a byte that is not UTF-8


@pytest.mark.parametrize(
    "draw",
    [
        lambda: ratio_of(result(), result(seed=2), NAMES, ".svg"),
        lambda: picture(
            HistogramRows(Rows("file", (2,), None, sizes=(9, 9), names=NAMES), (result(), result())), ".svg"
        ),
    ],
)
def test_names_of_files_are_no_formulas(draw: Callable[[], bytes]) -> None:
    pytest.importorskip("matplotlib")
    assert draw()
