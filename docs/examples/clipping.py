"""A job of your own: how many samples of an 11-bit recording are clipped. `python clipping.py recording.npy`"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pipeline
from kernels import load
from workflows import Aggregation


@dataclass(frozen=True)
class ClippingOptions:
    lowest: int = 0
    highest: int = 2047


def compute(block, options):  # exact counts of a block, on the device that holds it
    if isinstance(block, np.ndarray):
        return np.array([np.sum(block <= options.lowest), np.sum(block >= options.highest)])
    import cupy

    counts, limits = cupy.zeros(2, np.int64), np.array([options.lowest, options.highest], block.dtype)
    kernel = load(Path(__file__).with_suffix(".cu"), "clipping<unsigned short>")
    kernel((1024,), (256,), (block, np.int64(len(block)), *limits, counts))
    return counts


def reference(block, options):  # the same by other means, to check the counts against
    return np.array([len(block[block <= options.lowest]), len(block[block >= options.highest])])


def possible(counts, samples):  # what holds for every block and every sum of blocks
    return None if 0 <= counts.sum() <= samples else f"expected at most {samples} samples, got {counts.sum()}"


pipeline.register(Aggregation("clipping", "Count clipped samples.", ClippingOptions, compute, np.add,
                              lambda counts, options: dict(zip(("low", "high"), counts.tolist(), strict=True)),
                              reference, (possible,), lambda place, options: ("low", "high")[place]))  # fmt: skip
if __name__ == "__main__":
    print(pipeline.run("clipping", sys.argv[1]))
