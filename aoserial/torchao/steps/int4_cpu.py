"""torch's int4 packing for CPUs undone: its order is that of the machine that packed. Torch-free.

`aten::_convert_weight_to_int4pack_for_cpu` (int4mm_kernel.cpp of torch 2.4 to 2.13) goes through
the rows in blocks and stores a block column by column, two codes of the same column a byte: those
of neighbouring rows, or, in a whole block on a machine with vectors, those of rows half a block
apart. How many rows a block has depends on the machine's instructions, and no file says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoserial.errors import FieldError
from aoserial.migrations import Question
from aoserial.storage import Part, Shape, compute

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class _Order:
    """Rows a block has, and whether the codes of a byte are half a block apart."""

    rows: int
    apart: bool


_ORDERS = {
    "avx512": _Order(64, apart=True),
    "avx2": _Order(32, apart=True),
    "default": _Order(32, apart=False),  # x86 without either; SVE and VSX
    "neon": _Order(16, apart=False),
}
_SAME_FOR_ALL = 16  # up to so many rows, all orders are one

INT4_CPU_ISA = Question(
    name="int4_cpu_isa",
    answers=tuple(_ORDERS),
    default=None,
    why="torch packs int4 weights for a CPU in the order that suits the machine's instructions, "
    "and the file does not say which those were (on x86-64 mostly avx512 or avx2)",
    concerns=lambda record: record.shape[:1] > (_SAME_FOR_ALL,),
)


REPAIRS_INT4_CPU = (
    "order of the machine: int4 codes packed for a CPU lie otherwise on another, in a tensor of "
    "the same shape, and are other weights there"
)


def unpack_int4_cpu(packed: Part, shape: Shape, isa: str | None) -> Part:
    """Codes 0 to 15, uint8 [N, K/2], even k in the low nibble.

    Args:
        packed: N K / 2 bytes, as torch packed them.
        shape: [N, K], logical; N a multiple of 16, since torch packs no other.
        isa: an answer to `INT4_CPU_ISA`; None where it makes no difference.

    Raises:
        FieldError: a shape that torch would not have packed into these bytes.

    Proved by torch's own packing under ATEN_CPU_CAPABILITY avx512, avx2 and default; neon is read
    from its source.
    """
    if len(shape) != 2 or shape[0] % _SAME_FOR_ALL or shape[1] % 2:
        raise FieldError(f"{list(shape)} is no shape that torch packs int4 weights of for a CPU")
    rows, columns = shape
    if packed.nbytes * 2 != rows * columns:
        raise FieldError(f"{packed.nbytes} bytes are not the codes of {list(shape)}")
    order = _ORDERS[isa or "default"]

    def unpack(data: torch.Tensor) -> torch.Tensor:
        return _unpack(data.reshape(-1), rows, columns, order)

    flat = packed.view("uint8", (packed.nbytes,))
    return compute(unpack, flat, dtype="uint8", shape=(rows, columns // 2))


def _unpack(data: torch.Tensor, rows: int, columns: int, order: _Order) -> torch.Tensor:
    import torch  # torch-free module

    made = torch.empty((rows, columns // 2), dtype=torch.uint8, device=data.device)
    for start in range(0, rows, order.rows):
        held = min(order.rows, rows - start)
        pairs = data[start * columns // 2 : (start + held) * columns // 2].reshape(columns, -1)
        low, high = pairs & 15, pairs >> 4
        if order.apart and held == order.rows:
            codes = torch.cat((low, high), dim=1)
        else:
            codes = torch.stack((low, high), dim=2).flatten(1)
        made[start : start + held] = (codes[::2] | codes[1::2] << 4).t()  # of [K, rows]
    return made
