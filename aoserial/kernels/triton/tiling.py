"""How large a piece of the product each program of a kernel makes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tiling:
    """Rows of the activation, rows and columns of the weight; warps; loads under way at once."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int

    def grid(self, m: int, n: int) -> tuple[int, int]:
        return -(-n // self.bn), -(-m // self.bm)


# By the most rows of the activation. Few rows read the weight once, which memory bounds: narrow and
# deep. Not tuned on a device yet.
WEIGHT_ONLY = {
    16: Tiling(16, 64, 128, warps=4, stages=4),
    64: Tiling(64, 64, 64, warps=4, stages=3),
    None: Tiling(128, 128, 64, warps=8, stages=2),
}
# operands of four bytes fill the memory that a program has
WEIGHT_ONLY_FLOAT32 = {
    16: Tiling(16, 64, 64, warps=4, stages=3),
    None: Tiling(64, 64, 32, warps=4, stages=3),
}
# bk is the length of a block of DeepSeek's scales, for those without blocks too
FLOAT8_BY_FLOAT8 = {
    16: Tiling(16, 64, 128, warps=4, stages=4),
    64: Tiling(64, 64, 128, warps=4, stages=3),
    None: Tiling(128, 128, 128, warps=8, stages=2),
}


def tiling(table: dict[int | None, Tiling], rows: int) -> Tiling:
    """That of the fewest rows that hold these."""
    return next(held for most, held in table.items() if most is None or rows <= most)
