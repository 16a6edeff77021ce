"""Time and memory of the whole command against the number of samples: on the CPU, or on 1, 2, 4 GPUs and by default.

python -m tests.benchmarks OUT_FOLDER --only growth                      # measures, up to 1 TiB on GPUs
python -m tests.benchmarks.growth --measure OUT.json --sizes 20 25 30    # these powers of two, a few minutes at most
python -m tests.benchmarks.growth                                        # draws results/growth.png from the records

The samples are int32. What does not fit into half of the memory is a sparse file, which holds no data. A file that was
just written is read at a third of the speed the first time, by any program, so it is read once before the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipeline.gpu.devices import find_devices
from pipeline.storage.generate import generate
from tests.benchmarks.common import RESULTS, command, process, save, with_bytecode
from tests.benchmarks.histogram_file import PART, write_file

SIZES = tuple(2**exponent for exponent in (38, 36, 34, 32, 30, 28, 26, 25, 24, 22, 20))
MEMORY = "/dev/shm"
TURNS = 3
TURN_SECONDS = 20.0  # a size is measured again, for the least of `TURNS` runs, only if a turn takes no longer
READ_BYTES = 2**24


def most_samples() -> int:
    """Most samples of a file that leaves half of the memory free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8


def read_once(path: str) -> None:
    """Read a file by several threads."""

    def read(start: int) -> None:
        buffer = bytearray(READ_BYTES)
        for offset in range(start, min(start + PART, nbytes), READ_BYTES):
            os.preadv(fd, [buffer], offset)

    nbytes = os.path.getsize(path)
    fd = os.open(path, os.O_RDONLY)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(0, nbytes, PART)))
    os.close(fd)


def places() -> dict[str, list[str]]:
    """Options of the command in each place."""
    gpus = find_devices().usable
    if not gpus:
        return {"CPU": ["--device", "cpu"]}
    numbers = [number for number in (1, 2, 4) if number <= gpus]
    return {f"{number} GPU": ["--gpus", str(number)] for number in numbers} | {"default": []}


def one_run(options: Sequence[str], path: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Times, memory and GPUs of a command."""
    done = process([*command("histogram", "-q", "--json"), *options, path], environment)
    report = json.loads(done.printed)
    return {"seconds": done.seconds, "seconds after the start": report["performance"]["seconds"],
            "peak bytes": done.peak_bytes, "GPUs": report["environment"]["gpus"]}  # fmt: skip


def rows(path: str, samples: int, environment: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The fastest run in each place; places take turns."""
    where = places()
    best: dict[str, dict[str, Any]] = {}
    for _ in range(TURNS):
        turn = {place: one_run(options, path, environment) for place, options in where.items()}
        for place, run in turn.items():
            if place not in best or run["seconds"] < best[place]["seconds"]:
                best[place] = run
        if sum(run["seconds"] for run in turn.values()) > TURN_SECONDS:
            break
    for place, run in best.items():
        yield {"samples": samples, "where": place, **run}


def measured(sizes: Sequence[int] = (), most: int | None = None) -> Iterator[dict[str, Any]]:
    """Every size in every place; files of more than `most` samples, by default half of the memory, are sparse."""
    limit = most_samples() if most is None else most
    sizes = sorted(sizes or (size for size in SIZES if size <= limit or find_devices().usable), reverse=True)
    written = [samples for samples in sizes if samples <= limit]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path, sparse, small = (str(Path(folder, f"{name}.bin")) for name in ("data", "sparse", "small"))
        environment = with_bytecode(folder)
        generate(small, 2**10)
        for options in places().values():  # compile Python and the kernels
            one_run(options, small, environment)
        if written:
            if 4 * written[0] > PART:
                write_file(path, 4 * written[0] // PART)
            else:
                generate(path, written[0])
            read_once(path)
        Path(sparse).touch()
        for samples in sizes:  # the file is truncated to each size in turn
            file = path if samples <= limit else sparse
            os.truncate(file, 4 * samples)
            for row in rows(file, samples, environment):
                print(row, flush=True)
                yield row | {"sparse": file == sparse}


def measure(sizes: Sequence[int] = (), most: int | None = None) -> dict[str, Any]:
    """All runs."""
    return {"runs": list(measured(sizes, most))}


def draw(folder: Path) -> Path:
    """The figure, as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    times, memory = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for path in sorted(folder.glob("growth_*.json")):
        figures = json.loads(path.read_text(encoding="utf-8"))
        machine = path.stem.removeprefix("growth_")
        for place in dict.fromkeys(run["where"] for run in figures["runs"]):
            runs = sorted(
                (run for run in figures["runs"] if run["where"] == place), key=lambda run: int(run["samples"])
            )
            sizes = [run["samples"] for run in runs]
            name = f"{figures['environment']['cores']} CPU cores" if place == "CPU" else f"{place}, {machine}"
            times.plot(sizes, [run["seconds"] for run in runs], marker="o", label=name)
            memory.plot(sizes, [run["peak bytes"] / 1e6 for run in runs], marker="o")
    times.set(yscale="log", ylabel="seconds, whole command")
    for which in (times.yaxis.set_major_formatter, times.yaxis.set_minor_formatter):
        which("{x:g}")
    memory.set(
        xscale="log", ylim=(0, 1.1 * memory.get_ylim()[1]), ylabel="MB, largest process", xlabel="samples of int32"
    )
    memory.set_xscale("log", base=2)
    for axes in (times, memory):
        axes.grid(alpha=0.3)
    times.legend()
    target = folder / "growth.png"
    figure.savefig(target, dpi=100, metadata={"Software": None})
    return target


def main() -> None:
    """Measure, or draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth")
    parser.add_argument("folder", nargs="?", type=Path, default=RESULTS, help="of the figures to be drawn")
    parser.add_argument("--measure", metavar="OUT.json", help="measure instead")
    parser.add_argument("--sizes", nargs="+", type=int, default=[], metavar="N", help="measure 2^N samples")
    given = parser.parse_args()
    if given.measure:
        runs = []
        for run in measured([2**exponent for exponent in given.sizes]):
            runs.append(run)
            save({"runs": runs}, given.measure)  # so that an interrupted run keeps its results
    else:
        print(draw(given.folder))


if __name__ == "__main__":
    main()
