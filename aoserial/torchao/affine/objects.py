"""The impls and layouts as objects of records. Torch-free."""

from __future__ import annotations

from aoserial.schema import Field, Schema, attribute
from aoserial.torchao.affine.impls import IMPLS
from aoserial.torchao.affine.layouts import LAYOUTS, PROTOTYPE, UINTX
from aoserial.torchao.forms import PickledObject

# the layout itself; what 0.3 had instead of it was the class of the impl
_LAYOUT = Field(
    name="_layout", kind="attribute", type="any", absent=None, renamed_from=("layout_type",)
)

_CODES = Schema(
    type="torchao.UintxCodes",
    version=1,
    kind="object",
    fields=(
        attribute("bit_width", "int"),
        attribute("pack_dim", "int", doc="along which codes share bytes"),
        attribute("packed_shape", "list[int]", doc="of the codes"),
    ),
    doc="UintxTensor inside another tensor: codes in shards of 4, 2 and 1 bits",
)

OBJECT_SCHEMAS = (
    *(
        Schema(type=layout.type, version=1, kind="object", fields=layout.fields)
        for layout in LAYOUTS
    ),
    *(
        Schema(type=impl.type, version=1, kind="object", fields=(_LAYOUT, *impl.fields))
        for impl in IMPLS
    ),
    _CODES,
)

OBJECTS = (
    *(PickledObject(type=layout.type, paths=layout.paths) for layout in LAYOUTS),
    *(PickledObject(type=impl.type, paths=impl.paths) for impl in IMPLS),
    PickledObject(
        type=_CODES.type,
        paths=(
            f"{UINTX}.Uintx.UintxTensor",  # 0.5
            f"{UINTX}.uintx.UintxTensor",  # 0.6
            f"{UINTX}.uintx_layout.UintxTensor",
            f"{PROTOTYPE}.uintx.uintx_layout.UintxTensor",
            f"{PROTOTYPE}.uintx.uintx_utils.UintxTensor",  # 0.17 and later
        ),
    ),
)
