"""Regions of array jobs on a device: the same bytes as on the CPU, also for dtypes that CuPy lacks."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pipeline.engine.array_gpu
import pipeline.gpu.devices
from pipeline.cluster.placement import Placement
from pipeline.engine.array import run_array
from pipeline.engine.array_gpu import _lane, _lanes, compute_on_device, finish, warm_up
from pipeline.engine.array_plan import ArrayPlan, nbytes_of
from pipeline.engine.array_request import cut_regions
from pipeline.engine.task_memory import COPIES
from pipeline.errors import PipelineError
from pipeline.settings import Settings
from pipeline.storage import mapped_output
from pipeline.storage.array_file import join
from pipeline.storage.output_array import OutputFile
from pipeline.storage.output_file import output_file
from pipeline.storage.output_format import map_output
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.format_case import package_of
from tests.cases.matmul import factors
from tests.emulator.kvikio import install
from workflows.map import MAP, MapOptions
from workflows.matmul import MATMUL, MatmulOptions
from workflows.regions import Bounds, Spec
from workflows.stencil import STENCIL, StencilOptions
from workflows.transpose import TRANSPOSE, TransposeOptions

DTYPES = ("bool", "uint8", "float16", ">i4", "float32", "int64", "complex64", ">c16", "longdouble", "M8[s]", "U1",
          "V1", "V2", "V3", "V5", "S8", "V12", "S16")  # fmt: skip


@pytest.fixture
def limits(cp: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The limits set on the device's memory pool. Adds to the emulator the calls that only this module needs."""
    limits: list[int] = []
    pool = cp.get_default_memory_pool()
    given = getattr(pool, "set_limit", lambda size: None)

    def set_limit(size: int) -> None:
        limits.append(size)
        given(size=size)

    stand_in = SimpleNamespace(set_limit=set_limit, free_all_blocks=pool.free_all_blocks)
    monkeypatch.setattr(cp, "get_default_memory_pool", lambda: stand_in)
    if not hasattr(cp.cuda, "Stream"):
        install(cp, monkeypatch)
    _lanes.cache_clear()
    yield limits
    _lanes.cache_clear()
    given(size=0)


def job_of(folder: Path, workflow: Any, options: Any, *arrays: Any, limit: int | None = None) -> Any:
    """Write arrays to files; returns a function from an output to the plan of the job."""
    sources = []
    for number, array in enumerate(arrays):
        np.save(folder / f"{number}.npy", array)
        sources.append(join(open_source((str(folder / f"{number}.npy"),), samples=False)))

    def on(output: Any) -> ArrayPlan:
        return ArrayPlan(workflow, options, tuple(sources), output, "off", 0, True, limit)

    return on


@pytest.mark.gpu
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("shape", [(70, 33), (5,), (), (3, 4, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtype(
    tmp_path: Path, limits: list[int], dtype: str, shape: tuple[int, ...], direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long rows are read straight to the device, unless it cannot swap their bytes; several threads write them."""
    monkeypatch.setattr(pipeline.engine.array_gpu, "DIRECT_FROM", defaultdict(lambda: 1 if direct else 2**20))
    if direct:
        monkeypatch.setattr(pipeline.engine.array_gpu, "PAGED_RUN", 1)
    size, itemsize = int(np.prod(shape)), np.dtype(dtype).itemsize
    random = np.random.default_rng(0)
    bits = random.integers(2, size=size) if dtype in ("bool", "U1") else None
    array = np.frombuffer(random.bytes(size * itemsize), dtype) if bits is None else bits.astype(dtype)
    array = array.reshape(shape)
    on = job_of(tmp_path, TRANSPOSE, TransposeOptions(), array)
    timeline = Timeline(True)
    native = array.astype(array.dtype.newbyteorder("="))
    spec = TRANSPOSE.outline([join(open_source((str(tmp_path / "0.npy"),), samples=False)).spec], TransposeOptions())
    with output_file(str(tmp_path / "out.npy"), type(spec)(spec.shape, native.dtype)) as ready:
        output = ready()
        region = tuple((0, length) for length in spec.shape)
        compute_on_device(on(output), region, timeline)
    assert np.load(tmp_path / "out.npy").tobytes() == np.ascontiguousarray(native.T).tobytes()
    reading = ["read+copy"] if direct and dtype != ">c16" else ["read", "to device"]
    assert [span.stage for span in timeline.spans] == [*reading, "kernel", "kernel", "write"]
    assert timeline.nbytes[reading[-1]] == timeline.nbytes["write"] == array.nbytes
    assert limits == []


@pytest.mark.gpu
@pytest.mark.parametrize("paged", [1, 2**40])
@pytest.mark.parametrize(("name", "chunks"), [("out.zarr", (16, 20)), ("out.zarr", None), ("out.h5::/x", None)])
def test_other_formats(
    tmp_path: Path, limits: list[int], name: str, chunks: Any, paged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows go straight into their file, tiles through the host."""
    package_of("zarr" if "zarr" in name else "h5py")
    monkeypatch.setattr(pipeline.engine.array_gpu, "PAGED_RUN", paged)
    array = np.arange(70 * 33, dtype="<i4").reshape(70, 33)
    on = job_of(tmp_path, TRANSPOSE, TransposeOptions(), array)
    spec = Spec((33, 70), array.dtype)
    with output_file(str(tmp_path / name), spec, None, chunks) as ready:
        output = ready()
        for rows in ((0, 20), (20, 33)):
            compute_on_device(on(output), (rows, (0, 70)), Timeline())
    np.testing.assert_array_equal(map_output(str(tmp_path / name), spec), array.T)


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "limit"), [
    ((130, 300, 140), 2**19), ((3, 2000, 2), 2**17), ((1, 200, 150), 2**17), ((90, 1, 80), 2**17),
    ((64, 64, 64), 2**16),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_products_within_a_tight_limit(
    tmp_path: Path, limits: list[int], monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], limit: int,
    dtype: str,
) -> None:  # fmt: skip
    """Regions, slabs and kernels for little memory: the bits of a CPU without a limit, each slab read as it was
    planned."""
    a, b = factors("ordinary", dtype, *shape)[0], factors("ordinary", dtype, *shape)[1]
    on, options = job_of(tmp_path, MATMUL, MatmulOptions(), a, b, limit=limit), MatmulOptions()
    specs = [Spec(array.shape, array.dtype) for array in (a, b)]
    spec, nbytes = MATMUL.outline(specs, options), limit // COPIES
    read: list[int] = []
    to_device = pipeline.engine.array_gpu._to_device

    def noting(array: Any, bounds: Bounds, timeline: Timeline) -> Any:
        read.append(nbytes_of(array.spec, bounds))
        return to_device(array, bounds, timeline)

    monkeypatch.setattr(pipeline.engine.array_gpu, "_to_device", noting)
    with output_file(str(tmp_path / "out.npy"), spec) as ready:
        plan = replace(on(ready()), nbytes=nbytes)
        _, regions = cut_regions(plan, 2**28, nbytes)
        for region in regions:
            compute_on_device(plan, region, Timeline())
    expected = MATMUL.compute(lambda number, bounds: (a, b)[number][tuple(slice(*ends) for ends in bounds)],
                              tuple((0, length) for length in spec.shape), specs, options)  # fmt: skip
    assert np.load(tmp_path / "out.npy").tobytes() == expected.elements.tobytes()
    assert sum(sorted(read)[-2:]) <= nbytes and len(read) >= 2 * len(regions)


@pytest.mark.gpu
def test_tasks_one_after_the_other_share_a_stream(limits: list[int]) -> None:
    """The device's memory stays with the stream that freed it; those beside each other have their own."""
    with _lane() as first:
        pass
    with _lane() as second, _lane() as third:
        assert second is first and third is not second
    with _lane() as again:
        assert again is second


@pytest.mark.gpu
def test_runs_of_several_files_go_straight_to_the_device(
    tmp_path: Path, limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.engine.array_gpu, "DIRECT_FROM", defaultdict(int))
    array = np.arange(24 * 10, dtype=">i2").reshape(24, 10)
    for number, rows in enumerate(np.split(array, [5, 11])):
        (tmp_path / f"{number}.raw").write_bytes(b"12" + rows.tobytes())
    source = open_source((str(tmp_path / "*.raw"),), "int16", "big", 2, samples=False)
    options = StencilOptions(radius=2)
    spec = STENCIL.outline([Spec((240,), np.dtype("i2"))], options)
    with output_file(str(tmp_path / "out.npy"), spec) as ready:
        output = ready()
        job = ArrayPlan(STENCIL, options, (join(source),), output, "off", 0)
        timeline = Timeline(True)
        compute_on_device(job, ((40, 150),), timeline)
    expected = np.convolve(array.reshape(-1).astype(np.int64), np.ones(5, np.int64), "same")[40:150]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy")[40:150], expected)
    assert timeline.nbytes["read+copy"] == 2 * 114 and "read" not in timeline.nbytes


@pytest.mark.gpu
def test_file_that_ends_early_is_told(tmp_path: Path, limits: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.engine.array_gpu, "DIRECT_FROM", defaultdict(int))
    array = np.arange(100, dtype=np.int32)
    on = job_of(tmp_path, MAP, MapOptions("add"), array, array)
    with output_file(str(tmp_path / "out.npy"), Spec((100,), array.dtype)) as ready:
        output = ready()
        job = on(output)
        os.truncate(tmp_path / "1.npy", 300)
        with pytest.raises(PipelineError, match=r"1\.npy: shrank while it was read: .*300"):
            compute_on_device(job, ((0, 100),), Timeline())


@pytest.mark.gpu
def test_region_of_larger_arrays_and_the_limit_of_the_pool(tmp_path: Path, limits: list[int]) -> None:
    a, b = np.arange(600, dtype=np.int32).reshape(20, 30), np.arange(30, dtype=np.int32)
    options = MapOptions("subtract")
    on = job_of(tmp_path, MAP, options, a, b, limit=2**28)
    with output_file(str(tmp_path / "out.npy"), MAP.outline(on(None).specs, options)) as ready:
        output = ready()
        compute_on_device(on(output), ((5, 9), (0, 30)), Timeline())
    expected = np.zeros((20, 30), np.int32)
    expected[5:9] = (a - b)[5:9]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    assert limits == [2**28]


@pytest.mark.gpu
def test_output_stays_mapped_from_its_first_region_to_the_end(tmp_path: Path, limits: list[int]) -> None:
    array, maps = np.arange(2**14, dtype=np.int32), Path("/proc/self/maps")
    on = job_of(tmp_path, MAP, MapOptions("add"), array, array)
    with output_file(str(tmp_path / "out.npy"), Spec(array.shape, array.dtype)) as ready:
        job = on(ready())
        mappings = []
        for region in (((0, 2**13),), ((2**13, 2**14),)):
            compute_on_device(job, region, Timeline())
            mappings.append([line for line in maps.read_text(encoding="utf-8").splitlines() if job.output.path in line])
        assert len(mappings[0]) == 1 and mappings[0] == mappings[1]
        finish(job.output.path, limited=False)
        mapped_output._giving_back().submit(int).result()
        assert job.output.path not in maps.read_text(encoding="utf-8")
        with pytest.raises(PipelineError, match="expected a running job"):
            compute_on_device(job, ((0, 2**13),), Timeline())
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), array + array)


@pytest.mark.gpu
@pytest.mark.parametrize("limited", [False, True])
def test_limit_ends_with_the_job(limits: list[int], limited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.gpu.devices, "find_devices", lambda: SimpleNamespace(usable=1))
    finish("none.npy", limited)
    assert limits == [0] * limited


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [">i4", "V3"])
def test_kernels_are_loaded_before_anything_is_read(
    tmp_path: Path, limits: list[int], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By computing on zeros, within the memory limit, without reading a file."""
    monkeypatch.setattr(pipeline.gpu.devices, "find_devices", lambda: SimpleNamespace(usable=1))
    copies: list[Any] = []

    def compute(blocks: Any, region: Any, *rest: Any) -> Any:
        copies.extend(block.get() for block in blocks)
        return TRANSPOSE.compute(blocks, region, *rest)

    planned = OutputFile(str(tmp_path / "none.npy"), 0, Spec((3, 2), np.dtype(dtype)), mappable=False)
    on = job_of(tmp_path, replace(TRANSPOSE, compute=compute), TransposeOptions(), np.ones((2, 3), dtype), limit=2**28)
    (tmp_path / "0.npy").unlink()
    warm_up(on(planned), ((1, 3), (0, 2)))
    expected = np.zeros((2, 2, 3) if dtype == "V3" else (2, 2), "u1" if dtype == "V3" else "i4")
    assert [(block.dtype, block.tolist()) for block in copies] == [(expected.dtype, expected.tolist())]
    assert limits == [2**28] and os.listdir(tmp_path) == []
    streams = replace(on(planned), workflow=replace(TRANSPOSE, compute=compute, streams=True))
    warm_up(streams, ((1, 3), (0, 2)))  # computing a whole region may take long
    assert len(copies) == 1


@pytest.mark.hardware
@pytest.mark.parametrize("dtype", ["uint8", "float32", "complex128", "V3", "longdouble"])
def test_files_larger_than_the_memory_of_the_device(tmp_path: Path, dtype: str) -> None:
    """As much of it as the limit leaves: the same bytes as on the CPU."""
    limit = 2**26
    columns = 4099
    rows = 2 * limit // columns // np.dtype(dtype).itemsize
    data = np.random.default_rng(0).bytes(rows * columns * np.dtype(dtype).itemsize)
    np.save(tmp_path / "in.npy", np.frombuffer(data, dtype).reshape(rows, columns))
    source = open_source((str(tmp_path / "in.npy"),), samples=False)
    contents = []
    for device in ("gpu", "cpu"):
        path = tmp_path / f"{device}.npy"
        outcome = run_array(TRANSPOSE, TransposeOptions(), [source], str(path), Settings(Placement(device=device),
                            verify="full", device_memory_limit=limit))  # fmt: skip
        assert outcome.verdict.checked == rows * columns
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
