"""Time and memory of the whole command against the number of samples, on the CPU and on 1, 2 and 4 GPUs.

python -m tests.benchmarks OUT_FOLDER --only growth      # measures
python -m tests.benchmarks.growth                        # draws results/growth.png from the recorded figures
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.gpu.devices import find_devices
from pipeline.storage.generate import generate
from tests.benchmarks.common import RESULTS, command, process
from tests.benchmarks.histogram_file import PART, write_file

SIZES = tuple(2**exponent for exponent in (34, 32, 30, 28, 24, 20))  # samples of int32
MEMORY = "/dev/shm"


def that_fit() -> list[int]:
    """Sizes whose files leave half of the memory free."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return [samples for samples in SIZES if 2 * 4 * samples <= free]


def measure(sizes: Sequence[int] = ()) -> dict[str, Any]:
    """One run of each size that fits, in each place; the file is truncated to each size in turn."""
    gpus = find_devices().usable
    sizes = sorted(sizes or that_fit(), reverse=True)
    job = command("histogram", "-q", "--json")
    places = {f"{n} GPU": ([], ",".join(map(str, range(n)))) for n in (1, 2, 4) if n <= gpus}
    places = places or {"CPU": (["--device", "cpu"], "")}
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = str(Path(folder, "data.bin"))
        if 4 * sizes[0] > PART:
            write_file(path, 4 * sizes[0] // PART)
        else:
            generate(path, sizes[0])
        environment = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(Path(folder, "pyc"))

        def timed(place: str, file: str) -> dict[str, Any]:
            options, visible = places[place]
            shown = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
            done = process([*job, *options, file], environment | shown)
            seconds = json.loads(done.printed)["performance"]["seconds"]
            return {"where": place, "seconds": done.seconds, "seconds after the start": seconds,
                    "peak bytes": done.peak_bytes}  # fmt: skip

        small = str(Path(folder, "small.bin"))
        generate(small, sizes[-1])
        for place in places:  # compile Python and the kernels
            timed(place, small)
        for samples in sizes:
            os.truncate(path, 4 * samples)
            for place in places:
                runs.append({"samples": samples, **timed(place, path)})
                print(runs[-1], flush=True)
    return {"runs": runs}


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
    memory.set(xscale="log", yscale="log", ylabel="MB, largest process", xlabel="samples of int32")
    memory.set_xscale("log", base=2)
    for axes in (times, memory):
        axes.grid(alpha=0.3)
    times.legend()
    target = folder / "growth.png"
    figure.savefig(target, dpi=100, metadata={"Software": None})
    return target


if __name__ == "__main__":
    print(draw(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS))
