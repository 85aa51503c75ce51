"""torch's tensors that are not strided and plain, kept as inert parts. Torch-free.

Functions of torch's (`torch/_utils.py`), as in `rebuild`: quantized, sparse, nested, meta, and what
came from a device without storages.
"""

from __future__ import annotations

from typing import TypeAlias

from aoserial.errors import BoundsError, PickleError
from aoserial.storage.pickle.builder import kind_of
from aoserial.storage.pickle.context import Context
from aoserial.storage.pickle.dtypes import QUANTIZED_CODES
from aoserial.storage.pickle.tensors import (
    ArrayPart,
    StoragePart,
    TorchTensor,
    TypedStorage,
    check_bounds,
)
from aoserial.storage.pickle.values import Name, TorchDtype, TorchLayout, Value

Arguments: TypeAlias = tuple[Value, ...]

# Codes of a quantized dtype in one byte, where that is more than one
_PACKED = {"quint4x2": 2, "quint2x4": 4}


def quantized(context: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_qtensor(storage, offset, size, stride, quantizer, requires_grad, hooks)`."""
    match arguments:
        case (
            TypedStorage() as storage,
            offset,
            size,
            stride,
            (Name("torch", scheme), *parameters),
            bool() as requires_grad,
            hooks,
        ) if storage.dtype in QUANTIZED_CODES:
            context.see_hooks(hooks)
            shape = context.sizes(size)
            fields = _quantizer(scheme, parameters, shape)
            if fields is None:
                return None
            codes = _codes(context, storage, offset, shape, context.sizes(stride))
            return TorchTensor(
                "quantized",
                storage.dtype,
                shape,
                {"int_repr": codes, "qscheme": scheme, **fields},
                requires_grad,
            )
    return None


def _codes(
    context: Context,
    storage: TypedStorage,
    offset: Value,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
) -> StoragePart:
    """The codes as a tensor of that shape; where a byte holds several, the bytes as they lie."""
    dtype = QUANTIZED_CODES[storage.dtype]
    packed = _PACKED.get(storage.dtype, 1)
    if packed == 1:
        return context.part(storage, dtype, offset, shape, stride)
    if type(offset) is not int:
        raise PickleError(f"a tensor begins at {kind_of(offset)} of its storage")
    check_bounds(shape=shape, stride=stride, offset=offset, count=storage.count * packed)
    return TypedStorage(storage.storage, dtype, storage.offset, storage.count).part


def _quantizer(
    scheme: str, parameters: list[Value], shape: tuple[int, ...]
) -> dict[str, Value] | None:
    match scheme, parameters:
        case "per_tensor_affine", (scale, zero_point):
            return {"scale": scale, "zero_point": zero_point}
        case (
            "per_channel_affine" | "per_channel_affine_float_qparams",
            (scales, zero_points, int() as axis),
        ):
            # torch's constructor would read outside of both (pytorch issue 184652)
            if not 0 <= axis < len(shape):
                raise BoundsError(f"is quantized along axis {axis} of {len(shape)}")
            for values in (scales, zero_points):
                found = len(values) if type(values) is list else _length(values)
                if found != shape[axis]:
                    raise BoundsError(
                        f"has {shape[axis]} channels, but {found} scales or zero points"
                    )
            return {"scales": scales, "zero_points": zero_points, "axis": axis}
    return None


def _length(value: Value) -> int:
    return value.shape[0] if isinstance(value, StoragePart) and len(value.shape) == 1 else -1


def sparse(context: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_sparse_tensor(layout, data)`."""
    match arguments:
        case (TorchLayout("sparse_coo"), (indices, values, size, *coalesced)):
            fields = {"indices": indices, "values": values}
            if coalesced:
                fields["is_coalesced"] = coalesced[0]
            return _parts_of("sparse_coo", context, values, size, fields)
        case (TorchLayout(layout), (compressed, plain, values, size)):
            rows = layout in {"sparse_csr", "sparse_bsr"}
            fields = {
                "crow_indices" if rows else "ccol_indices": compressed,
                "col_indices" if rows else "row_indices": plain,
                "values": values,
            }
            return _parts_of(layout, context, values, size, fields)
    return None


def _parts_of(
    kind: str, context: Context, values: Value, size: Value, fields: dict[str, Value]
) -> TorchTensor | None:
    if not isinstance(values, StoragePart):
        return None
    return TorchTensor(kind, values.dtype, context.sizes(size), fields)


def nested(_: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_nested_tensor(buffer, sizes, strides, storage_offsets)`."""
    match arguments:
        case (StoragePart() as buffer, sizes, strides, offsets):
            fields = {
                "values": buffer,
                "sizes": sizes,
                "strides": strides,
                "storage_offsets": offsets,
            }
            return TorchTensor("nested", buffer.dtype, None, fields)
    return None


def meta(context: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad)`."""
    match arguments:
        case (TorchDtype(dtype), size, stride, bool() as requires_grad):
            fields = {"stride": context.sizes(stride)}
            return TorchTensor("meta", dtype, context.sizes(size), fields, requires_grad)
    return None


def device_tensor(_: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_device_tensor_from_cpu_tensor(data, dtype, device, requires_grad)` and `_numpy`.

    What was on an XLA device or another without storages; the data may be of a wider dtype.
    """
    match arguments:
        case (StoragePart() | ArrayPart() as data, TorchDtype(dtype), device, bool() as grad):
            fields = {"data": data, "device": device}
            return TorchTensor("device", dtype, data.shape, fields, grad)
    return None
