"""The cpu backend, against exact products."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from support.products import MAKERS, check
from support.tensors import same_bytes

import aoserial
from aoserial.kernels import DeviceInfo, Packed, Reference, Weight
from aoserial.kernels.cpu import Cpu, stream

pytestmark = pytest.mark.usefixtures("either")

CPU = DeviceInfo.of(torch.device("cpu"))
N, K = 48, 64
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small products are done before a second thread has come, least of all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(name: str, n: int = N, k: int = K) -> Weight:
    torch.manual_seed(0)
    return MAKERS[name](torch.randn(n, k, dtype=torch.bfloat16))


def product(x: torch.Tensor, weight: Weight, bias: torch.Tensor | None = None) -> torch.Tensor:
    backend = Cpu()
    return backend.linear(x, backend.pack(weight, CPU), bias)


@pytest.mark.parametrize("name", MAKERS)
def test_products_are_within_the_bound(name: str) -> None:
    weight, bias = made(name), torch.randn(N)
    packed = Cpu().pack(weight, CPU)
    for rows in (0, 1, 3, 33, 256):
        for dtype in DTYPES:
            x = torch.randn(rows, K, dtype=dtype)
            check(Cpu().linear(x, packed), x, weight, None)
            check(Cpu().linear(x, packed, bias), x, weight, bias)


@pytest.mark.parametrize("name", MAKERS)
def test_odd_shapes_are_within_the_bound(name: str) -> None:
    for n, k in ((1, 2), (5, 38), (17, 96), (33, 160)):
        weight = made(name, n, k)
        for dtype in (torch.bfloat16, torch.float32):
            x = torch.randn(3, k, dtype=dtype)
            check(product(x, weight), x, weight, None)


@pytest.mark.parametrize("name", ["float8 row", "int8 row", "int4 int 32", "nvfp4"])
def test_activations_of_any_rank_and_strides(name: str) -> None:
    weight = made(name)
    many = torch.randn(2, K, 5, dtype=torch.bfloat16).transpose(1, 2)
    for x in (many, many[0, 0], many[:, 1:4], many[:0], many[0, :0]):
        check(product(x, weight), x, weight, None)


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_unpacked_has_the_bytes_of_what_was_packed(name: str) -> None:
    weight = made(name)
    found = Cpu().unpack(Cpu().pack(weight, CPU))
    assert found.spec == weight.spec
    assert list(found.parts) == list(weight.parts)
    assert all(same_bytes(found.parts[part], weight.parts[part]) for part in weight.parts)


@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("name", MAKERS)
def test_bfloat16_products_where_the_processor_has_them(
    name: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "multiplies_bfloat16", lambda: True)
    weight, x = made(name), torch.randn(rows, K, dtype=torch.bfloat16)
    check(product(x, weight), x, weight, None)


@pytest.mark.parametrize("name", ["float8 row", "int8 row", "int4 none 32", "intx 3 int", "nvfp4"])
def test_a_weight_without_columns_gives_the_bias(name: str) -> None:
    weight, bias = made(name, 16, 0), torch.randn(16)
    for shape in ((0,), (3, 0), (2, 33, 0)):
        for found in (product, Reference().linear):
            held = weight if found is product else Packed(spec=weight.spec, parts=weight.parts)
            y = found(torch.randn(shape), held, bias)
            assert torch.equal(y, bias.expand(*shape[:-1], 16))


@pytest.mark.parametrize("domain", ["int", "offset", "float"])
def test_codes_that_cancel_with_their_zero_points_leave_little(domain: str) -> None:
    scale = torch.rand(N, K // 32, dtype=torch.bfloat16) + 1
    zero = {"int": 15, "offset": -15, "float": -7}[domain] * (
        1 if domain == "int" else scale.float()
    )
    weight = aoserial.Int4Tensor(
        torch.full((N, K // 2), 0xFF, dtype=torch.uint8),
        scale,
        (1, 32),
        aoserial.ZeroDomain(domain),
        torch.as_tensor(zero, dtype=torch.float32).expand(N, K // 32).contiguous(),
        shape=(N, K),
        dtype=torch.bfloat16,
    ).kernel_weight()
    x = torch.rand(3, K, dtype=torch.bfloat16) + 1
    packed = Cpu().pack(weight, CPU)
    assert packed.layout.startswith(("int4pack", "native"))
    # what is rounded to bfloat16 twice over, and sums in float32, of terms that are 7 s x at most
    assert float(Cpu().linear(x, packed).abs().max()) <= 2**-16 * 7 * 2 * 2 * K
