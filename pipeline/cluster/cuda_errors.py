"""CUDA's errors by what to do about them, one table for all.

Names and numbers are those of cudaError_t in the CUDA Runtime API; the driver's CUresult has the same numbers for them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

OUT_OF_MEMORY = 2

# After these, says the CUDA Runtime API, the process "must be terminated and relaunched", or its device is in a state
# that it does not vouch for: every further call fails.
STICKY_ERRORS = {
    214: "an uncorrectable error in its memory (ECC)",
    220: "an uncorrectable error of NVLink",
    226: "an error contained to this process",
    700: "an access to an illegal address",
    702: "a kernel that took too long",
    709: "a destroyed context",
    710: "a failed assertion in a kernel",
    714: "a hardware stack error",
    715: "an illegal instruction",
    716: "a misaligned address",
    717: "an invalid address space",
    718: "an invalid program counter",
    719: "a failed kernel launch",
    721: "a leak of tensor memory",
}


def lost_context(error: BaseException) -> str | None:
    """Why no further call can succeed, if that is what an error, or one that caused it, says; else None."""
    for cause in causes(error):
        if (status := cuda_status(cause)) in STICKY_ERRORS:
            return f"the GPU reported {STICKY_ERRORS[status]} (CUDA error {status}), after which it computes nothing"
    return None


def other_failure(error: BaseException) -> str | None:
    """CUDA's own message, if an error or one of its causes comes from CUDA; else None."""
    for cause in causes(error):
        if status := cuda_status(cause):
            return f"CUDA error {status}: {str(cause).partition(chr(10))[0]}"
    return None


def out_of_memory(error: BaseException) -> str | None:
    """What to do about it if an error says that a GPU has no memory left; else None."""
    for cause in causes(error):
        if type(cause).__name__ == "OutOfMemoryError" or cuda_status(cause) == OUT_OF_MEMORY:
            return ("expected free memory on the GPU, got too little even for small blocks (cudaErrorMemoryAllocation);"
                    " if another process holds it (nvidia-smi lists them), wait for that, take less of it with "
                    "--device-memory-limit, choose another GPU with --gpus, or run with --device cpu for "
                    "the same result")  # fmt: skip
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def cuda_status(error: BaseException) -> int:
    """The number of an error of CUDA's runtime or driver; 0 for others, as of NVRTC, which numbers its own."""
    status = getattr(error, "status", None)
    return status if isinstance(status, int) and not type(error).__name__.startswith(("NVRTC", "CUBLAS")) else 0


@cache
def hide_failing_destructors() -> None:
    """Keep Python from reporting CuPy's objects that cannot be freed because their context is lost.

    Their destructors raise the error that was reported already, with a traceback for each module, stream and event.
    """
    before = sys.unraisablehook

    def say(unraisable: Any) -> None:
        if cuda_status(unraisable.exc_value) not in STICKY_ERRORS:
            before(unraisable)

    sys.unraisablehook = say
