"""`python -m pipeline digest`: one digest for all formats, chunks and devices; planted errors; arrays in memory."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import pipeline
import pipeline.engine.aggregate
import pipeline.storage.blocks
from kernels.common import cxx
from kernels.digest.partial import DTYPES, unpack
from kernels.digest.reference import digest_reference, root_of
from pipeline.cli.main import cli
from pipeline.errors import UsageError
from tests.cases.blake3 import DIGESTS, content
from workflows.digest import DigestOptions

pytestmark = pytest.mark.usefixtures("shared")
ROOT = Path(__file__).parents[2]
ECG = str(ROOT / "data/ecg.npy")
OF_ECG = "ff8c19f869c4395a61dbdc4199953bcbb8ae3db73b55e8bd365cbff2e764ea77"  # b3sum of its content
OPTIONS = DigestOptions()


def digested(*words: str) -> dict[str, Any]:
    """`result` of the JSON object."""
    done = CliRunner().invoke(cli, ["digest", *words, "--json", "-q"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result


def blake3_of(samples: NDArray[Any]) -> str:
    """Of the bytes in C order, little endian, by the reference alone, as one array."""
    raw = np.ascontiguousarray(samples.astype(samples.dtype.newbyteorder("<"))).reshape(-1).view(np.uint8)
    return root_of(unpack(digest_reference(raw, 0))[1]).hex()


def random_samples(dtype: str, samples: int) -> NDArray[Any]:
    """Any bits, NaN of every kind included."""
    return np.frombuffer(np.random.default_rng(5).bytes(samples * np.dtype(dtype).itemsize), dtype)


def test_recording() -> None:
    assert digested(ECG) == {"blake3": OF_ECG, "dtype": "uint16", "samples": 108_000, "bytes": 216_000}
    assert blake3_of(np.load(ECG)) == OF_ECG


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 2049, 3072, 31744, 102400])
def test_official_vectors(length: int, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", content(length))
    assert digested(str(tmp_path / "a.npy"))["blake3"] == DIGESTS[length]
    assert pipeline.run("digest", content(length)).blake3 == DIGESTS[length]


@pytest.mark.parametrize("dtype", DTYPES)
def test_result_does_not_depend_on_files_chunks_blocks_or_byte_order(
    tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = random_samples(dtype, 3001)
    whole = blake3_of(samples)
    swapped = samples.astype(samples.dtype.newbyteorder(">"))
    names = []
    for number, part in enumerate(np.split(swapped, [1, 1700, 1703])):
        names.append(str(tmp_path / f"{number}.bin"))
        part.tofile(names[-1])
    nbytes = samples.nbytes
    for block_bytes, chunks in ((64, 1), (1000, 2), (4096, 3), (2**20, 7)):
        monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", block_bytes)
        words = ["--dtype", dtype, "--byteorder", "big", "-c", str(-(-nbytes // chunks))]
        for verify in ("full", "sample", "off"):
            got = digested(*names, *words, "--verify", verify)
            assert got == {"blake3": whole, "dtype": dtype, "samples": 3001, "bytes": nbytes}


def test_formats_have_one_digest(tmp_path: Path) -> None:
    """What is hashed is the content, in C order, whatever its file looks like."""
    h5py = pytest.importorskip("h5py")
    samples = random_samples("int16", 3000).reshape(60, 50)
    np.save(tmp_path / "c.npy", samples)
    np.save(tmp_path / "big.npy", samples.astype(">i2"))
    samples.tofile(tmp_path / "raw.bin")
    (tmp_path / "offset.bin").write_bytes(b"12345" + samples.tobytes())
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("chunked", data=samples, chunks=(7, 9), compression="gzip")
        file.create_dataset("plain", data=samples)
    expected = blake3_of(samples)
    for words in (["c.npy"], ["big.npy"], ["raw.bin", "--dtype", "int16"], ["a.h5::chunked"], ["a.h5::plain"],
                  ["offset.bin", "--dtype", "int16", "--offset", "5"]):  # fmt: skip
        assert digested(str(tmp_path / words[0]), *words[1:])["blake3"] == expected, words


def test_standard_input() -> None:
    samples = random_samples("float32", 5000)
    words = [sys.executable, "-m", "pipeline", "digest", "-", "--dtype", "float32", "--json", "-q"]
    done = subprocess.run(words, input=samples.tobytes(), stdout=subprocess.PIPE, check=True, timeout=60)
    assert json.loads(done.stdout)["result"]["blake3"] == blake3_of(samples)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cxx, "library", lambda source: None)
    monkeypatch.setattr("kernels.digest.cpu._functions", lambda: None)
    assert digested(ECG, "-c", "70001B", "--verify", "full")["blake3"] == OF_ECG
    samples = random_samples("int32", 10_000)
    assert pipeline.run("digest", samples, chunk_bytes=5000, verify="full").blake3 == blake3_of(samples)


def test_arrays_in_memory() -> None:
    """Of any layout, in parts, several as one."""
    da = pytest.importorskip("dask.array")
    samples = random_samples("float64", 2400).reshape(40, 60)
    expected = blake3_of(samples)
    turned, swapped = np.asfortranarray(samples), samples.astype(">f8")
    for arrays in ((samples,), (turned,), (swapped,), (samples[:13], turned[13:])):
        for chunk_bytes in (None, 1000):
            got = pipeline.run("digest", *arrays, chunk_bytes=chunk_bytes, verify="full")
            assert (got.blake3, got.samples, got.dtype) == (expected, 2400, np.float64)
            assert got.verification.checked == 2400
    for chunks in ((7, 13), (40, 60), (1, -1)):
        blocks = da.from_array(samples, chunks=chunks)
        assert pipeline.run("digest", blocks, verify="full").blake3 == expected
        assert pipeline.run("digest", blocks[:9], blocks[9:]).blake3 == expected
    assert pipeline.run("digest", da.from_array(samples.reshape(-1), chunks=999)).blake3 == expected
    unknown = da.from_array(samples.reshape(-1), chunks=999)
    with pytest.raises(UsageError, match="compute_chunk_sizes"):
        pipeline.run("digest", unknown[unknown > 0])
    assert pipeline.run("digest", samples[:0]).blake3 == DIGESTS[0]


@pytest.mark.gpu
def test_arrays_on_a_device(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.pipeline.in_memory.exchange import extend

    if not hasattr(cp.cuda, "Event"):
        extend(cp, monkeypatch)
    samples = random_samples("int32", 5000)
    for words in ({}, {"chunk_bytes": 3001 * 4, "verify": "full"}):
        assert pipeline.run("digest", cp.asarray(samples), **words).blake3 == blake3_of(samples)
    assert pipeline.run("digest", cp.asarray(samples[:99]), cp.asarray(samples[99:])).blake3 == blake3_of(samples)


def test_outputs(tmp_path: Path) -> None:
    for suffix in ("json", "csv", "npz"):
        digested(ECG, "-o", str(tmp_path / f"a.{suffix}"))
    document = json.loads((tmp_path / "a.json").read_text())
    assert document.pop("baru")["input"]["identity"][0]["path"] == ECG
    assert document == {
        "format": 1, "blake3": OF_ECG, "dtype": "uint16", "samples": 108_000, "bytes": 216_000,
    }  # fmt: skip
    header, *rows = csv.reader((tmp_path / "a.csv").read_text().splitlines())
    assert (header, rows[0]) == (["name", "value"], ["blake3", OF_ECG])
    with np.load(tmp_path / "a.npz") as arrays:
        assert str(arrays["blake3"]) == OF_ECG and arrays["samples"] == 108_000
    done = CliRunner().invoke(cli, ["digest", ECG])
    assert f"BLAKE3     {OF_ECG}" in done.stdout


@pytest.mark.parametrize("job", ["histogram", "reduce"])
def test_results_name_what_they_were_computed_from(job: str, tmp_path: Path) -> None:
    words = [job, ECG, "--with-digest", "-o", str(tmp_path / "a.json")]
    done = CliRunner().invoke(cli, [*words, "--json"])
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["input"]["blake3"] == OF_ECG
    done = CliRunner().invoke(cli, words)
    assert f"{OF_ECG} of all samples" in done.stdout and "digest of" not in done.stdout
    plain = CliRunner().invoke(cli, [job, ECG, "-q", "--json"])
    assert "blake3" not in plain.stdout
    assert json.loads(plain.stdout)["result"] == json.loads(line)["result"]


def test_calibrated_and_selected_samples() -> None:
    samples = np.load(ECG)
    assert pipeline.run("digest", ECG, gain=2, chunk_bytes=50_001, verify="full").blake3 == blake3_of(samples * 2.0)
    with pytest.raises(UsageError, match="digest: expected no selection"):
        pipeline.run("digest", ECG, where="x > 900")
    with pytest.raises(UsageError, match="got --where; leave it out"):  # no flag is called --columns
        pipeline.run("digest", ECG, where="y > 900", columns={"y": ECG})
    done = CliRunner().invoke(cli, ["reduce", ECG, "--where", "x > 900", "--with-digest", "--json", "-q"])
    document = json.loads(done.stdout)
    assert document["input"]["blake3"] == OF_ECG and document["result"]["samples"] == int((samples > 900).sum())


def test_rows(tmp_path: Path) -> None:
    """Each has the digest that it has alone, wherever it begins, and the name of all is of all samples."""
    samples = random_samples("int16", 60_000)
    samples.tofile(tmp_path / "a.bin")
    samples[:11].tofile(tmp_path / "b.bin")
    files = [str(tmp_path / name) for name in ("a.bin", "b.bin")]
    for chunk_bytes in (9001, 2**20):
        words = {"dtype": "int16", "verify": "full", "chunk_bytes": chunk_bytes}
        for rows, expected in (
            ({"segment": 7001}, [samples[at : at + 7001] for at in range(0, 60_000, 7001)]),
            ({"channels": 3}, [samples[channel::3] for channel in range(3)]),
            ({"channels": 3, "layout": "planar"}, np.split(samples, 3)),
        ):  # fmt: skip
            got = pipeline.run("digest", files[0], **words, **rows)
            assert [row.blake3 for row in got.results] == list(map(blake3_of, expected)), rows
        got = pipeline.run("digest", *files, **words, by="file")
        assert [row.blake3 for row in got.results] == [blake3_of(samples), blake3_of(samples[:11])]
    done = CliRunner().invoke(cli, ["reduce", ECG, "--channels", "3", "--with-digest", "--json", "-q"])
    assert json.loads(done.stdout)["input"]["blake3"] == OF_ECG


def test_beside_another_job() -> None:
    first, second = pipeline.run([("reduce", {"op": "sum"}), ("digest", {})], ECG)
    assert first.values["sum"] == np.load(ECG).sum() and second.blake3 == OF_ECG
    done = CliRunner().invoke(cli, ["reduce", ECG, "--also", "digest", "--json", "-q"])
    assert [json.loads(line)["job"]["name"] for line in done.stdout.splitlines()] == ["reduce", "digest"]


def test_fortran_order_is_refused(tmp_path: Path) -> None:
    """Its samples come in another order than those of the same array in C order, or in memory."""
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    np.save(tmp_path / "c.npy", array)
    np.save(tmp_path / "f.npy", np.asfortranarray(array))
    of_file = pipeline.run("digest", tmp_path / "c.npy").blake3
    assert of_file == pipeline.run("digest", np.asfortranarray(array)).blake3
    for words in (["digest", "f.npy"], ["compare", "c.npy", "f.npy"], ["histogram", "f.npy", "--with-digest"]):
        told = CliRunner().invoke(cli, [word if not word.endswith(".npy") else str(tmp_path / word) for word in words])
        assert "expected arrays in C order, got" in str(told.exception) + told.output


def test_fortran_order_beside_other_formats_is_refused(tmp_path: Path) -> None:
    """Whichever comes first; a row of it has only one order."""
    array = np.arange(12).reshape(3, 4)
    np.savez_compressed(tmp_path / "d.npz", x=array)
    np.save(tmp_path / "f.npy", np.asfortranarray(array))
    for names in (["d.npz", "f.npy"], ["f.npy", "d.npz"]):
        with pytest.raises(UsageError, match=r"digest: expected arrays in C order, got \S*f.npy in Fortran order"):
            pipeline.run("digest", *(tmp_path / name for name in names))
    for index, slice_ in (("1", array[1]), (":, 1", array[:, 1])):
        found = pipeline.run("digest", f"{tmp_path / 'f.npy'}[{index}]").blake3
        assert found == pipeline.run("digest", slice_).blake3
