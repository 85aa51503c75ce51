"""The types of attributes, as short texts: their grammar and their check. Torch-free.

    bool  int  float  str  dtype  any      plain data (`any`: whatever `values` holds)
    list[T]                                a tuple of T
    enum:ID  object:ID                     a registered enum or versioned object
    T?                                     T or None

Texts, since they are frozen in documents, compared by the gate and read by people.
"""

from __future__ import annotations

from collections.abc import Callable

from aoserial.errors import FieldError, SchemaError
from aoserial.schema.values import Nested, Symbol, Value
from aoserial.storage.dtypes import BY_NAME

# dtypes an attribute may name beyond those a file can store: logical element types
LOGICAL_DTYPES = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8))


def _is_dtype(value: Value) -> bool:
    return isinstance(value, str) and (value in BY_NAME or value in LOGICAL_DTYPES)


_PLAIN: dict[str, Callable[[Value], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, float),
    "str": lambda value: isinstance(value, str),
    "dtype": _is_dtype,
    "any": lambda _: True,
}


def check_type(text: str) -> str:
    """`text` if it is a type of the grammar, else `SchemaError`."""
    inner = text.removesuffix("?")
    if inner.startswith("list[") and inner.endswith("]"):
        check_type(inner[5:-1])
    elif inner not in _PLAIN and not (inner.startswith(("enum:", "object:")) and inner[-1] != ":"):
        raise SchemaError(f"{text!r} is not an attribute type")
    return text


def conform(text: str, value: Value) -> Value:  # noqa: PLR0911 - one return a kind of type
    """`value` as a `text`; the only change ever made is an int becoming a float.

    Raises:
        FieldError: the value is of another type.
    """
    if text.endswith("?"):
        return None if value is None else conform(text[:-1], value)
    if text.startswith("list["):
        if isinstance(value, tuple):
            return tuple(conform(text[5:-1], item) for item in value)
    elif text.startswith("enum:"):
        if isinstance(value, Symbol) and value.enum == text[5:]:
            return value
        if isinstance(value, str):  # by name, as foreign metadata writes it
            return Symbol(text[5:], value)
    elif text.startswith("object:"):
        if isinstance(value, Nested) and value.type == text[7:]:
            return value
    elif text == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif _PLAIN[text](value):
        return value
    raise FieldError(f"expected {text}, found {value!r:.80}")
