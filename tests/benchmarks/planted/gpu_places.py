"""Places inside of a job on a GPU: blocks on the device, transfers through pinned memory, results of kernels."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kernels.digest.gpu
import kernels.map.promotion
import kernels.quantile.gpu
import kernels.reduce.gpu_powers
import kernels.select.gpu
import kernels.stencil.gpu
import pipeline.engine.aggregate_task
import pipeline.engine.array_gpu
import pipeline.gpu.loads
import pipeline.gpu.pinned
import workflows.by_rows
import workflows.calibration
import workflows.histogram
import workflows.transpose
from kernels.matmul.planes import Warpgroups, Warps
from kernels.matmul.residue import ResidueProduct
from kernels.matmul.small import SmallProduct
from kernels.matmul.small_k import SmallKProduct
from pipeline.gpu.transfer import Transfer
from tests.benchmarks.planted.faults import BASIC, COUNTS, READ, Bytes, Fault
from tests.benchmarks.planted.injector import CHECK, COMPUTE, INJECTOR
from tests.benchmarks.planted.patches import KEPT, KERNEL, Patches, delivered, result_of

TO_DEVICE, TO_HOST, PLANES = "host to device", "device to host", "planes on the device"
PINNED_WRITER = "pinned writer"
ANY_THREAD = (COMPUTE, CHECK)  # threads of their own copy results to the host


@dataclass(frozen=True)
class SpoiltTransfer(Transfer):
    """A transfer whose bytes change when they have arrived."""

    fault: Fault | None = None
    before: Bytes | None = None
    always: int | None = None  # where the byte is that every read has wrong

    def result(self) -> Any:
        """The memory, with the error in it."""
        target = super().result()
        if self.always is not None and INJECTOR.delivered:
            target[self.always : self.always + 1] ^= np.uint8(INJECTOR.delivered[2])
        if self.fault and self.fault.kind != "wrong chunk":
            self.fault.spoil_array(elements_of(target), self.before)
        return target


def elements_of(flat: Any) -> Any:
    """Bytes on a device as elements of the inputs, where they are whole ones."""
    bits = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(INJECTOR.itemsize, np.uint8)
    return flat.view(bits) if flat.nbytes % np.dtype(bits).itemsize == 0 else flat


def transferring(real: Any) -> Any:
    """`transfer.transfer`: runs of a file on their way to the device."""

    def transfer(reading: Any, piece: Any, first: int, runs: NDArray[np.int64], target: Any, *checked: Any) -> Any:
        fault = INJECTOR.reached(TO_DEVICE, READ, (piece.offset + first, target.nbytes))
        always = _always(piece, first, runs)
        if fault is None and always is None:
            return real(reading, piece, first, runs, target, *checked)
        before = _held(target) if fault else None
        if fault and fault.kind == "wrong chunk":
            end = int(runs.sum(axis=1).max())
            most = (piece.size or piece.offset + piece.nbytes) - end
            first = int(fault.random.integers(max(1, most + 1))) - piece.offset
        made = real(reading, piece, first, runs, target, *checked)
        return SpoiltTransfer(made.future, made.piece, made.start, made.target, fault, before, always)

    return transfer


def _always(piece: Any, first: int, runs: NDArray[np.int64]) -> int | None:
    """Where in memory the byte comes to lie that every read has wrong, if it is one of these."""
    starts, lengths = piece.offset + first + runs[:, 0], runs[:, 1]
    places = zip(starts.tolist(), (lengths.cumsum() - lengths).tolist(), lengths.tolist(), strict=True)
    return next(delivered(os.path.basename(piece.path), places), None)


def _held(target: Any) -> Bytes | None:
    """What device memory holds; None where the emulator says that nobody has written to it."""
    try:
        return np.asarray(target.get()).view(np.uint8)
    except AssertionError:
        return None


def writing(real: Any) -> Any:
    """`pinned.Writer.write`: C++ threads copy a block from the device to places in the file."""

    def write(self: Any, source: Any, run_bytes: int, addresses: NDArray[np.int64]) -> Any:
        fault = INJECTOR.reached(PINNED_WRITER, (*BASIC, "lost run", "wrong place"), None, ANY_THREAD)
        if fault is None:
            return real(self, source, run_bytes, addresses)
        if fault.kind in BASIC:
            source = source.copy()
            fault.spoil_array(source, INJECTOR.held.get(PINNED_WRITER))
            import cupy

            cupy.cuda.get_current_stream().synchronize()  # threads copy on streams of their own
            return real(self, source, run_bytes, addresses)
        addresses = np.array(addresses)
        if len(addresses) > 1 and fault.kind == "lost run":
            at = int(fault.random.integers(1, len(addresses)))
            addresses[at] = addresses[at - 1]  # one run is lost, another one's place is written twice
        elif len(addresses) > 1:
            addresses = np.roll(addresses, 1)
        else:
            addresses[0] -= INJECTOR.itemsize  # into the header or the region before; never out of the file
        return real(self, source, run_bytes, addresses)

    return write


def install_on_gpu(patches: Patches) -> None:
    """Have all jobs of this process that use a GPU come through these places."""
    for owner in (pipeline.gpu.loads, pipeline.engine.array_gpu):
        patches.wrap(owner, "transfer", transferring)
    for owner, name, make in (
        (pipeline.engine.array_gpu, "_through_host",
         result_of(TO_DEVICE, (*BASIC, "truncated"), lambda flat, *_: elements_of(flat))),
        (pipeline.engine.array_gpu, "_to_host", result_of(TO_HOST, (*BASIC, "truncated"), roles=ANY_THREAD)),
        (pipeline.engine.aggregate_task, "_on_host", result_of(TO_HOST, (*COUNTS, "truncated"))),
    ):  # fmt: skip
        patches.wrap(owner, name, make)
    patches.wrap(pipeline.gpu.pinned.Writer, "write", writing)
    patches.wrap(workflows.histogram, "histogram", result_of(KERNEL, COUNTS))
    patches.wrap(kernels.reduce.gpu_powers, "reduce_on_device_with_powers", result_of(KERNEL, COUNTS))
    some = result_of(KEPT, BASIC, lambda result, *_: result[1] if result[1].size else None)
    patches.wrap(kernels.select.gpu, "launch", some)
    for name in ("histogram_turns", "histogram_runs"):
        patches.wrap(workflows.histogram, name, result_of(KERNEL, COUNTS))
    for name in ("count_cells_on_device", "count_around_on_device"):
        patches.wrap(kernels.quantile.gpu, name, result_of(KERNEL, COUNTS))
    patches.wrap(kernels.digest.gpu, "digest_on_device", result_of(KERNEL, BASIC))
    patches.wrap(workflows.calibration, "histogram", result_of(KERNEL, COUNTS))
    patches.wrap(workflows.by_rows, "_on_host", result_of(TO_HOST, COUNTS, lambda host, *_: next(iter(host.values()))))
    patches.wrap(kernels.map.promotion, "elementwise", result_of(KERNEL, BASIC))
    for name in ("box", "weighted"):
        patches.wrap(kernels.stencil.gpu, name, result_of(KERNEL, BASIC))
    patches.wrap(workflows.transpose, "reverse_axes", result_of(KERNEL, BASIC))
    for tiles in (Warps, Warpgroups):
        residues = result_of(KERNEL, BASIC, lambda totals, *_: totals.residues)
        patches.wrap(tiles, "multiply", residues)
    patches.wrap(ResidueProduct, "planes", result_of(PLANES, BASIC, lambda planes, *_: planes.a))
    for product in (ResidueProduct, SmallProduct, SmallKProduct):
        patches.wrap(product, "finish", result_of(KERNEL, BASIC))
