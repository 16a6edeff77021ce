"""Digest samples: BLAKE3 of their content, the same for every format, chunking and number of devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.digest import cpu
from kernels.digest.check import digest_check
from kernels.digest.cpu import combine, digest_cpu
from kernels.digest.partial import HEADER, pack, unpack
from kernels.digest.reference import digest_reference, root_of
from workflows.aggregation import Aggregation
from workflows.shown import Shown


@dataclass(frozen=True)
class DigestOptions:
    """A digest has no options."""


@dataclass(frozen=True)
class DigestResult(Shown):
    """A verified digest.

    Attributes
    ----------
    blake3
        BLAKE3 of the samples in C order, little endian, as 64 hexadecimal digits: what ``b3sum`` prints for a file that
        holds them and nothing else.
    dtype
        Of the samples; it is not hashed, nor is the shape.
    samples
        Number of samples.
    verification
        What was checked, set by `pipeline.run`.

    Examples
    --------
    >>> import numpy, pipeline
    >>> pipeline.run("digest", numpy.arange(4, dtype="u1")).blake3[:16]
    'f30f5ab28fe04790'
    """

    blake3: str
    dtype: np.dtype[Any]
    samples: int
    verification: Any = field(default=None, compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes that were hashed."""
        return self.samples * self.dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        """The digest, and what is reported beside it."""
        return {"blake3": self.blake3, "dtype": self.dtype.name, "samples": self.samples, "bytes": self.nbytes}

    def document(self) -> dict[str, Any]:
        """As `to_json`, with the version of this layout: 1."""
        return {"format": 1} | self.to_json()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """0-d arrays of text and int64."""
        return {name: np.array(value) for name, value in self.to_json().items()}

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """One row for the digest and for each of what is reported beside it."""
        return ("name", "value"), list(self.to_json().items())

    def lines(self) -> list[tuple[str, str]]:
        """The digest, samples and bytes."""
        return [("BLAKE3", self.blake3), ("samples", f"{self.samples:,}"), ("bytes", f"{self.nbytes:,}")]


def compute(block: Any, options: DigestOptions, indices: range) -> Any:
    """Partial of one block, on the device that holds it."""
    if isinstance(block, np.ndarray):
        return digest_cpu(block, indices.start)
    from kernels.digest.gpu import digest_on_device

    return digest_on_device(block, indices.start)


def finalize(partial: NDArray[np.int64], options: DigestOptions) -> DigestResult:
    """Hash what is left, up to the root."""
    dtype, nodes = unpack(partial)
    kind = np.dtype(dtype)
    nbytes = sum(node.length for node in nodes)
    return DigestResult(root_of(nodes).hex(), kind, nbytes // kind.itemsize)


def every_byte_hashed_once(partial: NDArray[np.int64], samples: int) -> str | None:
    """The nodes hold as many bytes as there are samples, and none of them twice."""
    try:
        dtype, nodes = unpack(partial)
    except ValueError as error:
        return str(error)
    expected, got = samples * np.dtype(dtype).itemsize, sum(node.length for node in nodes)
    if got != expected:
        return f"every byte is hashed once: expected {expected:,} bytes, got {got:,}"
    for before, after in pairwise(nodes):
        if after.start < before.end:
            return f"every byte is hashed once: byte {after.start:,} is in two nodes"
    return None


def label(position: int, options: DigestOptions) -> str:
    """Name of an entry."""
    return ("code of the dtype", "number of nodes")[position] if position < HEADER else f"word {position} of the nodes"


DIGEST: Aggregation[DigestOptions] = Aggregation(
    name="digest",
    summary="Compute the BLAKE3 of the samples, the same for every format, chunk size and number of devices.",
    example="'run-*.bin' -o digest.json",
    options=DigestOptions,
    compute=compute,
    combine=combine,
    finalize=finalize,
    reference=lambda samples, options, indices: digest_reference(samples, indices.start),
    invariants=(every_byte_hashed_once,),
    label=label,
    check=lambda options, dtype: digest_check(dtype),
    located=True,
    within_rows=True,
    c_order=True,
    empty=lambda dtype, options: pack(dtype.name, []),
    cpu_source=cpu.SOURCE,
)
