"""Files that other programs wrote agree, sample for sample, with what the format's own library reads."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.format_case import package_of
from tests.cases.format_files import IMAGES

DATA = Path(__file__).parents[3] / "cases" / "data"


def read(item: Path | str, **how: Any) -> NDArray[Any]:
    source = open_source((str(item),), **how)
    blocks = [block.copy() for chunk in plan(source, 1000, "off", 0) for block in read_blocks(chunk, Timeline())]
    return np.concatenate(blocks).reshape(source.shape)


def shipped(package: str, *parts: str) -> Path:
    """A file of an installed package."""
    return Path(package_of(package).__file__).parent.joinpath(*parts)


@pytest.mark.parametrize("name", ["topobathy.npz::topo", "jacksboro_fault_dem.npz::elevation"])
def test_npz_of_matplotlib(name: str) -> None:
    path, _, member = str(shipped("matplotlib", "mpl-data", "sample_data", name)).partition("::")
    np.testing.assert_array_equal(read(f"{path}::{member}"), np.load(path)[member])


@pytest.mark.filterwarnings("ignore:Reading .* created on Python 2")
@pytest.mark.parametrize("name", ["win64python2.npy", "python3.npy"])
def test_npy_of_old_numpy(name: str) -> None:
    path = shipped("numpy", "lib", "tests", "data", name)
    np.testing.assert_array_equal(read(path), np.load(path))


def test_hdf5_of_matlab() -> None:
    with package_of("h5py").File(DATA / "matlab_7.4.mat") as file:
        expected = file["testdouble"][...]
    assert expected.shape == (9, 1) and expected[4, 0] == np.pi
    np.testing.assert_array_equal(read(DATA / "matlab_7.4.mat"), expected)


@pytest.mark.parametrize("part", ["real", "imag"])
def test_complex_hdf5(part: Any) -> None:
    """Pairs in a compound type, of another h5py."""
    path = shipped("h5py", "tests", "data_files", "compound-dtype-complex.h5")
    with package_of("h5py").File(path) as file:
        names = [name for name in file if getattr(file[name], "dtype", np.dtype("i1")).kind == "c"]
        arrays = {name: file[name][...] for name in names}
    assert arrays
    for name, array in arrays.items():
        np.testing.assert_array_equal(read(f"{path}::/{name}", part=part), getattr(array, part))


@pytest.mark.parametrize("column", ["carat", "depth", "price", "x"])
def test_parquet_of_old_arrow(column: str) -> None:
    path = shipped("pyarrow", "tests", "data", "parquet", "v0.7.1.parquet")
    expected = package_of("pyarrow.parquet").read_table(path)[column].to_numpy()
    np.testing.assert_array_equal(read(f"{path}::{column}"), expected)


@pytest.mark.parametrize("compression", [None, "tiff_adobe_deflate"])
def test_tiff_of_libtiff(tmp_path: Path, compression: str | None) -> None:
    """Written by Pillow, through libtiff where it compresses."""
    image, path = package_of("PIL.Image"), tmp_path / "a.tif"
    pages = [image.fromarray(page) for page in IMAGES]
    pages[0].save(path, save_all=True, append_images=pages[1:], compression=compression)
    package_of("tifffile")
    with image.open(path) as file:
        for number, page in enumerate(read(path)):
            file.seek(number)
            np.testing.assert_array_equal(page, np.asarray(file))


@pytest.mark.parametrize("name", ["pcm_8.wav", "pcm_24.wav", "pcm_24_rf64.wav", "float_64.wav"])
def test_wav_as_libsndfile_reads_it(name: str) -> None:
    with package_of("soundfile").SoundFile(DATA / name) as file:
        kind = {"PCM_U8": "int16", "PCM_24": "int32", "DOUBLE": "float64"}[file.subtype]
        values = file.read(dtype=kind, always_2d=True)
    expected = values if kind == "float64" else (values >> 8) + (128 if kind == "int16" else 0)
    np.testing.assert_array_equal(read(DATA / name), expected)


@pytest.mark.parametrize("name", ["tensorstore_3.zarr", "tensorstore_2.zarr"])
def test_zarr_of_tensorstore(name: str) -> None:
    numbers = np.arange(130)
    expected = ((37 * numbers**2 + 11 * numbers) % 4001 - 2000).reshape(13, 10)
    expected[:, 8:] = -7
    np.testing.assert_array_equal(package_of("zarr").open_array(str(DATA / name), mode="r")[...], expected)
    np.testing.assert_array_equal(read(DATA / name), expected)


@pytest.mark.parametrize("part", ["real", "imag"])
def test_sigmf_of_its_own_package(part: Any) -> None:
    """As the package reads it, which `tests/cases/data/README.md` says in a formula."""
    path = DATA / "sigmf_ci16.sigmf-meta"
    k = np.arange(1000)
    x = (37 * k**2 + 11 * k) % 4001 - 2000
    expected = x if part == "real" else np.floor_divide(-x, 2)
    np.testing.assert_array_equal(read(path, part=part), expected)
    np.testing.assert_array_equal(read(f"{path}[100:300:7]", part=part), expected[100:300:7])
    if find_spec("sigmf") is not None:
        samples = import_module("sigmf").sigmffile.fromfile(str(path), autoscale=False).read_samples()
        np.testing.assert_array_equal(getattr(samples, part), expected)


@pytest.mark.parametrize("part", ["real", "imag", "abs", "phase"])
@pytest.mark.parametrize(
    ("dtype", "datatype"), [("c8", "cf32_le"), (">c16", "cf64_be"), ("i2", "ci16_le"), ("i1", "ci8")]
)
def test_sigmf_of_its_package(tmp_path: Path, dtype: str, datatype: str, part: Any) -> None:
    """Which adds a checksum of the data, captures and annotations, and reads numbers of 64 bits as 32."""
    sigmf = package_of("sigmf")
    random = np.random.default_rng(0)
    pairs = random.standard_normal((5000, 2)) if "c" in dtype else random.integers(-128, 128, (5000, 2))
    pairs.astype(dtype.replace("c8", "f4").replace("c16", "f8")).tofile(tmp_path / "a.sigmf-data")
    described = sigmf.SigMFFile(data_file=str(tmp_path / "a.sigmf-data"), global_info={"core:datatype": datatype,
                                "core:sample_rate": 48_000, "core:version": sigmf.__specification__})  # fmt: skip
    described.add_capture(0, metadata={"core:frequency": 915e6})
    described.add_annotation(10, 20, metadata={"core:label": "burst"})
    described.tofile(str(tmp_path / "a.sigmf-meta"))
    samples = sigmf.fromfile(str(tmp_path / "a.sigmf-meta"), autoscale=False).read_samples()
    theirs = {"real": np.real, "imag": np.imag, "abs": np.abs, "phase": np.angle}[part](samples)
    ours = read(tmp_path / "a.sigmf-meta", part=part)
    if part in ("real", "imag"):
        np.testing.assert_array_equal(ours.astype(theirs.dtype), theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
