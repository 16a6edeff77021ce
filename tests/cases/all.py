"""Small ragged inputs for every variant of every kernel, run under many schedules, sanitizers and mutants."""

from __future__ import annotations

from tests.cases.bracket_small import bracket_cases
from tests.cases.case import Case
from tests.cases.checksums_small import checksums_cases
from tests.cases.digest_small import digest_cases
from tests.cases.grouped_small import grouped_cases
from tests.cases.histogram_small import histogram_cases, ladder_cases
from tests.cases.inflate_small import inflate_cases
from tests.cases.lz4_small import lz4_cases
from tests.cases.map_small import elementwise_cases
from tests.cases.matmul import residue_cases
from tests.cases.matmul_rare import rare_cases
from tests.cases.matmul_small import small_cases, small_k_cases
from tests.cases.powers_small import powers_cases
from tests.cases.quantile_small import quantile_cases
from tests.cases.reduce_small import exact_cases
from tests.cases.rows_small import rows_cases
from tests.cases.select_small import select_cases
from tests.cases.stencil_small import window_cases
from tests.cases.stored_small import decode_cases
from tests.cases.study_small import (
    architecture_cases,
    failure_cases,
    limits_cases,
    matmul_cases,
    reduction_cases,
    stencil_cases,
)
from tests.cases.transpose_small import copy_rows_cases, transpose_cases, unaligned_cases
from tests.cases.zstd_small import zstd_cases

GENERATORS = (
    histogram_cases, ladder_cases, reduction_cases, stencil_cases, transpose_cases, copy_rows_cases, unaligned_cases,
    matmul_cases, elementwise_cases, limits_cases, failure_cases, architecture_cases,
    exact_cases, powers_cases, residue_cases, rare_cases, small_cases, small_k_cases, window_cases, decode_cases,
    lz4_cases, inflate_cases, zstd_cases, checksums_cases, quantile_cases, bracket_cases, digest_cases, rows_cases,
    select_cases, grouped_cases,
)  # fmt: skip
CASES: list[Case] = []
# By source, the modules that its cases come from.
DRIVERS: dict[str, set[str]] = {}
for generator in GENERATORS:
    for case in generator():
        CASES.append(case)
        DRIVERS.setdefault(case.stem, set()).add(generator.__module__)
