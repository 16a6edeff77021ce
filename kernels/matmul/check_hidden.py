"""Elements of a product of floats that sums of groups of columns could hide: found, and examined one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.matmul.check_elements import ElementCheck
from kernels.matmul.check_groups import Groups
from kernels.matmul.check_limits import MEAN, SMALL, Compared, Sums
from kernels.matmul.check_lines import UNDERFLOW, UPWARDS, Array, scaled_back
from kernels.matmul.check_sums import TileSums

# Share of the elements of a tile that are examined, at most; if there are more, all of them are checked one by one.
SUSPECTS = 2**-5


class HiddenCheck(ElementCheck):
    """Checks elements that their sums could hide."""

    def _by_elements(self, groups: Groups) -> bool:
        """Whether elements are judged by the means of their sums, too."""
        return self.format.dtype == "float16" and groups.size > 1

    def _small(self, sums: Sums, groups: Groups, number: int, hidden: Array) -> Array | None:
        """Elements of a tile that errors up to `hidden` of its sums could hide, so that these say nothing about them.

        None if they are many. An element that is +0 because its row and column share no place is right.
        """
        if isinstance(sums, TileSums) and self._by_elements(groups):
            return np.empty((0, 2), np.int64)
        part, limits = sums.parts[number], SMALL * hidden.astype(np.float64)
        most = int(SUSPECTS * len(limits) * self.product.shape[-1])
        if isinstance(sums, TileSums):
            limits[(self.rows.nonfinite | self.overflowed_rows)[part, 0]] = -1
            return sums.small(number, limits, most, lambda: self.support)
        lines = None, part, slice(None)
        sizes, small = np.abs(self.scaled_product(*lines)), np.zeros((), bool)
        for of_round in groups.sums:
            small = small | (sizes <= limits[..., of_round])
        small = small & ~self.elsewhere(*lines)
        places = self._places(self._without_terms(small, lines), *lines)
        return places if len(places) <= most else None

    def _hidden(self, sums: Sums, compared: Compared) -> Array:
        """Errors of single elements that sums could hide, also where the rounding of factors moves them."""
        of_columns = np.sqrt(sums.squares_of_columns).max(initial=0)
        return 2 * compared.most + self.moved(compared.norms, of_columns)

    def _wrong_small(self, sums: Sums, groups: Groups, found: Sequence[tuple[slice, Array | None]]) -> list[str]:
        """Errors in elements that sums of tiles could hide: they are recomputed, or compared one by one."""
        every = np.arange(self.product.shape[-2])
        crowded = [every[part] for part, small in found if small is None]
        lines = self._wrong_conventionally(None, np.concatenate(crowded), slice(None)) if crowded else []
        places = [small for _, small in found if small is not None and len(small)]
        return lines + (self._wrong_places(sums, groups, np.concatenate(places)) if places else [])

    def _wrong_places(self, sums: Sums, groups: Groups, places: Array) -> list[str]:
        """Errors in elements that sums could hide."""
        if isinstance(sums, TileSums) and groups.size > 1:
            return self._wrong_suspects(sums, [places])
        return self.wrong_exactly(places)

    def _suspects(self, sums: Sums, groups: Groups, number: int, compared: Compared, off: int) -> Array | None:
        """Elements of a tile to examine besides those of so many sums; None if they are too many."""
        if not (isinstance(sums, TileSums) and self._by_elements(groups)):
            return np.empty((0, 2), np.int64)
        most = int(SUSPECTS * len(compared.differences) * self.product.shape[-1])
        few = off * groups.size <= most
        return sums.suspects(number, compared, MEAN[not groups.are_small], most) if few else None

    def _wrong_suspects(self, sums: TileSums, suspects: list[Array]) -> list[str]:
        """Errors among some elements, each given by row and column."""
        length = self.product.shape[-1]
        rows, columns = np.divmod(np.unique(np.concatenate(suspects) @ np.array([length, 1])), length)
        if not len(rows):
            return []
        places = np.stack([rows, columns], axis=-1)
        elements, own, sizes = sums.dots(places)
        scales = self.rows.scales[rows, 0] + self.columns.scales[0, columns]
        got = scaled_back(self.product[rows, columns].astype(np.float64), scales)
        bound = 2.0**-self.format.precision * np.abs(got) + own + np.ldexp(1.0, self.format.least - 1 - scales)
        bound = (bound + UNDERFLOW * (self.inner + 1)) * UPWARDS
        elsewhere = (self.rows.nonfinite | self.overflowed_rows)[rows, 0] | self.columns.nonfinite[0, columns]
        norms = sums.norms_of(rows), np.sqrt(sums.squares_of_columns[columns])
        small = np.abs(got) <= SMALL * (bound - 2.0**-self.format.precision * np.abs(got) + self.moved(*norms))
        wrong = (~(np.abs(got - elements) <= bound) | small) & ~elsewhere
        self._note(np.where(wrong, 0, 2 * bound)[:, None], sizes[:, None])
        return self.wrong_exactly(places[wrong])
