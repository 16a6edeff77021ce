"""FLAC files, decoded by libsndfile: frames × channels of 8, 16 and 24 bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.files import whole
from pipeline.storage.formats.common import MOST_REASON, library, readable
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import FilledPiece, Piece
from pipeline.storage.planned_file import file_for_library, stored_bytes
from pipeline.storage.protocol import Opening, Source

WHAT = "a FLAC file"
# By bits: the dtype of the samples, and what libsndfile decodes them to, in its upper bits.
DTYPES = {"PCM_S8": ("i1", "int16"), "PCM_16": ("<i2", "int16"), "PCM_24": ("<i4", "int32")}
UNKNOWN = 2**63 - 1  # frames, as libsndfile has it where the header does not say
HEAD = 22  # bytes up to those that have the bits of a sample
STEP = 2**18  # samples that are decoded at once
MOST_BLOCK, LEAST_BLOCK_BYTES = 2**16, 10  # samples of a channel in a block of the stream, and its stored bytes


@contextmanager
def _opened(file: Piece) -> Iterator[Any]:
    """The planned file, whatever has its name now, as libsndfile sees it."""
    with library(file.path, WHAT, "flac"):
        import soundfile
    with file_for_library(file) as name, soundfile.SoundFile(name) as opened:
        yield opened


@dataclass(frozen=True)
class _Filler:
    """Decodes any samples on a worker."""

    file: Piece
    channels: int
    dtype: np.dtype[Any]
    decoded: str

    def fill(self, start: int, buffer: NDArray[Any]) -> None:
        """The samples from an index on; frames at both ends are decoded whole."""
        first, last = start // self.channels, -(-(start + len(buffer)) // self.channels)
        step, shift = max(STEP // self.channels, 1), 8 * (np.dtype(self.decoded).itemsize - self._bytes)
        try:
            with _opened(self.file) as opened:
                opened.seek(first)
                for frame in range(first, last, step):
                    wanted = min(step, last - frame)
                    frames = opened.read(wanted, self.decoded, always_2d=True)
                    if frames.shape != (wanted, self.channels):
                        raise ValueError(f"{len(frames)} of {wanted} frames")
                    self._put(frames.reshape(-1) >> shift, frame * self.channels - start, buffer)
        except PipelineError:
            raise
        except Exception as error:  # soundfile raises errors of its own
            reason = str(error).strip().partition("\n")[0][:MOST_REASON] or type(error).__name__
            raise PipelineError(f"{self.file.path}: expected a FLAC stream that can be decoded from sample {start} on, "
                                f"got {reason}; is the file complete?") from error  # fmt: skip

    @property
    def _bytes(self) -> int:
        """Bytes of a sample, as it is encoded."""
        return 3 if self.decoded == "int32" else self.dtype.itemsize

    @staticmethod
    def _put(samples: NDArray[Any], at: int, buffer: NDArray[Any]) -> None:
        skipped = max(-at, 0)
        part = samples[skipped : len(buffer) - at]
        buffer[at + skipped : at + skipped + len(part)] = part


def _bits(file: Piece) -> int | None:
    """Bits of a sample, from the first block of metadata; libsndfile only says that it does not know such samples."""
    head = bytes(next(stored_bytes((file.cut(0, min(HEAD, file.nbytes)),))))
    return (((head[20] & 1) << 4) | head[21] >> 4) + 1 if head.startswith(b"fLaC") and len(head) == HEAD else None


def open_flac(path: str, opening: Opening) -> Source:
    """The samples of a FLAC file, shape (frames, channels) if there are several channels.

    Raises
    ------
    UsageError
        If its header cannot be read.
    """
    file = whole(path)
    if (bits := _bits(file)) not in (None, 8, 16, 24):
        raise UsageError(f"{path}: expected FLAC of 8, 16 or 24 bits, got {bits}; convert it")
    with readable(path, WHAT), _opened(file) as opened:
        if opened.format != "FLAC" or opened.subtype not in DTYPES:
            raise ValueError(f"{opened.format} with samples of {opened.subtype}")
        if opened.frames == UNKNOWN:
            raise UsageError(f"{path}: expected {WHAT} that says its length, got none; was the recording finished?")
        if not 0 <= opened.frames <= file.nbytes // LEAST_BLOCK_BYTES * MOST_BLOCK:
            raise ValueError(f"{opened.frames} frames in a file of {file.nbytes} bytes")
        name, decoded = DTYPES[opened.subtype]
        frames, channels = opened.frames, opened.channels
    dtype, samples = np.dtype(name), frames * channels
    shape = (frames, channels) if channels > 1 else (frames,)
    opening.check(path, dtype, shape)
    piece = FilledPiece(_Filler(file, channels, dtype, decoded), 0, samples, dtype.itemsize, path)
    return PieceSource(path, dtype, shape, (piece,) if samples else (), (file,))
