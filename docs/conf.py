"""The documentation as pages: `python -m sphinx -W docs OUT_FOLDER`, with the extra docs."""

from __future__ import annotations

import importlib.metadata

project = "baru"
release = importlib.metadata.version("baru")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "baru"
exclude_patterns = ["examples"]
myst_heading_anchors = 4
napoleon_use_ivar = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
maximum_signature_line_length = 88
