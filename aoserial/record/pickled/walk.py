"""A tensor subclass of a pickle as plain data and parts. Torch-free.

A pickled subclass is its class's path and its `__dict__`; nothing says what they mean. Tensors in
it become parts, those of a subclass inside a subclass with dotted names (`tensor_impl.int_data`);
all else becomes plain data:

    None, bool, int, float, str             as they are
    list, tuple, torch.Size                 a tuple; a tensor in it leaves its part's name
    torch.dtype, torch.device, torch.layout "bfloat16", "cuda:0", "strided"
    a member of an enum                     Symbol("pickle.<class path>", its value as text)
    a function or class by name             Symbol("pickle.name", its path)
    another object, a subclass inside       Nested("pickle.<class path>", 1, fields), positional
                                            arguments under "0", "1" …; of a subclass "(shape)" and
                                            "(dtype)" too
    the strides of a transposed wrapper     "(stride)", beside its fields
    dict, functools.partial, bytes …        Nested("pickle.builtins.dict" …)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aoserial.errors import LimitError
from aoserial.record.raw import NAME, PART, PREFIX
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.schema.values import MAX_DEPTH
from aoserial.storage import Part, Shape
from aoserial.storage.pickle import (
    EnumValue,
    ExtensionCode,
    Key,
    Name,
    ObjectValue,
    ParameterValue,
    Partial,
    Rebuilt,
    Reference,
    StateDict,
    TensorSubclass,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchSize,
    TorchTensor,
    TypedStorage,
    WrapperSubclass,
    fields_of,
)

# Real tensors have at most a hundred; shared tuples can stand for billions
_MAX_VALUES = 10_000

# what adds nothing but attributes or a mark to the tensor it is of
_PLAIN_CLASSES = ("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")


def unwrapped(value: Any) -> Any:
    """What a Parameter is of; a torch.Tensor with attributes set on it is that tensor."""
    while type(value) is ParameterValue or (
        type(value) is TensorSubclass and value.path in _PLAIN_CLASSES
    ):
        value = value.data
    return value


def kind_of(value: Any) -> tuple[str, Shape, str]:
    """Type id, logical shape and dtype of a tensor of torch's or of a subclass."""
    match value:
        case WrapperSubclass():
            return PREFIX + value.path, value.shape, value.dtype
        case TorchTensor():
            return f"torch.{value.kind}", value.shape or (), value.dtype
        case TensorSubclass():
            return PREFIX + value.path, *kind_of(unwrapped(value.data))[1:]
        case _:
            return "torch.Tensor", value.shape, value.dtype


def is_turned(value: WrapperSubclass) -> bool:
    """Whether a wrapper's strides are those of a transposed or permuted tensor, or of none.

    They need not be those of its shape: a wrapper has whatever its class gave it.
    """
    held = zip(value.shape, value.stride, strict=False)
    steps = [step for length, step in held if length > 1]
    return steps != sorted(steps, reverse=True) or len(value.shape) != len(value.stride)


class Walk:
    """One way through a tensor's state: collects its parts, and gives the rest as plain data."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self._count = 0
        self._depth = 0

    def inside(self, value: Any, prefix: str) -> dict[str, Value]:
        """The fields of a tensor subclass; its tensors become parts under `prefix`."""
        if type(value) is TorchTensor:
            return self._fields(value.fields, prefix)
        fields: dict[str, Value] = {}
        if type(value) is WrapperSubclass and is_turned(value):
            fields["(stride)"] = value.stride
        if type(value) is TensorSubclass:
            fields |= self._fields({"(data)": value.data}, prefix)
        state = fields_of(value.state)
        fields |= self._fields(state, prefix)
        if not state and value.state is not None and not isinstance(value.state, dict):
            fields |= self._fields({"(state)": value.state}, prefix)
        return fields

    def _fields(self, held: Mapping[Any, Any], prefix: str) -> dict[str, Value]:
        """Plain data of a mapping's values; those that are tensors become parts."""
        fields: dict[str, Value] = {}
        for key, value in held.items():
            name = key if type(key) is str else str(self.value(key, prefix))
            if name == "_is_param":
                continue  # torch's own mark of a Parameter
            path = prefix + name
            if self._take_part(value, path):
                continue
            fields[name] = self.value(value, path)
        return fields

    def _take_part(self, value: Any, path: str) -> bool:
        data = unwrapped(value)
        if type(data) is TypedStorage:
            data = data.part
        if not isinstance(data, Part):
            return False
        self.parts[path] = data
        return True

    def value(self, value: Any, path: str) -> Value:
        """`value` as plain data; tensors in it become parts whose names begin with `path`."""
        if type(value) in _PLAIN:
            return value  # type: ignore[no-any-return]
        leaf = _LEAVES.get(type(value))
        if leaf is not None:
            return leaf(value)
        if self._take_part(value, path):
            return Symbol(PART, path)
        self._count += 1
        self._depth += 1
        if self._count > _MAX_VALUES or self._depth > MAX_DEPTH:
            raise LimitError(
                f"has more than {_MAX_VALUES} attributes, or some more than {MAX_DEPTH} deep",
                limit="attributes",
                allowed=_MAX_VALUES,
                found=self._count,
            )
        plain = _INNER[type(value)](self, value, path)
        self._depth -= 1
        return plain

    def _tuple(self, value: Iterable[Any], path: str) -> Value:
        return tuple([self.value(item, f"{path}.{n}") for n, item in enumerate(value)])

    def _subclass(self, value: Any, path: str) -> Value:
        kind, shape, dtype = kind_of(value)
        fields = self.inside(value, f"{path}.")
        return Nested(kind, 1, FrozenMap({"(shape)": shape, "(dtype)": dtype, **fields}))

    def _object(self, value: ObjectValue, path: str) -> Value:
        fields = self._numbered(value.arguments, path)
        fields |= self._fields(value.keywords or {}, f"{path}.")
        state = value.fields
        fields |= self._fields(state, f"{path}.")
        if value.states and not state and value.states[0] not in ({}, None):
            fields |= self._fields({"(state)": tuple(value.states)}, f"{path}.")
        if value.items:
            fields |= self._fields({"(items)": tuple(value.items)}, f"{path}.")
        if value.pairs:
            fields |= self._fields({"(pairs)": tuple(value.pairs)}, f"{path}.")
        return Nested(PREFIX + value.path, 1, FrozenMap(fields))

    def _numbered(self, arguments: Any, path: str) -> dict[str, Value]:
        held = arguments if isinstance(arguments, tuple) else (arguments,)
        return self._fields({str(n): item for n, item in enumerate(held)}, f"{path}.")

    def _partial(self, value: Partial, path: str) -> Value:
        fields = self._fields({"function": value.function}, f"{path}.")
        fields |= self._numbered(value.arguments, path)
        fields |= self._fields(value.keywords, f"{path}.")
        return Nested("pickle.functools.partial", 1, FrozenMap(fields))

    def _dict(self, value: Mapping[Any, Any], path: str) -> Value:
        return Nested("pickle.builtins.dict", 1, FrozenMap(self._fields(value, f"{path}.")))

    def _set(self, value: Iterable[Any], path: str) -> Value:
        items = sorted(map(repr, (self.value(item, path) for item in value)))
        return Nested("pickle.builtins.set", 1, FrozenMap({"items": tuple(items)}))


def _bare(kind: str, **fields: Value) -> Nested:
    return Nested(PREFIX + kind, 1, FrozenMap(fields))


_PLAIN = frozenset({type(None), bool, int, float, str})

_LEAVES: dict[type, Callable[[Any], Value]] = {
    TorchSize: tuple,
    TorchDtype: lambda value: value.name,
    TorchLayout: lambda value: value.name,
    TorchDevice: str,
    EnumValue: lambda value: Symbol(PREFIX + value.path, str(value.value)),
    Name: lambda value: Symbol(NAME, value.path),
    bytes: lambda value: _bare("builtins.bytes", hex=value.hex()),
    bytearray: lambda value: _bare("builtins.bytearray", hex=value.hex()),
    complex: lambda value: _bare("builtins.complex", real=value.real, imag=value.imag),
    ExtensionCode: lambda value: _bare("extension", code=value.code),
}

_INNER: dict[type, Callable[[Walk, Any, str], Value]] = {
    list: Walk._tuple,
    tuple: Walk._tuple,
    dict: Walk._dict,
    StateDict: Walk._dict,
    set: Walk._set,
    frozenset: Walk._set,
    Key: lambda walk, key, path: walk.value(key.value, path),
    WrapperSubclass: Walk._subclass,
    TensorSubclass: Walk._subclass,
    TorchTensor: Walk._subclass,
    ParameterValue: lambda walk, value, path: walk.value(unwrapped(value), path),
    ObjectValue: Walk._object,
    Partial: Walk._partial,
    Rebuilt: lambda walk, value, path: Nested(
        "pickle.aoserial._rebuild", 1, FrozenMap(walk._numbered(value.arguments, path))
    ),
    Reference: lambda walk, value, path: _bare("reference", id=walk.value(value.id, path)),
}
