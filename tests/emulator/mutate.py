"""Mutants of a source: each lacks a barrier, a bounds check or an atomic operation, or has another operator.

All mutants of a source are compiled together, and a number chosen at run time selects one: `host_mutant(k)` is 1 in
mutant k and 0 otherwise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tests.emulator import operators
from tests.emulator.brackets import closing, loop_header, opening, parts
from tests.emulator.inputs import digest
from tests.emulator.operators import Site

BARRIER = re.compile(r"\b__sync(?:threads|warp)\(\w*\)")
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
        What is removed or changed; of an operator what is there instead. No two in a function have the same.
    """

    number: int
    kind: str
    file: str
    line: int
    function: str
    text: str

    @property
    def site(self) -> tuple[str, str, str]:
        """File, function and text: a name that stays when lines move."""
        return self.file, self.function, self.text

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
    numbered = list(enumerate(chosen, 1))
    return _rendered(text, 0, len(text), numbered), list(_mutants(numbered, places))


def _mutants(numbered: list[tuple[int, Site]], places: _Places) -> Iterator[Mutant]:
    """Mutants of these sites; of several with one text in a function, the second and further ones are numbered."""
    counts = Counter[tuple[str, str, str]]()
    for number, site in numbered:
        (file, line), function = places.file_and_line(site.start), places.function(site.start)
        counts[file, function, site.text] += 1
        again = counts[file, function, site.text]
        yield Mutant(number, site.kind, file, line, function, f"{site.text} ({again})" if again > 1 else site.text)


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
    for match in BARRIER.finditer(text):
        yield *match.span(), "barrier", "(host_mutant({number}) ? void() : {text})"
    for match in VOTE.finditer(text):
        end = closing(text, match.end())
        own = text[match.end() : end].replace("{", "{{").replace("}", "}}")
        yield match.start(), end + 1, "barrier", f"(host_mutant({{number}}) ? int({own}) : {{text}})"
    for match in ATOMIC.finditer(text):
        # Only the name: arguments may contain further sites.
        yield match.start(), match.end(), "atomic", "host_either_{text}{number}, "
    for match in CLAMP.finditer(text):
        end = closing(text, match.end())
        operands = [text[slice(*part)] for part in parts(text, match.end(), end, ",")]
        free = [operand for operand in operands if not re.search(r"\b(?:n|count)\b", operand)]
        if len(free) == 1:
            yield match.start(), end + 1, "clamp", f"(host_mutant({{number}}) ? ({free[0]}) : {{text}})"
    for match in BRANCH.finditer(text):
        end = closing(text, match.end())
        if match[1] == "for":
            for condition in loop_header(text, match.end())[1:2]:
                yield from _bound(text, condition)
        else:
            leaves = match[1] == "if" and re.match(r"\)\s*return\b", text[end:]) is not None
            yield from _guards(text, match.end(), end, leaves)
    for match in FLAG.finditer(text):
        yield from _guards(text, *match.span(1), False)
    for match in TERNARY.finditer(text):
        start = opening(text, match.start())
        yield from _guards(text, start, match.start(), False)


def _guards(text: str, start: int, end: int, leaves: bool) -> Iterator[tuple[int, int, str, str]]:
    """Every comparison of a condition is made true, or false where the condition ends a thread."""
    # In `a && b` either part is dropped, whether it ends a thread or not.
    leaves = leaves and len(list(parts(text, start, end, "&&"))) == 1
    operator = "||" if leaves else "&&"
    for part_start, part_end in parts(text, start, end, operator):
        # `sizeof` is no bound, and template arguments are no comparison.
        part = re.sub(r"\bsizeof\([^)]*\)|<\w+(?:, \w+)*>(?=\()", "", text[part_start:part_end])
        if "[" in part or part.startswith("!"):
            continue  # a comparison with an element is no bounds check
        if COMPARES.search(f" {part}") and re.search(r"\b[a-z]\w*", part):
            form = "(!host_mutant({number}) && ({text}))" if leaves else "(host_mutant({number}) || ({text}))"
            yield part_start, part_end, "guard", form


def _bound(text: str, condition: tuple[int, int]) -> Iterator[tuple[int, int, str, str]]:
    """The bound of a loop that depends on data; constants are in capitals."""
    for part_start, part_end in parts(text, *condition, "&&"):
        compared = re.fullmatch(r"(.*?[^<]<=?(?!<)\s*)(.*)", text[part_start:part_end], re.DOTALL)
        if compared and re.search(r"\b[a-z]\w*\b(?!\()", compared[2].replace("int", "").replace("i64", "")):
            yield part_start + len(compared[1]), part_end, "bound", "({text}) + host_mutant({number})"


class _Places:
    """File, line and function of a position in a flattened source."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.functions = []
        for match in re.finditer(r"\b(\w+(?:\(\))?)\s*\(", text):
            end = closing(text, match.end())
            # Followed by a body, or by member initialisers.
            body = re.match(r"\)\s*(?:const\s*)?(?::[^;{}]*)?\{", text[end:])
            if body and match[1] not in ("if", "for", "while", "switch"):
                declared = text[max(0, match.start() - 200) : match.start()]
                constant = re.search(r"\bconstexpr\b[^;{}]*$", declared) is not None
                self.functions.append((match.start(), closing(text, end + body.end()), match[1], constant))

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
