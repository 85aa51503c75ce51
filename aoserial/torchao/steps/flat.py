"""From torchao's NF4 tensors and optimizer states to ours, whose parts are the same. Torch-free."""

from __future__ import annotations

from dataclasses import replace

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.torchao.flat import STATES, UNSAID_DTYPE


@migration("torchao.NF4Tensor", 1, 1, becomes="aoserial.NF4Tensor")
def leave_torchao_nf4(record: Record) -> Record:
    """NF4Tensor of torchao 0.1 to 0.18: same bytes, `n_blocks` dropped, since no values need it.

    The values have the dtype of the table; 0.1 said another.
    Proved by fixtures/torchao-0.1/nf4_fp32 and fixtures/torchao-0.18.0/nf4_bf16.
    """
    dtype = record.parts["nf4"].dtype
    if record.dtype not in (dtype, UNSAID_DTYPE):
        raise FieldError(f"is {record.dtype}, but the values of the codes are {dtype}").locate(
            field="dtype"
        )
    return replace(record.at(1, type="aoserial.NF4Tensor").drop("n_blocks"), dtype=dtype)


def leave_torchao_state(record: Record) -> Record:
    """OptimState8bit, 4bit and Fp8 of torchao 0.4 to 0.18: same bytes.

    The values are float32. 0.17 and later show the dtype of the parameter instead, which is kept;
    `_shape` is the shape of the tensor.
    Proved by fixtures/torchao-0.4.0/optim_adamw4bit, fixtures/torchao-0.10.0/optim_adamw8bit and
    fixtures/torchao-0.18.0/{optim_adam8bit_bf16,optim_adamwfp8}.
    """
    if record.attributes.get("_shape", record.shape) != record.shape:
        raise FieldError(
            f"is {record.attributes['_shape']}, the tensor's is {record.shape}"
        ).locate(field="_shape")
    gone = [name for name in ("_shape",) if name in record.attributes]
    shown = None if record.dtype == "float32" else record.dtype
    ours = record.at(1, type=record.type.replace("torchao.", "aoserial.")).drop(*gone)
    return replace(ours.set(shown_dtype=shown), dtype="float32")


for _schema in STATES:
    _ours = _schema.type.replace("torchao.", "aoserial.")
    migration(_schema.type, 1, 1, becomes=_ours)(leave_torchao_state)
