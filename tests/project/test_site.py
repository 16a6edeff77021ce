"""The documentation builds as pages without a warning, and what it quotes is there."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCES = [path for folder in ("pipeline", "kernels", "workflows") for path in sorted((ROOT / folder).rglob("*.py"))]


def test_pages_build_without_a_warning(tmp_path: Path) -> None:
    """Also about a page that no other one leads to, and a link that leads nowhere."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    api = (tmp_path / "api.html").read_text(encoding="utf-8")
    for name in ("pipeline.run", "pipeline.register", "kernels.load", "workflows.Aggregation", "UsageError"):
        assert f'id="{name}"' in api or f'.{name}"' in api, name


def names(text: str) -> list[str]:
    """Dotted names in the drawing of how it works."""
    (drawing,) = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    checks = [
        f"pipeline.engine.aggregate_check.{name}" for name in re.findall(r"^│ (check_\w+)", drawing, re.MULTILINE)
    ]
    return re.findall(r"\b(?:pipeline|workflows|kernels)(?:\.\w+)+", drawing) + checks


@pytest.mark.parametrize("name", names((DOCS / "how.md").read_text(encoding="utf-8")))
def test_the_drawing_has_the_names_of_the_code(name: str) -> None:
    owner, _, last = name.rpartition(".")
    try:
        import_module(name)
    except ModuleNotFoundError:
        assert hasattr(import_module(owner), last), name


def literals() -> str:
    """All text of the sources, strings that follow one another joined."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_quoted_messages_are_in_the_code() -> None:
    text, page = literals(), (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = [
        part for line in re.findall(r"^\*\*.*", page, re.MULTILINE) for part in re.findall(r"\*\*(.+?)\*\*", line)
    ]
    assert len(quoted) > 15
    assert [message for message in quoted if message.rstrip(".") not in text] == []
