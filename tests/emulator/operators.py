"""Mutants of expressions: an operator, a constant or a call is replaced or dropped.

An operator belongs to the smallest expression around it: what is assigned or returned, an argument, an index, a
condition. The mutant is the whole expression with another operator, so nothing has to be known of precedence. Which of
them compile shows when they are compiled (`compiling` in mutants.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.emulator.brackets import end_of, loop_header, trimmed

KINDS = ("comparator", "sign", "off-by-one", "sticky", "width", "stride", "rounding", "zero", "flush")

ASSIGNMENT = re.compile(r" ([-+*/%&|^]|<<|>>)?= ")
CALL = re.compile(r"(\w+)>?\(")
INDEX = re.compile(r"(?<=[\w\])])\[")
RETURN = re.compile(r"\breturn ")
LOOP = re.compile(r"\bfor \(")
CONDITION = re.compile(r"\b(?:if|while) \(")
EXPRESSION_ENDS = ",;)]}"
STATEMENT = re.compile(r"(?<=[;{})])\s+(?=[\w*])|(?<=\belse) (?=[\w*])")
KEYWORDS = re.compile(
    r"(?:return|if|for|while|do|else|switch|case|default|break|continue|const|constexpr|using|typedef|template|struct|"
    r"union|enum|class|static|static_assert|extern|asm|union|auto|public|private|goto)\b"
)
NO_CALLS = {"if", "for", "while", "switch", "sizeof", "alignas", "__align__", "static_assert", "decltype",
            "__launch_bounds__", "__attribute__", "asm", "defined"}  # fmt: skip

# What counts elements: on the emulator there are few.
POSITION = re.compile(
    r"(?:\b|_)(?:[a-z]|in|out|at|from|to|place|places|start|tile|element|elements|first|row|column|offset|next|end|index|"
    r"begin|marked|base|here|matrix)(?:\[\w+\])?$"
)
SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "|": "&", "&": "|",
         "^": "|"}  # fmt: skip
CARRY = r"\((?:[^()]|\([^()]*\))* (?:[<>!=]=|<|>) (?:[^()]|\([^()]*\))*\)|(?:carry|borrow|up)\b"
INSIDE = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"  # brackets
SIGN_BIT = r"(?:\w+::)?SIGN"


def _swap(match: re.Match[str]) -> str:
    return f" {SWAPS[match[1]]} "


# Kind, what is replaced, and what by.
OPERATORS: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], str]], ...] = tuple(
    (kind, re.compile(pattern), by if callable(by) else (lambda _, by=by: by))
    for kind, pattern, by in (
        ("comparator", r" ([<>]=?|[!=]=) (?=\S)", _swap),
        ("sign", r" ([-+]) (?=\S)", _swap),
        ("sign", r"(?<=[\s(\[])-(?=[\w(])", ""),
        ("off-by-one", r" [-+] 1\b(?![.\w]| *<<)", ""),
        ("sticky", r" ([|&^]) (?=\S)", _swap),
        ("sticky", rf" \+ (?:{CARRY})", ""),
        ("stride", r" ([*/%]|<<|>>) (\w+)\b(?![\w.(\[:<]|->)", lambda match: f" {match[1]} ({match[2]} + 1)"),
        ("rounding", r" \+ ROUND\b", " - 0.5 + ROUND"),
        ("rounding", r"\b(__float2int_rn|__double2ll_rn|__[fd]add_rd|fma)\(", lambda match: f"host_other_{match[1]}("),
        ("zero", r"\b(\w+) != \1\b", "false"),
        ("zero", r"\b(\w+) == \1\b", "true"),
        ("zero", rf"(?:\w+(?:::|\.))?\b(?:nonfinite|is_nan|is_negative)\({INSIDE}\)", "false"),
        ("zero", rf"\bis_finite\({INSIDE}\)", "true"),
        ("zero", r"\bone_nan\(", "("),
        ("zero", rf" & \({SIGN_BIT} - 1\)", ""),
        ("zero", rf" & {SIGN_BIT}\b(?! -)", lambda match: f" & 0{match[0]}"),
        ("zero", r"-0\.0(?!\w)", "0.0"),
        ("zero", r" \+ 0\.0f?\b", ""),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """A stretch of text, and what a mutant makes of it: `form` has places for the number and for the stretch."""

    start: int
    end: int
    kind: str
    form: str
    text: str


def _either(start: int, end: int, kind: str, mutated: str, text: str) -> Site:
    flat = " ".join(mutated.split()).replace("{", "{{").replace("}", "}}")
    return Site(start, end, kind, f"(host_mutant({{number}}) ? ({flat}) : ({{text}}))", text)


def _expressions(text: str) -> Iterator[tuple[int, int]]:
    """Spans that are expressions, as far as their text tells."""
    for pattern in (ASSIGNMENT, RETURN):
        for match in pattern.finditer(text):
            yield match.end(), end_of(text, match.end(), EXPRESSION_ENDS)
    for match in INDEX.finditer(text):
        end = end_of(text, match.end(), EXPRESSION_ENDS)
        if re.search(r"\b[a-z]", text[match.end() : end]):  # not a size in a declaration
            yield match.end(), end
    for match in CONDITION.finditer(text):
        yield match.end(), end_of(text, match.end(), EXPRESSION_ENDS)
    for match in LOOP.finditer(text):
        yield from loop_header(text, match.end())[1:2]
    for match in CALL.finditer(text):
        if match[1] in NO_CALLS:
            continue
        at = match.end()
        while text[at - 1] != ")" or at == match.end():
            end = end_of(text, at, EXPRESSION_ENDS)
            yield at, end
            at = end + 1
            if end >= len(text) or text[end] in ")];}":
                break


def _plain(text: str) -> bool:
    """Neither a lambda nor braces, strings or directives; template arguments, if any, are whole."""
    if not text or re.search(r'[{}";#\\]|\basm\b|^\[', text):
        return False
    squeezed = re.sub(r" (?:<<|>>|[<>]=?) |->|<<|>>", "", text)
    return squeezed.count("<") == squeezed.count(">")


def sites(text: str) -> list[Site]:
    """All sites of these kinds."""
    spans = sorted({trimmed(text, *span) for span in _expressions(text)}, key=lambda span: span[1] - span[0])
    every = list(_loops(text)) + list(_statements(text))
    taken: set[tuple[str, int]] = set()
    bounds = [span for match in LOOP.finditer(text) for span in loop_header(text, match.end())[1:2]]
    for start, end in spans:
        own = text[start:end]
        if not _plain(own):
            continue
        for kind, pattern, by in OPERATORS:
            for match in pattern.finditer(own):
                place = start + match.start()
                if (pattern.pattern, place) in taken:
                    continue
                taken.add((pattern.pattern, place))
                if kind == "comparator" and any(first <= start <= last for first, last in bounds):
                    continue  # the ends of loops are off by one
                mutated = own[: match.start()] + by(match) + own[match.end() :]
                low = max(0, match.start() - 28)
                shown = mutated[low : match.start() + len(by(match)) + 28]
                every.append(_either(start, end, kind, mutated, " ".join(shown.split())))
    return every


def _loops(text: str) -> Iterator[Site]:
    """A loop begins one later, ends one earlier, or makes steps of twice the size."""
    for match in LOOP.finditer(text):
        parts = loop_header(text, match.end())
        if len(parts) < 3:
            continue
        begins = re.fullmatch(r"(?:const )?[\w:]+ \w+ = ([^,]+)", text[slice(*parts[0])])
        if begins:
            start, end = parts[0][1] - len(begins[1]), parts[0][1]
            yield Site(start, end, "off-by-one", "({text}) + host_mutant({number})", f"begins at {begins[1]} + 1")
        ends = re.fullmatch(r"(.+ )(<=?|>=?)( )([^<>&|]+)", text[slice(*parts[1])], re.DOTALL)
        if ends:
            start, end = parts[1][1] - len(ends[4]), parts[1][1]
            sign = "-" if ends[2][0] == "<" else "+"
            yield Site(start, end, "off-by-one", f"({{text}}) {sign} host_mutant({{number}})",
                       f"ends at {' '.join(ends[4].split())} {sign} 1")  # fmt: skip
        steps = re.search(r" [-+]= ([^,]+)$", text[slice(*parts[2])])
        if steps:
            start, end = parts[2][1] - len(steps[1]), parts[2][1]
            yield Site(start, end, "stride", "({text}) * (1 + host_mutant({number}))",
                       f"steps of 2 * ({' '.join(steps[1].split())})")  # fmt: skip


def _statements(text: str) -> Iterator[Site]:
    """Calls and stores are dropped; sums have half as many bits; what is or-ed to a word is not."""
    for match in STATEMENT.finditer(text):
        start = match.end()
        if KEYWORDS.match(text, start):
            continue
        end = end_of(text, start, ";{})]")
        own = text[start:end]
        if text[end : end + 1] != ";" or not _plain(own):
            continue
        flat = " ".join(own.split())
        called = re.match(r"(?:[\w:]+(?:<[^;]*?>)?(?:\.|->))*(?:template )?[\w:]+(?:<[^;()]*>)?\(", own)
        assigned = re.match(r"([^=;]*?) ([-+|&^]?)= ", own)
        if assigned and re.search(r"[<>!]$", assigned[1]):
            continue
        if called and not assigned and own.endswith(")"):
            yield Site(start, end, "flush", "(host_mutant({number}) ? void() : void(({text})))", f"without {flat}")
        elif assigned and re.fullmatch(r"\*?[\w.>:-]+(?:\[.*\])*(?:\.\w+)*", assigned[1], re.DOTALL):
            target = assigned[1]
            if not assigned[2] and ("[" in target or target.startswith("*")):
                yield Site(start, end, "flush", "(host_mutant({number}) ? void() : void(({text})))", f"without {flat}")
            elif assigned[2] in ("|", "&", "^") and assigned[2]:
                yield Site(start, end, "sticky", "(host_mutant({number}) ? void() : void(({text})))", f"without {flat}")
            elif assigned[2] in ("+", "-") and assigned[2]:
                other = SWAPS[assigned[2]]
                place = len(target)
                mutated = f"{target} {other}= {own[place + 4 :]}"
                yield _either(start, end, "sign", mutated, " ".join(mutated.split())[:60])
                if assigned[2] == "+" and "," not in own and not POSITION.search(target):
                    yield Site(start, end, "width", "host_width({number}, {text})", f"half the width: {flat}"[:76])
