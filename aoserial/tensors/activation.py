"""What a quantized weight asks of the activation it meets, and hints for kernels: live classes.

Their schemas are in `schema.builtin.activation`, with what each field and symbol means.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from aoserial.kernels import ActivationSpec
from aoserial.schema.builtin import activation as declared
from aoserial.tensors.hints import AnyDtype, any_dtype_name
from aoserial.tensors.registration import bind


@bind(declared.MAPPING)
class Mapping(Enum):
    """How values are mapped to codes."""

    symmetric = "symmetric"
    symmetric_no_clipping_err = "symmetric_no_clipping_err"
    asymmetric = "asymmetric"


@bind(declared.GRANULARITY_KIND)
class GranularityKind(Enum):
    """Which elements share a scale."""

    tensor = "tensor"
    row = "row"
    token = "token"
    axis = "axis"
    group = "group"
    block = "block"


@bind(declared.ACTIVATION_KIND)
class ActivationKind(Enum):
    """Where the scales of an activation come from, if it has any."""

    dynamic = "dynamic"
    static = "static"
    cast = "cast"


@bind(declared.KERNEL_PREFERENCE)
class KernelPreference(Enum):
    """The kernel that the writer would have used."""

    auto = "auto"
    torch = "torch"
    fbgemm = "fbgemm"
    mslk = "mslk"
    emulated = "emulated"
    triton = "triton"
    deepgemm = "deepgemm"
    cutedsl = "cutedsl"


@bind(declared.SCALE_MODE)
class ScaleMode(Enum):
    """How the power-of-two scale of a microscaling block is chosen."""

    floor = "floor"
    ceil = "ceil"
    even = "even"
    rceil = "rceil"


@bind(declared.GRANULARITY)
@dataclass(frozen=True, kw_only=True)
class Granularity:
    """Which elements share a scale, with the number that its kind needs."""

    kind: GranularityKind
    dim: int | None = None
    group_size: int | None = None
    block_size: tuple[int, ...] | None = None


@bind(declared.MATMUL_HINT)
@dataclass(frozen=True, kw_only=True)
class MatmulHint:
    """Settings of a scaled matmul (torchao's Float8MMConfig)."""

    emulate: bool
    fast_accumulation: bool
    pad_inner_dim: bool


@bind(declared.KERNEL_HINT)
@dataclass(frozen=True, kw_only=True)
class KernelHint:
    """What the writer would have run; never needed to compute."""

    preference: KernelPreference = KernelPreference.auto
    matmul: MatmulHint | None = None
    swizzled_scales: bool = False
    triton: bool = False


@bind(declared.ACTIVATION)
@dataclass(frozen=True, kw_only=True)
class Activation:
    """How the activation of a linear layer is quantized before it meets the weight."""

    kind: ActivationKind
    dtype: AnyDtype
    granularity: Granularity
    mapping: Mapping = Mapping.symmetric
    reduce_range: bool = False
    narrow_range: bool = False
    least_scale: float | None = None
    skip_decode: bool = False
    lower_bound: float | None = None
    upper_bound: float | None = None
    kernel: KernelHint | None = None
    scale_mode: ScaleMode | None = None
    tensor_scale: bool = False

    def spec(self) -> ActivationSpec:
        """The same as kernels see it."""
        return ActivationSpec(
            static=self.kind is ActivationKind.static,
            dtype=any_dtype_name(self.dtype),
            granularity=self.granularity.kind.name,
            dim=self.granularity.dim,
            group_size=self.granularity.group_size,
            block_size=self.granularity.block_size,
            mapping=self.mapping.name,
            reduce_range=self.reduce_range,
            narrow_range=self.narrow_range,
            least_scale=self.least_scale,
            skip_decode=self.skip_decode,
            lower_bound=self.lower_bound,
            upper_bound=self.upper_bound,
            scale_mode=None if self.scale_mode is None else self.scale_mode.name,
            tensor_scale=self.tensor_scale,
        )
