"""Where pickles name the helper objects and enums of more than one family of torchao's tensors.

Paths are those of the file that defines a helper, in each release: unlike tensor classes, helpers
were never given another `__module__`. Their fields and members are in `objects`. Torch-free.
"""

from __future__ import annotations

from aoserial.torchao.forms import PickledEnum, PickledObject

# 0.5 and 0.6 had them in observer, which names them still; prototypes for export have copies
_GRANULARITY_MODULES = (
    "torchao.quantization.granularity",
    "torchao.quantization.observer",
    "torchao.quantization.pt2e.observer",
)

OBJECTS = (
    *(
        PickledObject(
            type=f"torchao.{name}",
            paths=tuple(f"{module}.{name}" for module in _GRANULARITY_MODULES),
        )
        for name in ("PerTensor", "PerRow", "PerToken", "PerAxis", "PerGroup", "PerBlock")
    ),
    PickledObject(
        type="torchao.Float8MMConfig",
        paths=("torchao.float8.inference.Float8MMConfig",),
        positional=("emulate", "use_fast_accum", "pad_inner_dim"),
    ),
)

ENUMS = (
    PickledEnum(
        type="torchao.KernelPreference",
        paths=("torchao.quantization.quantize_.common.kernel_preference.KernelPreference",),
        members={
            value: value.upper()
            for value in (
                *("auto", "torch", "fbgemm", "emulated", "mslk", "triton", "deepgemm", "cutedsl"),
            )
        },
    ),
    PickledEnum(
        type="torchao.MappingType",
        paths=(
            "torchao.quantization.quant_primitives.MappingType",
            "torchao.quantization.pt2e.observer.MappingType",
        ),
        # 0.6 and later; in 0.4 and 0.5, which tensors never held, ASYMMETRIC was 2
        members={"1": "SYMMETRIC", "2": "SYMMETRIC_NO_CLIPPING_ERR", "3": "ASYMMETRIC"},
    ),
)
