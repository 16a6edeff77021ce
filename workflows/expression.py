"""Reads conditions like ``0 <= x < 4000 and x != 7``: a subset of Python's syntax; nothing is evaluated.

Python's own parser makes a tree of the text, and every node that is not on the list below is refused.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from itertools import pairwise

from kernels.select.tree import MOST, Node, all_of, made

MOST_CHARACTERS = 1000
MOST_DEPTH = 50  # of operations within operations
ASSIGNMENT = re.compile(r"=(?!=)")

COMPARISONS = {ast.Lt: "less", ast.LtE: "less_equal", ast.Eq: "equal", ast.NotEq: "not_equal",
               ast.GtE: "greater_equal", ast.Gt: "greater"}  # fmt: skip
ARITHMETIC = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}
LOGICAL = {ast.And: "logical_and", ast.Or: "logical_or"}
FUNCTIONS = {"sqrt": "sqrt", "abs": "absolute"}
# What people write instead, and what they mean.
OTHERS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Pow: ("a power", "multiply, like x * x, or use sqrt(x)"),
    ast.FloorDiv: ("//", "use /"),
    ast.Mod: ("%", "there is no remainder; a column can hold it"),
    ast.MatMult: ("@", "use *"),
    ast.BitAnd: ("&", "write and"),
    ast.BitOr: ("|", "write or"),
    ast.BitXor: ("^", "write != between two conditions"),
    ast.LShift: ("<<", "write * and a power of two"),
    ast.RShift: (">>", "write / and a power of two"),
    ast.Invert: ("~", "write not"),
    ast.Is: ("is", "write =="),
    ast.IsNot: ("is not", "write !="),
    ast.In: ("in", "write x == 1 or x == 2"),
    ast.NotIn: ("not in", "write x != 1 and x != 2"),
    ast.Attribute: ("an attribute", "write the name alone, like sqrt(x) or x"),
    ast.Subscript: ("a subscript", "x is the sample itself; its index is i"),
    ast.Lambda: ("a lambda", "write the condition itself, like 0 <= x < 10"),
    ast.IfExp: ("if … else", "join conditions by and, or, not"),
    ast.NamedExpr: (":=", "write == to compare"),
    ast.Tuple: ("a comma", "join conditions by and, or"),
}
WORDS = {"nan": "x == x is false for NaN alone; or use --missing nan", "inf": "write 1e999 for infinity"}


def parse(text: str, names: Collection[str], truths: Collection[str] = ()) -> Node:
    """The condition that a text says.

    Parameters
    ----------
    text
    names, truths
        Names that it may use: of numbers, and of what is true or false.

    Raises
    ------
    ValueError
        If it is not a condition, or uses something else: what was expected, what was got and where, what to do.
    """
    return _Reader(text, names, truths).condition()


class _Reader:
    def __init__(self, text: str, names: Collection[str], truths: Collection[str]) -> None:
        if not isinstance(text, str):
            raise ValueError(f"expected a condition like 'x < 4000', got {type(text).__name__}")
        self.text, self.names, self.truths = text.strip(), names, truths
        if not self.text:
            raise ValueError("expected a condition like 'x < 4000', got none")
        if len(self.text) > MOST_CHARACTERS:
            raise ValueError(f"expected a condition of {MOST_CHARACTERS} characters at most, got {len(self.text)}; "
                             "write it to a .npy file of booleans and use --mask")  # fmt: skip

    def condition(self) -> Node:
        """The whole text, which has to be true or false."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of odd literals, which are fine or refused
                body = ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            raise self._syntax(error) from None
        except (ValueError, MemoryError, RecursionError):  # null bytes; too many levels
            raise ValueError(f"expected a condition like 'x < 4000', got {_short(self.text)!r}") from None
        return self._truth(body, 0)

    def _syntax(self, error: SyntaxError) -> ValueError:
        before = "".join(self.text.splitlines(keepends=True)[: (error.lineno or 1) - 1])
        at = min(len(before) + error.offset - 1, len(self.text)) if error.offset else len(self.text)
        if ASSIGNMENT.match(self.text, at):
            return self._refused(at, "an assignment", "write == to compare")
        return self._refused(at, "something else", "check the words and brackets there")

    def _refused(self, at: int, got: str, advice: str) -> ValueError:
        """An error that points at a character."""
        rest = self.text[at:].split("\n", 1)[0]
        where = f"at character {at + 1}, {_short(rest)!r}" if rest.strip() else "at the end"
        return ValueError(f"expected comparisons of {self._known()}, and numbers, with + - * / sqrt abs and or not, "
                          f"got {got} {where}; {advice}")  # fmt: skip

    def _known(self) -> str:
        return ", ".join([*self.names, *self.truths])

    def _at(self, node: ast.AST) -> int:
        """Characters before a node; Python counts bytes."""
        lines = self.text.splitlines(keepends=True)
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return len("".join(lines[: line - 1])) + len(lines[line - 1].encode()[:offset].decode(errors="ignore"))

    def _truth(self, node: ast.expr, depth: int) -> Node:
        """A condition: something that is true or false."""
        result = self._read(node, depth)
        if not self._is_truth(result):
            raise self._refused(self._at(node), "a number", f"compare it, like {_short(_source(self.text, node))} != 0")
        return result

    def _number(self, node: ast.expr, depth: int) -> Node:
        result = self._read(node, depth)
        if self._is_truth(result):
            raise self._refused(self._at(node), "a condition", "compute with numbers; join conditions by and, or, not")
        return result

    def _is_truth(self, node: Node) -> bool:
        return node.truth or (node.op == "name" and node.value in self.truths)

    def _read(self, node: ast.expr, depth: int) -> Node:
        if depth > MOST_DEPTH:
            raise self._refused(self._at(node), f"more than {MOST_DEPTH} levels", "use --mask instead")
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.BoolOp):
            op = LOGICAL[type(node.op)]
            first, *rest = (self._truth(value, depth + 1) for value in node.values)
            for other in rest:
                first = self._made(op, (first, other), node)
            return first
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                return self._made("logical_not", (self._truth(node.operand, depth + 1),), node)
            if isinstance(node.op, ast.Invert):
                raise self._other(node, node.op)
            number = self._number(node.operand, depth + 1)
            return number if isinstance(node.op, ast.UAdd) else self._made("negative", (number,), node)
        if isinstance(node, ast.BinOp):
            if type(node.op) not in ARITHMETIC:
                raise self._other(node, node.op)
            operands = self._number(node.left, depth + 1), self._number(node.right, depth + 1)
            return self._made(ARITHMETIC[type(node.op)], operands, node)
        if isinstance(node, ast.Compare):
            return self._comparison(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        raise self._other(node, node)

    def _other(self, node: ast.expr, what: ast.AST) -> ValueError:
        got, advice = OTHERS.get(type(what), ("something else", "write comparisons, like 0 <= x < 4000"))
        return self._refused(self._at(node), got, advice)

    def _constant(self, node: ast.Constant) -> Node:
        value = node.value
        if not isinstance(value, bool | int | float):
            got = {str: "a text", bytes: "a text", complex: "a complex number"}.get(type(value), repr(value))
            advice = "write names and numbers without quotes" if isinstance(value, str | bytes) else "write a number"
            raise self._refused(self._at(node), got, advice)
        if isinstance(value, int) and abs(value) >= MOST:
            raise self._refused(self._at(node), "a number of 2**1023 or more", "write a smaller one")
        return Node("number", value=value, at=self._at(node))

    def _name(self, node: ast.Name) -> Node:
        known: Sequence[str] = [*self.names, *self.truths]
        if node.id in known:
            return Node("name", value=node.id, at=self._at(node))
        close = get_close_matches(node.id, [*known, "sqrt", "abs"], 1)
        if node.id.lower() in WORDS:
            advice = WORDS[node.id.lower()]
        elif close:
            advice = f"did you mean {close[0]}?"
        else:
            advice = f"name a column by --column {node.id}=FILE.npy"
        raise self._refused(self._at(node), f"the unknown name {_short(node.id)}", advice)

    def _call(self, node: ast.Call, depth: int) -> Node:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            close = get_close_matches(name, FUNCTIONS, 1, 0.5)
            advice = f"write {close[0]}(x)" if close else "the functions are sqrt and abs"
            raise self._refused(self._at(node), "a call", advice)
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
            raise self._refused(self._at(node), f"{node.func.id} of something else than one number",
                                f"write {node.func.id}(x)")  # fmt: skip
        return self._made(FUNCTIONS[node.func.id], (self._number(node.args[0], depth + 1),), node)

    def _comparison(self, node: ast.Compare, depth: int) -> Node:
        for op in node.ops:
            if type(op) not in COMPARISONS:
                raise self._other(node, op)
        operands = [self._read(one, depth + 1) for one in (node.left, *node.comparators)]
        parts = []
        for op, (left, right) in zip(node.ops, pairwise(operands), strict=True):
            name = COMPARISONS[type(op)]
            truths = self._is_truth(left) + self._is_truth(right)
            if truths == 1 or (truths and name not in ("equal", "not_equal")):
                raise self._refused(self._at(node), "a comparison with a condition", "join conditions by and, or, not")
            parts.append(self._made(name, (left, right), node))
        return all_of(parts)

    def _made(self, op: str, args: tuple[Node, ...], node: ast.expr) -> Node:
        try:
            return made(op, args, self._at(node))
        except ValueError as error:
            raise self._refused(self._at(node), str(error), "write another number") from None


def _source(text: str, node: ast.expr) -> str:
    return ast.get_source_segment(text, node) or "x"


def _short(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:29]}…"
