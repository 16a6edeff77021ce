"""Slices of files as NumPy makes them, in every format, for every job; what is none is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline
from pipeline.errors import UsageError, VerificationError
from pipeline.storage import view_reader
from pipeline.storage.array_file import join, read_region
from pipeline.storage.files import Files
from pipeline.storage.sources import open_source
from tests.cases.files import refused
from tests.cases.format_files import CASES
from tests.cases.slices import CUBE, numpy_s, read, texts


@settings(max_examples=150, deadline=None)
@given(st.data())
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_as_numpy(tmp_path_factory: pytest.TempPathFactory, order: Any, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("a") / "x.npy"
    np.save(path, np.asarray(CUBE, order=order))
    text = data.draw(texts(CUBE.shape))
    expected, item = numpy_s(CUBE, text), f"{path}[{text}]"
    if not expected.size:
        assert "expected samples, got an empty array of shape" in refused(UsageError, item)
        assert open_source((item,), samples=False).samples == 0
        return
    source = open_source((item,))
    assert source.shape == expected.shape and source.names == (item,)
    near = data.draw(st.sampled_from([4, 100, 2**22]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_reader, "BLOCK_BYTES", near)
        patch.setattr(view_reader, "GAP_BYTES", data.draw(st.sampled_from([0, 60, 2**16])))
        values = read(item, data.draw(st.sampled_from([4, 36, 10_000])))
        array = join(open_source((item,), samples=False))
        region = tuple(
            data.draw(st.tuples(*[st.integers(0, length - 1)] * 2).map(sorted)) for length in array.spec.shape
        )
        region = tuple((start, stop + 1) for start, stop in region)
        block = read_region(array, region)
    np.testing.assert_array_equal(values, expected.ravel(order=order))
    part = expected.reshape(array.spec.shape)[tuple(slice(*bounds) for bounds in region)]
    np.testing.assert_array_equal(block, part)


FORMATS = [name for name in CASES if "text" not in name]


@pytest.mark.parametrize("name", FORMATS)
def test_formats_as_numpy(tmp_path: Path, name: str) -> None:
    written = CASES[name].written(tmp_path)
    array = written.array
    if "Fortran" in name and "npz stored" in name:  # counts as it is stored
        array = array.T
    every = {1: ["10:50", "::7", "3", "-9:", "20:23", "5::11, ..."],
             2: ["3", ":, 1", "10:20", "5:, 1:", "::9, 0", "..., -1", "30:250:50"],
             3: ["3", ":, 3", "2:9, 4:6, 3:20", "::5, ::4, ::3", "..., 5", "4, 5, 6", "1, :, 2:8", "::20"],
             4: ["1", ":, 3, :, 1", "::2, ::7", "..., 2"]}[array.ndim]  # fmt: skip
    for text in every:
        try:
            expected = numpy_s(array, text)
        except IndexError:
            assert "expected an index from" in refused(UsageError, f"{written.item}[{text}]")
            continue
        if not expected.size:
            continue
        source = open_source((f"{written.item}[{text}]",))
        assert source.shape == expected.shape
        order = "F" if array is not written.array else "C"
        np.testing.assert_array_equal(read(f"{written.item}[{text}]"), expected.ravel(order=order), text)


@settings(max_examples=60, deadline=None)
@given(st.data())
@pytest.mark.parametrize(
    "name", ["zarr 3", "hdf5 chunks", "hdf5 lzf", "zarr 2, Fortran", "tiff, strips", "hdf5 missing chunks"]
)
def test_chunks_as_numpy(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    written = CASES[name].written(tmp_path_factory.mktemp("a"))
    text = data.draw(texts(written.array.shape).filter(lambda text: numpy_s(written.array, text).size > 0))
    values = read(f"{written.item}[{text}]", data.draw(st.sampled_from([100, 100_000])))
    np.testing.assert_array_equal(values, numpy_s(written.array, text).ravel())


def test_only_the_chunks_that_are_hit(tmp_path: Path) -> None:
    """All others are damaged."""
    written = CASES["zarr 3"].written(tmp_path)  # chunks of 10 × 11 × 12
    keep = {(1, 0, 1), (3, 0, 1)}
    for path in Path(written.item).glob("c/*/*/*"):
        if tuple(map(int, path.parts[-3:])) not in keep:
            path.write_bytes(b"damaged")
    for text in ("15::20, 3, 13", "15::20, 2:4, 13:20:3"):
        np.testing.assert_array_equal(read(f"{written.item}[{text}]"), numpy_s(written.array, text).ravel())


@pytest.mark.parametrize(("text", "most"), [(":, 3", 1.01), ("1000:1010", 0.002), ("::1000", 0.002), ("5, 3", 0.001),
                                            (":, :100", 1.01), ("100:300, 5:9", 0.05)])  # fmt: skip
def test_bytes_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, most: float) -> None:
    """A column costs one pass over the file, in large reads; rows cost their bytes."""
    array = np.arange(10_000_000, dtype="<i2").reshape(5000, 2000)
    np.save(tmp_path / "x.npy", array)
    sizes: list[int] = []
    real = view_reader.fill
    monkeypatch.setattr(
        view_reader, "fill", lambda fd, block, *more: (sizes.append(len(block)), real(fd, block, *more))
    )
    source = open_source((f"{tmp_path}/x.npy[{text}]",))
    np.testing.assert_array_equal(read(f"{tmp_path}/x.npy[{text}]", 2**22), numpy_s(array, text).ravel())
    read_bytes = source.nbytes if isinstance(source, Files) else sum(sizes)
    assert read_bytes is not None and read_bytes <= most * array.nbytes
    assert len(sizes) <= 20 + 8 * 5 and max(sizes, default=0) <= 2**22


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_wrong_element_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Any) -> None:
    """A few elements of each buffer are read by themselves."""
    np.save(tmp_path / "x.npy", np.asarray(CUBE, order=order))
    real = view_reader.as_strided
    monkeypatch.setattr(view_reader, "as_strided", lambda samples, shape, strides, **how: real(
        samples[1:], shape, (*strides[:-1], 0), **how))  # fmt: skip
    with pytest.raises(VerificationError, match=r"x\.npy: expected the element \d+ of the array in a slice of it"):
        read(f"{tmp_path}/x.npy[1::2, ::3, 5:9]")
    with pytest.raises(VerificationError):
        read_region(join(open_source((f"{tmp_path}/x.npy[1::2, ::3]",), samples=False)), ((0, 2), (0, 2), (3, 9)))


@pytest.mark.usefixtures("shared")
def test_jobs(tmp_path: Path) -> None:
    path, planar = f"{tmp_path}/x.npy", CUBE.astype("f4")[:, :, 0]
    np.save(path, CUBE)
    np.save(tmp_path / "y.npy", planar)
    view = CUBE[1:6:2, :, 3]
    result = pipeline.run("reduce", f"{path}[1:6:2, :, 3]", op="sum,argmax,count", device="cpu", verify="full")
    assert result.values == {"sum": view.sum(), "argmax": view.argmax(), "count": view.size}
    counts = pipeline.run("histogram", f"{path}[:, 3]", bins=20, range=(-1000, 1000), device="cpu").counts
    np.testing.assert_array_equal(counts, np.histogram(CUBE[:, 3], 20, (-1000, 1000))[0])

    def array(job: str, *items: str, **options: Any) -> Any:
        return pipeline.run(job, *items, output=tmp_path / "o.npy", device="cpu", verify="full", **options).array.copy()

    for item, expected in {"[1:6:2, :, 3]": view, "[2]": CUBE[2], "[:, ::3, 2:5]": CUBE[:, ::3, 2:5]}.items():
        np.testing.assert_array_equal(array("transpose", f"{path}{item}"), expected.T)
    y = f"{tmp_path}/y.npy"
    product = array("matmul", f"{y}[1:5, ::2]", f"{y}[:6, 3:7]")
    np.testing.assert_allclose(product, planar[1:5, ::2] @ planar[:6, 3:7], rtol=1e-6)
    np.testing.assert_array_equal(array("map", f"{y}[1:5]", f"{y}[2:6]", operation="add"), planar[1:5] + planar[2:6])


@pytest.mark.usefixtures("shared")
def test_raw_packed_big_endian_and_parts(tmp_path: Path) -> None:
    raw = np.arange(1000, dtype=">i2")
    raw.tofile(tmp_path / "a.bin")
    item = f"{tmp_path}/a.bin"
    for text in ("100:200", "::7", "-3"):
        values = read(f"{item}[{text}]", dtype="int16", byteorder="big")
        np.testing.assert_array_equal(values, np.atleast_1d(numpy_s(raw, text)))
    np.testing.assert_array_equal(read(f"{item}[2:5]", dtype="int16", byteorder="big", offset=20), raw[12:15])
    assert "at most 1 index for shape (1000,), got 2" in refused(UsageError, f"{item}[:, 1]", dtype="int16")
    (tmp_path / "b.bin").write_bytes(bytes(range(240)) * 3)
    packed = read(f"{tmp_path}/b.bin", dtype="u12p")
    for text in ("100:200", "::7", "31:"):
        np.testing.assert_array_equal(read(f"{tmp_path}/b.bin[{text}]", dtype="u12p"), numpy_s(packed, text))
    wave = (np.arange(60) * (1 + 2j)).reshape(5, 12).astype("c8")
    np.save(tmp_path / "c.npy", wave)
    for text in ("1:3", ":, 3", "::2, ::5"):
        np.testing.assert_array_equal(read(f"{tmp_path}/c.npy[{text}]", part="imag"), numpy_s(wave, text).imag.ravel())
    turned = pipeline.run("transpose", f"{tmp_path}/c.npy[::2, ::5]", part="real", output=tmp_path / "t.npy")
    np.testing.assert_array_equal(turned.array, wave[::2, ::5].real.T)
