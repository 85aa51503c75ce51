"""Functions that wrappers quantized activations with, by name, and what each does. Torch-free."""

from __future__ import annotations

from collections.abc import Callable

from aoserial.errors import FieldError
from aoserial.schema import FrozenMap, Nested, Value
from aoserial.torchao.steps.settings import activation, granularity, granularity_of, mapping

Quantizer = Callable[[FrozenMap, str], Nested | None]

_QUANT_API = "torchao.quantization.quant_api"
_AUTOQUANT = ("torchao.quantization.autoquant", "torchao.prototype.quantization.autoquant_v2")
_SMOOTHQUANT = "torchao.prototype.smoothquant.api._ActQuantizer"
_FLOAT32_EPS = 2.0**-23


def _int8_per_token(**settings: Value) -> Quantizer:
    settings = {"dtype": "int8", "granularity": granularity("token"), **settings}
    return lambda _, kind: activation(kind=kind, **settings)


def _float8(keywords: FrozenMap, kind: str) -> Nested:
    return activation(
        kind=kind,
        dtype=_given(keywords, "activation_dtype"),
        granularity=granularity_of(keywords["activation_granularity"]),
    )


def _float8_per_token(keywords: FrozenMap, kind: str) -> Nested:
    return activation(
        kind=kind, dtype=_given(keywords, "target_dtype"), granularity=granularity("token")
    )


def _cast(dtype: str) -> Quantizer:
    return lambda _, __: activation(kind="cast", dtype=dtype, granularity=granularity("tensor"))


def _smoothquant(scheme: str) -> Quantizer:
    def quantizer(keywords: FrozenMap, kind: str) -> Nested:
        if _given(keywords, "target_dtype") != "int8" or keywords["quant_min"] != -127:
            raise FieldError("is not int8 from -127").locate(field="quant_kwargs")
        return activation(
            kind=kind, dtype="int8", granularity=granularity(scheme), narrow_range=True
        )

    return quantizer


def _given(keywords: FrozenMap, name: str) -> Value:
    value = keywords[name]
    if value is None:
        raise FieldError("is missing").locate(field=f"quant_kwargs.{name}")
    return value


def _none(_: FrozenMap, __: str) -> None:
    return None


# -127 to 127; 0.5 and later
_NARROW = _int8_per_token(narrow_range=True, least_scale=1e-5)

QUANTIZERS: dict[str, Quantizer] = {
    **{
        f"{_QUANT_API}.{name}": quantizer
        for name, quantizer in {
            # the least scale was the epsilon of the activation's dtype up to 0.11, then float32's
            "_int8_asymm_per_token_quant": _int8_per_token(mapping=mapping("asymmetric")),
            "_uint8_asymm_per_token_quant": _int8_per_token(
                dtype="uint8", mapping=mapping("asymmetric"), least_scale=_FLOAT32_EPS
            ),
            "_int8_symm_per_token_quant": _NARROW,
            "_int8_symm_per_token_reduced_range_quant": _NARROW,
            "_int8_symm_per_token_reduced_range_quant_noop_decode": _int8_per_token(
                narrow_range=True, least_scale=1e-5, skip_decode=True
            ),
            "_int8_symm_per_token_reduced_range_quant_cutlass": _NARROW,  # 0.8 and 0.9
            "_int4_symm_per_token_quant_cutlass": _int8_per_token(dtype="int4", least_scale=1e-5),
            "_int8_symm_cutlass_quant": _int8_per_token(least_scale=_FLOAT32_EPS),
            "_int4_symm_cutlass_quant": _int8_per_token(dtype="int4", least_scale=_FLOAT32_EPS),
            "_float8_cutlass_quant": _float8_per_token,
            "_float8_cutlass_quant_sparse": _float8_per_token,
            "_input_quant_func_dyanmic_fp8": _float8,  # 0.5, so spelled
            "_input_activation_quant_func_fp8": _float8,
        }.items()
    },
    **{f"{module}._identity": _none for module in _AUTOQUANT},
    **{f"{module}._to_float16": _cast("float16") for module in _AUTOQUANT},
    **{f"{module}._to_bfloat16": _cast("bfloat16") for module in _AUTOQUANT},
    # 0.7 to 0.13
    f"{_SMOOTHQUANT}.dynamic_quantize": _smoothquant("token"),
    f"{_SMOOTHQUANT}.static_quantize": _smoothquant("tensor"),
}
