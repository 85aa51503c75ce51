"""What every quantized tensor class does as a weight in torch, whatever its type."""

from __future__ import annotations

import copy
import enum
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.tensors import same_bytes
from torch import nn

from aoserial.errors import UnsupportedOperationError
from aoserial.schema import BLOCKS
from aoserial.tensors import (
    Activation,
    ActivationKind,
    Float8Tensor,
    Granularity,
    GranularityKind,
    Int8Tensor,
    Mapping,
    VersionedTensor,
    field,
    from_record,
    register,
    to_record,
)
from aoserial.tensors.transposed import Transposed

N, K = 8, 16


@register("conformance.Domain")
class Domain(enum.Enum):
    none = 0
    int = 1


@register("conformance.Annotated", version=3)
class Annotated(VersionedTensor):
    """Two codes a byte, scales in groups along K, with every kind of field."""

    dims = ("...", "N", "K")
    qdata: torch.Tensor = field(dtypes=(torch.uint8,), shape=("...", "N", "K/2"))
    scale: torch.Tensor = field(shape=BLOCKS)
    block_size: tuple[int, ...]
    zero_point: torch.Tensor | None = field(shape=BLOCKS)
    domain: Domain = Domain.none
    notes: list[int] = field(default=[1, 2], absent=[])

    @classmethod
    def logical_shape(cls, parts, attributes):
        *leading, packed = parts["qdata"].shape
        return (*leading, 2 * packed)

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        codes = torch.stack([self.qdata & 15, self.qdata >> 4], -1).flatten(-2).float() - 8
        scale = self.scale
        for dim, size in enumerate(self.block_size):
            scale = scale.repeat_interleave(size, dim).narrow(dim, 0, codes.shape[dim])
        return (codes * scale).to(self.dtype if dtype is None else dtype)


@register("conformance.Listed")
class Listed(VersionedTensor):
    """As torchao's classes are written."""

    tensor_data_names = ["qdata", "scale"]
    tensor_attribute_names = ["block_size", "dtype"]
    optional_tensor_data_names = ["zero_point"]
    optional_tensor_attribute_names = ["fancy"]

    def __new__(cls, qdata, scale, block_size, dtype, zero_point=None, fancy=False):
        kwargs = {"dtype": dtype, "device": qdata.device, "requires_grad": False}
        return torch.Tensor._make_wrapper_subclass(cls, qdata.shape, **kwargs)

    def __init__(self, qdata, scale, block_size, dtype, zero_point=None, fancy=False):
        super().__init__()
        self.qdata = qdata
        self.scale = scale
        self.block_size = block_size
        self.zero_point = zero_point
        self.fancy = fancy

    def dequantize(self, output_dtype: torch.dtype | None = None) -> torch.Tensor:
        return (self.qdata.float() * self.scale).to(output_dtype or self.dtype)


def make_annotated(*leading: int) -> VersionedTensor:
    codes = torch.randint(0, 256, (*leading, N, K // 2), dtype=torch.uint8)
    block = (*[1] * len(leading), 1, 4)
    scale = torch.rand(*leading, N, K // 4)
    return Annotated(codes, scale, block, torch.rand_like(scale), Domain.int, dtype=torch.float32)


def make_listed() -> VersionedTensor:
    codes = torch.randint(-8, 8, (N, K), dtype=torch.int8)
    return Listed(codes, torch.rand(N, 1), [1, K], torch.float32, fancy=True)


def make_float8(*leading: int) -> VersionedTensor:
    return Float8Tensor.from_float(torch.randn(*leading, N, K), granularity=(4, 4))


def make_int8(*leading: int) -> VersionedTensor:
    return Int8Tensor.from_float(torch.randn(*leading, N, K))


def make_full_int8() -> VersionedTensor:
    """An int8 weight with everything the type can hold."""
    plain = make_int8()
    return Int8Tensor(
        plain.qdata,
        plain.scale,
        (1, K),
        torch.randint(-4, 4, (N, 1), dtype=torch.int8),
        torch.tensor([[0.05]]),
        torch.tensor([[3]], dtype=torch.int8),
        torch.rand(K),
        Activation(
            kind=ActivationKind.static,
            dtype=torch.int8,
            granularity=Granularity(kind=GranularityKind.tensor),
            mapping=Mapping.asymmetric,
        ),
    )


MAKERS: list[Callable[[], VersionedTensor]] = [
    make_float8,
    make_int8,
    make_full_int8,
    make_annotated,
    make_listed,
]
STACKS: list[Callable[[int], VersionedTensor]] = [make_float8, make_int8, make_annotated]


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.__name__.removeprefix("make_"))
def make(request: pytest.FixtureRequest) -> Callable[[], VersionedTensor]:
    return request.param


@pytest.fixture(params=MAKERS[:-1], ids=lambda maker: maker.__name__.removeprefix("make_"))
def make_sliceable(request: pytest.FixtureRequest) -> Callable[[], VersionedTensor]:
    return request.param


def same(left: VersionedTensor, right: VersionedTensor) -> bool:
    """Whether two tensors agree in type, metadata and every byte."""
    if not left._same_metadata(right):
        return False
    pairs = ((getattr(left, name), getattr(right, name)) for name in left.part_names())
    return all(same_bytes(ours, theirs) for ours, theirs in pairs)


def layer(weight: torch.Tensor) -> nn.Linear:
    module = nn.Linear(K, N)
    module.weight = nn.Parameter(weight, requires_grad=False)
    return module


# -- computing ----------------------------------------------------------------------------------


def test_a_linear_layer_is_that_of_the_dequantized_weight(
    make: Callable[..., VersionedTensor],
) -> None:
    weight, x, bias = make(), torch.randn(2, 3, K), torch.randn(N)
    found = F.linear(x, weight, bias)
    assert type(found) is torch.Tensor
    assert found.dtype == x.dtype
    if getattr(weight, "activation", None) is None:
        torch.testing.assert_close(found, F.linear(x, weight.dequantize(), bias))
    torch.testing.assert_close(found, F.linear(input=x, weight=weight, bias=bias), rtol=0, atol=0)


def test_every_road_to_a_product_gives_the_same(make: Callable[..., VersionedTensor]) -> None:
    weight, x, bias = make(), torch.randn(3, K), torch.randn(N)
    expected, bare = F.linear(x, weight, bias), F.linear(x, weight)
    with torch.inference_mode():
        assert torch.equal(F.linear(x, weight, bias), expected)
    with torch._C.DisableTorchFunctionSubclass():
        assert torch.equal(F.linear(x, weight, bias), expected)
    assert torch.equal(torch.addmm(bias, x, weight.t()), expected)
    for transposed in (weight.t(), weight.T, weight.mT, weight.transpose(-1, -2)):
        assert torch.equal(x @ transposed, bare)
    assert torch.equal(x[None] @ weight.T, bare[None])


def test_gradients_reach_the_activation_on_every_road(make: Callable[..., VersionedTensor]) -> None:
    weight = make()
    if getattr(weight, "activation", None) is not None:
        pytest.skip("rounding an activation has no gradient")
    expected = weight.dequantize().sum(0)
    for product in (lambda x: F.linear(x, weight), lambda x: x @ weight.t()):
        x = torch.randn(2, K, requires_grad=True)
        product(x).sum().backward()
        torch.testing.assert_close(x.grad[0], expected)


def test_a_transposed_weight_gives_itself_back_and_nothing_else(
    make: Callable[..., VersionedTensor],
) -> None:
    weight = make()
    transposed = weight.t()
    assert isinstance(transposed, Transposed)
    assert transposed.shape == (K, N)
    assert same(transposed.t(), weight)
    assert repr(transposed) == f"{weight!r}.t()"
    with pytest.raises(UnsupportedOperationError, match="aten.add"):
        transposed + 1
    with pytest.raises(UnsupportedOperationError, match="x @ w.t"):
        transposed @ torch.randn(N, 2)


def test_an_activation_may_not_be_quantized_itself(make: Callable[..., VersionedTensor]) -> None:
    with pytest.raises(UnsupportedOperationError, match="as its weight only"):
        F.linear(make(), torch.randn(N, K))


def test_an_embedding_looks_up_dequantized_rows(make: Callable[..., VersionedTensor]) -> None:
    weight, rows = make(), torch.tensor([[1, 3], [7, 0]])
    expected = weight.dequantize()[rows]
    assert torch.equal(F.embedding(rows, weight), expected)
    module = nn.Embedding(N, K)
    module.weight = nn.Parameter(weight, requires_grad=False)
    assert torch.equal(module(rows), expected)
    with torch._C.DisableTorchFunctionSubclass():
        assert torch.equal(F.embedding(rows, weight), expected)
    with pytest.raises(UnsupportedOperationError, match="max_norm"):
        F.embedding(rows, weight, max_norm=1.0)


def test_dequantize_is_reached_through_torch_without_going_in_circles(
    make: Callable[..., VersionedTensor],
) -> None:
    weight = make()
    plain = weight.dequantize()
    assert type(plain) is torch.Tensor
    assert torch.equal(torch.dequantize(weight), plain)
    assert torch.equal(torch.Tensor.dequantize(weight), plain)


def test_what_is_not_implemented_names_the_operator_and_the_type(
    make: Callable[..., VersionedTensor],
) -> None:
    weight = make()
    with pytest.raises(
        UnsupportedOperationError, match=rf"{type(weight).__name__} has no aten.add"
    ):
        weight + 1
    with pytest.raises(NotImplementedError, match=r"dequantize\(\)"):
        weight.mul_(2)


# -- modules ------------------------------------------------------------------------------------


def test_a_parameter_keeps_its_class_and_shares_its_parts(
    make: Callable[..., VersionedTensor],
) -> None:
    weight = make()
    parameter = nn.Parameter(weight, requires_grad=False)
    assert isinstance(parameter, nn.Parameter)
    assert type(parameter) is type(weight)
    assert parameter.qdata.data_ptr() == weight.qdata.data_ptr()
    assert nn.Parameter(weight).requires_grad


def test_a_state_dict_goes_into_a_layer_that_is_like_it(
    make: Callable[..., VersionedTensor],
) -> None:
    source, target = layer(make()), layer(make())
    before = target.weight.qdata.data_ptr()
    assert not target.load_state_dict(source.state_dict()).missing_keys
    assert same(source.weight, target.weight)
    assert target.weight.qdata.data_ptr() == before


def test_a_state_dict_replaces_weights_with_assign(make: Callable[..., VersionedTensor]) -> None:
    source = layer(make())
    with torch.device("meta"):
        target = nn.Linear(K, N)
    target.load_state_dict(source.state_dict(), assign=True)
    assert same(source.weight, target.weight)
    x = torch.randn(2, K)
    assert torch.equal(target(x), source(x))


def test_a_module_can_leave_its_bytes_and_get_room_for_them_again(
    make: Callable[..., VersionedTensor],
) -> None:
    source = layer(make())
    module = copy.deepcopy(source).to("meta")
    assert module.weight.device.type == "meta"
    assert module.weight.qdata.device.type == "meta"
    module.to_empty(device="cpu")
    assert isinstance(module.weight, nn.Parameter)
    module.load_state_dict(source.state_dict())
    assert same(module.weight, source.weight)


def test_a_module_cast_to_another_dtype_changes_only_what_its_weight_stands_for(
    make: Callable[..., VersionedTensor],
) -> None:
    module = layer(make())
    before = {name: getattr(module.weight, name).clone() for name in module.weight.part_names()}
    module.to(torch.bfloat16)
    assert module.weight.dtype == torch.bfloat16
    assert module.weight.dequantize().dtype == torch.bfloat16
    for name, part in before.items():
        assert getattr(module.weight, name).dtype == part.dtype
    assert module(torch.randn(2, K, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_a_tensor_of_floats_does_not_become_one_of_integers(
    make: Callable[..., VersionedTensor],
) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"cannot be torch\.int32"):
        make().to(torch.int32)


# -- copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied",
    [torch.clone, copy.deepcopy, lambda w: w.to("cpu", copy=True), copy.copy],
    ids=["clone", "deepcopy", "to", "copy"],
)
def test_copies_are_equal(
    make: Callable[..., VersionedTensor], copied: Callable[[torch.Tensor], VersionedTensor]
) -> None:
    weight = make()
    assert same(copied(weight), weight)


def test_a_deep_copy_of_a_module_shares_nothing(make: Callable[..., VersionedTensor]) -> None:
    module = layer(make())
    twin = copy.deepcopy(module)
    assert isinstance(twin.weight, nn.Parameter)
    assert same(twin.weight, module.weight)
    for name in module.weight.part_names():
        assert getattr(twin.weight, name).data_ptr() != getattr(module.weight, name).data_ptr()


def test_detaching_shares_the_parts_and_cloning_does_not(
    make: Callable[..., VersionedTensor],
) -> None:
    weight = make()
    pointer = weight.qdata.data_ptr()
    assert weight.detach().qdata.data_ptr() == pointer
    assert weight.data.qdata.data_ptr() == pointer
    assert weight.clone().qdata.data_ptr() != pointer
    assert weight.contiguous() is weight
    assert weight.cpu() is weight


def test_copying_returns_the_target(make: Callable[..., VersionedTensor]) -> None:
    target, source = make(), make()
    assert target.copy_(source) is target
    assert same(target, source)


def test_copying_between_plain_and_quantized_says_what_to_do(
    make: Callable[..., VersionedTensor],
) -> None:
    weight = make()
    with pytest.raises(UnsupportedOperationError, match=r"dequantize\(\).*assign=True"):
        torch.zeros(N, K).copy_(weight)
    with pytest.raises(UnsupportedOperationError, match=r"quantize it first.*assign=True"):
        weight.copy_(torch.zeros(N, K))


def test_copying_between_tensors_that_differ_names_both() -> None:
    rows = Int8Tensor.from_float(torch.randn(N, K))
    groups = Int8Tensor.from_float(torch.randn(N, K), granularity=(1, 4))
    with pytest.raises(
        UnsupportedOperationError, match=r"block_size=\(1, 4\).*block_size=\(1, 16\)"
    ):
        rows.copy_(groups)


def test_nothing_is_pinned_without_an_accelerator(make: Callable[..., VersionedTensor]) -> None:
    assert make().is_pinned() is False


def test_sharing_memory_shares_every_part() -> None:
    """In a process of its own: the default would kill this one."""
    program = (
        f"import sys; sys.path[:0] = {[*sys.path, str(Path(__file__).parent)]!r}\n"
        "import test_conformance as t\n"
        "for make in t.MAKERS:\n"
        "    weight = make()\n"
        "    assert not weight.is_shared()\n"
        "    assert weight.share_memory_() is weight\n"
        "    assert weight.is_shared()\n"
        "    assert all(getattr(weight, name).is_shared() for name in weight.part_names())\n"
        "    assert t.layer(make()).share_memory().weight.is_shared()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# -- slices -------------------------------------------------------------------------------------

CUTS = [(0, 0, 4), (0, 4, 8), (1, 0, 8), (1, 8, 16), (0, 8, 8), (-1, 4, 12), (-2, 0, 8)]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_slicing_and_dequantizing_commute(
    make_sliceable: Callable[..., VersionedTensor], cut: tuple[int, int, int]
) -> None:
    dim, start, stop = cut
    weight = make_sliceable()
    found = weight.narrow(dim, start, stop - start)
    assert type(found) is type(weight)
    expected = weight.dequantize().narrow(dim, start, stop - start)
    assert torch.equal(found.dequantize(), expected)
    assert found.stride() == weight.stride()
    index = (slice(start, stop),) if dim % 2 == 0 else (slice(None), slice(start, stop))
    assert same(weight[index], found)
    assert same(from_record(to_record(found)), found.contiguous())


def test_writing_into_a_slice_writes_into_the_tensor(
    make_sliceable: Callable[..., VersionedTensor],
) -> None:
    """How servers load the shard of a weight into a parameter."""
    parameter, loaded = nn.Parameter(make_sliceable(), requires_grad=False), make_sliceable()
    untouched = parameter.dequantize()[4:]
    parameter.data.narrow(0, 0, 4).copy_(loaded.narrow(0, 4, 4))
    assert torch.equal(parameter.dequantize()[:4], loaded.dequantize()[4:])
    assert torch.equal(parameter.dequantize()[4:], untouched)


def test_chunks_and_splits_are_slices(make_sliceable: Callable[..., VersionedTensor]) -> None:
    weight = make_sliceable()
    for parts in (weight.chunk(2), torch.split(weight, 4), weight.split([4, 4], 0)):
        assert [part.shape for part in parts] == [(4, K), (4, K)]
        assert same(parts[1], weight[4:])
    for parts in (weight.chunk(2, dim=-1), weight.split([8, 8], dim=1), weight.split(8, 1)):
        assert same(parts[1], weight[:, 8:])
    with pytest.raises((ValueError, RuntimeError), match="16"):
        weight.split([4, 4], 1)


def test_the_last_chunk_may_be_smaller(make_sliceable: Callable[..., VersionedTensor]) -> None:
    weight = (
        make_sliceable()[:, :12] if make_sliceable is not make_full_int8 else make_int8()[:, :12]
    )
    assert [part.shape[1] for part in weight.split(8, dim=1)] == [8, 4]
    assert torch.equal(weight.split(8, dim=1)[1].dequantize(), weight.dequantize()[:, 8:])


def test_steps_and_rows_are_refused(make_sliceable: Callable[..., VersionedTensor]) -> None:
    weight = make_sliceable()
    with pytest.raises(UnsupportedOperationError, match="steps of 1, not 2"):
        weight[::2]
    with pytest.raises(UnsupportedOperationError, match="only those of a stack in front"):
        weight[3]
    with pytest.raises(IndexError):
        weight.narrow(2, 0, 1)


@pytest.mark.parametrize("make_stack", STACKS, ids=lambda maker: maker.__name__)
def test_one_of_a_stack_is_a_view_of_it(make_stack: Callable[[int], VersionedTensor]) -> None:
    stack = make_stack(3)
    for index in (0, 2, -1):
        one = stack[index]
        assert one.shape == (N, K)
        assert torch.equal(one.dequantize(), stack.dequantize()[index])
        assert one.stride() == stack.stride()[1:]
    stack[1].copy_(stack[0])
    assert torch.equal(stack.dequantize()[1], stack.dequantize()[0])
    again = stack[1].unsqueeze(0)
    assert same(again, stack[1:2].contiguous())
    with pytest.raises(IndexError):
        stack[3]
    with pytest.raises(IndexError, match="out of range"):
        stack.select(0, -4)
    with pytest.raises(UnsupportedOperationError, match="in front"):
        stack.unsqueeze(2)


def test_one_of_a_stack_that_shares_a_scale_keeps_it() -> None:
    stack = Int8Tensor.from_float(torch.randn(3, N, K), granularity="tensor")
    assert stack.block_size == (3, N, K)
    assert torch.equal(stack[2].dequantize(), stack.dequantize()[2])


def test_a_pre_scale_follows_the_columns() -> None:
    weight = make_full_int8()
    assert torch.equal(weight[:, 4:12].act_pre_scale, weight.act_pre_scale[4:12])
    assert weight[2:4].act_pre_scale.shape == (K,)


def test_a_class_without_shape_rules_is_not_sliced() -> None:
    with pytest.raises(UnsupportedOperationError, match="declare `dims`"):
        make_listed()[2:4]


# -- what compilers ask -------------------------------------------------------------------------


def test_a_flattened_tensor_is_put_together_again(make: Callable[..., VersionedTensor]) -> None:
    weight = make()
    names, metadata = weight.__tensor_flatten__()
    hash(metadata)
    assert metadata == copy.deepcopy(metadata)
    inner = {name: getattr(weight, name) for name in names}
    found = type(weight).__tensor_unflatten__(inner, metadata, weight.shape, weight.stride())
    assert same(found, weight)


def test_a_layer_compiles_whole(make: Callable[..., VersionedTensor]) -> None:
    torch._dynamo.reset()
    module, x = layer(make()), torch.randn(2, K)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), module(x))


def test_slices_compile(make_sliceable: Callable[..., VersionedTensor]) -> None:
    torch._dynamo.reset()
    weight = make_sliceable()
    compiled = torch.compile(lambda w: w[4:].dequantize(), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(weight), weight.dequantize()[4:])


def test_a_compiled_function_may_return_its_weight(make: Callable[..., VersionedTensor]) -> None:
    torch._dynamo.reset()
    weight = make()
    compiled = torch.compile(lambda w: w.detach(), backend="aot_eager", fullgraph=True)
    assert same(compiled(weight), weight)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, on importing inductor
def test_inductor_compiles_a_layer() -> None:
    torch._dynamo.reset()
    module, x = layer(make_int8()), torch.randn(2, K)
    compiled = torch.compile(module, fullgraph=True)
    torch.testing.assert_close(compiled(x), module(x))


# -- records and looks --------------------------------------------------------------------------


def test_a_record_gives_the_tensor_back(make: Callable[..., VersionedTensor]) -> None:
    weight = make()
    record = to_record(weight)
    assert all(part.read().data_ptr() for part in record.parts.values())
    assert same(from_record(record), weight)


def test_a_tensor_shows_in_one_line_without_its_data(make: Callable[..., VersionedTensor]) -> None:
    weight = make()
    text = repr(weight)
    assert "\n" not in text
    assert str(weight) == f"{weight}" == text
    assert text.startswith(f"{type(weight).__name__}([8, 16], float32, cpu, block_size=")
    assert "scale: float32" in text
    assert "tensor(" not in text


def test_a_subclass_that_is_not_registered_shows_without_an_error() -> None:
    class Plain(VersionedTensor):
        """Not registered."""

    tensor = torch.Tensor._make_wrapper_subclass(Plain, (2, 2))
    assert "not registered" in repr(tensor)
