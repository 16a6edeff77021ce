"""Which GPUs `--gpus` names: a number of them, all, the idle ones, or a list."""

from __future__ import annotations

import operator
import os
import re
from collections import Counter
from typing import Any

from pipeline.errors import PipelineError, UsageError
from pipeline.gpu.devices import Gpu

EXPECTED = ("a number of GPUs, all, idle, indices like 0,2 (a single one with a comma: 2,) or UUIDs like GPU-8d1b,"
            "GPU-52f0")  # fmt: skip
BUSY_PERCENT = 5  # a GPU with nothing to do shows 0, or 1 for a moment after somebody looked at it
LIST = "`python -m pipeline devices` lists them"


def as_text(value: Any) -> str:
    """`--gpus` as it is written on the command line, from an integer, text, or a list of indices and UUIDs.

    Raises
    ------
    UsageError
        If it is none of them.
    """
    listed = isinstance(value, list | tuple)
    text = ",".join(map(_word, value)) + "," * (len(value) == 1) if listed else _word(value)
    if text in ("all", "idle") or _is_number(text) or _names(text):
        return text
    raise UsageError(f"--gpus: expected {EXPECTED}; got {value!r}")


def selected(text: str, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """GPUs out of those that are usable.

    Parameters
    ----------
    text
        From `as_text`. Indices are those of `nvidia-smi`, whatever CUDA_VISIBLE_DEVICES is.
    gpus
        The usable ones, at least one.

    Raises
    ------
    UsageError
        If one is not among them, or is named twice, or none is idle.
    """
    if text == "all":
        return gpus
    if text == "idle":
        return _idle(gpus)
    if _is_number(text):
        if not 1 <= int(text) <= len(gpus):
            raise UsageError(f"--gpus {text}: expected 1 to {len(gpus)}, the number of usable GPUs{_hidden()}, got "
                             f"{text}; for one by its index write {text},")  # fmt: skip
        return gpus[: int(text)]
    chosen = tuple(_named(text, name, gpus) for name in _names(text))
    gpu, times = Counter(chosen).most_common(1)[0]
    if times > 1:
        raise UsageError(f"--gpus {text}: expected every GPU once, got {label(gpu)} {times} times; leave it out")
    return chosen


def label(gpu: Gpu) -> str:
    """What a GPU is called: its index, or for an instance of one the beginning of its UUID."""
    return gpu.uuid[:12] if gpu.uuid.startswith("MIG-") else str(gpu.index)


def _word(value: Any) -> str:
    """An index or a UUID; an empty text if it is something else."""
    if isinstance(value, str):
        return "".join(value.split())
    try:
        return "" if isinstance(value, bool) else str(operator.index(value))
    except TypeError:
        return ""


def _is_number(text: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", text) is not None


def _names(text: str) -> list[str]:
    """Indices and UUIDs of a list, without the comma at the end; none if it is no such list."""
    names = text.removesuffix(",").split(",")
    return names if all(re.fullmatch(r"[0-9]{1,9}|(?i:GPU|MIG)-[0-9A-Za-z-/]+", name) for name in names) else []


def _named(text: str, name: str, gpus: tuple[Gpu, ...]) -> Gpu:
    if _is_number(name):
        match = [gpu for gpu in gpus if gpu.index == int(name)]
        if len(match) > 1:
            raise UsageError(f"--gpus {text}: expected one GPU for {name}, got {len(match)} MIG instances; name one by "
                             f"its UUID: {LIST}")  # fmt: skip
    else:
        match = [gpu for gpu in gpus if gpu.uuid.upper().startswith(name.upper())]
    if len(match) != 1:
        expected = ", ".join(gpu.uuid if len(match) > 1 or not _is_number(name) else label(gpu) for gpu in gpus)
        got = f"{name}, which means {len(match)} of them" if match else name
        raise UsageError(f"--gpus {text}: expected some of {expected}{_hidden()}, got {got}; {LIST}")
    return match[0]


def _hidden() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if visible is None else f" under CUDA_VISIBLE_DEVICES={visible}"


def _idle(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Those without a compute process other than this one, and with a utilisation of about nil."""
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            uses = {gpu: _use(pynvml, gpu) for gpu in gpus}
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise PipelineError("--gpus idle: expected the NVIDIA driver to list the processes on GPUs, but it fails: "
                            f"{error}; "
                            "name GPUs by their indices") from None  # fmt: skip
    if all(uses.values()):
        how = ", ".join(f"{label(gpu)} has {use}" for gpu, use in uses.items())
        raise UsageError(f"--gpus idle: expected a GPU that nobody else uses{_hidden()}, but {how}; wait, or name GPUs "
                         "to share")  # fmt: skip
    return tuple(gpu for gpu, use in uses.items() if not use)


def _use(pynvml: Any, gpu: Gpu) -> str:
    """What uses a GPU; nothing if it is idle."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError as error:
        return f"an unknown use ({error})"
    if number := sum(process.pid != os.getpid() for process in running):
        return f"{number} process{'es'[: 2 * (number > 1)]}"
    try:
        percent = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
    except pynvml.NVMLError:  # instances have none
        return ""
    return f"a utilisation of {percent} %" if percent > BUSY_PERCENT else ""
