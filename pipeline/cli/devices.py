"""The command `devices`: the GPUs that jobs will use, beside those of the courses."""

from __future__ import annotations

import json

import click

from pipeline.cli.flags import Command
from pipeline.gpu.devices import find_devices
from pipeline.process.last_words import emit


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
def devices(as_json: bool) -> None:
    """List the GPUs that jobs will use, or say why jobs run on the CPU; then what each GPU is and how they are linked.

    What neither CUDA nor the driver tells is "unknown". The cards of the courses are from their public data sheets.
    """
    from pipeline.study.cards import COURSE_CARDS, table
    from pipeline.study.device_query import cards_of, links_of
    from pipeline.study.report import aligned

    usable = find_devices()
    cards, links = cards_of(usable.gpus), links_of(usable.gpus)
    if as_json:
        emit(json.dumps({
            "driver": usable.driver, "cupy": usable.cupy, "missing": usable.missing,
            "gpus": [{"index": gpu.index, "uuid": gpu.uuid, "free_bytes": gpu.free, **card.as_dict()}
                     for gpu, card in zip(usable.gpus, cards, strict=True)],
            "links": [{"gpus": [one, other], "link": link} for one, other, link in links],
            "courses": [card.as_dict() for card in COURSE_CARDS],
        }))  # fmt: skip
        return
    for gpu in usable.gpus:
        memory = f"{gpu.free / 2**30:.1f} of {gpu.memory / 2**30:.1f} GiB free"
        emit(f"GPU {gpu.index}  {gpu.name}  {memory}  {gpu.uuid}")
    if usable.gpus:
        emit(f"driver {usable.driver}, CuPy {usable.cupy or 'not installed'}")
    if usable.missing:
        emit(f"Jobs will run on the CPU: {usable.missing}. The results are the same.")
    emit("", *aligned(table([*dict.fromkeys(cards), *COURSE_CARDS])))  # equal GPUs once
    if links:
        emit("", *(f"GPU {one} to GPU {other}: {link}" for one, other, link in links))
