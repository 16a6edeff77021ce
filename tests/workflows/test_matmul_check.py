"""The check of a matrix product finds wrong elements above its bound, at least as often as it promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.matmul import check_floats, check_groups
from kernels.matmul.check_groups import Groups
from kernels.matmul.formats import FORMATS, INTEGERS
from pipeline.cluster.placement import Placement
from pipeline.engine.array import run_array
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.matmul import FLOATS, KINDS, Array, factors, generator, on_cpu, strange
from tests.cases.matmul_checks import WAYS, finite_factors, use
from workflows.array_job import Checked
from workflows.matmul import MATMUL, MatmulOptions
from workflows.regions import Bounds, Spec

TRIALS = 60
HIDDEN_TRIALS = 1000  # of a rate


def checked(a: Array, b: Array, product: Array, seed: int) -> Checked:
    """The check's verdict on a product."""

    def read(number: int, bounds: Bounds) -> Array:
        return (a, b)[number][tuple(slice(*ends) for ends in bounds)]

    specs = [Spec(array.shape, array.dtype) for array in (a, b)]
    region = tuple((0, length) for length in product.shape)
    return MATMUL.check(read, product, region, specs, MatmulOptions(), np.random.default_rng(seed))


def planted(product: Array, place: tuple[int, ...], error: float) -> Array:
    """A copy in which one element is off by at least this."""
    wrong = product.copy()
    value = np.array(float(product[place]) + error).astype(product.dtype)
    while abs(float(value) - float(product[place])) < abs(error):
        value = np.nextafter(value, np.array(np.copysign(np.inf, error), product.dtype))
    wrong[place] = value
    return wrong


@pytest.fixture
def nothing_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No random sample of elements is recomputed."""
    monkeypatch.setattr("workflows.matmul_check.random_places", lambda *_: [])


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways to check a product of floats, whatever its size; sums have groups of about 4 columns."""
    use(monkeypatch, request.param)
    return str(request.param)


@pytest.mark.usefixtures("nothing_recomputed", "way")
@pytest.mark.parametrize("kind", ["ordinary", "subnormal", "mixed", "blocks", "huge", "cancelling"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_errors_above_those_that_the_verdict_admits_are_always_found(dtype: str, kind: str) -> None:
    a, b = finite_factors(kind, dtype, 12, 40, 15)
    right = on_cpu(a, b)
    verdict = checked(a, b, right, 0)
    assert np.isfinite(right).all() and not verdict.details
    sizes = np.sqrt(np.square(right.astype(np.longdouble)).mean(-1))
    random = generator("planted", dtype, kind)
    for trial in range(TRIALS):
        i, j = (int(random.integers(length)) for length in right.shape)
        if not sizes[i]:
            continue  # nothing is said of rows of zeros
        # The admitted error is one of right products; the planted one is in the root mean square itself.
        more = np.longdouble(1.001 * 2.0 ** random.choice([0, 0, 0.001, 1, 5, 20]))
        size = float(verdict.undetected * sizes[i] * more)
        size = min(max(size, float(np.finfo(dtype).smallest_subnormal)), float(np.finfo(dtype).max) / 2)
        with np.errstate(over="ignore"):
            wrong = planted(right, (i, j), size * random.choice([-1, 1]))
        result = checked(a, b, wrong, trial)
        assert result.elements == right.size
        admitted = result.undetected * np.sqrt(np.square(wrong[i].astype(np.longdouble)).mean())
        assert result.details or abs(float(wrong[i, j]) - float(right[i, j])) <= admitted, (i, j, size)


@pytest.mark.usefixtures("nothing_recomputed")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("inner", [7, 128, 300])
@pytest.mark.parametrize("dtype", FLOATS)
def test_errors_in_normally_distributed_products_are_found(
    monkeypatch: pytest.MonkeyPatch, dtype: str, inner: int, compiled: bool
) -> None:
    """As docs/verification.md promises: also where the wrong element is small, or two are exchanged."""
    monkeypatch.setattr(check_floats, "COMPILED", 0 if compiled else 2**60)
    random = generator("normal", dtype, inner)
    a, b = (random.standard_normal(sizes).astype(dtype) for sizes in ((60, inner), (inner, 128)))
    right = on_cpu(a, b)
    least = {"float16": 2.0**-5, "float32": 2.0**-10, "float64": 2.0**-30}[dtype]
    for trial in range(60):
        i, j = int(random.integers(60)), int(random.integers(127))
        size = least * np.sqrt(np.square(right[i].astype(np.float64)).mean())
        off = np.array(float(right[i, j]) + random.choice([-1, 1]) * size).astype(dtype)
        for values in ((0.0,), (-right[i, j],), (right[i, j + 1], right[i, j]), (off,)):
            wrong = right.copy()
            wrong[i, j : j + len(values)] = values
            if (wrong != right).any():
                assert checked(a, b, wrong, trial).details, (values, right[i, j])


def test_halves_all_rounded_in_one_direction_cost_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means of sums of float16 suspect so many elements that those of the tile are checked one by one."""
    use(monkeypatch, "compiled sums")
    singly: list[int] = []
    single_columns = check_floats.single_columns

    def counted(columns: int) -> Groups:
        singly.append(columns)
        return single_columns(columns)

    monkeypatch.setattr(check_floats, "single_columns", counted)
    a, b = np.full((300, 1), 1 + 2.0**-5, np.float16), np.full((1, 400), 1 + 2.0**-6, np.float16)
    product = on_cpu(a, b)
    assert (np.abs(product - a.astype(float) * b) == 2.0**-11).all()
    for seed in range(3):
        verdict = checked(a, b, product, seed)
        assert not verdict.details and len(singly) == seed + 1 and verdict.undetected < 2.0**-8
        wrong = product.copy()
        wrong[7 * seed + 200, 100 * seed + 3] *= np.float16(1 + 2.0**-7)
        assert checked(a, b, wrong, seed).details
        singly.pop()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", FLOATS)
def test_right_products_of_any_kinds_pass(dtype: str) -> None:
    """Rows of one kind, columns of another: some magnitudes fit the format only in the product."""
    for seed, (rows, columns) in enumerate(product(KINDS, KINDS)):
        a, b = factors(rows, dtype, 9, 30, 5)[0], factors(columns, dtype, 9, 30, 5)[1]
        assert checked(a, b, on_cpu(a, b), seed).details == (), (rows, columns)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("budget", [0, 2**33])
@pytest.mark.parametrize("dtype", FLOATS)
def test_many_uncertain_elements_pass_and_are_admitted(
    dtype: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of terms far below the largest numbers of their rows: more than can be recomputed one by one."""
    monkeypatch.setattr(check_floats, "BUDGET", budget)
    monkeypatch.setattr(check_floats, "SHARE", 2**40)
    random = generator("uncertain", dtype)
    small = 2.0 ** -(FORMATS[dtype].kept - 4 if dtype != "float16" else 12)
    a, b = (small * random.standard_normal(sizes) for sizes in ((20, 30), (30, 20)))
    a[:, 0], b[1] = 0.75, 0.75  # they meet small numbers
    a[:, 1], b[0] = 0, 0
    a, b = a.astype(dtype), b.astype(dtype)
    right = on_cpu(a, b)
    verdict = checked(a, b, right, 0)
    assert not verdict.details
    if dtype != "float16":  # whose numbers are kept whole, so that no element is uncertain
        assert verdict.undetected < 2.0 ** (14 - FORMATS[dtype].precision)
        assert budget or 2.0 ** (4 - FORMATS[dtype].precision) < verdict.undetected
        wrong = right.copy()
        wrong[3, 4] = np.nextafter(right[3, 4], np.array(9, dtype))
        wrong[3, 4] += np.array(4 * verdict.undetected * np.abs(right[3].astype(np.float64)).max()).astype(dtype)
        assert checked(a, b, wrong, 1).details


@pytest.mark.usefixtures("nothing_recomputed")
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("way", ["sums", "compiled sums"])
def test_errors_that_hide_one_another_escape_no_more_often_than_stated(
    monkeypatch: pytest.MonkeyPatch, way: str, rounds: int
) -> None:
    """Two equal errors in a row of 9: half of the random signs cancel them if both are in the same group of 5."""
    use(monkeypatch, way, 9)
    monkeypatch.setattr(check_groups, "ESCAPE", 4.0**-rounds)
    a, b = factors("ordinary", "float64", 5, 30, 9)
    right = on_cpu(a, b)
    scale = np.ldexp(1.0, np.frexp(np.abs(b).max(0))[1])
    escaped = 0
    for trial in range(HIDDEN_TRIALS):
        wrong = right.copy()
        wrong[trial % 5, 2] += scale[2]
        wrong[trial % 5, 7] -= scale[7]
        result = checked(a, b, wrong, trial)
        assert result.escape == 4.0**-rounds
        escaped += not result.details
    expected = HIDDEN_TRIALS * (4 / 9 / 2) ** rounds
    assert abs(escaped - expected) < 5 * np.sqrt(expected)


@pytest.mark.usefixtures("nothing_recomputed")
@pytest.mark.parametrize("dtype", INTEGERS)
def test_one_wrong_integer_is_found(dtype: str) -> None:
    a, b = factors("mixed", dtype, 6, 33, 7)
    product, random = on_cpu(a, b), generator("integers", dtype)
    assert not checked(a, b, product, 0).details
    for trial in range(TRIALS):
        wrong = product.copy()
        place = tuple(int(random.integers(length)) for length in product.shape)
        bit = np.int64(1) << random.integers(0, 64)
        wrong[place] = (wrong[place] ^ bit) if trial % 2 else random.integers(-(2**63), 2**63 - 1)
        assert checked(a, b, wrong, trial).details, (place, wrong[place], product[place])


@pytest.mark.usefixtures("nothing_recomputed")
def test_sums_that_wrapped_are_found() -> None:
    a = np.full((2, 8), 2**62, np.int64)
    b = np.full((8, 2), 3, np.int64)
    with np.errstate(over="ignore"):
        wrapped = a @ b
    assert all(checked(a, b, wrapped, seed).details for seed in range(100))


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_not_finite_is_looked_at_one_by_one(dtype: str) -> None:
    a, b = strange(dtype, 8, 9, 8)
    a[:3], b[:, :3] = np.finfo(dtype).max, np.finfo(dtype).max  # sums that are too large
    a[3], a[4, 4], b[5, 6] = 1, np.inf, np.nan
    product = on_cpu(a, b)
    assert not checked(a, b, product, 0).details and not np.isfinite(product).all() and np.isinf(product[0, 0])
    nonfinite = np.argwhere(~np.isfinite(product))
    for seed, place in enumerate(nonfinite.tolist()):
        for value in (0.0, np.finfo(dtype).max / 4, np.inf, -np.inf, np.nan):
            wrong = product.copy()
            wrong[*place] = value
            if repr(wrong[*place]) != repr(product[*place]):
                assert checked(a, b, wrong, seed).details, (place, value, product[*place])
    for place in np.argwhere(np.isfinite(product)).tolist():
        for value in (np.inf, -np.inf, np.nan):
            wrong = product.copy()
            wrong[*place] = value
            assert checked(a, b, wrong, 1).details, (place, value)


def test_recomputed_elements_have_to_be_right_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = factors("ordinary", "float64", 2, 30, 2)
    product = on_cpu(a, b)
    product[1, 1] = np.nextafter(product[1, 1], 9)
    details = [checked(a, b, product, seed).details for seed in range(20)]
    assert any(details) and all("element [1, 1] of the region: expected" in lines[0] for lines in details if lines)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_stacks_are_checked_matrix_by_matrix(dtype: str) -> None:
    random = generator("stacks", dtype)
    a = (9 * random.standard_normal((3, 1, 4, 5))).astype(dtype)
    b = (9 * random.standard_normal((2, 5, 6))).astype(dtype)
    if dtype == "float32":
        a[1, 0, 2, 2] = np.inf
    product = on_cpu(a, b)
    assert not checked(a, b, product, 0).details
    for seed, place in enumerate(np.ndindex(product.shape)):
        wrong = product.copy()
        wrong[place] = -wrong[place] if product[place] else 1
        assert checked(a, b, wrong, seed).details or np.isnan(product[place])


@pytest.mark.parametrize("verify", ["full", "sample"])
@pytest.mark.parametrize("change", [lambda c: c[::-1], lambda c: c + (c == c.max()), lambda c: c * np.nan])
def test_a_wrong_product_is_not_kept(tmp_path: Path, verify: str, change: Callable[[Array], Array]) -> None:
    """Even if only a sample is requested: the check is cheap and always covers whole regions."""
    a, b = factors("ordinary", "float64", 30, 20, 30)
    sources = []
    for name, array in (("a", a), ("b", b)):
        np.save(tmp_path / f"{name}.npy", array)
        sources.append(open_source((str(tmp_path / f"{name}.npy"),), samples=False))

    def compute(*arguments: Any) -> Any:
        return np.ascontiguousarray(change(MATMUL.compute(*arguments).elements))

    wrong = replace(MATMUL, compute=compute)
    with pytest.raises(VerificationError, match=r"matmul: a number is wrong in region \[.*\] on worker"):
        run_array(
            wrong,
            MatmulOptions(),
            sources,
            str(tmp_path / "c.npy"),
            Settings(placement=Placement(device="cpu"), verify=verify),
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "b.npy"]
