"""From a wrapper to the weight inside it, which then has what the wrapper said. Torch-free."""

from __future__ import annotations

from aoserial.errors import FieldError, OpaqueBytesError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.torchao.affine import OLDER as OLDER_AFFINE, SCHEMAS as AFFINE
from aoserial.torchao.steps.microscaling import with_mx_activation
from aoserial.torchao.steps.wrappers.functions import QUANTIZERS
from aoserial.torchao.wrappers.schemas import DYNAMIC, KEYWORDS, PARTIAL, SCALED, STATIC, WEIGHT
from aoserial.torchao.wrapping import carried, hoisted

_MX_FUNCTION = "torchao.prototype.mx_formats.mx_subclass._input_activation_quant_func_mxfp"

# what wrappers held: weights, and SmoothQuant's scale a wrapper, too
_WEIGHTS = tuple(f"{schema.type}@{schema.version}" for schema in (*OLDER_AFFINE, *AFFINE))
_WRAPPERS = (f"{DYNAMIC}@1", f"{DYNAMIC}@2", f"{STATIC}@1")


@migration(DYNAMIC, 1, 2)
def give_a_partial_function_its_arguments(record: Record) -> Record:
    """0.6 → 0.7: arguments of the function went from a functools.partial to quant_kwargs.

    Proved by fixtures/torchao-0.5.0/float8da_float8w and int8da_int8w.
    """
    function = record.attributes["input_quant_func"]
    if isinstance(function, Nested) and function.type == PARTIAL.type:
        given = function.fields
    else:
        given = FrozenMap(function=function, keywords=Nested(KEYWORDS.type, 1, FrozenMap()))
    return record.at(2).set(input_quant_func=given["function"], quant_kwargs=given["keywords"])


@migration(DYNAMIC, 2, 1, becomes=(*_WEIGHTS, "torchao.MXTensor@2"))
def hoist_dynamic(record: Record) -> Record:
    """LinearActivationQuantizedTensor of torchao 0.7 to 0.17: the function's name is its meaning.

    Proved by fixtures/torchao-0.8.0/int8da_int8w_decode, torchao-0.13.0/float8da_float8w_v1 and
    torchao-0.12.0/mx_config_fp8.
    """
    function, keywords = record.attributes["input_quant_func"], record.attributes["quant_kwargs"]
    weight = hoisted(record, WEIGHT)
    if function == _MX_FUNCTION and isinstance(keywords, Nested):
        return with_mx_activation(weight, keywords)
    weight = _held(weight, _WEIGHTS).set(activation=_activation(function, keywords, "dynamic"))
    return carried(record, weight)


@migration(STATIC, 1, 1, becomes=_WEIGHTS)
def hoist_static(record: Record) -> Record:
    """WeightTensorWithLinearActivationQuantizationMetadata of torchao 0.6 to 0.17.

    Proved by fixtures/torchao-0.8.0/float8static_float8w.
    """
    function = record.attributes["input_quant_func_static"]
    settings = _activation(function, record.attributes["quant_kwargs"], "static")
    weight = _held(hoisted(record, WEIGHT), _WEIGHTS).set(activation=settings)
    names = {"scale": "act_scale", "zero_point": "act_zero_point"}
    held = {ours: record.parts[name] for name, ours in names.items() if name in record.parts}
    return carried(record, weight.put(**held))


@migration(
    SCALED,
    1,
    1,
    becomes=(*_WEIGHTS, *_WRAPPERS),
    repairs="activation scale: it divides here, and multiplies as the act_pre_scale of later types",
)
def hoist_scaled(record: Record) -> Record:
    """WeightTensorWithLinearActivationScaleMetadata of torchao 0.6 to 0.17 (AWQ, SmoothQuant).

    The activation is divided by the scale. It stays what it is, since 1 / x is not exact.
    Proved by fixtures/torchao-0.7.0/act_scale_wrapper and torchao-0.15.0/smoothquant.
    """
    weight = _held(hoisted(record, WEIGHT), (*_WEIGHTS, *_WRAPPERS))
    if "act_pre_scale" in weight.parts or "act_pre_scale" in record.parts:
        raise FieldError("is set by two wrappers around one weight").locate(field="scale")
    return carried(
        record,
        weight.put(act_pre_scale=record.parts["scale"]).set(
            act_pre_scale_op=Symbol("aoserial.ScaleOp", "divide")
        ),
    )


def _held(weight: Record, kinds: tuple[str, ...]) -> Record:
    if f"{weight.type}@{weight.version}" not in kinds:
        raise FieldError(f"is a {weight.type}, which torchao wrapped in no release").locate(
            field=WEIGHT
        )
    return weight


def _activation(function: Value, keywords: Value, kind: str) -> Nested | None:
    """What a function does to an activation.

    Raises:
        OpaqueBytesError: one that is not known, so that the layer's result is not.
    """
    quantizer = QUANTIZERS.get(function) if isinstance(function, str) else None
    if quantizer is None:
        raise OpaqueBytesError(f"its activation goes through {function!r:.120}, which is not known")
    assert isinstance(keywords, Nested)  # resolution checked the field's type
    return quantizer(keywords.fields, kind)
