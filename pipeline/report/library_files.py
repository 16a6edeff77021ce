"""Files of results that need a library: UHI as `.zip` and `.h5`, tables as `.parquet`."""

from __future__ import annotations

import json
import zipfile
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline.report.record import KEY, Record, with_record
from workflows.aggregation import Result

# By suffix: a module that the writer needs, and what to do where it is missing.
LIBRARIES = {
    ".zip": ("uhi.io.zip", "UHI in a zip file needs uhi; pip install 'baru[uhi]'"),
    ".h5": ("uhi.io.hdf5", "UHI in HDF5 needs uhi and h5py; pip install 'baru[uhi]'"),
    ".parquet": ("pyarrow.parquet", "Parquet needs pyarrow; pip install 'baru[parquet]'"),
}
EXACT = 2**53  # integers up to this have a float64


def _histograms(result: Result, record: Record | None) -> dict[str, dict[str, Any]]:
    """The histograms of a document by name, with arrays in the place of lists."""
    document = with_record(result.document(), record)
    for one in document.values():
        one["storage"]["values"] = np.asarray(one["storage"]["values"], np.int64)
        one["axes"] = [axis | ({"edges": np.asarray(axis["edges"])} if "edges" in axis else {}) for axis in one["axes"]]
    return document


def write_zip(result: Result, file: BinaryIO, record: Record | None = None) -> None:
    """UHI histograms as JSON and `.npy` in a zip file."""
    import uhi.io.zip

    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, one in _histograms(result, record).items():
            uhi.io.zip.write(archive, name, one)


def write_hdf5(result: Result, file: BinaryIO, record: Record | None = None) -> None:
    """UHI histograms as groups of an HDF5 file."""
    import h5py
    import uhi.io.hdf5

    # The layouts of HDF5 1.8 on let an attribute, like the record of many inputs, be longer than 64 KiB.
    with h5py.File(file, "w", libver=("v108", "latest")) as made:
        for name, one in _histograms(result, record).items():
            uhi.io.hdf5.write(made.create_group(name), one)


def read_zip(file: BinaryIO) -> dict[str, Any]:
    """The histograms in such a zip file, by name."""
    import uhi.io.zip

    with zipfile.ZipFile(file) as archive:
        names = [name.removesuffix(".json") for name in archive.namelist() if name.endswith(".json")]
        return {name: uhi.io.zip.read(archive, name) for name in names}


def read_hdf5(file: BinaryIO) -> dict[str, Any]:
    """The histograms in such an HDF5 file, by name."""
    import h5py
    import uhi.io.hdf5

    with h5py.File(file, "r") as opened:
        return {name: uhi.io.hdf5.read(group) for name, group in opened.items()}


def write_parquet(result: Result, file: BinaryIO, record: Record | None = None) -> None:
    """The table of a result; the record is in the metadata of the schema, under `baru`."""
    import pyarrow
    import pyarrow.parquet

    header, rows = result.table()
    columns = {name: _column([row[place] for row in rows]) for place, name in enumerate(header)}
    table = pyarrow.table(columns)
    if record is not None:
        table = table.replace_schema_metadata({KEY: json.dumps(record)})
    pyarrow.parquet.write_table(table, file)


def _column(values: list[Any]) -> NDArray[Any] | list[Any]:
    """Integers of 64 bits, or floats, or text if neither holds all of them exactly; empty fields are null."""
    numbers = [float(x) if x in ("nan", "inf", "-inf") else x for x in values]
    if all(isinstance(x, int) for x in numbers):
        for dtype in (np.int64, np.uint64):
            if all(np.iinfo(dtype).min <= x <= np.iinfo(dtype).max for x in numbers):
                return np.array(numbers, dtype)
    if all(x == "" or isinstance(x, float) or (isinstance(x, int) and abs(x) <= EXACT) for x in numbers):
        return [None if x == "" else float(x) for x in numbers]
    return [None if x == "" else str(x) for x in values]
