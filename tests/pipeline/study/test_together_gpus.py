"""A study on two GPUs at once, in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.cli.study import study


@pytest.mark.multigpu
def test_the_sum_of_two(tmp_path: Path) -> None:
    """Broken variants are caught there, too."""
    variants = ["--variant", "warp_shuffle", "--variant", "past_the_end"]
    done = CliRunner().invoke(study, ["reduce", "--gpus", "2", "--quick", *variants, "--json", "-o", f"{tmp_path}/out"])
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["environment"]["gpus"] == 2
    timed = [row for row in document["rows"] if row["status"] == "verified"]
    assert timed and all(row["note"].startswith("sum of 2: ") for row in timed)
    assert {row["status"] for row in document["rows"]} == {"verified", "caught"}
