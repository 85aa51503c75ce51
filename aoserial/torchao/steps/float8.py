"""From torchao's Float8Tensor to ours. Torch-free."""

from __future__ import annotations

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import Nested, Value
from aoserial.torchao.steps.settings import activation, granularity_of, kernel_hint


@migration("torchao.Float8Tensor", 2, 1, becomes="aoserial.Float8Tensor")
def leave_torchao_float8(record: Record) -> Record:
    """Float8Tensor of torchao 0.14 to 0.18: same bytes, settings gathered in two objects.

    An empty block_size means one block (torchao 0.14 float8_tensor.py, class docstring).
    Proved by fixtures/torchao-0.15.0/float8da_float8w_perrow_v2.
    """
    given = record.attributes
    block_size = given["block_size"]
    if block_size is None:
        raise FieldError("is not recorded, so what a scale spans is unknown").locate(
            field="block_size"
        )
    scale = record.parts["scale"]
    if block_size == () or scale.shape == ():
        block_size = record.shape
        scale = scale.view(scale.dtype, (1,) * len(record.shape))
    return (
        record.at(1, type="aoserial.Float8Tensor")
        .drop("mm_config", "act_quant_kwargs", "kernel_preference", "dtype")
        .put(scale=scale)
        .set(
            block_size=block_size,
            activation=_activation(given["act_quant_kwargs"]),
            kernel=kernel_hint(given["kernel_preference"], given["mm_config"]),
        )
    )


def _activation(kwargs: Value) -> Nested | None:
    if not isinstance(kwargs, Nested):
        return None
    return activation(
        kind="dynamic",
        dtype=kwargs["float8_dtype"],
        granularity=granularity_of(kwargs["granularity"]),
        lower_bound=kwargs["hp_value_lb"],
        upper_bound=kwargs["hp_value_ub"],
        kernel=kernel_hint(kwargs["kernel_preference"], kwargs["mm_config"]),
    )
