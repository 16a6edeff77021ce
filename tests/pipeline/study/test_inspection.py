"""Kernels taken apart without a GPU: real compiles, and what is said where something is missing."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import kernels.histogram.cpu
from pipeline.cli import study
from pipeline.errors import PipelineError, UsageError
from pipeline.study import inspection
from pipeline.study.inspection import choose_instances, count, find_tools
from workflows.study.registry import STUDIES

INSTANCES = {
    "one copy": "histogram_shift<int, 1, true>",
    "eight copies": "histogram_shift<int, 8, true>",
}
TINY = """
template <typename T> struct Box { T value; };
template <typename T, int N>
__global__ void generic(T* out) { out[threadIdx.x] = N; }
__global__ void __launch_bounds__(64)
plain(float* out) {
    __shared__ float kept[100];
    kept[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = kept[99 - threadIdx.x] + __shfl_down_sync(~0u, kept[threadIdx.x], 1);
}
extern "C" __global__ void named(float* out) { atomicAdd(out, fmaf(out[1], out[2], out[3])); }
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A family of its own; the name is that of a module of kernels, which has to be there."""
    (tmp_path / "variant.cu").write_text(TINY)
    (tmp_path / "study/variant.py").touch()
    monkeypatch.setattr("kernels.common.nvrtc.KERNELS", tmp_path)
    return "variant"


@pytest.fixture
def histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.histogram.cpu, "INSTANCES", INSTANCES, raising=False)


def inspect(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(study.inspect, words)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_histogram(architecture: str, histogram: None) -> None:
    status, out, _ = inspect("histogram", "--variant", "eight copies", "--arch", architecture, "--json", "--sass")
    found = json.loads(out)
    (kernel,) = found["kernels"]
    assert status == 0 and found["architecture"] == architecture
    # One increment for each of the 16 samples of a tile, and one each in the loops before and after the tiles.
    fused = "ATOMS.POPC.INC" if architecture == "sm_90" else "ATOMS.ADD"
    assert kernel["shared atomics"] == sum(fused in line for line in kernel["listing"]) >= 18
    assert kernel["global atomics"] == 1 and kernel["barriers"] == 2
    assert kernel["static shared bytes"] == 0 and kernel["stack bytes"] == 0 and kernel["registers"] <= 64
    assert kernel["global loads"] >= 4 and kernel["local loads and stores"] == 0 and kernel["DFMA"] == 0
    assert 100 < kernel["total"] <= len(kernel["listing"])


@pytest.mark.parametrize("family", [*STUDIES])
def test_every_variant_of_every_family(family: str) -> None:
    variants = importlib.import_module(f"kernels.{'histogram_ladder' if family == 'histogram' else family}").VARIANTS
    status, out, err = inspect(family, "--arch", "sm_90")
    rows = {line.split()[0] for line in out.partition("\nvariant ")[2].splitlines()[1:]}
    assert (status, err) == (0, "")
    assert rows >= set(variants) - {"cublas"}  # which is no kernel of ours


def test_two_variants_side_by_side(histogram: None) -> None:
    status, out, _ = inspect("histogram", "--variant", "one copy", "--variant", "eight copies", "--arch", "sm_86")
    assert status == 0
    header = next(line for line in out.splitlines() if line.endswith("difference"))
    assert header.split() == ["one", "copy", "eight", "copies", "difference"]
    name, *numbers = next(line for line in out.splitlines() if line.startswith("total")).split()
    assert name == "total" and int(numbers[1]) - int(numbers[0]) == int(numbers[2]) > 0
    assert "DMMA" not in out


def test_listing(histogram: None) -> None:
    status, out, _ = inspect("histogram", "--variant", "one copy", "--arch", "sm_90", "--sass")
    assert status == 0
    listing = out.split("one copy:\n")[1].splitlines()
    assert listing[0].startswith("0000  ") and any("ATOMS.POPC.INC" in line for line in listing)
    assert not any("/*" in line or ";" in line for line in listing)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_counts_of_a_small_kernel(architecture: str, tiny: str) -> None:
    status, out, err = inspect(tiny, "--arch", architecture, "--json")
    assert status == 0
    assert err == "left out, because kernels/study/variant.py names no INSTANCES of them: generic\n"
    plain, named = json.loads(out)["kernels"]
    assert plain["static shared bytes"] == 400 and named["static shared bytes"] == 0
    assert (plain["barriers"], plain["shuffles"], plain["shared stores"], plain["global stores"]) == (1, 1, 1, 1)
    assert plain["global loads"] == 1 and 1 <= plain["shared loads"] <= 2
    assert plain["branches"] == named["branches"] == 0
    assert (named["global loads"], named["FFMA"], named["global atomics"]) == (3, 1, 1)


def test_all_variants_are_rows(tiny: str) -> None:
    status, out, _ = inspect(tiny, "--variant", "named")
    header, row = out.splitlines()[-2:]
    assert status == 0 and header.split()[:2] == ["variant", "registers"] and row.split()[0] == "named"


def test_count() -> None:
    listing = ["0000  LDG.E R2, [R2]", "0010  @!P0 RED.E.ADD [R4], R2", "0020  @P1 BRA 0x0", "0030  REDUX.SUM UR4, R2",
               "0040  EXIT", "0050  BRA 0x50", "0060  NOP", "0070  NOP"]  # fmt: skip
    found = {kind: number for kind, number in count(listing).items() if number}
    assert found == {"global loads": 1, "global atomics": 1, "branches": 1, "total": 5}


def test_unknown_names(tiny: str) -> None:
    with pytest.raises(UsageError, match="expected a family out of variant, got histogram"):
        choose_instances("histogram", ())
    with pytest.raises(UsageError, match="expected a variant out of plain, named, got generic"):
        choose_instances(tiny, ("generic",))
    status, _, err = inspect(tiny, "--arch", "sm_12")
    assert status == 2 and err.startswith("error: expected an architecture out of sm_75, ") and err.count("\n") == 1


def test_only_templates(tiny: str, tmp_path: Path) -> None:
    (tmp_path / "variant.cu").write_text("template <int N>\n__global__ void generic(int* out) { *out = N; }")
    with pytest.raises(UsageError, match=r"only templates, and kernels/study/variant.py names no INSTANCES"):
        choose_instances(tiny, ())


def test_source_that_does_not_compile(tiny: str, tmp_path: Path) -> None:
    (tmp_path / "variant.cu").write_text("__global__ void plain(int* out) { *out = nothing; }")
    with pytest.raises(PipelineError, match=r"does not compile for sm_90.*nothing") as caught:
        inspection.inspect(tiny, {"plain": "plain"}, "sm_90")
    assert "\n" not in str(caught.value)


def test_missing_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(Path(path).is_file() for path in find_tools().values())
    monkeypatch.setattr(inspection, "_packaged", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert find_tools()["nvdisasm"] == "/usr/bin/nvdisasm"
    monkeypatch.setattr("shutil.which", lambda name: None)
    status, out, err = inspect("limits")
    assert (status, out) == (2, "")
    assert err.startswith("error: inspect needs cuobjdump and nvdisasm; install the extra inspect")
    assert err.count("\n") == 1
