"""The emulator: each detector finds the fault planted for it, and nothing in correct kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.common import nvrtc
from tests.emulator.build import flatten, sources, translate
from tests.emulator.device import HOST, KernelFault, schedule

SOURCE = Path(__file__).with_name("faults.cu")
SEEDS = range(12)
Run = Callable[..., Any]


@pytest.fixture
def run(host: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Launch a kernel of faults.cu on 0, 1, 2, …"""

    def run(name: str, n: int = 64, threads: int = 64, blocks: int = 1, shared_mem: int = 0, x: Any = None) -> Any:
        x = host.arange(n, dtype=np.int32) if x is None else x
        nvrtc.load(SOURCE, name)((blocks,), (threads,), (x, np.int32(n)), shared_mem=shared_mem)
        return x.get()

    return run


@pytest.mark.parametrize(("name", "threads"), [("right_reverse", 256), ("right_in_a_warp", 32), ("right_atomics", 256)])
def test_nothing_is_found_where_nothing_is_wrong(run: Run, name: str, threads: int) -> None:
    for seed in SEEDS:
        with schedule(seed):
            n = min(threads, 200)
            expected = np.arange(n)[::-1] if "atomics" not in name else [threads, *range(1, n)]
            np.testing.assert_array_equal(run(name, n, threads), expected)


FAULTS = {
    "race_in_a_warp": (32, 1, r"race: thread \d+ .* held\[\d+\] \(shared\), which thread \d+ of block 0 "),
    "race_between_warps": (64, 1, r"race: thread \d+ .* held\[\d+\] \(shared\)"),
    "race_after_a_shuffle": (32, 1, r"race: thread \d+ .* held\[\d+\] \(shared\)"),
    "race_of_a_write_after_reads": (64, 1, r"race: thread \d+ .* held\[\d+\] \(shared\)"),
    "race_between_blocks": (32, 3, r"race: thread 0 .* writes x\[0\], which thread 0 of block \d writes"),
    "race_of_an_atomic_and_a_store": (64, 1, r"race: thread \d+ .* x\[0\]"),
    "behind_the_end": (128, 1, r"out of bounds: thread 64 \(64, 0, 0\) of block 0 writes 4 bytes at x\[64\], which has "
                               r"64 elements, at faults.cu:\d+; --schedule-seed \d+"),
    "behind_shared": (8, 1, r"out of bounds: .* writes 4 bytes at first\[8\] \(shared\), which has 8 elements"),
    "without_a_value": (64, 1, r"no value: thread 63 .* reads held\[0\] \(shared\), which nobody has written"),
    "misaligned": (4, 1, r"misaligned: thread \d .* touches 16 bytes at an address that is (4|8|12) more"),
    "writes_const": (64, 1, r"not its own: thread \d+ .* writes x\[\d+\], which is const"),
    "some_wait": (64, 1, r"divergence: thread \d+ .* ended without reaching the barrier in line \d+"),
    "wait_at_two_barriers": (64, 1, r"divergence: thread \d+ .* at the barrier in line \d+, thread \d+ at that in"),
    "some_lanes_shuffle": (32, 1, r"divergence: thread \d+ .* waits"),
    "not_in_the_mask": (32, 1, r"divergence: lane \d+ is not in the mask 0x1"),
    "never_ends": (1, 1, r"does not end: thread 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found_in_every_schedule(run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the kernel, thread, place, and the seed that reproduces the fault."""
    monkeypatch.setattr("tests.emulator.device.BUDGET", 10**6)
    threads, blocks, message = FAULTS[name]
    for seed in SEEDS:
        with schedule(seed), pytest.raises(KernelFault, match=message) as caught:
            run(name, threads=threads, blocks=blocks)
        assert str(caught.value).startswith(f"faults.cu, {name}: ")
        assert str(caught.value).endswith(f"; --schedule-seed {seed} shows it again")
        if seed < 3:
            with schedule(seed), pytest.raises(KernelFault, match=re.escape(str(caught.value))):
                run(name, threads=threads, blocks=blocks)


def test_arrays_end_where_their_view_ends(run: Run, host: Any) -> None:
    """The bound is that of the array, not of its allocation; for dynamic shared memory, the size in the launch."""
    whole, out = host.arange(100, dtype=np.int32), host.zeros(64, dtype=np.int32)
    kernel = nvrtc.load(SOURCE, "before_the_start")
    with pytest.raises(KernelFault, match=r"out of bounds: thread 0 .* reads 4 bytes at x\[-1\], which has 64 elem"):
        kernel((1,), (64,), (whole[10:74], out, np.int32(64)))
    run("behind_dynamic_shared", shared_mem=256)
    with pytest.raises(KernelFault, match=r"out of bounds: thread 63 .* writes 4 bytes at words\[63\] \(shared\)"):
        run("behind_dynamic_shared", shared_mem=252)


def test_output_has_no_value_before_it_is_written(run: Run, host: Any) -> None:
    with pytest.raises(KernelFault, match=r"no value: thread 0 .* reads out\[0\], which nobody has written"):
        run("output_as_input", x=host.empty(64, np.int32))
    with pytest.raises(AssertionError, match=r"element 5 of \(64,\) has no value"):
        run("leaves_one_out", x=host.empty(64, np.int32))
    part = host.empty(64, np.int32)
    part[:64] = 1
    assert run("output_as_input", x=part).tolist() == [2] * 64


def test_arrays_that_overlap_are_one(run: Run, host: Any) -> None:
    x, kernel = host.arange(65, dtype=np.int32), nvrtc.load(SOURCE, "shifts")
    with pytest.raises(KernelFault, match=r"race: thread \d+ .* (x|out)\[\d+\]"):
        kernel((1,), (64,), (x[1:], x[:64], np.int32(64)))
    kernel((1,), (64,), (x[:64], x[:64], np.int32(64)))
    kernel((1,), (32,), (x[32:64], x[:32], np.int32(32)))
    assert x.get().tolist() == [*range(32, 64), *range(32, 65)]


def test_schedules_differ_and_repeat(run: Run, host: Any) -> None:
    orders = []
    for seed in (*range(30), *range(30)):
        with schedule(seed):
            x = host.zeros(101, dtype=np.int32)
            orders.append(tuple(run("order_matters", x=x)[:64].tolist()))
    assert orders[:30] == orders[30:]
    assert orders[0] == tuple(range(64))
    assert len(set(orders)) > 10 and tuple(reversed(range(64))) in orders


def test_warp_functions(run: Run) -> None:
    x = np.arange(64).reshape(2, 32)
    lane = np.arange(32)
    up, down = (np.where(lane % 8 >= 3, x - 3, x), np.where(lane % 8 < 5, x + 3, x))
    first = x - lane % 8 + 5
    expected = x.sum(axis=1, keepdims=True) + (x ^ 1) + 1000 * (x == 7).any(axis=1, keepdims=True) + up + down - first
    for seed in SEEDS:
        with schedule(seed):
            np.testing.assert_array_equal(run("warp_functions").reshape(2, 32), expected + 16 + 60000)


def test_arguments_have_the_types_of_the_parameters(run: Run, host: Any) -> None:
    kernel, x = nvrtc.load(SOURCE, "right_reverse"), host.zeros(4, dtype=np.int32)
    for arguments, message in (
        ((x, np.int64(4)), r"right_reverse, argument 1: expected a NumPy scalar of i4, got np.int64\(4\)"),
        ((x, 4), "expected a NumPy scalar of i4, got 4"),
        ((x.get(), np.int32(4)), "expected an array of 4 bytes an element on the device"),
        ((host.zeros(4), np.int32(4)), "expected an array of 4 bytes an element on the device"),
        ((x,), "expected 2 arguments, got 1"),
    ):
        with pytest.raises(TypeError, match=message):
            kernel((1,), (32,), arguments)
    for grid, block in (((0,), (32,)), ((1,), (1025,)), ((1, 65536), (32,)), ((1,), (32, 64))):
        with pytest.raises(ValueError, match="launch: "):
            kernel(grid, block, (x, np.int32(4)))


def test_declarations_of_shared_memory_are_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    text = translate("__shared__ alignas(16) Pair<T, 2> a[2][N + 1], b;\nextern __shared__ double c[];")
    assert "using host_type_a = Pair<T, 2>[2][N + 1];" in text and "using host_type_b = Pair<T, 2>;" in text
    assert 'double* const c = static_cast<double*>(host_dynamic_shared("c", sizeof(double)));' in text
    assert text.count("\n") == 1  # lines keep their numbers
    for source in sources():
        assert "__shared__" not in re.sub(r"//.*", "", translate(flatten(source)))


def test_compiler_s_words_are_shown(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong.cu").write_text("__global__ void wrong(int* x) { *x = nothing; }")
    with pytest.raises(RuntimeError, match=r"wrong\.cu:1.*nothing"):
        nvrtc.load(tmp_path / "wrong.cu", "wrong")


def test_host_is_as_before_afterwards(run: Run) -> None:
    with pytest.raises(KernelFault):
        run("behind_the_end", threads=128)
    assert (HOST.seed, HOST.mutant) == (0, 0)
    np.testing.assert_array_equal(run("right_reverse"), np.arange(64)[::-1])
