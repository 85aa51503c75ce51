"""Where wrappers, autoquant's weights and torchao's first weights were. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping

from aoserial.record import Record
from aoserial.record.raw import NAME
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.torchao.affine.classes import FORMS
from aoserial.torchao.forms import Form, PickledType
from aoserial.torchao.wrappers import schemas
from aoserial.torchao.wrappers.schemas import WEIGHT

_QUANTIZATION = "torchao.quantization"
_SUBCLASS = f"{_QUANTIZATION}.subclass"
_AUTOQUANT = (f"{_QUANTIZATION}.autoquant", "torchao.prototype.quantization.autoquant_v2")
_STATIC_MODULE = f"{_QUANTIZATION}.weight_tensor_linear_activation_quantization"
_SCALED_MODULE = f"{_QUANTIZATION}.linear_activation_scale"
_FUNCTIONS = ("input_quant_func", "input_quant_func_static")
_BOUND = tuple(f"pickle.{module}.getattr" for module in ("__builtin__", "builtins"))


def _plain_functions(record: Record) -> Record:
    """Functions by their path, partial ones and bound methods with the arguments they have."""
    for field in _FUNCTIONS:
        if field not in record.attributes:
            continue
        function, keywords = _function(record.attributes[field])
        if keywords is None:
            record = record.set(**{field: function})
        elif "quant_kwargs" in record.attributes:
            given = record.attributes["quant_kwargs"]
            known = given.fields if isinstance(given, Nested) else {}
            record = record.set(
                **{field: function, "quant_kwargs": _keywords({**keywords, **known})}
            )
        else:
            partial = FrozenMap(function=function, keywords=_keywords(keywords))
            record = record.set(**{field: Nested(schemas.PARTIAL.type, 1, partial)})
    given = record.attributes.get("quant_kwargs")
    if isinstance(given, Nested) and given.type == "pickle.builtins.dict":
        record = record.set(quant_kwargs=_keywords(given.fields))
    return record


def _function(value: Value) -> tuple[Value, Mapping[str, Value] | None]:
    """The path of a function, and its arguments where it has any."""
    match value:
        case Symbol(enum=enum) if enum == NAME:
            return value.name, None
        case Nested(type="pickle.functools.partial"):
            given = dict(value.fields)
            function, _ = _function(given.pop("function", None))
            return function, given
        case Nested() if value.type in _BOUND:
            owner, method = value.fields.get("0"), value.fields.get("1")
            if isinstance(owner, Nested) and isinstance(method, str):
                return f"{owner.type.removeprefix('pickle.')}.{method}", owner.fields
    return value, None


def _keywords(fields: Mapping[str, Value]) -> Nested:
    return Nested(schemas.KEYWORDS.type, 1, FrozenMap(fields))


_DYNAMIC_FORMS = (
    Form(
        version=1,
        type=schemas.DYNAMIC,
        releases="0.2 to 0.6",
        has=("input_quant_func",),
        lacks=("quant_kwargs",),
        adapt=_plain_functions,
    ),
    Form(
        version=2,
        type=schemas.DYNAMIC,
        releases="0.7 to 0.17",
        has=("input_quant_func", "quant_kwargs"),
        adapt=_plain_functions,
    ),
)
_FIRST_INT8 = Form(
    version=1, type=schemas.FIRST_INT8, releases="0.1 to 0.14", has=("int_data", "q_scales")
)
_FIRST_DYNAMIC_INT8 = Form(
    version=1, type=schemas.FIRST_DYNAMIC_INT8, releases="0.1 to 0.14", has=_FIRST_INT8.has
)


def _autoquant(*names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for module in _AUTOQUANT for name in names)


_GROUPS = (32, 64, 128, 256)

CLASSES = (
    PickledType(
        type=schemas.DYNAMIC,
        paths=(
            f"{_SUBCLASS}.LinearActQuantizedTensor",  # 0.2 and 0.3
            f"{_QUANTIZATION}.linear_activation_quantized_tensor.LinearActivationQuantizedTensor",
            f"{_QUANTIZATION}.LinearActivationQuantizedTensor",
        ),
        forms=_DYNAMIC_FORMS,
    ),
    PickledType(
        type=schemas.STATIC,
        paths=(f"{_STATIC_MODULE}.WeightTensorWithLinearActivationQuantizationMetadata",),
        forms=(
            Form(
                version=1,
                releases="0.6 to 0.17",
                has=(WEIGHT, "input_quant_func_static", "scale"),
                adapt=_plain_functions,
            ),
        ),
    ),
    PickledType(
        type=schemas.SCALED,
        paths=(f"{_SCALED_MODULE}.WeightTensorWithLinearActivationScaleMetadata",),
        forms=(Form(version=1, releases="0.6 to 0.17", has=(WEIGHT, "scale")),),
    ),
    PickledType(
        type=schemas.EXPERTS,
        paths=("torchao.prototype.moe_quant.utils.FakeExtraDimTensor",),
        forms=(Form(version=1, releases="0.11 to 0.15", has=("num_tensors", "head_tensor")),),
    ),
    PickledType(
        type=schemas.FIRST_INT8,
        paths=(f"{_SUBCLASS}.Int8WeightOnlyQuantizedLinearWeight",),
        forms=(_FIRST_INT8,),
    ),
    PickledType(
        type=schemas.FIRST_DYNAMIC_INT8,
        paths=(f"{_SUBCLASS}.Int8DynamicallyQuantizedLinearWeight",),
        forms=(_FIRST_DYNAMIC_INT8,),
    ),
    PickledType(
        type=schemas.FIRST_INT4,
        paths=(f"{_SUBCLASS}.Int4WeightOnlyQuantizedLinearWeight",),
        forms=(Form(version=1, releases="0.1 to 0.14", has=("int_data", "scales_and_zeros")),),
    ),
    # autoquant's choices have the fields of what they derive from, which changed in 0.5 and 0.9
    PickledType(
        type="torchao.AutoquantWeight",
        paths=_autoquant(
            "AQWeightOnlyQuantizedLinearWeight",
            "AQWeightOnlyQuantizedLinearWeight2",
            "AQWeightOnlyQuantizedLinearWeight3",
            "AQInt8WeightOnlyQuantizedLinearWeight",
            "AQInt8WeightOnlyQuantizedLinearWeight2",
            "AQInt8WeightOnlyQuantizedLinearWeight3",
            "AQFloat8WeightOnlyQuantizedLinearWeight",
            "AQFloat8PerRowScalingDynamicallyQuantizedLinearWeight",
            "AQFloat8PerTensorScalingDynamicallyQuantizedLinearWeight",
            "AQInt8DynamicallyQuantizedSemiSparseLinearWeight",
            "AQInt4G128WeightOnlyQuantizedMarlinSparseLinearWeight",
            *(f"AQInt4G{group}WeightOnlyQuantizedLinearWeight" for group in _GROUPS),
            *(f"AQGemliteInt4G{group}WeightOnlyQuantizedLinearWeight" for group in _GROUPS),
        ),
        forms=(*FORMS, *_DYNAMIC_FORMS, _FIRST_INT8),
    ),
    PickledType(
        type="torchao.AutoquantDynamicWeight",
        paths=_autoquant("AQInt8DynamicallyQuantizedLinearWeight"),
        forms=(*_DYNAMIC_FORMS, _FIRST_DYNAMIC_INT8),
    ),
)
