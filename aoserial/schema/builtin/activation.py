"""What a quantized weight asks of the activation it meets, and hints for kernels."""

from __future__ import annotations

from aoserial.schema.fields import attribute, optional_attribute
from aoserial.schema.schema import EnumSchema, Schema
from aoserial.schema.values import Symbol

MAPPING = EnumSchema(
    type="aoserial.Mapping",
    symbols={
        "symmetric": "zero maps to code 0",
        "symmetric_no_clipping_err": "symmetric, the scale chosen so that neither end clips",
        "asymmetric": "minimum and maximum map to the ends of the code range",
    },
    doc="How values are mapped to codes.",
)

GRANULARITY_KIND = EnumSchema(
    type="aoserial.GranularityKind",
    symbols={
        "tensor": "one scale for all",
        "row": "one for each slice along `dim`",
        "token": "one for each row of the last dimension",
        "axis": "one for each index of `dim`",
        "group": "one for each `group_size` neighbours in the last dimension",
        "block": "one for each block of `block_size`",
    },
    doc="Which elements share a scale.",
)

ACTIVATION_KIND = EnumSchema(
    type="aoserial.ActivationKind",
    symbols={
        "dynamic": "scales are computed from each activation",
        "static": "scales are stored with the weight",
        "cast": "there are none: the activation becomes `dtype`, and so does the result",
    },
)

KERNEL_PREFERENCE = EnumSchema(
    type="aoserial.KernelPreference",
    symbols={
        "auto": "whatever suits the device",
        "torch": "torch's own operators",
        "fbgemm": "FBGEMM, which became MSLK",
        "mslk": "MSLK",
        "emulated": "dequantize, then compute in high precision",
        "triton": "Triton kernels",
        "deepgemm": "DeepGEMM",
        "cutedsl": "CuTe DSL kernels",
    },
    fallback="auto",  # a hint: the result does not depend on it beyond rounding
    doc="The kernel that the writer would have used.",
)

SCALE_MODE = EnumSchema(
    type="aoserial.ScaleMode",
    symbols={
        "floor": "the power of two below amax, over the element's largest (OCP MX 1.0, 6.3)",
        "ceil": "the power of two above it",
        "even": "rounded to the nearest, ties to even",
        "rceil": "amax / largest element, rounded up to a power of two",
    },
    doc="How the power-of-two scale of a microscaling block is chosen.",
)

ENUMS = (SCALE_MODE, MAPPING, GRANULARITY_KIND, ACTIVATION_KIND, KERNEL_PREFERENCE)

GRANULARITY = Schema(
    type="aoserial.Granularity",
    version=1,
    kind="object",
    fields=(
        attribute("kind", "enum:aoserial.GranularityKind"),
        optional_attribute("dim", "int?", None, doc="of `row` and `axis`"),
        optional_attribute("group_size", "int?", None, doc="of `group`"),
        optional_attribute("block_size", "list[int]?", None, doc="of `block`"),
    ),
    doc="Which elements share a scale.",
)

MATMUL_HINT = Schema(
    type="aoserial.MatmulHint",
    version=1,
    kind="object",
    fields=(
        attribute("emulate", "bool", doc="compute in high precision"),
        attribute("fast_accumulation", "bool", doc="accumulate with fewer bits on the GPU"),
        attribute("pad_inner_dim", "bool", doc="pad K to what the GPU kernel needs"),
    ),
    doc="Settings of a scaled matmul (torchao's Float8MMConfig).",
)

KERNEL_HINT = Schema(
    type="aoserial.KernelHint",
    version=1,
    kind="object",
    fields=(
        optional_attribute(
            "preference",
            "enum:aoserial.KernelPreference",
            Symbol("aoserial.KernelPreference", "auto"),
        ),
        optional_attribute("matmul", "object:aoserial.MatmulHint?", None),
        optional_attribute("swizzled_scales", "bool", False, doc="scales in 128 x 4 tiles"),
        optional_attribute("triton", "bool", False, doc="a Triton kernel was asked for"),
    ),
    doc="What the writer would have run; never needed to compute.",
)

ACTIVATION = Schema(
    type="aoserial.Activation",
    version=1,
    kind="object",
    fields=(
        attribute("kind", "enum:aoserial.ActivationKind"),
        attribute("dtype", "dtype", doc="element type of the quantized activation"),
        attribute("granularity", "object:aoserial.Granularity"),
        optional_attribute(
            "mapping", "enum:aoserial.Mapping", Symbol("aoserial.Mapping", "symmetric")
        ),
        optional_attribute("reduce_range", "bool", False, doc="use half of the code range"),
        optional_attribute("narrow_range", "bool", False, doc="int8 codes from -127, not -128"),
        optional_attribute("least_scale", "float?", None, doc="smaller scales are raised to it"),
        optional_attribute(
            "skip_decode",
            "bool",
            False,
            doc="an activation whose second dimension is 1 stays as it is",
        ),
        optional_attribute("lower_bound", "float?", None, doc="of |x| when choosing a scale"),
        optional_attribute("upper_bound", "float?", None, doc="of |x| when choosing a scale"),
        optional_attribute("kernel", "object:aoserial.KernelHint?", None),
        optional_attribute("scale_mode", "enum:aoserial.ScaleMode?", None, doc="of MX formats"),
        optional_attribute(
            "tensor_scale", "bool", False, doc="of NVFP4: a scale of the whole tensor as well"
        ),
    ),
    doc="How the activation of a linear layer is quantized before it meets the weight.",
)

OBJECTS = (GRANULARITY, MATMUL_HINT, KERNEL_HINT, ACTIVATION)
