"""Quantizing weights into the types that ship."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from aoserial.errors import QuantizationError
from aoserial.kernels import explain
from aoserial.tensors import (
    Float8Tensor,
    Int4Tensor,
    Int8Tensor,
    IntxTensor,
    MXTensor,
    NVFP4Tensor,
    VersionedTensor,
)
from aoserial.tensors.granularity import block_size

CLASSES = [Float8Tensor, Int8Tensor]
MAKERS = {
    "float8": Float8Tensor.from_float,
    "int8": Int8Tensor.from_float,
    "int4": Int4Tensor.from_float,
    "intx": partial(IntxTensor.from_float, bit_width=4, zero_domain="offset"),
    "mx": MXTensor.from_float,
    "nvfp4": partial(NVFP4Tensor.from_float, per_tensor_scale="auto"),
}


@pytest.mark.parametrize(
    ("granularity", "shape", "expected"),
    [
        ("tensor", (4, 6), (4, 6)),
        ("tensor", (2, 4, 6), (2, 4, 6)),
        ("row", (4, 6), (1, 6)),
        ("row", (2, 4, 6), (1, 1, 6)),
        ((2, 3), (4, 6), (2, 3)),
        ([128, 128], (4, 6), (4, 6)),
        ((3, 4), (2, 4, 6), (1, 3, 4)),
        ((2, 2, 2), (2, 4, 6), (2, 2, 2)),
        ((3,), (4, 6), (1, 3)),
        ("row", (4, 0), (1, 1)),
    ],
    ids=str,
)
def test_a_granularity_is_a_block_size(
    granularity: Any, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert block_size(granularity, shape) == expected


@pytest.mark.parametrize("granularity", ["column", (), (0, 4), (1, 1, 1), 3])
def test_an_unknown_granularity_is_refused(granularity: Any) -> None:
    with pytest.raises(QuantizationError, match="expected 'tensor', 'row' or a block"):
        Int8Tensor.from_float(torch.zeros(4, 6), granularity=granularity)


def test_a_vector_is_no_weight() -> None:
    with pytest.raises(QuantizationError, match="two dimensions or more"):
        Float8Tensor.from_float(torch.zeros(4))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("granularity", ["tensor", "row", (2, 4), (4, 5)], ids=str)
@pytest.mark.parametrize("shape", [(4, 8), (5, 7), (3, 4, 8)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_weight_comes_back_close(
    cls: Any, granularity: Any, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    w = torch.randn(shape, dtype=dtype)
    weight = cls.from_float(w, granularity=granularity)
    assert (weight.shape, weight.dtype) == (w.shape, dtype)
    assert weight.scale.dtype == torch.float32
    found = weight.dequantize()
    assert found.dtype == dtype
    assert (found.float() - w.float()).norm() < 0.06 * w.float().norm()
    assert weight.dequantize(torch.float64).dtype == torch.float64


@pytest.mark.parametrize(
    "dtype",
    [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz],
    ids=str,
)
def test_every_float8_dtype_can_be_chosen(dtype: torch.dtype) -> None:
    weight = Float8Tensor.from_float(torch.randn(4, 8), dtype=dtype)
    assert weight.qdata.dtype == dtype
    assert torch.isfinite(weight.dequantize()).all()


@pytest.fixture(params=MAKERS)
def from_float(request: pytest.FixtureRequest) -> Callable[[torch.Tensor], VersionedTensor]:
    return MAKERS[request.param]


def test_a_weight_with_a_gradient_is_quantized_without_it(from_float: Any) -> None:
    weight = from_float(torch.nn.Parameter(torch.randn(4, 8)))
    assert not weight.requires_grad
    assert not any(getattr(weight, name).requires_grad for name in weight.part_names())


@pytest.mark.parametrize("shape", [(4, 8), (5, 150), (2, 3, 32), (0, 8), (8, 0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_every_type_takes_every_shape_and_dtype(
    from_float: Any, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    w = torch.randn(shape, dtype=dtype)
    weight = from_float(w)
    assert (weight.shape, weight.dtype) == (w.shape, dtype)
    assert len(weight.block_size) == w.dim()
    found = weight.dequantize()
    assert (found.shape, found.dtype) == (w.shape, dtype)
    assert (found.float() - w.float()).norm() <= 0.15 * w.float().norm()


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_no_type_takes_what_is_not_finite(from_float: Any, bad: float) -> None:
    w = torch.randn(4, 32)
    w[2, 3] = bad
    with pytest.raises(QuantizationError, match="infinity or NaN"):
        from_float(w)


def test_no_type_takes_what_is_no_weight(from_float: Any) -> None:
    with pytest.raises(QuantizationError, match=r"floating point, not torch\.int32"):
        from_float(torch.ones(4, 8, dtype=torch.int32))
    with pytest.raises(QuantizationError, match="two dimensions or more"):
        from_float(torch.ones(8))


def test_explain_reads_the_weight(from_float: Any) -> None:
    assert explain(from_float(torch.randn(4, 8))).endswith("reference: takes it")
    stack = from_float(torch.randn(2, 4, 8))
    assert "reference: F.linear takes a weight of two dimensions, not 3" in explain(stack)
