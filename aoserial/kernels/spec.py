"""What a kernel sees of a quantized weight: plain data, and plain tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivationSpec:
    """How a linear layer quantizes its activation before it meets the weight.

    Attributes:
        static: scales are stored with the weight; otherwise computed from each activation.
        dtype: torch's name of the codes' dtype.
        granularity: which elements share a scale: `tensor`, `row`, `token`, `axis`, `group` or
            `block`, with `dim` (of row and axis), `group_size` (of group), `block_size` (of block).
        mapping: how values are mapped to codes: `symmetric`, `symmetric_no_clipping_err` or
            `asymmetric`.
        reduce_range: use half of the code range.
        narrow_range: of int8: codes from -127, not -128.
        least_scale: what smaller scales of int8 are raised to; None for float32's machine epsilon.
        skip_decode: an activation whose second dimension is 1 stays as it is.
        lower_bound, upper_bound: bounds of |x| when choosing a scale.
        scale_mode: of MX formats, and what tells them from others: `floor`, `ceil`, `even` or
            `rceil`. `float4_e2m1fn_x2` without it is NVFP4.
        tensor_scale: of NVFP4: the whole activation has a scale as well, computed from it unless
            the weight has an act_per_tensor_scale.
    """

    static: bool
    dtype: str
    granularity: str
    dim: int | None = None
    group_size: int | None = None
    block_size: tuple[int, ...] | None = None
    mapping: str = "symmetric"
    reduce_range: bool = False
    narrow_range: bool = False
    least_scale: float | None = None
    skip_decode: bool = False
    lower_bound: float | None = None
    upper_bound: float | None = None
    scale_mode: str | None = None
    tensor_scale: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """A weight without its values.

    Attributes:
        kind: what its codes mean: `float8` (w = q s), `int8` (w = (q - z) s), `int4` and `intx`
            (see zero_domain), `mx` (w = q 2**(s - 127)), `nvfp4` (w = q s, or q (s S)).
        data_dtype: torch's name of the codes' dtype.
        shape: of the tensor it stands for, [..., N, K].
        dtype: torch's name of the dtype it stands for.
        block_size: elements that share a scale, by dimension.
        activation: what to do with the activation; None leaves it as it is.
        parts: the names of the parts the weight has.
        zero_domain: of int4 and intx: `none`, `int`, `float` or `offset`; see `arithmetic.affine`.
        narrow_arithmetic: of int4: computed in the dtype of the result instead of in float32.
        act_pre_scale_op: how act_pre_scale enters the activation, `multiply` or `divide`.
        bit_width: of intx: 1 to 8.
        element: of mx: the name of the elements' dtype, `float4_e2m1fn_x2` for two codes a byte.
        scale_op: of nvfp4: how the tensor's scale enters, `multiply` or `divide`.
        scale_dtype: of nvfp4: the dtype in which the scales are multiplied.
    """

    kind: str
    data_dtype: str
    shape: tuple[int, ...]
    dtype: str
    block_size: tuple[int, ...]
    activation: ActivationSpec | None = None
    parts: tuple[str, ...] = ("qdata", "scale")
    zero_domain: str = "none"
    narrow_arithmetic: bool = False
    act_pre_scale_op: str = "multiply"
    bit_width: int | None = None
    element: str | None = None
    scale_op: str = "multiply"
    scale_dtype: str = "float32"


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """A spec with its values: `parts` are plain tensors by name.

    qdata: the codes, of the spec's shape, or [..., N, K/2] where two share a byte.
    scale, zero_point: ceil(shape / block_size). group_index: [K], the group of each k.
    per_tensor_scale: one number, or [..., 1, 1]. act_per_tensor_scale: one number.
    act_scale, act_zero_point: of a static activation. act_pre_scale: broadcast over [..., K].
    """

    spec: Spec
    parts: Mapping[str, torch.Tensor]


@runtime_checkable
class HasWeight(Protocol):
    """A tensor that can show itself to kernels."""

    def kernel_weight(self) -> Weight | None: ...
