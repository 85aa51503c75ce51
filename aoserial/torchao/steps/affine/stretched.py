"""PARQ's variant of AffineQuantizedTensor: codes that stand for odd halves. Torch-free."""

from __future__ import annotations

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.torchao.affine.schemas import STRETCHED_TENSOR
from aoserial.torchao.steps.affine.view import Affine, zero_domain


@migration(STRETCHED_TENSOR.type, 1, 1, becomes="aoserial.IntxTensor")
def read_stretched(record: Record) -> Record:
    """StretchedAffineQuantizedTensor of torchao 0.13: w = (q - z) s with z = -1/2.

    zero_point_domain is FLOAT, but `dequantize` takes zero points as those of codes whatever it is,
    and refuses all layouts but QDQ. Codes of b bits reach 2**(b-1) - 1, quant_max half a code more.
    From torchao's class body: no file is at hand.
    """
    tensor = Affine(record)
    greatest = record.attributes["quant_max"]
    if tensor.impl.type != "torchao.QDQTensorImpl":
        raise FieldError("is not QDQ, and torchao reads no other").locate(field="tensor_impl")
    whole = 2 * greatest + 1 if isinstance(greatest, float) else 0.0
    bits = int(whole).bit_length() - 1
    if whole != 2**bits or not 1 <= bits <= 8:
        raise FieldError(f"is {greatest!r:.40}, expected 2**(b-1) - 0.5").locate(field="quant_max")
    parts = {"qdata": tensor.of_codes("int_data"), "scale": tensor.of_blocks("scale")}
    if "zero_point" in tensor.parts:
        parts["zero_point"] = tensor.of_blocks("zero_point")
    domain = zero_domain("int" if "zero_point" in parts else "none")
    return tensor.become("IntxTensor", parts, bit_width=bits, zero_domain=domain)
