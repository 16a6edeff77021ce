"""Remote samples on their way to a GPU: through the host, whatever else would cross the bus as it is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.gpu.blocks import LEAST_BLOCK_BYTES, device_blocks
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.format_files import CASES
from tests.cases.web_server import WebServer
from tests.emulator.kvikio import install
from tests.pipeline.storage.remote.samples import SAMPLES


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", ["raw", "packed", "big endian", "beside a file", "zarr 3", "zarr 2, lz4", "hdf5 deflate"]
)
def test_blocks(cp: Any, server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As on the CPU, bit by bit."""
    if not hasattr(cp.cuda, "Stream"):
        install(cp, monkeypatch)
    items, given = [server.url("/a.bin")], {"dtype": "int16"}
    SAMPLES.tofile(tmp_path / "a.bin")
    if name == "packed":
        server.files["/a.bin"], given = SAMPLES.tobytes()[:3_000_000], {"dtype": "u12p"}
    elif name == "big endian":
        given["byteorder"] = "big"
    elif name == "beside a file":
        items = [str(tmp_path / "a.bin"), *items, *items, str(tmp_path / "a.bin")]
    elif name != "raw":
        path, _, member = CASES[name].written(tmp_path).item.partition("::")
        for file in [file for file in [Path(path), *Path(path).rglob("*")] if file.is_file()]:
            server.files[f"/{file.relative_to(tmp_path)}"] = file.read_bytes()
        items, given = [server.url(f"/{Path(path).name}") + (f"::{member}" if member else "")], {}
    source = open_source(items, **given)  # type: ignore[arg-type]
    (chunk,) = plan(source, 2**40, "off", 0)
    expected = np.concatenate([block.copy() for block in read_blocks(chunk, Timeline())])
    blocks = [block.get() for block in device_blocks(chunk, Timeline(), 4 * LEAST_BLOCK_BYTES)]
    assert np.concatenate(blocks).tobytes() == expected.astype(expected.dtype.newbyteorder("=")).tobytes()
    if name in ("raw", "beside a file"):
        assert np.concatenate(blocks).tobytes() == SAMPLES.tobytes() * len(items)
