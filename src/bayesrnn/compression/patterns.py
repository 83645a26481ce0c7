"""Where in its matrices a network lost weights (Fortunato et al. 2017, Figure 5)."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Pattern:
    """What is left of one matrix.

    dropped_per_row: how many entries each row lost.
    rows_gone, columns_gone: how many have no entry left.
    """

    name: str
    rows: int
    columns: int
    dropped_per_row: tuple[int, ...]
    rows_gone: int
    columns_gone: int

    @property
    def dropped(self) -> int:
        """How many entries were dropped."""
        return sum(self.dropped_per_row)

    @property
    def share(self) -> float:
        """The share of the entries that was dropped."""
        return self.dropped / (self.rows * self.columns)


def patterns(kept: Mapping[str, Tensor]) -> list[Pattern]:
    """The pattern of each matrix, from masks that are true where a weight was kept.

    Vectors are left out. Of a tensor with more axes, all but the first are taken as the columns.
    """
    return [_pattern(name, matrix) for name, matrix in matrices(kept).items()]


def matrices(kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The masks that have rows and columns, as matrices."""
    return {
        name: mask.flatten(1) for name, mask in kept.items() if mask.dim() > 1 and mask.numel() > 0
    }


def _pattern(name: str, kept: Tensor) -> Pattern:
    rows, columns = kept.shape
    left = kept.sum(1)
    return Pattern(
        name=name,
        rows=rows,
        columns=columns,
        dropped_per_row=tuple((columns - left).tolist()),
        rows_gone=int((left == 0).sum()),
        columns_gone=int((~kept.any(0)).sum()),
    )
