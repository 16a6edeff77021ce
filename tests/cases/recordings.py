"""Files of recordings: WAV, EDF and BDF, FLAC, SigMF."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np

from tests.cases.format_case import Case, Written


def wav(width: int, channels: int) -> Case:
    """PCM of so many bytes."""

    def write(folder: Path) -> Written:
        path = folder / "a.wav"
        raw = np.random.default_rng(3).bytes(1000 * width * channels)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(width)
            file.setframerate(8000)
            file.writeframes(raw)
        with wave.open(str(path)) as file:
            frames = file.readframes(1000)
        values = [int.from_bytes(frames[at : at + width], "little", signed=width > 1)
                  for at in range(0, len(frames), width)]  # fmt: skip
        dtype = {1: "u1", 2: "<i2", 3: "<i4", 4: "<i4"}[width]
        return Written(str(path), np.array(values, dtype).reshape((-1, channels) if channels > 1 else -1))

    return Case(write)


def edf(suffix: str, limit: int, samples: int = 256) -> Case:
    """An EDF+ or BDF+ file of three signals and annotations, in records of one second."""

    def write(folder: Path) -> Written:
        import pyedflib

        path, random = str(folder / f"a{suffix}"), np.random.default_rng(6)
        signals = [random.integers(-limit, limit, 30 * rate, "i4") for rate in (100, samples, 10)]
        with pyedflib.EdfWriter(path, 3, pyedflib.FILETYPE_BDFPLUS if suffix == ".bdf" else 1) as file:
            for number, signal in enumerate(signals):
                file.setSignalHeader(number, {
                    "label": ("Fz", "EEG Fp1", "Temp")[number], "dimension": "uV",
                    "sample_frequency": len(signal) // 30,
                    "physical_min": -1000.0, "physical_max": 1000.0, "digital_min": -limit, "digital_max": limit - 1,
                    "transducer": "", "prefilter": "",
                })  # fmt: skip
            file.writeSamples(signals, digital=True)
        with pyedflib.EdfReader(path) as read:
            values = read.readSignal(1, digital=True)
        assert values.tolist() == signals[1].tolist()
        return Written(f"{path}::EEG Fp1", values.astype("<i4" if suffix == ".bdf" else "<i2"))

    return Case(write, ("pyedflib",))


def flac(bits: int, channels: int) -> Case:
    """PCM of so many bits."""

    def write(folder: Path) -> Written:
        import soundfile

        path, shift = (
            folder / "a.flac",
            {8: 8, 16: 0, 24: 8}[bits],
        )  # samples are the upper bits of what soundfile takes
        noise = np.random.default_rng(7).normal(size=(5000, channels)).cumsum(0) * 2 ** (bits - 9)
        array = noise.clip(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).astype("i4" if bits == 24 else "i2") << shift
        soundfile.write(path, array, 8000, "PCM_S8" if bits == 8 else f"PCM_{bits}")
        read, _ = soundfile.read(path, dtype="int32", always_2d=True)
        values = (read >> 32 - bits).astype({8: "i1", 16: "<i2", 24: "<i4"}[bits])
        return Written(str(path), values if channels > 1 else values[:, 0])

    return Case(write, ("soundfile",))


def sigmf(datatype: str, dtype: str) -> Case:
    """Real samples."""

    def write(folder: Path) -> Written:
        array = np.random.default_rng(0).integers(-3000, 3000, 30_000).astype(dtype)
        array.tofile(folder / "a.sigmf-data")
        described = {"global": {"core:datatype": datatype, "core:version": "1.2.0"}, "captures": [], "annotations": []}
        (folder / "a.sigmf-meta").write_text(json.dumps(described))
        return Written(str(folder / "a.sigmf-meta"), array)

    return Case(write)
