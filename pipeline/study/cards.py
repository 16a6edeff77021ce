"""What a GPU is: the columns of `devices`, for the GPUs of this machine and for those of the courses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

UNKNOWN = "unknown"
# float32 lanes of a multiprocessor by compute capability: the table of arithmetic instructions in NVIDIA's CUDA C++
# Programming Guide; the older ones from its editions of the time.
LANES = {
    "2.0": 32, "2.1": 48, "3.0": 192, "3.2": 192, "3.5": 192, "3.7": 192, "5.0": 128, "5.2": 128, "5.3": 128,
    "6.0": 64, "6.1": 128, "6.2": 128, "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128,
    "9.0": 128, "10.0": 128, "10.3": 128, "11.0": 128, "12.0": 128, "12.1": 128,
}  # fmt: skip


@dataclass(frozen=True)
class Card:
    """A GPU; None where nobody says.

    Attributes
    ----------
    name
    origin
        Who states the values: ``"driver"`` or ``"data sheet"``.
    compute_capability
        Like ``"9.0"``.
    multiprocessors
    lanes
        float32 operations that all multiprocessors begin in a cycle: "cores".
    clock_mhz, memory_clock_mhz
        The highest; memory moves data twice in a cycle.
    memory_bytes, memory_bus_bits
    threads_per_block, threads_per_multiprocessor
    shared_per_block, shared_per_multiprocessor
        Bytes.
    registers_per_multiprocessor
        Of 32 bits.
    l2_bytes
    ecc
        Whether memory errors are corrected.
    bus
        Link to the host.
    time_limit
        Whether the driver ends kernels that run too long, as it does on a GPU that also draws the screen.
    """

    name: str
    origin: str
    compute_capability: str | None = None
    multiprocessors: int | None = None
    lanes: int | None = None
    clock_mhz: int | None = None
    memory_bytes: int | None = None
    memory_clock_mhz: int | None = None
    memory_bus_bits: int | None = None
    threads_per_block: int | None = None
    threads_per_multiprocessor: int | None = None
    shared_per_block: int | None = None
    shared_per_multiprocessor: int | None = None
    registers_per_multiprocessor: int | None = None
    l2_bytes: int | None = None
    ecc: bool | None = None
    bus: str | None = None
    time_limit: bool | None = None

    @property
    def bandwidth_gb_s(self) -> float | None:
        """GB/s of device memory, from its clock and its bus: two transfers in a cycle."""
        if self.memory_clock_mhz is None or self.memory_bus_bits is None:
            return None
        return 2 * self.memory_clock_mhz * self.memory_bus_bits / 8 / 1e3

    def as_dict(self) -> dict[str, object]:
        """All values, and the bandwidth, for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {
            "bandwidth_gb_s": self.bandwidth_gb_s
        }


SHEET = "data sheet"
GIB, KIB = 2**30, 2**10
# From NVIDIA's public data sheets and the CUDA C++ Programming Guide. The courses name the C2050, the GTX 680 and the
# RTX 3060; the K40 stands for the Kepler cards of servers.
COURSE_CARDS = (
    Card("Tesla C2050 (2010)", SHEET, "2.0", 14, 448, 1150, 3 * GIB, 1500, 384, 1024, 1536, 48 * KIB, 48 * KIB, 32768,
         768 * KIB, True, "PCIe 2.0 x16"),
    Card("GeForce GTX 680 (2012)", SHEET, "3.0", 8, 1536, 1058, 2 * GIB, 3004, 256, 1024, 2048, 48 * KIB, 48 * KIB,
         65536, 512 * KIB, False, "PCIe 3.0 x16"),
    Card("Tesla K40 (2013)", SHEET, "3.5", 15, 2880, 875, 12 * GIB, 3004, 384, 1024, 2048, 48 * KIB, 48 * KIB, 65536,
         1536 * KIB, True, "PCIe 3.0 x16"),
    Card("GeForce RTX 3060 (2021)", SHEET, "8.6", 28, 3584, 1777, 12 * GIB, 7501, 192, 1024, 1536, 99 * KIB, 100 * KIB,
         65536, 3 * 2**20, False, "PCIe 4.0 x16"),
)  # fmt: skip


def table(cards: Sequence[Card]) -> list[list[str]]:
    """Header and rows: a column for each card, a row for each property."""
    rows = [["", *(card.name for card in cards)], ["from", *(card.origin for card in cards)]]
    for title, name, unit, scale in LINES:
        values = [getattr(card, name) for card in cards]
        rows.append([title, *(_text(value, unit, scale) for value in values)])
    return rows


LINES = (  # title, attribute, unit, units of it in the attribute's own
    ("compute capability", "compute_capability", "", 1), ("multiprocessors", "multiprocessors", "", 1),
    ("float32 lanes (cores)", "lanes", "", 1), ("highest clock", "clock_mhz", "MHz", 1),
    ("memory", "memory_bytes", "GiB", GIB), ("memory clock", "memory_clock_mhz", "MHz", 1),
    ("memory bus", "memory_bus_bits", "bit", 1), ("memory bandwidth", "bandwidth_gb_s", "GB/s", 1),
    ("threads per block", "threads_per_block", "", 1),
    ("threads per multiprocessor", "threads_per_multiprocessor", "", 1),
    ("shared memory per block", "shared_per_block", "KiB", KIB),
    ("shared memory per multiprocessor", "shared_per_multiprocessor", "KiB", KIB),
    ("registers per multiprocessor", "registers_per_multiprocessor", "", 1), ("L2 cache", "l2_bytes", "KiB", KIB),
    ("ECC", "ecc", "", 1), ("bus", "bus", "", 1), ("kernels have a time limit", "time_limit", "", 1),
)  # fmt: skip


def _text(value: object, unit: str, scale: int) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        digits = 1 if value % scale else 0
        return f"{value / scale:,.{digits}f} {unit}".rstrip()
    return str(value)
