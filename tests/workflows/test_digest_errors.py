"""Wrong partials of a digest, planted where they are computed, are found: by checks, or by the invariant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.storage.blocks
from kernels.digest.partial import Node, pack, unpack
from pipeline.engine.aggregate import run
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import Source, open_source
from workflows.digest import DIGEST, DigestOptions, finalize

pytestmark = pytest.mark.usefixtures("shared")
OPTIONS = DigestOptions()


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "a.bin").write_bytes(np.random.default_rng(5).bytes(60_000))
    return open_source((str(tmp_path / "a.bin"),), dtype="int16")


Fault = Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.int64]]


def flipped(partial: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """One bit of a payload."""
    wrong = partial.copy()
    payload = wrong[2 + 2 * int(wrong[1]) :].view(np.uint64)
    payload[random.integers(len(payload))] ^= np.uint64(1) << np.uint64(random.integers(64))
    return wrong


def lost(partial: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    dtype, nodes = unpack(partial)
    del nodes[random.integers(len(nodes))]
    return pack(dtype, nodes)


def twice(partial: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    dtype, nodes = unpack(partial)
    return pack(dtype, sorted([*nodes, nodes[random.integers(len(nodes))]]))


def moved(partial: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Two nodes with each other's payloads; the only one, to another place."""
    dtype, nodes = unpack(partial)
    pairs = [(a, b) for a, b in pairwise(nodes) if len(a.payload) == len(b.payload)]
    if not pairs:
        return pack(dtype, [node._replace(start=node.start + 2 * node.length) for node in nodes])
    a, b = pairs[random.integers(len(pairs))]
    swapped = {a: a._replace(payload=b.payload), b: b._replace(payload=a.payload)}
    return pack(dtype, [swapped.get(node, node) for node in nodes])


@pytest.mark.parametrize("verify", ["full", "auto"])
@pytest.mark.parametrize("fault", [flipped, lost, twice, moved])
def test_wrong_partials_are_found(fault: Fault, verify: str, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any block; automatic checks have time for all of a small file."""
    monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", 9000)
    random = np.random.default_rng(6)
    for at in (0, 8999, 30_001, 59_999):

        def compute(block: Any, options: Any, indices: range, at: int = at) -> Any:
            partial = DIGEST.compute(block, options, indices)
            return fault(partial, random) if at // 2 in indices else partial

        with pytest.raises(VerificationError, match="a number is wrong in chunk"):
            run(replace(DIGEST, compute=compute), OPTIONS, source, Settings(verify=verify, chunk_bytes=2**15))


def test_a_wrong_combination_is_found(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check joins nodes by itself."""
    monkeypatch.setattr("kernels.digest.cpu.parents", lambda pair: bytes(32))
    monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", 4096)
    with pytest.raises(VerificationError, match="a number is wrong in chunk 0"):
        run(DIGEST, OPTIONS, source, Settings(verify="full"))


@pytest.mark.parametrize("fault", [lost, twice])
def test_lost_and_repeated_nodes_are_found_by_the_invariant(fault: Fault, source: Source) -> None:
    random = np.random.default_rng(7)
    workflow = replace(DIGEST, compute=lambda *what: fault(DIGEST.compute(*what), random))
    with pytest.raises(VerificationError, match="every byte is hashed once"):
        run(workflow, OPTIONS, source, Settings(verify="off"))


def test_a_byte_in_two_nodes_is_found() -> None:
    """Although the number of bytes is right."""
    (invariant,) = DIGEST.invariants
    nodes = [Node(1024, 1024, bytes(32)), Node(1024, 1024, bytes(32))]
    assert invariant(pack("uint8", nodes), 2048) == "every byte is hashed once: byte 1,024 is in two nodes"
    assert invariant(pack("uint8", nodes[:1]), 1024) is None
    assert "dtype" in str(invariant(np.array([77, 0]), 0))


def test_content_with_a_gap_has_no_digest() -> None:
    with pytest.raises(ValueError, match="gap"):
        finalize(pack("uint8", [Node(1024, 1024, bytes(32))]), OPTIONS)
