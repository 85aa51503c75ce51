"""From torchao's small floats in the order of tensor cores to ours. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import Nested, Value
from aoserial.storage import Part, Shape, compute

if TYPE_CHECKING:
    import torch

_WIDTHS = (1, 2, 4)  # of the pieces of a code, in the order in which they are stored
_PLACES = (2, 0, 3, 1)  # quarter of a word in which codes with i mod 4 = 0, 1, 2, 3 lie


@migration("torchao.QuantLlmLinearWeight", 1, 1, becomes="aoserial.FloatxTensor")
def leave_quant_llm(record: Record) -> Record:
    """QuantLlmLinearWeight of torchao 0.4: codes one a byte, in rows. Its dtype is float32.

    Proved by fixtures/torchao-0.4.0/fpx_fp5_e2m2.
    """
    given, parts = record.attributes, record.parts
    codes = untiled(parts["fpx_data"], given["ebits"], given["mbits"], record.shape)
    return _ours(
        record.drop("fpx_data", "scale", "ebits", "mbits"),
        codes,
        parts["scale"],
        given["ebits"],
        given["mbits"],
    )


def floatx_of_affine(record: Record) -> Record:
    """AffineQuantizedTensor with the layout FloatxTensorCore, or FpxTensorCore in 0.5.

    Neither the block size ([N, 1] in all releases) nor quant_min, quant_max and zero_point_domain
    were ever looked at: torchao scales rows.
    Proved by fixtures/torchao-0.5.0/fpx_fp6_e3m2 and fixtures/torchao-0.14.1/fpx_fp5_e2m2.

    Args:
        record: of torchao's AffineQuantizedTensor as it was from 0.7 on; `packed_fpx_data` of 0.5
            may still have that name.
    """
    impl = record.attributes["tensor_impl"]
    layout = impl.fields.get("_layout") if isinstance(impl, Nested) else None
    if not isinstance(layout, Nested):
        raise FieldError("does not say how wide its floats are").locate(field="_layout")
    ebits, mbits = layout.fields.get("ebits"), layout.fields.get("mbits")
    packed = [
        record.parts[name]
        for name in ("tensor_impl.packed_floatx_data", "tensor_impl.packed_fpx_data")
        if name in record.parts
    ]
    if len(packed) != 1:
        raise FieldError("has no packed floats").locate(field="tensor_impl")
    codes = untiled(packed[0], ebits, mbits, record.shape)
    bare = record.drop(*record.attributes, *record.parts)
    return _ours(bare, codes, record.parts["tensor_impl.scale"], ebits, mbits)


def _ours(bare: Record, codes: Part, scale: Part, ebits: Value, mbits: Value) -> Record:
    rows, columns = codes.shape
    return (
        bare.at(1, type="aoserial.FloatxTensor")
        .put(qdata=codes, scale=scale.view(scale.dtype, (rows, 1)))
        .set(exponent_bits=ebits, mantissa_bits=mbits, block_size=(1, columns))
    )


def untiled(packed: Part, ebits: Value, mbits: Value, shape: Shape) -> Part:
    """Codes uint8 [N, K], one a byte, of uint8 [N, K bits / 8] in the order of tensor cores.

    Raises:
        FieldError: a format that torchao does not pack, or another shape.
    """
    if type(ebits) is not int or type(mbits) is not int or not 2 <= ebits + mbits <= 6:
        raise FieldError(f"are {ebits!r:.20} and {mbits!r:.20}, expected 2 to 6 in all").locate(
            field="ebits and mbits"
        )
    bits = 1 + ebits + mbits
    if len(shape) != 2 or shape[0] % 64 or shape[1] % 64:
        raise FieldError(f"shape is {list(shape)}, expected multiples of 64")
    if packed.dtype != "uint8" or packed.shape != (shape[0], shape[1] * bits // 8):
        raise FieldError(
            f"{packed.dtype}{list(packed.shape)} does not hold {bits} bits of {list(shape)}"
        )

    def untile(bytes_: torch.Tensor) -> torch.Tensor:
        return _untile(bytes_, bits, shape)

    return compute(untile, packed, dtype="uint8", shape=shape)


def _untile(packed: torch.Tensor, bits: int, shape: Shape) -> torch.Tensor:
    """Undoes the packing of FP6-LLM (arXiv 2401.14112), for any width of code.

    Codes are cut into pieces of 1, 2 and 4 bits, as far as their width has these: the narrowest are
    the highest bits and come first, each kind by itself. A tile is 64 rows and 16 columns, shared
    by 32 lanes; lane 4 c + e has the codes at row 16 a + 8 b + c, column 8 d + 2 e + f. In the
    order of a, d, b, f, tile after tile along K, these are the lane's codes. Its pieces of w bits
    fill little-endian words of 32 bits, n = 32 / w to one, the words of the lanes in turn. In a
    word, piece i is at place n / 4 · _PLACES[i mod 4] + i div 4, counted from the highest bits.
    """
    import torch  # torch-free module

    rows, columns = shape
    flat = packed.reshape(-1)
    codes = torch.zeros((), dtype=torch.uint8)
    start, left = 0, bits
    for width in _WIDTHS:
        if not bits & width:
            continue
        size = rows * columns * width // 8
        words = flat[start : start + size].clone().view(torch.int32).reshape(-1, 32)
        start, left = start + size, left - width
        count = 32 // width
        places = [count // 4 * _PLACES[i % 4] + i // 4 for i in range(count)]
        pieces = [words >> 32 - width * (place + 1) & (1 << width) - 1 for place in places]
        lanes = torch.stack([piece.to(torch.uint8) for piece in pieces], -1)  # [words, lane, i]
        tiled = lanes.transpose(0, 1).reshape(8, 4, rows // 64, columns // 16, 4, 2, 2, 2)
        # c, e, tile down, tile along, a, d, b, f → rows, columns
        whole = tiled.permute(2, 4, 6, 0, 3, 5, 1, 7).reshape(rows, columns)
        codes = codes | whole << left
    return codes
