"""Parts of complex samples agree with NumPy, math and exact integers, in every format that has such samples."""

from __future__ import annotations

import cmath
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.storage import complex_parts
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.complex_parts import check, take
from pipeline.storage.describe import describe
from pipeline.storage.protocol import PARTS, Part, component_of, pair_of
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.format_case import package_of

RANDOM = np.random.default_rng(5)
WAVE = RANDOM.normal(size=(301, 1200)).astype("<f4").view("<c8")  # 301 × 600
EXTREMES = {"f": [0.0, -0.0, 1.5, -2.5e-38, 3e38, math.inf, -math.inf, math.nan, 1e-45, 7.0]}


def read(item: str, part: Part, chunk_bytes: int = 50_000, **how: Any) -> NDArray[Any]:
    chunks = plan(open_source((item,), part=part, **how), chunk_bytes, "off", 0)
    return np.concatenate([block.copy() for chunk in chunks for block in read_blocks(chunk, Timeline())])


def _npy(folder: Path, dtype: str) -> str:
    np.save(folder / "a.npy", WAVE.astype(dtype))
    return str(folder / "a.npy")


def _npz(folder: Path, dtype: str) -> str:
    np.savez_compressed(folder / "a.npz", a=WAVE.astype(dtype))
    return str(folder / "a.npz")


def _hdf5(folder: Path, dtype: str, **how: Any) -> str:
    h5py = package_of("h5py")
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("a", data=WAVE.astype(dtype), **how)
    return str(folder / "a.h5")


def _zarr(folder: Path, dtype: str, **how: Any) -> str:
    zarr = package_of("zarr")
    how |= {"dtype": dtype, "chunks": (50, 70), "fill_value": 1 + 2j}
    made = zarr.create_array(str(folder / "a.zarr"), shape=WAVE.shape, **how)
    made[:, 100:] = WAVE[:, 100:].astype(dtype)
    return str(folder / "a.zarr")


def _sigmf(folder: Path, dtype: str) -> str:
    WAVE.astype(dtype).tofile(folder / "a.sigmf-data")
    letters = ("cf32" if np.dtype(dtype).itemsize == 8 else "cf64") + ("_be" if dtype[0] == ">" else "_le")
    (folder / "a.sigmf-meta").write_text(json.dumps({"global": {"core:datatype": letters}}))
    return str(folder / "a.sigmf-meta")


def _raw(folder: Path, dtype: str) -> str:
    WAVE.astype(dtype).tofile(folder / "a.bin")
    return str(folder / "a.bin")


FORMATS: dict[str, Callable[[Path, str], str]] = {
    "npy": _npy, "npz": _npz, "hdf5": _hdf5,
    "hdf5 deflate": lambda folder, dtype: _hdf5(folder, dtype, chunks=(50, 70), compression="gzip"),
    "hdf5 chunks": lambda folder, dtype: _hdf5(folder, dtype, chunks=(50, 600)),
    "zarr 2": lambda folder, dtype: _zarr(folder, dtype, zarr_format=2),
    "zarr 3": _zarr, "sigmf": _sigmf, "raw": _raw,
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("dtype", ["<c8", ">c8", "<c16"])
@pytest.mark.parametrize("name", FORMATS)
def test_floats_as_numpy(tmp_path: Path, name: str, dtype: str, part: Part) -> None:
    if name.startswith("zarr") and dtype == ">c8":
        pytest.skip("zarr writes them with a codec of its own")
    item = FORMATS[name](tmp_path, dtype)
    how: dict[str, Any] = {}
    if name == "raw":
        how = {"dtype": np.dtype(dtype).name, "byteorder": "big" if dtype[0] == ">" else "little"}
    samples = WAVE.astype(np.complex64 if dtype[-1] == "8" else np.complex128)
    if name.startswith("zarr"):
        samples = samples.copy()
        samples[:, :100] = 1 + 2j
    wide = samples.astype(np.complex128).reshape(-1)
    expected = {"real": wide.real, "imag": wide.imag, "abs": np.abs(wide), "phase": np.angle(wide)}[part]
    values = read(item, part, **how)
    if part != "phase" and dtype[-1] == "8":
        expected = expected.astype("f4")
    assert values.dtype.newbyteorder("=") == expected.dtype
    if part == "abs" and dtype[-1] != "8":  # NumPy's own depends on the processor, and is off by up to two units
        np.testing.assert_array_max_ulp(values, np.array([math.hypot(x.real, x.imag) for x in wide.tolist()]), 2)
    else:
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("datatype", ["ci8", "cu8", "ci16_le", "ci16_be", "cu16_le", "ci32_le", "cu32_le", "ci64_le"])
def test_integers_exactly(tmp_path: Path, datatype: str, part: Part) -> None:
    kind, bits = datatype[1], int(datatype[2:].partition("_")[0])
    dtype = np.dtype(f"{kind}{bits // 8}").newbyteorder(">" if datatype.endswith("be") else "<")
    limits = np.iinfo(dtype)
    numbers = RANDOM.integers(limits.min, limits.max, 6000, dtype.newbyteorder("="), endpoint=True)
    numbers[:6] = [limits.min, limits.min, limits.max, limits.max, 0, limits.max]
    numbers.astype(dtype).tofile(tmp_path / "a.sigmf-data")
    (tmp_path / "a.sigmf-meta").write_text(json.dumps({"global": {"core:datatype": datatype}}))
    values = read(str(tmp_path / "a.sigmf-meta"), part, 1000)
    pairs = [(int(x), int(y)) for x, y in numbers.reshape(-1, 2)]
    if part in ("real", "imag"):
        assert values.tolist() == [pair[part == "imag"] for pair in pairs]
    elif part == "abs":
        assert values.dtype == np.float64
        if bits < 32:
            assert values.tolist() == [math.sqrt(x * x + y * y) for x, y in pairs]
        for value, (x, y) in zip(values.tolist(), pairs, strict=True):
            exact = math.isqrt((x * x + y * y) << 128)  # times 2^64
            assert abs(int(math.ldexp(value, 64)) - exact) <= math.ulp(value) * 2.0**64
    else:
        np.testing.assert_array_max_ulp(values, np.array([cmath.phase(complex(x, y)) for x, y in pairs]), 4)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_special_values_as_numpy(dtype: str) -> None:
    half = np.array(EXTREMES["f"], f"f{np.dtype(dtype).itemsize // 2}")
    real, imag = np.meshgrid(half, half)
    samples = np.empty(real.shape, dtype)
    samples.real, samples.imag = real, imag
    for part in PARTS:
        values = take(samples, part)
        check(samples.reshape(-1), values.reshape(-1), part, "here")
        wide = samples.astype("c16")
        with np.errstate(all="ignore"):
            expected = {"real": wide.real, "imag": wide.imag, "abs": np.abs(wide), "phase": np.angle(wide)}[part]
            rounding = 5e-16 if part == "abs" and dtype == "c16" else 0
            np.testing.assert_allclose(values, expected.astype(values.dtype), rounding, 0)
        assert np.array_equal(np.signbit(values), np.signbit(expected)) or part == "abs"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("component", ["<i2", ">i2", "<f4", "<f8", "<i8"])
def test_a_wrong_number_is_noticed(component: str, part: Part) -> None:
    samples = np.ones(20, pair_of(np.dtype(component)))
    samples["i"] = 3
    values = take(samples, part)
    check(samples, values, part, "here")
    values[7] = values[7] * 1.0001 if part in ("abs", "phase") else values[7] + 1
    with pytest.raises(VerificationError, match=f"here: expected the same {part} of its samples in two ways"):
        check(samples, values, part, "here")
    values[7] = -take(samples, part)[7]
    with pytest.raises(VerificationError):
        check(samples, values, part, "here")


def test_a_wrong_read_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = _npy(tmp_path, "<c8")
    monkeypatch.setattr(complex_parts, "take", lambda samples, part: take(samples, "imag"))
    with pytest.raises(VerificationError, match="expected the same real"):
        read(item, "real")


@pytest.mark.usefixtures("shared")
def test_jobs(tmp_path: Path) -> None:
    item = _npy(tmp_path, "<c8")
    wide = np.abs(WAVE.astype("c16")).astype("f4")
    result = pipeline.run("histogram", item, part="abs", bins=20, range=(0, 5), verify="full", device="cpu")
    np.testing.assert_array_equal(result.counts, np.histogram(wide.astype("f8"), 20, (0, 5))[0])
    reduced = pipeline.run("reduce", item, part="imag", op="min,argmax", device="cpu")
    assert reduced.values == {"min": WAVE.imag.min(), "argmax": WAVE.imag.argmax()}
    out = pipeline.run("transpose", item, part="phase", output=tmp_path / "t.npy", device="cpu")
    np.testing.assert_array_equal(out.array, np.angle(WAVE.astype("c16")).T)
    np.save(tmp_path / "f.npy", np.asfortranarray(WAVE))
    out = pipeline.run("transpose", tmp_path / "f.npy", part="real", output=tmp_path / "u.npy", device="cpu")
    np.testing.assert_array_equal(out.array, WAVE.real.T)


def test_refused(tmp_path: Path) -> None:
    item = _npy(tmp_path, "<c8")
    text = r"expected real samples, got complex ones \({}\); choose a part with --part real, imag, abs or phase"
    with pytest.raises(UsageError, match=text.format("complex64")):
        open_source((item,))
    (tmp_path / "a.sigmf-meta").write_text(json.dumps({"global": {"core:datatype": "ci16_le"}}))
    np.arange(4, dtype="<i2").tofile(tmp_path / "a.sigmf-data")
    with pytest.raises(UsageError, match=text.format("pairs of int16")):
        open_source((str(tmp_path / "a.sigmf-data"),))
    np.arange(4, dtype="<i4").tofile(tmp_path / "real.bin")
    with pytest.raises(UsageError, match="got complex ones"):
        open_source((str(tmp_path / "real.bin"),), "complex64")
    for how in ({}, {"dtype": "u12p"}):
        with pytest.raises(UsageError, match=r"expected complex samples as --part says, got u?int"):
            np.zeros(12, "i4").tofile(tmp_path / "real.bin")
            open_source((str(tmp_path / "real.bin"),), part="abs", **how)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"-: expected files for --part, got standard input"):
        open_source(("-",), part="abs")
    with pytest.raises(UsageError, match="--part: expected one of real, imag, abs, phase, got 'mod'"):
        open_source((item,), part="mod")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="part: expected none with an array"):
        open_source((item, np.zeros(3, "c8")), part="abs")
    np.save(tmp_path / "l.npy", np.zeros(3, np.clongdouble))
    with pytest.raises(UsageError, match="got complex256; convert"):
        open_source((str(tmp_path / "l.npy"),))


def test_truncated_and_changed(tmp_path: Path) -> None:
    item = _npy(tmp_path, "<c8")
    source = open_source((item,), part="abs")
    assert source.identity != open_source((item,), part="real").identity
    os.truncate(item, 5000)
    with pytest.raises(PipelineError, match="shrank while it was read"):
        list(read_blocks(next(iter(plan(source, 2**20, "off", 0))), Timeline()))
    with pytest.raises(PipelineError):
        source.check_unchanged()


def test_pairs() -> None:
    assert component_of(np.dtype([("re", ">i2"), ("im", ">i2")])) == np.dtype(">i2")
    for fields in ([("a", "i2"), ("b", "i2")], [("r", "i2"), ("i", "i4")], [("r", "i2"), ("i", "i2"), ("x", "i2")],
                   [("r", "S2"), ("i", "S2")]):  # fmt: skip
        assert component_of(np.dtype(fields)) is None
    assert component_of(np.dtype({"names": ["r", "i"], "formats": ["i2", "i2"], "offsets": [2, 0]})) is None


def test_the_command_that_info_names(tmp_path: Path) -> None:
    (described,) = describe(_sigmf(tmp_path, "<c8"))
    command = described.command(described.members[0])
    assert command is not None and command.endswith("--range auto --part abs")
    done = subprocess.run([sys.executable, *command.split()[1:], "--json"], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["input"]["samples"] == WAVE.size


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("M8[ns]", r"got datetime64\[ns\]; convert them to int64"),
     ("m8[s]", r"got timedelta64\[s\]; convert them to int64"), ("S3", r"got \|S3; convert them$")],
)  # fmt: skip
def test_other_dtypes(tmp_path: Path, dtype: str, expected: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3, dtype))
    with pytest.raises(UsageError, match=expected):
        open_source((str(tmp_path / "a.npy"),))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_floats_that_numpy_lacks(tmp_path: Path, dtype: str) -> None:
    """NumPy stores them as bytes; the array itself is refused by its name."""
    array = np.zeros(3, getattr(package_of("ml_dtypes"), dtype))
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(
        UsageError, match=r"got [|<]V[12]; convert them, bfloat16 and float8 to float32|unknown dtype, '<f1'"
    ):
        open_source((str(tmp_path / "a.npy"),))
    with pytest.raises(UsageError, match=rf"got {dtype}; convert them"):
        pipeline.run("reduce", array, op="sum")


def test_array_in_memory() -> None:
    with pytest.raises(UsageError, match=r"expected real samples, got complex ones \(complex64\); pass array\.real"):
        pipeline.run("reduce", WAVE, op="sum")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "component", ["<f2", "<f4", ">f4", "<f8", ">f8", "i1", "u1", ">i2", "<i4", "<u4", "<i8", ">u8"]
)
def test_any_bits(component: str) -> None:
    """Signalling NaN, infinities, subnormal and the largest numbers: both ways agree, without a warning."""
    dtype = pair_of(np.dtype(component))
    for _ in range(50):
        samples = np.frombuffer(RANDOM.bytes(300 * dtype.itemsize), dtype)
        for part in PARTS:
            check(samples, take(samples, part), part, "here")
    if component[1:] == "f8":
        large = np.zeros(400, dtype)
        large["r"], large["i"] = np.linspace(1e308, 1.79e308, 400), 5e307
        check(large, take(large, "abs"), "abs", "here")
    zero = np.zeros((), dtype)
    assert [take(zero, part).tolist() for part in PARTS] == [0] * 4
