"""Pictures of what threads touch: the tree of a reduction, the banks of a tile. Shades of grey alone tell all."""

from __future__ import annotations

from typing import Any

from workflows.study.drawing import Drawing, Tree


def draw(drawing: Drawing, canvas: Any) -> None:
    """Draw on an empty figure of matplotlib."""
    (_tree if isinstance(drawing, Tree) else _banks)(drawing, canvas)


def size(drawing: Drawing) -> tuple[float, float]:
    """Inches."""
    return (5.5 * len(drawing.arrays if isinstance(drawing, Tree) else drawing.maps), 5.0)


def _tree(drawing: Any, canvas: Any) -> None:
    """A row for each step: a thread that works has a dark box, and a line to the neighbour whose value it takes."""
    every = canvas.subplots(1, len(drawing.arrays), squeeze=False)[0]
    for axes, (variant, arrays) in zip(every, drawing.arrays.items(), strict=True):
        for row, values in enumerate(arrays):
            working = {thread for thread, _ in drawing.steps[variant][row - 1]} if row else set()
            for place, value in enumerate(values):
                dark = place in working
                axes.text(place, -row, str(value), ha="center", va="center", fontsize=9, color="white" if dark
                          else "black", bbox={"boxstyle": "square,pad=0.35", "facecolor": "0.2" if dark else "0.92",
                                              "edgecolor": "0.4"})  # fmt: skip
            for thread, neighbour in drawing.steps[variant][row - 1] if row else ():
                axes.plot([thread, thread], [-row + 0.7, -row + 0.3], color="0.2", linewidth=1)
                axes.plot([neighbour, thread], [-row + 0.7, -row + 0.3], color="0.2", linewidth=1, linestyle="--")
        axes.set(title=variant, xlim=(-0.7, len(arrays[0]) - 0.3), ylim=(-len(arrays) + 0.3, 0.7))
        axes.set_yticks([-row for row in range(len(arrays))], ["at first", *(f"step {row}" for row in
                        range(1, len(arrays)))])  # fmt: skip
        axes.set_xticks(range(len(arrays[0])), [str(thread) for thread in range(len(arrays[0]))])
        axes.set_xlabel("thread; dark: it adds")


def _banks(drawing: Any, canvas: Any) -> None:
    """The bank of each element as a shade and a number; the column that a warp loads has a frame."""
    every = canvas.subplots(1, len(drawing.maps), squeeze=False)[0]
    for axes, (variant, banks) in zip(every, drawing.maps.items(), strict=True):
        axes.imshow(banks, cmap="Greys", vmin=0, vmax=40)  # no darker than numbers can be read on
        for (row, column), bank in _sparse(banks):
            axes.text(column, row, str(bank), ha="center", va="center", fontsize=5,
                      color="white" if bank > 22 else "black")  # fmt: skip
        axes.add_patch(_frame(len(banks)))
        axes.set_title(f"{variant}: threads of a warp in one bank: {drawing.conflicts[variant]}")
        axes.set(xlabel="column of the tile", ylabel="row of the tile")


def _sparse(banks: Any) -> Any:
    """Every fourth row and column, and the first column: all numbers would be too small."""
    return (((row, column), int(banks[row, column])) for row in range(len(banks)) for column in range(len(banks))
            if column == 0 or (row % 4 == 0 and column % 4 == 0))  # fmt: skip


def _frame(rows: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((-0.5, -0.5), 1, rows, fill=False, edgecolor="black", linewidth=2)
