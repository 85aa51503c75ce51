"""Slices of Int4Tensor, IntxTensor, MXTensor and NVFP4Tensor: what is shared and what is packed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings, strategies as st
from support.tensors import same_bytes
from support.weights import FP4, K, N, make_act_order_int4

from aoserial.errors import BlockCutError
from aoserial.kernels import ELEMENTS
from aoserial.tensors import (
    Int4Tensor,
    IntxTensor,
    MXTensor,
    NVFP4Tensor,
    VersionedTensor,
    ZeroDomain,
    from_record,
    to_record,
)

DOMAINS = list(ZeroDomain.__members__)


def test_act_order_is_cut_along_rows_only() -> None:
    weight = make_act_order_int4()
    assert torch.equal(weight[2:4].dequantize(), weight.dequantize()[2:4])
    assert torch.equal(weight[:, :].dequantize(), weight.dequantize())
    for cut in (lambda: weight[:, 4:], lambda: weight.narrow(1, 0, 8), lambda: weight.chunk(2, 1)):
        with pytest.raises(BlockCutError, match="act-order puts its columns into arbitrary groups"):
            cut()


def test_a_byte_is_not_cut() -> None:
    w = torch.randn(4, 8)
    for weight in (Int4Tensor.from_float(w), MXTensor.from_float(w, element=FP4)):
        with pytest.raises(BlockCutError, match="2 elements that share one of 'qdata'"):
            weight[:, 1:]
        assert weight[:, 2:].shape == (4, 6)


def test_the_last_byte_is_not_cut_either() -> None:
    """Two columns in all: codes that share a byte are no block that covers the dimension."""
    weight = MXTensor.from_float(torch.randn(4, 2), element=FP4)
    with pytest.raises(BlockCutError, match="'qdata'"):
        weight[:, :1]
    assert weight[:, 2:].codes_per_byte == 2


def test_scales_of_whole_matrices_follow_their_stack() -> None:
    stack = NVFP4Tensor.from_float(torch.randn(3, N, K), per_tensor_scale="auto")
    plain = stack.dequantize()
    assert same_bytes(stack[1:].dequantize(), plain[1:])
    assert stack[1:].per_tensor_scale.shape == (2, 1, 1)
    assert same_bytes(stack[2].dequantize(), plain[2])
    assert stack[2].per_tensor_scale.shape == (1, 1)
    assert same_bytes(stack[:, 4:, 4:8].dequantize(), plain[:, 4:, 4:8])
    x = torch.randn(2, K)
    torch.testing.assert_close(F.linear(x, stack[1]), F.linear(x, plain[1]))


def test_one_scale_for_a_whole_stack_stays() -> None:
    stack = NVFP4Tensor.from_float(torch.randn(3, N, K), per_tensor_scale=torch.tensor(0.01))
    assert stack[1].per_tensor_scale.shape == ()
    assert same_bytes(stack[1].dequantize(), stack.dequantize()[1])


@settings(deadline=None)  # the first operator on a subclass imports much of torch
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 7)),
    group=st.integers(1, 9),
    kind=st.sampled_from(["int4", "intx", "nvfp4", *ELEMENTS]),
    domain=st.sampled_from(DOMAINS),
    dim=st.integers(0, 2),
    bounds=st.tuples(st.integers(0, 14), st.integers(0, 14)),
)
def test_slicing_then_dequantizing_is_dequantizing_then_slicing(
    shape: tuple[int, int, int],
    group: int,
    kind: str,
    domain: str,
    dim: int,
    bounds: tuple[int, int],
) -> None:
    w = torch.randn(*shape[:2], 2 * shape[2], dtype=torch.bfloat16)
    weight: VersionedTensor
    if kind == "int4":
        weight = Int4Tensor.from_float(w, group_size=group, zero_domain=domain)
    elif kind == "intx":
        weight = IntxTensor.from_float(w, bit_width=3, group_size=group, zero_domain=domain)
    elif kind == "nvfp4":
        weight = NVFP4Tensor.from_float(w, per_tensor_scale="auto")
    else:
        weight = MXTensor.from_float(w, element=kind, block_size=group)
    first, last = (min(bound, w.shape[dim]) for bound in sorted(bounds))
    index = (*[slice(None)] * dim, slice(first, last))
    byte = 2 if dim == 2 and weight.qdata.shape[2] < w.shape[2] else 1
    size = weight.block_size[dim]
    units = {byte} if size >= w.shape[dim] else {byte, size}
    if any(bound % unit and bound != w.shape[dim] for bound in (first, last) for unit in units):
        with pytest.raises(BlockCutError, match="share one of"):
            weight[index]
        return
    found = weight[index]
    assert same_bytes(found.dequantize(), weight.dequantize()[index])
    # what a slice holds is what its schema allows
    assert from_record(to_record(found))._same_metadata(found.contiguous())
