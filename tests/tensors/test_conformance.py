"""Every tensor class of ours, and two of other people's, under the public conformance suite."""

from __future__ import annotations

import enum
from collections.abc import Callable

import pytest
import torch
from support import flat, prototypes, weights

from aoserial.errors import OptionError, UnsupportedOperationError
from aoserial.schema import BLOCKS
from aoserial.tensors import (
    Activation,
    ActivationKind,
    Float8Tensor,
    Granularity,
    GranularityKind,
    Int4Tensor,
    Int8Tensor,
    IntxTensor,
    Mapping,
    MXTensor,
    NVFP4Tensor,
    VersionedTensor,
    ZeroDomain,
    field,
    register,
)
from aoserial.testing import Conformance, ShardingConformance, check, checks, refused
from aoserial.testing.sharding import run_ranks

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


@register("conformance.Forgetful")
class Forgetful(Annotated):
    """Gathers shards in the wrong order, and says nothing."""

    def fsdp_post_all_gather(self, all_gather_outputs, metadata, param_dtype, *, out=None):
        swapped = tuple(each.roll(len(each) // 2, 0) for each in all_gather_outputs)
        return super().fsdp_post_all_gather(swapped, metadata, param_dtype, out=out)


def annotated(*leading: int) -> VersionedTensor:
    codes = torch.randint(0, 256, (*leading, N, K // 2), dtype=torch.uint8)
    scale = torch.rand(*leading, N, K // 4)
    block = (*[1] * len(leading), 1, 4)
    return Annotated(codes, scale, block, torch.rand_like(scale), Domain.int, dtype=torch.float32)


def listed() -> VersionedTensor:
    codes = torch.randint(-8, 8, (N, K), dtype=torch.int8)
    return Listed(codes, torch.rand(N, 1), [1, K], torch.float32, fancy=True)


def static_int8() -> VersionedTensor:
    """An int8 weight with everything the type can hold."""
    plain = Int8Tensor.from_float(torch.randn(N, K))
    return Int8Tensor(
        plain.qdata,
        plain.scale,
        (1, K),
        torch.randint(-4, 4, (N, 1), dtype=torch.int8),
        torch.rand(1, 1),
        torch.randint(-4, 4, (1, 1), dtype=torch.int8),
        torch.rand(K),
        Activation(
            kind=ActivationKind.static,
            dtype=torch.int8,
            granularity=Granularity(kind=GranularityKind.tensor),
            mapping=Mapping.asymmetric,
        ),
    )


def act_order_int4() -> VersionedTensor:
    """Columns in groups that do not lie side by side, so that it is not cut along K."""
    made = Int4Tensor.from_float(torch.randn(N, K), group_size=8, zero_domain="int")
    groups = torch.tensor([0, 1] * (K // 2), dtype=torch.int32)
    return Int4Tensor(
        made.qdata, made.scale, (1, 8), ZeroDomain.int, made.zero_point, group_index=groups
    )


def made(cls: type, *shape: int, **options: object) -> Callable[[], VersionedTensor]:
    return lambda: cls.from_float(torch.randn(shape), **options)


# a class that is added to the library is added here, once for each way its scales can lie
CASES: dict[str, Callable[[], VersionedTensor]] = {
    "float8-tensor": made(Float8Tensor, N, K, granularity="tensor"),
    "float8-row": made(Float8Tensor, N, K),
    "float8-block": made(Float8Tensor, N, K, granularity=(4, 4), dtype=torch.float8_e5m2),
    "float8-stack": made(Float8Tensor, 4, N, K, granularity=(4, 4)),
    "int8-tensor": made(Int8Tensor, N, K, granularity="tensor"),
    "int8-row": made(Int8Tensor, N, K),
    "int8-stack": made(Int8Tensor, 2, 2, N, K),
    "int8-stack-tensor": made(Int8Tensor, 4, N, K, granularity="tensor"),
    "int8-static": static_int8,
    "int4": made(Int4Tensor, N, K, group_size=8),
    "int4-stack": made(Int4Tensor, 4, N, K, group_size=8, zero_domain="float"),
    "int4-act-order": act_order_int4,
    "intx": made(IntxTensor, N, K, bit_width=3, group_size=8, zero_domain="int"),
    "mx-fp8": made(MXTensor, N, 64),
    "mx-fp4": made(MXTensor, N, 64, element=torch.float4_e2m1fn_x2),
    "nvfp4": made(NVFP4Tensor, N, 64),
    "nvfp4-tensor": made(NVFP4Tensor, N, 64, per_tensor_scale="auto"),
    "nvfp4-stack": made(NVFP4Tensor, 4, N, 64, per_tensor_scale="auto"),
    **weights.FULL,
    **prototypes.PROTOTYPES,
    **flat.FLAT,
    "annotated": annotated,
    "annotated-stack": lambda: annotated(4),
    "listed": listed,
}


class TestConformance(Conformance):
    # seconds each, and the same for every way scales lie: once a class, below
    test_inductor_compiles_a_layer = None
    test_a_layer_is_exported_saved_and_loaded = None

    @pytest.fixture(autouse=True, params=CASES)
    def case(self, request: pytest.FixtureRequest) -> None:
        torch.manual_seed(0)
        self.make = CASES[request.param]  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "sentence", ["inductor_compiles_a_layer", "a_layer_is_exported_saved_and_loaded"]
)
@pytest.mark.parametrize(
    "name",
    [
        *("float8-row", "int8-static", "int4", "intx", "mx-fp4", "nvfp4-tensor"),
        *("annotated", "listed", *prototypes.ONE_OF_EACH, *flat.ONE_OF_EACH),
    ],
)
def test_one_of_each_class_is_compiled_and_exported(name: str, sentence: str) -> None:
    check(sentence, CASES[name])


class TestSharding(ShardingConformance):
    def make_all(self) -> dict[str, torch.Tensor]:
        return {name: make() for name, make in CASES.items()}


# -- the suite itself ---------------------------------------------------------------------------


def test_one_check_runs_without_pytest() -> None:
    check("copies_are_equal", CASES["int8-row"])
    assert "a_linear_layer_is_that_of_the_dequantized_weight" in checks()
    with pytest.raises(OptionError, match="no check 'flies'; the checks are .*copies_are_equal"):
        check("flies", CASES["int8-row"])


def test_a_suite_without_make_says_what_to_define() -> None:
    with pytest.raises(NotImplementedError, match=r"TestNothing has to define make\(\)"):
        type("TestNothing", (Conformance,), {})().test_copies_are_equal()


# attribute of the class → what breaks it, and the check that must notice
BROKEN = {
    "dequantize": (
        lambda self, dtype=None: self.qdata.to(dtype or self.dtype) + 1,
        "room_for_zeros_stands_for_zeros",
    ),
    "linear": (
        lambda self, x, bias=None: x @ self.dequantize().T,
        "a_linear_layer_is_that_of_the_dequantized_weight",
    ),
    "part_rule": (lambda self, name: None, "slicing_and_dequantizing_commute"),
    "share_memory_": (torch.Tensor.share_memory_, "sharing_memory_shares_every_part"),
    "__repr__": (object.__repr__, "a_tensor_shows_in_one_line_without_its_data"),
    "__tensor_flatten__": (
        lambda self: (["qdata"], (self.dtype, [1])),
        "a_flattened_tensor_is_put_together_again",
    ),
    "_borrowed": (
        property(lambda self: frozenset(), lambda self, names: None),
        "writing_into_a_slice_writes_into_the_tensor_or_is_refused",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_class_that_breaks_a_law_fails_the_check_of_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, noticed = BROKEN[name]
    check(noticed, CASES["int8-tensor"])
    monkeypatch.setattr(Int8Tensor, name, broken, raising=False)
    with pytest.raises((AssertionError, TypeError)):
        check(noticed, CASES["int8-tensor"])


def test_a_class_that_gathers_wrongly_fails_the_check_of_it() -> None:
    weight = annotated()
    parts = {name: getattr(weight, name) for name in ("qdata", "scale", "zero_point")}
    wrong = Forgetful(**parts, block_size=(1, 4), dtype=torch.float32)
    reports = run_ranks({"forgetful": wrong})
    assert list(reports) == ["fsdp"]
    assert "forgetful" in reports["fsdp"]
    assert "the first forward" in reports["fsdp"]


# -- what no class of the suite shows -----------------------------------------------------------


def test_tensors_that_differ_are_not_copied_or_joined() -> None:
    rows = Int8Tensor.from_float(torch.randn(N, K))
    groups = Int8Tensor.from_float(torch.randn(N, K), granularity=(1, 4))
    with refused(UnsupportedOperationError, because="block_size=(1, 4)"):
        rows.copy_(groups)
    with refused(UnsupportedOperationError, because="several kinds"):
        torch.cat([rows, Float8Tensor.from_float(torch.randn(N, K))])
    with refused(UnsupportedOperationError, because="differ in more"):
        torch.cat([rows, groups])
    with refused(UnsupportedOperationError, because="differ in more"):
        torch.cat([rows, rows[:, :8]])


def test_a_shared_scale_is_kept_by_one_of_a_stack_and_by_what_is_joined() -> None:
    stack = Int8Tensor.from_float(torch.randn(3, N, K), granularity="tensor")
    assert stack.block_size == (3, N, K)
    assert torch.equal(stack[2].dequantize(), stack.dequantize()[2])
    weight = Int8Tensor.from_float(torch.randn(N, K), granularity="tensor")
    again = torch.cat(weight.chunk(2))
    assert (again.block_size, again.scale.shape) == ((N, K), (1, 1))
    apart = torch.cat([half.clone() for half in weight.chunk(2)])
    assert (apart.block_size, apart.scale.shape) == ((N // 2, K), (2, 1))
    assert torch.equal(apart.dequantize(), again.dequantize())


def test_one_of_a_stack_is_taken_out_of_a_block_of_several() -> None:
    halves = [Int8Tensor.from_float(torch.randn(2, N, K), granularity="tensor") for _ in range(2)]
    stack = torch.cat(halves)
    assert (stack.block_size, stack.scale.shape) == ((2, N, K), (2, 1, 1))
    for index, one in enumerate(stack):
        assert one.block_size == (N, K)
        assert torch.equal(one.dequantize(), stack.dequantize()[index])
    with refused(because="shares 'scale' with the rest"):
        stack[0].copy_(stack[3])
    with refused(because="the nearest cuts are 2 and 4"):
        stack[:3]


def test_a_pre_scale_follows_the_columns() -> None:
    weight = static_int8()
    assert torch.equal(weight[:, 4:12].act_pre_scale, weight.act_pre_scale[4:12])
    assert weight[2:4].act_pre_scale.shape == (K,)


def test_a_subclass_that_is_not_registered_shows_without_an_error() -> None:
    class Plain(VersionedTensor):
        """Not registered."""

    tensor = torch.Tensor._make_wrapper_subclass(Plain, (2, 2))
    assert "not registered" in repr(tensor)
