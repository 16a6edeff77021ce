"""Kernels inspected without a GPU: the list of kernels, real compiles, and errors for missing tools."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernels.common import nvrtc
from pipeline.cli import study
from pipeline.errors import PipelineError, UsageError
from pipeline.study import inspection
from pipeline.study.inspection import count, find_tools
from pipeline.study.instances import choose, declared, targets
from tests.cases.global_functions import kernels_of
from workflows.study.registry import STUDIES

COPIES = ("histogram_shift<int, 1, 1, true>", "histogram_shift<int, 8, 1, true>")
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


TINY_MODULE = "INSTANCES = ('plain', 'named', 'generic<float, 1>', 'generic<float, 2>')\nHOPPER_INSTANCES = ('late',)\n"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's job: a source and the module beside it."""
    folder = tmp_path / "kernels" / "tiny"
    folder.mkdir(parents=True)
    (folder / "gpu.cu").write_text(TINY)
    (folder / "gpu.py").write_text(TINY_MODULE)
    monkeypatch.setattr("kernels.common.nvrtc.KERNELS", tmp_path / "kernels")
    monkeypatch.setattr("kernels.__path__", [str(tmp_path / "kernels")])
    for module in ("tiny", "tiny.gpu"):
        monkeypatch.delitem(sys.modules, f"kernels.{module}", raising=False)
    return folder / "gpu.cu"


def inspect(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(study.inspect, words)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_histogram(architecture: str) -> None:
    status, out, _ = inspect("histogram", "--kernel", COPIES[1], "--arch", architecture, "--json", "--sass")
    result = json.loads(out)
    (kernel,) = result["kernels"]
    assert status == 0 and (result["target"], result["architecture"]) == ("histogram", architecture)
    assert (kernel["source"], kernel["name"], kernel["instance"]) == ("histogram/gpu.cu", COPIES[1], COPIES[1])
    # One increment for each of the 16 samples of a tile, and one each in the loops before and after the tiles.
    fused = "ATOMS.POPC.INC" if architecture == "sm_90" else "ATOMS.ADD"
    assert kernel["shared atomics"] == sum(fused in line for line in kernel["listing"]) >= 18
    assert kernel["global atomics"] == 1 and kernel["barriers"] == 2
    assert kernel["static shared bytes"] == 0 and kernel["stack bytes"] == 0 and kernel["registers"] <= 64
    assert kernel["global loads"] >= 4 and kernel["local loads and stores"] == 0 and kernel["DFMA"] == 0
    assert 100 < kernel["total"] <= len(kernel["listing"])


def test_two_kernels_side_by_side() -> None:
    status, out, _ = inspect("histogram", "--kernel", COPIES[0], "--kernel", COPIES[1], "--arch", "sm_86")
    assert status == 0
    header = next(line for line in out.splitlines() if line.endswith("difference"))
    assert header.split() == [*" ".join(COPIES).split(), "difference"]
    name, *numbers = next(line for line in out.splitlines() if line.startswith("total")).split()
    assert name == "total" and int(numbers[1]) - int(numbers[0]) == int(numbers[2]) > 0
    assert "DMMA" not in out


def test_listing() -> None:
    status, out, _ = inspect("histogram", "--kernel", COPIES[0], "--arch", "sm_90", "--sass")
    assert status == 0
    listing = out.split(f"{COPIES[0]}:\n")[1].splitlines()
    assert listing[0].startswith("0000  ") and any("ATOMS.POPC.INC" in line for line in listing)
    assert not any("/*" in line or ";" in line for line in listing)


# --- the list of kernels ----------------------------------------------------------------------------------------------


def test_every_kernel_of_every_source_is_shown() -> None:
    """Every `__global__` function of the sources is listed, with an instance."""
    assert {source for sources in targets().values() for source in sources} == set(nvrtc.KERNELS.rglob("*.cu"))
    for target, sources in targets().items():
        for source in sources:
            texts = b"".join(nvrtc.include_closure(source).values()).decode()
            kernels = kernels_of(source)
            assert len(kernels) == len(re.findall(r"^[^/\n]*\b__global__\b", texts, re.MULTILINE)) > 0, source
            shown = {choice.instance.partition("<")[0] for choice in choose(target) if choice.source == source}
            assert shown == set(kernels), source


def test_help_names_every_target() -> None:
    text = " ".join(inspect("--help")[1].split())
    for target in targets():
        assert re.search(rf"\b{target}\b", text) or (target.startswith("study/") and target[6:] in STUDIES), target
    assert "study/JOB" in text


@pytest.mark.parametrize("job", STUDIES)
def test_jobs_and_studies_are_targets(job: str) -> None:
    """All variants of a study that are kernels of their own."""
    assert job in ("architecture", "failures") or choose(job)
    names = {choice.name for choice in choose(f"study/{job}")}
    assert names == set(STUDIES[job].kernels) - {"production", "cublas"}


def test_one_instance_of_each_kernel_or_all() -> None:
    one = {choice.name: choice for choice in choose("stencil")}
    assert one["box"].instance.startswith("box<float, ") and one["weighted"].instance == "weighted<float, float>"
    every = choose("stencil", every=True)
    boxes = [choice.instance for choice in every if choice.instance.startswith("box<")]
    assert len(every) > 50 and len(boxes) == len(one["box"].further) + 1 and set(one["box"].further) < set(boxes)
    assert [choice.instance for choice in choose("transpose", ("unaligned",))] == ["unaligned<u32, 64, 128, 256>"]
    (other,) = choose("matmul", ("finish_floats<Float64, 16>",))
    assert (other.source.name, other.name, other.instance) == ("gpu.cu", *["finish_floats<Float64, 16>"] * 2)


DECLARATIONS = """
// __global__ void in_a_comment(int* x) {}
/* __global__ void in_another(int* x) {} */
#define BOUNDS(n) \\
    __launch_bounds__(n)
__global__ void simple(int* x) { f(x); }
template <typename T,
          int N = (1 + 2) * 3>
__global__ void __launch_bounds__(first(second(N, 1), 2), N > 2 ? 1 : 2)
bounded(T* x,
        void (*callback)(int)) {
    g(x);
}
extern "C" __global__ void BOUNDS(64) with_macro(int* x){}
__global__ void attributed(int* x) ATTRIBUTE;
template <int N> __global__ __launch_bounds__(N) void late_void(int* x) {}
__global__ void __launch_bounds__(64) __maxnreg__(32) two_attributes() {}
"""


def test_declarations_are_parsed(tmp_path: Path) -> None:
    source = tmp_path / "some.cu"
    source.write_text(DECLARATIONS.replace("attributed(int* x) ATTRIBUTE;", "declared(int* x);"))
    names = ["simple", "bounded", "with_macro", "declared", "late_void", "two_attributes"]
    assert kernels_of(source) == names
    source.write_text("__global__ void nothing")
    with pytest.raises(ValueError, match="expected a function after __global__"):
        kernels_of(source)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_counts_of_a_small_kernel(architecture: str, tiny: Path) -> None:
    assert list(declared(tiny)) == ["plain", "named", "generic", "late"]
    status, out, err = inspect("tiny", "--arch", architecture, "--json")
    assert (status, err) == (0, "left out, because only sm_90a has the instructions: late\n")
    plain, named, generic = json.loads(out)["kernels"]
    assert plain["static shared bytes"] == 400 and named["static shared bytes"] == 0
    assert (plain["barriers"], plain["shuffles"], plain["shared stores"], plain["global stores"]) == (1, 1, 1, 1)
    assert plain["global loads"] == 1 and 1 <= plain["shared loads"] <= 2
    assert plain["branches"] == named["branches"] == 0
    assert (named["global loads"], named["FFMA"], named["global atomics"]) == (3, 1, 1)
    assert generic["instance"] == "generic<float, 1>"


def test_what_is_shown(tiny: Path) -> None:
    status, out, _ = inspect("tiny", "--variant", "named")
    header, row = out.splitlines()[-2:]
    assert status == 0 and header.split()[:2] == ["kernel", "registers"] and row.split()[0] == "named"
    status, out, _ = inspect("tiny", "--kernel", "generic")
    assert status == 0 and "generic is generic<float, 1> in tiny/gpu.cu, one of 2 instances\n" in out
    status, out, _ = inspect("tiny", "--kernel", "generic", "--all")
    assert status == 0 and "generic<float, 2> is generic<float, 2> in tiny/gpu.cu\n" in out


def test_count() -> None:
    listing = ["0000  LDG.E R2, [R2]", "0010  @!P0 RED.E.ADD [R4], R2", "0020  @P1 BRA 0x0", "0030  REDUX.SUM UR4, R2",
               "0040  EXIT", "0050  BRA 0x50", "0060  NOP", "0070  NOP"]  # fmt: skip
    got = {kind: number for kind, number in count(listing).items() if number}
    assert got == {"global loads": 1, "global atomics": 1, "branches": 1, "total": 5}


def test_unknown_names(tiny: Path) -> None:
    with pytest.raises(UsageError, match="expected one of tiny, got histogram"):
        choose("histogram")
    for name in ("other", "other<1>"):
        with pytest.raises(UsageError, match=f"expected a kernel, one of plain, named, generic, late, .* got {name}"):
            choose("tiny", (name,))
    status, _, err = inspect("tiny", "--kernel", "plain", "--arch", "sm_12")
    assert status == 2 and err.startswith("error: expected an architecture, one of sm_75, ") and err.count("\n") == 1


def test_source_that_does_not_compile(tiny: Path) -> None:
    tiny.write_text("__global__ void plain(int* out) { *out = nothing; }")
    with pytest.raises(PipelineError, match=r"does not compile for sm_90.*nothing") as caught:
        inspection.inspect(tiny, {"plain": "plain"}, "sm_90")
    assert "\n" not in str(caught.value)


def test_missing_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(Path(path).is_file() for path in find_tools().values())
    monkeypatch.setattr(inspection, "_packaged", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert find_tools()["nvdisasm"] == "/usr/bin/nvdisasm"
    monkeypatch.setattr("shutil.which", lambda name: None)
    status, out, err = inspect("study/roofline")
    assert (status, out) == (2, "")
    assert err.startswith("error: inspect needs cuobjdump and nvdisasm; pip install 'baru[inspect]'")
    assert err.count("\n") == 1
