"""Conditions as text: what is allowed, and one line that points at the place for everything else."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.expression import MOST_CHARACTERS, MOST_DEPTH, parse

NAMES, TRUTHS = ("x", "i", "volts"), ("good",)

REFUSED = {
    "x ** 2 < 5": "got a power at character 1, 'x ** 2 < 5'; multiply, like x * x, or use sqrt(x)",
    "x": "got a number at character 1, 'x'; compare it, like x != 0",
    "x < 3 and y < 2": "got the unknown name y at character 11, 'y < 2'; name a column by --column y=FILE.npy",
    "vlots < 3": "got the unknown name vlots at character 1, 'vlots < 3'; did you mean volts?",
    "x < nan": "got the unknown name nan at character 5, 'nan'; x == x is false for NaN alone; or use --missing nan",
    "x < inf": "got the unknown name inf at character 5, 'inf'; write 1e999 for infinity",
    "x = 3": "got an assignment at character 3, '= 3'; write == to compare",
    "np.sqrt(x) < 2": "got a call at character 1, 'np.sqrt(x) < 2'; write sqrt(x)",
    "sqr(x) < 2": "got a call at character 1, 'sqr(x) < 2'; write sqrt(x)",
    "__import__('os') == 1": "got a call at character 1, \"__import__('os') == 1\"; the functions are sqrt and abs",
    "sqrt(x, x) < 2": "got sqrt of something else than one number at character 1, 'sqrt(x, x) < 2'; write sqrt(x)",
    "abs(*x) < 2": "got abs of something else than one number at character 1, 'abs(*x) < 2'; write abs(x)",
    "x.real < 2": "got an attribute at character 1, 'x.real < 2'; write the name alone, like sqrt(x) or x",
    "x[0] < 2": "got a subscript at character 1, 'x[0] < 2'; x is the sample itself; its index is i",
    "lambda: x < 2": "got a lambda at character 1, 'lambda: x < 2'; write the condition itself, like 0 <= x < 10",
    "x < 'a'": "got a text at character 5, \"'a'\"; write names and numbers without quotes",
    "x < 1j": "got a complex number at character 5, '1j'; write a number",
    "x < None": "got None at character 5, 'None'; write a number",
    "x & 1 == 0": "got & at character 1, 'x & 1 == 0'; write and",
    "~good": "got ~ at character 1, '~good'; write not",
    "x is 3": "got is at character 1, 'x is 3'; write ==",
    "x in (1, 2)": "got in at character 1, 'x in (1, 2)'; write x == 1 or x == 2",
    "x % 2 == 0": "got % at character 1, 'x % 2 == 0'; there is no remainder; a column can hold it",
    "x // 2 == 0": "got // at character 1, 'x // 2 == 0'; use /",
    "x < 2 if good else x": "got if … else at character 1, 'x < 2 if good else x'; join conditions by and, or, not",
    "x < 2, x > 1": "got a comma at character 1, 'x < 2, x > 1'; join conditions by and, or",
    "[x < 2]": "got something else at character 1, '[x < 2]'; write comparisons, like 0 <= x < 4000",
    "x + good < 2": "got a condition at character 5, 'good < 2'; compute with numbers; join conditions by and, or, not",
    "good == 1": "got a comparison with a condition at character 1, 'good == 1'; join conditions by and, or, not",
    "x < 1 / 0": "got a division by zero at character 5, '1 / 0'; write another number",
    "x < sqrt(-1)": "got numbers without a result at character 5, 'sqrt(-1)'; write another number",
    "x <": "got something else at the end; check the words and brackets there",
    "(x < 2": "got something else at character 1, '(x < 2'; check the words and brackets there",
    "x < 2; import os": "got something else at character 6, '; import os'; check the words and brackets there",
    "µ < 2 and z < 3": "got the unknown name μ at character 1, 'µ < 2 and z < 3'; name a column by --column μ=FILE.npy",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_everything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected comparisons of x, i, volts, good, and numbers, ") as caught:
        parse(text, NAMES, TRUTHS)
    message = str(caught.value)
    assert message.endswith(REFUSED[text]) and "\n" not in message


def test_what_is_too_long_or_too_deep() -> None:
    with pytest.raises(ValueError, match=f"of {MOST_CHARACTERS} characters at most, got {MOST_CHARACTERS + 1}; write"):
        parse("x < " + "1" * (MOST_CHARACTERS - 3), NAMES)
    for deep in ("-" * 900 + "x < 1", "not " * 200 + "x < 1", "x < " + "1 + (" * 150 + "x" + ")" * 150):
        with pytest.raises(ValueError, match=f"more than {MOST_DEPTH} levels"):
            parse(deep, NAMES)
    with pytest.raises(ValueError, match="expected comparisons"):
        parse("(" * 400 + "x < 1" + ")" * 400, NAMES)
    parse(" and ".join(["x<1"] * 120), NAMES)  # long, not deep
    for large in ("x < " + "9" * 400, "x < " + " * ".join(["9" * 200] * 4)):
        with pytest.raises(ValueError, match="2\\*\\*1023 or more"):
            parse(large, NAMES)


def test_no_text_at_all() -> None:
    for nothing in ("", "  \n"):
        with pytest.raises(ValueError, match="got none"):
            parse(nothing, NAMES)
    with pytest.raises(ValueError, match="got int"):
        parse(3, NAMES)  # type: ignore[arg-type]
    for odd in ("x < 1\0", "x < \ud800", "\0"):
        with pytest.raises(ValueError, match="expected"):
            parse(odd, NAMES)


WORDS = [
    *NAMES, *TRUTHS, "and", "or", "not", "<", "<=", "==", "=", "!=", "+", "-", "*", "/", "**", "%", "(", ")", "[", "]",
    "1", "0.5", "1e999", "True", "sqrt", "abs", "(", ")", ",", ".", "'", '"', "lambda", ":", "if", "else", "is", "in",
    "\n", "\\", "#", "é", "{", "}", "print", "__class__", "0x", "1_000", "@", ":=", "await", "f''",
]  # fmt: skip


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)))
def test_any_text_is_a_condition_or_one_line(text: str) -> None:
    try:
        node = parse(text, NAMES, TRUTHS)
    except ValueError as error:
        assert type(error) is ValueError and "expected" in str(error)
        assert "\n" not in str(error) and len(str(error)) < 400
    else:
        assert set(node.names()) <= {*NAMES, *TRUTHS}


def test_nothing_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*arguments: Any) -> None:
        raise AssertionError(f"called with {arguments}")

    for name in ("eval", "exec", "input", "open"):
        monkeypatch.setattr(builtins, name, called)
    monkeypatch.setattr(os, "system", called)
    for text in ("__import__('os').system('true') == 0", "open('a') == 1", "(lambda: input())() == 1",
                 "x.__class__.__bases__ == 1", "[c for c in ().__class__.__base__.__subclasses__()] == 1"):  # fmt: skip
        with pytest.raises(ValueError, match=r"^expected comparisons"):
            parse(text, NAMES, TRUTHS)


def test_the_parser_survives_what_nests_deepest() -> None:
    """In a process of its own, since Python's parser might end it."""
    code = """
from workflows.expression import parse
for text in ("(" * 999, "-" * 1000, "~" * 999 + "x", "x" + "[0" * 499, "not " * 250, "x<" * 499 + "x",
             "x**" * 333 + "x", "{" * 999, "lambda:" * 142 + "x", "f'{" * 300, "x if " * 200, "a." * 499 + "a",
             "abs(" * 249 + ")" * 4):
    try:
        parse(text, ["x"])
    except ValueError as error:
        assert "expected" in str(error), error
print("survived")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "survived\n", done.stderr
