"""Zstandard frames that numcodecs does not write."""

from __future__ import annotations

import struct

SKIPPED = struct.pack("<II", 0x184D2A57, 3) + b"abc"  # a skippable frame (RFC 8878, 3.1.2)


def frame(content: bytes, sized: bool) -> bytes:
    """A Zstandard frame of one raw block, which says how many bytes it has, or does not."""
    head = struct.pack("<BI", 0xA0, len(content)) if sized else b"\0\x58"
    return b"\x28\xb5\x2f\xfd" + head + (len(content) << 3 | 1).to_bytes(3, "little") + content
