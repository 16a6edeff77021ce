"""Mutants of a source: each lacks a barrier, a bounds check or an atomic operation, or has another operator.

All mutants of a source are compiled together, and a number chosen at run time selects one: `host_mutant(k)` is 1 in
mutant k and 0 otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tests.emulator import operators
from tests.emulator.inputs import digest
from tests.emulator.operators import Site

BARRIER = re.compile(r"\b__sync(?:threads|warp)\(\)")
VOTE = re.compile(r"\b__syncthreads_(?:and|or|count)\(")
ATOMIC = re.compile(r"\batomic[A-Z]\w*\(")
BRANCH = re.compile(r"\b(if|while|for) \(")
CLAMP = re.compile(r"(?<!\w)(?:min|max)\(")
TERNARY = re.compile(r"\?")
FLAG = re.compile(r"\bconst bool \w+ = ([^;]+);")
COMPARES = re.compile(r"[^<>=!-](?:<|>|<=|>=|==|!=)(?![<>=])")
# Decided at compile time.
CONSTANT = re.compile(
    r"^\s*(?:template|constexpr|static_assert|static constexpr|using)\b|^\s*#|__launch_bounds__|\bif constexpr\b"
)


@dataclass(frozen=True)
class Mutant:
    """A change.

    Attributes
    ----------
    number
        From 1 on, within a source.
    kind
        ``"barrier"``, ``"atomic"``, ``"guard"`` (a condition is dropped), ``"bound"`` (a loop goes on once more) or
        ``"clamp"`` (a minimum with the number of elements is the other operand), or one of `operators.KINDS`.
    file, line
        Where it is.
    function
        The kernel or device function that it is in.
    text
        What is removed or changed; of an operator what is there instead.
    """

    number: int
    kind: str
    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.kind} `{self.text}`"


def without_comments(text: str) -> str:
    """The same lines without what follows `//`."""
    return re.sub(r"//.*", "", text)


def mutate(
    source: str, without: set[str], most: int = 0, refused: Collection[tuple[str, int]] = ()
) -> tuple[str, list[Mutant]]:
    """A source with its mutants, except in functions named in `without`.

    Of each of `operators.KINDS` there are at most `most`, chosen by a hash; none in the lines named in `refused`.
    """
    text = without_comments(source)
    places = _Places(text)
    chosen: list[Site] = []
    for start, end, kind, form in sorted(_sites(text)):
        # Not inside another site, or a constant expression.
        if (not chosen or start >= chosen[-1].end) and places.is_changeable(start, without):
            chosen.append(Site(start, end, kind, form, " ".join(text[start:end].split())))
    if most:
        chosen += _sample(text, places, chosen, without, most, refused)
    chosen.sort(key=lambda site: (site.start, -site.end))
    mutants = [
        Mutant(number, site.kind, *places.file_and_line(site.start), places.function(site.start), site.text)
        for number, site in enumerate(chosen, 1)
    ]
    return _rendered(text, 0, len(text), list(enumerate(chosen, 1))), mutants


def _sample(
    text: str, places: _Places, taken: list[Site], without: set[str], most: int, refused: Collection[tuple[str, int]]
) -> list[Site]:
    """Sites of operators that lie inside or outside of those that are taken, and of each other."""
    source = places.file_and_line(len(text))[0]
    ranked = {site: digest(source, site.kind, places.function(site.start), site.text) for site in operators.sites(text)}
    counts = dict.fromkeys(operators.KINDS, 0)
    chosen: list[Site] = []
    for site in sorted(ranked, key=lambda site: (ranked[site], site.start)):
        if counts[site.kind] == most or not places.is_changeable(site.start, without):
            continue
        if places.file_and_line(site.start) in refused:
            continue
        if any(_crosses(site, other) for other in (*taken, *chosen)):
            continue
        counts[site.kind] += 1
        chosen.append(site)
    return chosen


def _crosses(one: Site, other: Site) -> bool:
    """Whether each has a part of the other, but not all of it."""
    apart = one.end <= other.start or other.end <= one.start
    inside = (one.start >= other.start and one.end <= other.end) or (other.start >= one.start and other.end <= one.end)
    return not apart and not inside


def _rendered(text: str, start: int, end: int, numbered: list[tuple[int, Site]]) -> str:
    """A stretch of the text with these sites, outer ones before those inside them."""
    parts, at = [], start
    while numbered:
        (number, site), *rest = numbered
        inside = [(of, inner) for of, inner in rest if inner.start < site.end]
        numbered = rest[len(inside) :]
        own = _rendered(text, site.start, site.end, inside)
        parts += [text[at : site.start], site.form.format(number=number, text=own)]
        at = site.end
    return "".join((*parts, text[at:end]))


def _sites(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Start, end, kind, and the replacement."""
    for found in BARRIER.finditer(text):
        yield *found.span(), "barrier", "(host_mutant({number}) ? void() : {text})"
    for found in VOTE.finditer(text):
        end = closing(text, found.end())
        own = text[found.end() : end].replace("{", "{{").replace("}", "}}")
        yield found.start(), end + 1, "barrier", f"(host_mutant({{number}}) ? int({own}) : {{text}})"
    for found in ATOMIC.finditer(text):
        # Only the name: arguments may contain further sites.
        yield found.start(), found.end(), "atomic", "host_either_{text}{number}, "
    for found in CLAMP.finditer(text):
        end = closing(text, found.end())
        operands = [text[slice(*part)] for part in _parts(text, found.end(), end, ",")]
        free = [operand for operand in operands if not re.search(r"\b(?:n|count)\b", operand)]
        if len(free) == 1:
            yield found.start(), end + 1, "clamp", f"(host_mutant({{number}}) ? ({free[0]}) : {{text}})"
    for found in BRANCH.finditer(text):
        end = closing(text, found.end())
        if found[1] == "for":
            yield from _bound(text, found.end(), end)
        else:
            leaves = found[1] == "if" and re.match(r"\)\s*return\b", text[end:]) is not None
            yield from _guards(text, found.end(), end, leaves)
    for found in FLAG.finditer(text):
        yield from _guards(text, *found.span(1), False)
    for found in TERNARY.finditer(text):
        start = opening(text, found.start())
        yield from _guards(text, start, found.start(), False)


def _guards(text: str, start: int, end: int, leaves: bool) -> Iterator[tuple[int, int, str, str]]:
    """Every comparison of a condition is made true, or false where the condition ends a thread."""
    # In `a && b` either part is dropped, whether it ends a thread or not.
    leaves = leaves and len(list(_parts(text, start, end, "&&"))) == 1
    operator = "||" if leaves else "&&"
    for part_start, part_end in _parts(text, start, end, operator):
        # `sizeof` is no bound, and template arguments are no comparison.
        part = re.sub(r"\bsizeof\([^)]*\)|<\w+(?:, \w+)*>(?=\()", "", text[part_start:part_end])
        if "[" in part or part.startswith("!"):
            continue  # a comparison with an element is no bounds check
        if COMPARES.search(f" {part}") and re.search(r"\b[a-z]\w*", part):
            form = "(!host_mutant({number}) && ({text}))" if leaves else "(host_mutant({number}) || ({text}))"
            yield part_start, part_end, "guard", form


def _bound(text: str, start: int, end: int) -> Iterator[tuple[int, int, str, str]]:
    """The bound of a loop that depends on data; constants are in capitals."""
    parts = list(_parts(text, start, end, ";"))
    if len(parts) != 3:
        return
    for part_start, part_end in _parts(text, *parts[1], "&&"):
        found = re.fullmatch(r"(.*?[^<]<=?(?!<)\s*)(.*)", text[part_start:part_end], re.DOTALL)
        if found and re.search(r"\b[a-z]\w*\b(?!\()", found[2].replace("int", "").replace("i64", "")):
            yield part_start + len(found[1]), part_end, "bound", "({text}) + host_mutant({number})"


def _parts(text: str, start: int, end: int, operator: str) -> Iterator[tuple[int, int]]:
    """Spans between operators outside brackets, without surrounding white space."""
    depth, begin, at = 0, start, start
    while at <= end:
        if at == end or (not depth and text.startswith(operator, at)):
            stretch = text[begin:at]
            yield begin + len(stretch) - len(stretch.lstrip()), begin + len(stretch.rstrip())
            at += len(operator)
            begin = at
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1


def closing(text: str, at: int) -> int:
    """Position of the bracket that closes the one before `at`."""
    depth = 1
    while True:
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if not depth:
            return at
        at += 1


def opening(text: str, end: int) -> int:
    """Start of the condition that ends at `end`: after an assignment, a comma, `return` or an open bracket."""
    depth, at = 0, end
    while at:
        letter = text[at - 1]
        depth += (letter in ")]}") - (letter in "([{")
        if depth < 0:
            return at
        if not depth:
            assigned = letter == "=" and text[at - 2] not in "<>=!" and text[at] != "="
            if letter in ",;:?" or assigned or re.search(r"\breturn $", text[max(0, at - 8) : at]):
                return at
        at -= 1
    return at


class _Places:
    """File, line and function of a position in a flattened source."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.functions = []
        for found in re.finditer(r"\b(\w+(?:\(\))?)\s*\(", text):
            end = closing(text, found.end())
            # Followed by a body, or by member initialisers.
            body = re.match(r"\)\s*(?:const\s*)?(?::[^;{}]*)?\{", text[end:])
            if body and found[1] not in ("if", "for", "while", "switch"):
                declared = text[max(0, found.start() - 200) : found.start()]
                constant = re.search(r"\bconstexpr\b[^;{}]*$", declared) is not None
                self.functions.append((found.start(), closing(text, end + body.end()), found[1], constant))

    def function(self, at: int) -> str:
        """The innermost."""
        inside = [(start, name) for start, end, name, _ in self.functions if start <= at < end]
        return max(inside)[1] if inside else ""

    def is_constant(self, at: int) -> bool:
        """Inside a constexpr function."""
        return any(constant and start <= at < end for start, end, _, constant in self.functions)

    def is_changeable(self, at: int, without: set[str]) -> bool:
        """Neither in a constant expression nor in one of these functions."""
        if "prefetch(" in self.line_of(at):
            return False  # changes no result
        return not (self.is_constant(at) or self.function(at) in without or CONSTANT.search(self.line_of(at)))

    def line_of(self, at: int) -> str:
        """The whole line around a position."""
        start = self.text.rfind("\n", 0, at) + 1
        return self.text[start : (self.text + "\n").find("\n", at)]

    def file_and_line(self, at: int) -> tuple[str, int]:
        """According to the last `#line` before it."""
        before = self.text[:at]
        directive = list(re.finditer(r'^#line (\d+) "(.+)"$', before, re.MULTILINE))[-1]
        return directive[2], int(directive[1]) + before[directive.end() :].count("\n") - 1
