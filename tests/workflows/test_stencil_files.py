"""Stencils from file to file: several files, chunks, on a GPU; errors leave no output behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.cli.flags import build_options, option_flags
from pipeline.cluster.placement import Placement
from pipeline.engine.array import run_array
from pipeline.errors import PipelineError, UsageError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.stencil import adversarial, expected, expected_weighted, in_regions, numbers, part, same
from workflows.regions import Spec
from workflows.stencil import BOUNDARIES, STENCIL, StencilOptions

ON_CPU = Placement(device="cpu")


def summed(folder: Path, x: NDArray[Any], *, files: int = 1, chunk_bytes: int | None = None, device: str = "cpu",
           **options: Any) -> NDArray[Any]:  # fmt: skip
    """The job's output for an array in this many files."""
    paths = []
    for number, rows in enumerate(np.array_split(x, files) if files > 1 else [x]):
        paths.append(str(folder / f"in-{number}.npy"))
        np.save(paths[-1], rows)
    source = open_source(tuple(paths), samples=False)
    outcome = run_array(STENCIL, StencilOptions(**options), [source], str(folder / "out.npy"),
                        Settings(placement=Placement(device=device), chunk_bytes=chunk_bytes))  # fmt: skip
    assert outcome.verdict.checked == outcome.result.spec.size
    return np.array(outcome.result.array)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_halos_cross_the_borders_of_chunks_and_files(tmp_path: Path, boundary: str) -> None:
    for dtype, radius in (("int16", 30), ("float32", 100)):
        x = numbers(dtype, 401)
        got = summed(tmp_path, x, files=5, chunk_bytes=900, radius=radius, boundary=boundary)
        same(got, expected(x, radius, boundary))
    weights = numbers("float32", 15)
    got = summed(tmp_path, x, files=7, chunk_bytes=900, radius=7, boundary=boundary, weights=weights)
    same(got, expected_weighted(x, weights, boundary))


@pytest.mark.usefixtures("shared")
def test_axis_0_of_several_files_and_fortran_order(tmp_path: Path) -> None:
    x = numbers("float64", (40, 9))
    same(summed(tmp_path, x, files=3, chunk_bytes=2000, radius=9, axis=0), expected(x, 9, axis=0))
    x = np.asfortranarray(x)
    same(summed(tmp_path, x, chunk_bytes=2000, radius=4, boundary="wrap", axis=0), expected(x, 4, "wrap", 0))


@pytest.mark.usefixtures("shared")
def test_nothing_to_do(tmp_path: Path) -> None:
    assert summed(tmp_path, np.zeros((0, 5), np.int32), radius=2).shape == (0, 5)
    assert summed(tmp_path, np.zeros((5, 0)), radius=2, axis=0).shape == (5, 0)
    assert summed(tmp_path, np.zeros(0), radius=0).shape == (0,)


@pytest.mark.usefixtures("shared")
def test_a_radius_that_is_too_large_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="stencil: --radius: expected at most 10, the length of axis 0 of int32 10"):
        summed(tmp_path, np.zeros(10, np.int32), radius=11)
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("dtype", ("int64", "uint64"))
def test_overflow_is_an_error(tmp_path: Path, dtype: str) -> None:
    most = np.iinfo(dtype).max
    with pytest.raises(PipelineError, match=rf"stencil: region .* expected sums that fit into {dtype}, got {most + 1}"):
        summed(tmp_path, np.array([0, 0, 1, most, 0], dtype), radius=1)
    assert not (tmp_path / "out.npy").exists()
    fits = np.array([0, most - 1, 1, 0, 0, 5], dtype)
    same(summed(tmp_path, fits, radius=1), expected(fits, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_the_same_bits_on_a_device(cp: Any, boundary: str) -> None:
    """Every region of an array, along the last axis and along the first, has the bits of the CPU."""
    weights = numbers("float64", 11)
    for x in (numbers("int32", (13, 41)), adversarial("two words", (13, 41)), adversarial("specials", (13, 41))):
        for options in ({"axis": 0}, {"axis": 1}, {"axis": 0, "weights": weights}, {"axis": 1, "weights": weights}):
            chosen: dict[str, Any] = {"radius": 5, "boundary": boundary, **options}
            right = in_regions(x, 100, **chosen)
            specs = [Spec(x.shape, x.dtype)]
            output = STENCIL.outline(specs, StencilOptions(**chosen))
            for region in STENCIL.regions(specs, output, StencilOptions(**chosen), 200):
                blocks = [
                    cp.asarray(part(x, bounds)) for bounds in STENCIL.needs(region, specs, StencilOptions(**chosen))
                ]
                block = STENCIL.compute(blocks, region, specs, StencilOptions(**chosen))
                same(block.get(), part(right, region))


@pytest.mark.hardware
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_the_same_files_from_a_gpu(tmp_path: Path, boundary: str) -> None:
    x = adversarial("two words", (300, 200), "float32")
    for axis in (0, 1):
        on_gpu = summed(tmp_path, x, files=3, chunk_bytes=100_000, device="gpu", axis=axis, boundary=boundary)
        same(on_gpu, in_regions(x, 60_000, axis=axis, boundary=boundary))


def test_flags(tmp_path: Path) -> None:
    path = str(tmp_path / "weights.npy")
    np.save(path, np.arange(5, dtype=np.float32))
    arguments, flags = option_flags(StencilOptions)
    assert not arguments
    command = click.Command("stencil", params=list(flags))
    given = command.make_context("", ["--radius", "2", "--weights", path, "--boundary", "wrap", "--axis", "-2"]).params
    options = build_options(StencilOptions, dict(given))
    assert (options.radius, options.boundary, options.axis) == (2, "wrap", -2)
    assert options.weights.tolist() == [0, 1, 2, 3, 4]
    assert options.weights.dtype == np.float32
    options = build_options(StencilOptions, dict(command.make_context("", []).params))
    assert (options.radius, options.boundary, options.axis, options.weights) == (3, "zero", -1, None)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"no weights", "no .npy header but something else"),
        (np.zeros(2**18), "262144 numbers, more than 8193"),
    ],
)
def test_files_without_weights(tmp_path: Path, content: Any, reason: str) -> None:
    path = tmp_path / "weights.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    command = click.Command("stencil", params=list(option_flags(StencilOptions)[1]))
    with pytest.raises(click.BadParameter, match=rf"expected a \.npy file of weights, got .*{reason}"):
        command.make_context("", ["--weights", str(path)])
