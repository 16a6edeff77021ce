"""Flags: parsing words into options, defaults from the configuration, and one line for bad values."""

from __future__ import annotations

import dataclasses
import os
import struct
from pathlib import Path
from typing import Any

import click
import dask.config
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import workflows.histogram_options
from kernels.histogram.binning import MAX_BINS
from pipeline.cli.flags import Command, Failure, Size, build_options, from_configuration, option_flags
from pipeline.cli.jobs import job_command
from workflows.histogram import HISTOGRAM, HistogramOptions

COMMAND = job_command(HISTOGRAM)
NPY = "{'descr': '<f8', 'fortran_order': False, 'shape': (%s,), }\n"


def context(*words: object) -> click.Context:
    return COMMAND.make_context("histogram", [*map(str, words), "data.bin"])


def options_of(*words: object) -> HistogramOptions:
    options: HistogramOptions = build_options(HistogramOptions, dict(context(*words).params))
    return options


def refused(*words: object) -> str:
    """The one-line error of parsing; exit status 2."""
    with pytest.raises(Failure) as caught:
        context(*words)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    return caught.value.message


def npy(shape: str, data: bytes = b"", length: int | None = None) -> bytes:
    text = (NPY % shape).encode()
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(text) if length is None else length) + text + data


def test_defaults() -> None:
    got = options_of()
    assert (got.bins, got.range, got.edges) == (1024, (0.0, 1024.0), None)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--range", "auto"], "auto"),
        (["--range=auto"], "auto"),
        (["--range", "-5", "5"], (-5.0, 5.0)),
        (["--range", "-1e-3", "+2.5e3"], (-0.001, 2500.0)),
        (["--range", "5", "7", "--range", "auto"], "auto"),
        (["--range", "auto", "--range", "5", "7"], (5.0, 7.0)),
    ],
)
def test_range(words: list[str], expected: object) -> None:
    """`data.bin` comes after it and stays a file."""
    ctx = context(*words)
    assert ctx.params["files"] == ("data.bin",)
    assert build_options(HistogramOptions, dict(ctx.params)).range == expected


def test_a_file_called_auto() -> None:
    ctx = COMMAND.make_context("histogram", ["--range", "auto", "auto"])
    assert ctx.params["files"] == ("auto",)


def test_half_a_range() -> None:
    """5 is not dropped silently; the other way round `auto` is complete, and 5 a file."""
    with pytest.raises(click.UsageError, match=r"--range: expected LO HI, or auto alone, got 5\.0 auto"):
        options_of("--range", 5, "auto")
    assert context("--range", "auto", 5).params["files"] == ("5", "data.bin")


@pytest.mark.parametrize(
    "text", ["0\n0.5\n1e3\n", "0 0.5 1000", "0, .5,1000.0", "0\r\n0.5\r\n1e+3", "\n\t0\n\n0.5\n1000"]
)
def test_edges_as_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "edges").write_bytes(text.encode())
    edges = options_of("--edges", tmp_path / "edges").edges
    assert edges is not None
    assert edges.dtype == np.float64
    assert edges.tolist() == [0, 0.5, 1000]


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<i4", ">u2", "i1"])
def test_edges_as_npy(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "edges.npy", np.array([0, 2, 100], dtype))
    edges = options_of("--edges", tmp_path / "edges.npy").edges
    assert edges is not None
    assert edges.dtype == np.float64
    assert edges.tolist() == [0, 2, 100]


def test_as_many_edges_as_there_may_be(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.arange(MAX_BINS + 1))
    edges = options_of("--edges", tmp_path / "edges.npy").edges
    assert edges is not None
    assert len(edges) == MAX_BINS + 1
    np.save(tmp_path / "edges.npy", np.zeros(1))  # the options do not change with the file
    assert edges[-1] == MAX_BINS


def test_edges_of_full_precision(tmp_path: Path) -> None:
    exact = [0.1, 1 / 3, 2**53 - 1.0, 5e300]
    (tmp_path / "edges.txt").write_text("\n".join(map(repr, exact)))
    edges = options_of("--edges", tmp_path / "edges.txt").edges
    assert edges is not None
    assert edges.tolist() == exact


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (np.array([1, 2, 3j]), "complex128"),
        (np.array([False, True]), "bool"),
        (np.array(["1", "2"]), "<U1"),
        (np.array(["2020", "2021"], "M8[Y]"), "datetime64[Y]"),
        (np.zeros(2, [("x", "f8")]), "[('x', '<f8')]"),
        (np.array([1, None]), "neither integers nor floats but object"),
        (np.zeros(MAX_BINS + 2, np.int8), f"{MAX_BINS + 2} numbers, more than {MAX_BINS + 1}"),
    ],
)
def test_edges_that_are_no_numbers(tmp_path: Path, array: np.ndarray[Any, Any], got: str) -> None:
    """NumPy would turn most of these into numbers without a word."""
    path = tmp_path / "edges.npy"
    np.save(path, array)
    message = refused("--edges", path)
    assert f"{path}: expected a file of numbers, one a line, got " in message
    assert got in message


@pytest.mark.parametrize(
    "content",
    [npy("2**40"), npy("1099511627776"), npy("3", bytes(16)), npy("-3", bytes(24)), npy("3", length=2**32 - 1), b"",
     npy("3", bytes(24))[:30], b"\x93NUMPY", b"PK\x03\x04junk", b"1\n2\n", npy("9" * 4000), npy("(" * 3000)],
)  # fmt: skip
def test_npy_edges_that_lie(tmp_path: Path, content: bytes) -> None:
    """Also a file that claims terabytes: nothing of that size is allocated."""
    path = tmp_path / "edges.npy"
    path.write_bytes(content)
    message = refused("--edges", path)
    assert f"{path}: expected a file of numbers, one a line, got " in message
    assert len(message) < 400


def test_archive_is_no_edges(tmp_path: Path) -> None:
    np.savez(tmp_path / "edges.npz", edges=np.arange(3))
    (tmp_path / "edges.npz").rename(tmp_path / "edges.npy")
    assert "no .npy header but something else" in refused("--edges", tmp_path / "edges.npy")


def test_npy_edges_of_more_dimensions(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.arange(6.0).reshape(1, 2, 3))
    with pytest.raises(click.UsageError, match=r"--edges: expected 2 to 1048577 numbers, got 6 in shape \(1, 2, 3\)"):
        options_of("--edges", tmp_path / "edges.npy")


def test_binary_or_endless_text_is_no_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(100_000))
    assert len(refused("--edges", tmp_path / "data.bin")) < 400
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe1")
    assert "got " in refused("--edges", tmp_path / "data.bin")
    monkeypatch.setattr(workflows.histogram_options, "MAX_EDGES_TEXT", 5)
    (tmp_path / "edges").write_text("1 2 3")
    assert options_of("--edges", tmp_path / "edges").edges is not None
    (tmp_path / "edges").write_text("1 2 34")
    assert "more than 5 bytes" in refused("--edges", tmp_path / "edges")
    assert "no regular file" in refused("--edges", "/dev/zero")
    os.mkfifo(tmp_path / "fifo")  # which nobody writes to
    assert "no regular file" in refused("--edges", tmp_path / "fifo")


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("64MiB", 2**26), ("1GB", 10**9), ("1.5 kiB", 1536), ("2 M", 2 * 10**6)]
)
def test_size(text: str, size: int) -> None:
    assert context("--chunk-size", text).params["chunk_size"] == size


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=6) | st.sampled_from(["1e999", "inf", "nan", "-1e999GB", "0x10", "1e", "", [1, 2], {}, True]))
def test_size_never_escapes(value: Any) -> None:
    try:
        assert isinstance(Size().convert(value, None, None), int)
    except click.BadParameter as error:
        assert "expected a size like 64MiB, got " in error.message or "of 1 byte or more, got " in error.message


@pytest.mark.parametrize(
    ("configured", "name", "value"),
    [
        ({"pipeline.chunk-size": "64KiB"}, "chunk_size", 65536),
        ({"pipeline.chunk_size": 4096}, "chunk_size", 4096),
        ({"pipeline.bins": 7}, "bins", 7),
        ({"pipeline.range": "auto"}, "range", ("auto", "auto")),
        ({"pipeline.range": "-5 5"}, "range", (-5.0, 5.0)),
        ({"pipeline.range": [0, 2048]}, "range", (0.0, 2048.0)),
        ({"pipeline.json": True}, "as_json", True),
        ({"pipeline.quiet": "yes"}, "quiet", True),
        ({"pipeline.verify": "off"}, "verify", "off"),
        ({"pipeline": "nonsense"}, "range", (0.0, 1024.0)),
    ],
)
def test_configuration(configured: dict[str, Any], name: str, value: object) -> None:
    with dask.config.set(configured):
        assert from_configuration(context())[name] == value


def test_flag_before_configuration() -> None:
    with dask.config.set({"pipeline.bins": 7, "pipeline.chunk-size": "1GiB", "pipeline.range": "auto"}):
        values = from_configuration(context("--bins", 1024, "-c", "5kB", "--range", 0, 1024))
    assert (values["bins"], values["chunk_size"], values["range"]) == (1024, 5000, (0.0, 1024.0))


@pytest.mark.parametrize(
    ("key", "value"), [("bins", "many"), ("range", 5), ("range", "1 2 3"), ("chunk-size", "x"), ("verify", "maybe")]
)
def test_wrong_configuration_is_named(key: str, value: object) -> None:
    """The user has not typed the flag that click would complain of."""
    with dask.config.set({f"pipeline.{key}": value}):
        with pytest.raises(click.UsageError) as caught:
            from_configuration(context())
        assert caught.value.message.startswith(f"configuration pipeline.{key}: ")


def read_three(word: str) -> int:
    if word not in "xyz":
        raise ValueError(f"expected x, y or z, got {word!r}")
    return "xyz".index(word)


@dataclasses.dataclass
class OwnOptions:
    """For a job that is unknown to the command line."""

    what: int
    order: tuple[int, int, int] | str = dataclasses.field(
        default=(2, 1, 0), metadata={"read": read_three, "words": 3, "alone": "any", "metavar": "A B C"}
    )
    scale: float = 0.5


@pytest.mark.parametrize(
    ("words", "expected"),
    [("7", OwnOptions(7)), ("7 --order x z y", OwnOptions(7, (0, 2, 1))), ("7 --order any", OwnOptions(7, "any")),
     ("--order=any 7 --scale 2", OwnOptions(7, "any", 2.0))],
)  # fmt: skip
def test_an_option_brings_its_own_reader(words: str, expected: OwnOptions) -> None:
    arguments, options = option_flags(OwnOptions)
    command = Command("own", params=[*arguments, *options])
    values = command.make_context("own", words.split()).params
    assert build_options(OwnOptions, dict(values)) == expected
    assert "--order A B C" in command.get_help(click.Context(command))
    assert "[default: 2 1 0]" in command.get_help(click.Context(command))
    with pytest.raises(Failure, match=r"--order: expected A B C, got 'x,y,z'; write --order x y z"):
        command.make_context("own", ["7", "--order", "x,y,z"])
    with pytest.raises(Failure, match="expected x, y or z, got 'q'"):
        command.make_context("own", ["7", "--order", "x", "q", "y"])


def test_an_option_that_nobody_can_read_is_an_error_of_the_job() -> None:
    @dataclasses.dataclass
    class Unreadable:
        limit: int | None = None

    with pytest.raises(TypeError, match=r"Unreadable.limit: expected int, float or str, or a field with a function"):
        option_flags(Unreadable)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["x", "--bins", "0"], "error: --bins: expected 1 to 1048576, got 0\n"),
        (
            ["--bins", "x", "y"],
            "error: --bins: expected 1 to 1048576 or one of auto, fd, doane, scott, rice, sturges, sqrt, got 'x'\n",
        ),
        (["x", "--bins"], "error: --bins: expected N, got nothing after it\n"),
        (["x", "--range", "5"], "error: --range: expected LO HI, got fewer words\n"),
        ([], "error: expected FILES, got none; for example: python -m pipeline histogram data.bin --bins 256 --range "
             "auto -o counts.png\n"),
    ],
)  # fmt: skip
def test_one_line_also_without_main(words: list[str], line: str) -> None:
    """`dask pipeline` runs the command by itself; click alone would print three lines."""
    done = CliRunner().invoke(COMMAND, words)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", line)
