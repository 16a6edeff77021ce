"""Writes frames of Zstandard (RFC 8878), also those that no encoder writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

Fields = Iterable[tuple[int, int]]  # values, and of how many bits

_OF_LITERALS = (0,) * 16 + (1, 1, 1, 1, 2, 2, 3, 3, 4, 6, *range(7, 17))
_OF_MATCHES = (0,) * 32 + (1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, *range(7, 17))
LITERAL_LENGTHS = [*zip(accumulate([0, *(1 << bits for bits in _OF_LITERALS[:-1])]), _OF_LITERALS, strict=True)]
MATCH_LENGTHS = [*zip(accumulate([3, *(1 << bits for bits in _OF_MATCHES[:-1])]), _OF_MATCHES, strict=True)]
PREDEFINED = (
    (6, (4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, *[1] * 5, *[-1] * 4)),
    (5, (*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5)),
    (6, (1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7)),
)  # of lengths of literals, offsets, lengths of matches


def backward(fields: Fields) -> bytes:
    """A stream that is read from its end."""
    text = "1" + "".join(f"{field:0{bits}b}" for field, bits in fields if bits)
    return int(text, 2).to_bytes((len(text) + 7) // 8, "little")


def forward(fields: Fields) -> bytes:
    """A stream that is read from the least significant bit on."""
    value = at = 0
    for field, bits in fields:
        value |= field << at
        at += bits
    return value.to_bytes((at + 7) // 8, "little")


def described(shares: Sequence[int], log: int, least: int = 5) -> list[tuple[int, int]]:
    """Fields that describe a code of 1 << log states."""
    fields, left, place = [(log - least, 4)], 1 << log, 0
    while place < len(shares) and left > 0:
        share = shares[place]
        bits = (left + 1).bit_length()
        few, low, value = (1 << bits) - 2 - left, (1 << bits - 1) - 1, share + 1
        fields.append((value, bits - 1) if value < few else (value + few if value > low else value, bits))
        left -= abs(share)
        place += 1
        if share == 0:
            none = next((k for k, one in enumerate(shares[place:]) if one), len(shares) - place)
            place += none
            fields += [(3, 2)] * (none // 3) + [(none % 3, 2)]
    return fields


class State(NamedTuple):
    """A symbol; the state behind it is `base` and so many bits more."""

    symbol: int
    base: int
    bits: int


def states_of(shares: Sequence[int], log: int) -> list[State]:
    """All states of a code."""
    size = 1 << log
    symbols, end, at = [-1] * size, size, 0
    for symbol, share in enumerate(shares):
        if share < 0:
            end -= 1
            symbols[end] = symbol
    for symbol, share in enumerate(shares):
        for _ in range(share):
            symbols[at] = symbol
            at = (at + size // 2 + size // 8 + 3) % size
            while at >= end:
                at = (at + size // 2 + size // 8 + 3) % size
    following, states = [abs(share) for share in shares], []
    for symbol in symbols:
        bits = log - following[symbol].bit_length() + 1
        states.append(State(symbol, (following[symbol] << bits) - size, bits))
        following[symbol] += 1
    return states


def path(states: Sequence[State], symbols: Sequence[int]) -> tuple[int, list[tuple[int, int]]]:
    """The first state of a path through symbols, and the bits that lead from each to the next."""
    at = next(number for number, state in enumerate(states) if state.symbol == symbols[-1])
    fields: list[tuple[int, int]] = []
    for symbol in reversed(symbols[:-1]):
        number, state = next((number, state) for number, state in enumerate(states)
                             if state.symbol == symbol and 0 <= at - state.base < 1 << state.bits)  # fmt: skip
        fields.append((at - state.base, state.bits))
        at = number
    return at, fields[::-1]


class Code(NamedTuple):
    """How symbols of sequences are coded: the mode, and its shares; of a mode that repeats those of the code before."""

    mode: int = 0
    log: int = 0
    shares: tuple[int, ...] = ()


def same(symbol: int) -> Code:
    """The code of a single symbol."""
    return Code(1, 0, (*[0] * symbol, 1))


def numbered(lengths: Sequence[tuple[int, int]], length: int) -> tuple[int, int, int]:
    """Symbol, further bits and their number of a length."""
    symbol = max(number for number, (least, _) in enumerate(lengths) if least <= length)
    return symbol, length - lengths[symbol][0], lengths[symbol][1]


def sequences(parts: Sequence[tuple[int, int, int]], codes: Sequence[Code] = (Code(),) * 3, more: Fields = ()) -> bytes:
    """A section of (length of literals, value of the offset, length of the match), and `more` bits behind them."""
    number = len(parts)
    head = (bytes([number]) if number < 128 else bytes([128 + (number >> 8), number & 255]) if number < 0x7F00
            else b"\xff" + (number - 0x7F00).to_bytes(2, "little"))  # fmt: skip
    if not parts:
        return head
    described_, paths = b"", []
    numbers = [(numbered(LITERAL_LENGTHS, some), (far.bit_length() - 1, far - (1 << far.bit_length() - 1),
                                                  far.bit_length() - 1), numbered(MATCH_LENGTHS, length))
               for some, far, length in parts]  # fmt: skip
    logs = []
    for place, code in enumerate(codes):
        log, shares = PREDEFINED[place] if code.mode == 0 else code[1:]
        if code.mode == 1:
            described_ += bytes([len(shares) - 1])
            states = [State(len(shares) - 1, 0, 0)]
        else:
            described_ += forward(described(shares, log)) if code.mode == 2 else b""
            states = states_of(shares, log) if log else [State(len(shares) - 1, 0, 0)]
        logs.append(log)
        paths.append(path(states, [one[place][0] for one in numbers]))
    fields = [(first, log) for (first, _), log in zip(paths, logs, strict=True)]
    for number, (literal, offset, match) in enumerate(numbers):
        fields += [offset[1:], match[1:], literal[1:]]
        if number < len(numbers) - 1:
            fields += [paths[place][1][number] for place in (0, 2, 1)]
    modes = sum(code.mode << bit for code, bit in zip(codes, (6, 4, 2), strict=True))
    return head + bytes([modes]) + described_ + backward([*fields, *more])


def literals(data: bytes, kind: int = 0, form: int | None = None) -> bytes:
    """Literals that are stored (0), or one byte so many times (1)."""
    number = len(data)
    form = form if form is not None else 0 if number < 32 else 1 if number < 4096 else 3
    head = kind | form << 2 | number << (4 if form & 1 else 3)
    return head.to_bytes({1: 2, 3: 3}.get(form, 1), "little") + (data[:1] if kind else data)


def codes_of(weights: Sequence[int]) -> dict[int, tuple[int, int]]:
    """The bits of each symbol, and how many; the last weight is that which completes the others."""
    log = sum(1 << weight >> 1 for weight in weights).bit_length() - 1
    at, codes = 0, {}
    for weight in range(1, log + 1):
        for symbol, own in enumerate(weights):
            if own == weight:
                codes[symbol] = at >> weight - 1, log + 1 - weight
                at += 1 << weight - 1
    return codes


def weighed(weights: Sequence[int], code: tuple[int, tuple[int, ...]] | None = None) -> bytes:
    """The description of a code for bytes: its weights but for the last one, or these in a code, by log and shares."""
    some = weights[:-1]
    if code is None:
        even = [*some, 0][: len(some) + len(some) % 2]
        return bytes([127 + len(some)]) + bytes(a << 4 | b for a, b in zip(even[::2], even[1::2], strict=True))
    log, shares = code
    states = states_of(shares, log)
    paths = [path(states, some[first::2]) for first in (0, 1)]
    fields = [(first, log) for first, _ in paths]
    for number in range(len(some) - 2):
        fields.append(paths[number % 2][1][number // 2])
    stream = forward(described(shares, log)) + backward(fields)
    return bytes([len(stream)]) + stream


def coded(data: bytes, weights: Sequence[int], tree: bytes | None, form: int = 0) -> bytes:
    """Literals in a code of their own, or, without a tree, in that of the block before; form 0: in one stream."""
    codes, each = codes_of(weights), -(-len(data) // 4)
    parts = [data[k * each : (k + 1) * each] for k in range(3)] + [data[3 * each :]] if form else [data]
    streams = [backward(codes[byte] for byte in part) for part in parts]
    jumps = b"".join(len(stream).to_bytes(2, "little") for stream in streams[:-1])
    body, bits = (tree or b"") + jumps + b"".join(streams), (10, 10, 14, 18)[form]
    head = (3 if tree is None else 2) | form << 2 | len(data) << 4 | len(body) << 4 + bits
    return head.to_bytes((4 + 2 * bits) // 8, "little") + body


def block(body: bytes, kind: int = 2, last: bool = True, number: int | None = None) -> bytes:
    """Stored as it is (0), one byte so many times (1), or compressed (2)."""
    return (last | kind << 1 | (len(body) if number is None else number) << 3).to_bytes(3, "little") + body


def frame(blocks: bytes, room: int | None, window: int | None = None, size: int | None = None, flags: int = 0) -> bytes:
    """Blocks behind a header: the byte of a window, unless all is one segment; in how many bytes the size is."""
    if size is None:
        size = 0 if room is None else 1 if room < 256 and window is None else 2 if 256 <= room < 65_792 else 4
    head = flags | {0: 0, 1: 0, 2: 64, 4: 128, 8: 192}[size] | (32 if window is None else 0)
    declared = ((room or 0) - (256 if size == 2 else 0)).to_bytes(size, "little")
    return b"\x28\xb5\x2f\xfd" + bytes([head]) + (b"" if window is None else bytes([window])) + declared + blocks
