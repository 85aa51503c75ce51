"""What changed in AffineQuantizedTensor from release to release, one step a change. Torch-free."""

from __future__ import annotations

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Value
from aoserial.schema.shapes import blocks
from aoserial.torchao.affine.schemas import TYPE
from aoserial.torchao.wrapping import inside

_PLAIN = ("int_data", "scale", "zero_point")
# impls of 0.3, whose layout had no class, and what there is to a layout of it
_LAYOUTS_OF_0_3 = {
    "torchao.PlainAQTTensorImpl": "torchao.PlainLayout",
    "torchao.TensorCoreTiledAQTTensorImpl": "torchao.TensorCoreTiledLayout",
}


@migration(TYPE, 1, 2)
def put_codes_into_a_layout(record: Record) -> Record:
    """0.2 → 0.3: codes, scales and zero points went into a tensor of their own, `layout_tensor`."""
    impl = Nested("torchao.PlainAQTTensorImpl", 1, FrozenMap())
    names = {name: f"layout_tensor.{name}" for name in _PLAIN if name in record.parts}
    return record.at(2).rename(**names).set(layout_tensor=impl)


@migration(
    TYPE,
    2,
    3,
    repairs="enum numbers: a zero_point_domain of FLOAT was pickled as 1, which has meant INT, and "
    "so another formula, since 0.4",
)
def name_the_layout(record: Record) -> Record:
    """0.3 → 0.4: the layout got a class with its settings; tiles had theirs in their shape alone.

    zero_point_domain changed too, as the number that it is in pickles: INT and FLOAT were 0 and 1,
    and are 1 and 2 since. By name they are the same. Tiles could not be dequantized (`get_plain`
    imports what is not there): their values were the kernel's alone, which computes in float32.
    Proved by fixtures/torchao-0.3.1/int8wo and int4wo_tinygemm_ikt2.
    """
    impl = _object(record, "layout_tensor")
    layout = _LAYOUTS_OF_0_3.get(impl.type)
    if layout is None:
        raise FieldError(f"{impl.type} is no layout that 0.3 had").locate(field="layout_tensor")
    fields: dict[str, Value] = {}
    packed = record.parts.get("layout_tensor.packed_weight")
    if packed is not None and len(packed.shape) == 4:
        fields["inner_k_tiles"] = 2 * packed.shape[-1]
    return record.at(3).set(
        layout_tensor=impl.replace(_layout=Nested(layout, 1, FrozenMap(fields))),
        kernel_arithmetic=packed is not None,
    )


@migration(TYPE, 3, 4)
def rename_layout_tensor(record: Record) -> Record:
    """0.6 → 0.7: layout_tensor → tensor_impl, and in it layout_type → _layout.

    Classes were renamed as well: XxxAQTLayout → XxxAQTTensorImpl, XxxLayoutType → XxxLayout.
    Proved by fixtures/torchao-0.5.0/int8wo.
    """
    parts = {f"layout_tensor.{name}" for name in inside(record.parts, "layout_tensor")}
    new = {name: name.replace("layout_tensor", "tensor_impl", 1) for name in parts}
    return record.at(4).rename(layout_tensor="tensor_impl", **new)


@migration(
    TYPE,
    4,
    5,
    repairs="scale rank: 0.12 and later load float8 scales of the older rank, and fail when the "
    "weight is first used",
)
def keep_the_rank_of_scales(record: Record) -> Record:
    """0.11 → 0.12: float8 scales kept the weight's rank, MarlinSparse's zero_point became zero.

    Scales were [N] of rows and [] of the whole weight; they became [N, 1] and [1, 1].
    quant_min and quant_max of float8, ±448, became None, and zero_point_domain INT; neither says
    anything of float8.
    Proved by fixtures/torchao-0.7.0/float8da_float8w_perrow and int4wo_marlin_sparse.
    """
    made = record.at(5)
    if "tensor_impl.float8_data" in record.parts:
        scale = record.parts["tensor_impl.scale"]
        shape = blocks(record.shape, record.attributes)
        made = made.put(**{"tensor_impl.scale": scale.view(scale.dtype, shape)})
    if "tensor_impl.meta" in record.parts and "tensor_impl.zero_point" in record.parts:
        made = made.rename(**{"tensor_impl.zero_point": "tensor_impl.zero"})
    return made


def _object(record: Record, name: str) -> Nested:
    value = record.attributes[name]
    if not isinstance(value, Nested):
        raise FieldError(f"is {value!r:.60}, expected a tensor").locate(field=name)
    return value
