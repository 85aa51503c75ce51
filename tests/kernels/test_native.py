"""The compiled code of the cpu backend: every code, every shape it takes, and when it is absent."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from runpy import run_path

import pytest
import torch
from support.kernel_weights import int8_activation, weight_of, with_activation, with_part
from support.products import MAKERS, check, one_hot_products
from support.programs import ROOT, run_program

from aoserial.errors import UnsupportedOperationError
from aoserial.kernels import DeviceInfo, Weight, linear
from aoserial.kernels.arithmetic import decode, element_of, pack_nibbles
from aoserial.kernels.cpu import Cpu
from aoserial.kernels.cpu.native import kernel, library, products, threads
from aoserial.kernels.cpu.native.quantizing import RowCodes

pytestmark = pytest.mark.usefixtures("without_tiles")

CPU = DeviceInfo.of(torch.device("cpu"))
there = pytest.mark.skipif(
    library.LIBRARY is None, reason="products.c is NOT compiled: it is NOT checked"
)
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz")


def coded(name: str, codes: torch.Tensor, **spec: object) -> Weight:
    """A weight of these codes with scales of 0.75, a row a scale."""
    weight = MAKERS[name](torch.randn(16, 64, dtype=torch.bfloat16))
    block = (1, codes.shape[1] * (2 if codes.dtype == torch.uint8 and "int4" in name else 1))
    found = replace(weight.spec, shape=(len(codes), block[1]), block_size=block, **spec)
    scale = torch.full((len(codes), 1), 0.75)
    return Weight(
        spec=replace(found, parts=("qdata", "scale")), parts={"qdata": codes, "scale": scale}
    )


@there
@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("subnormals_are_zeros", [False, True])
@pytest.mark.parametrize("size", [8, 16, 32, 256])  # the last two are decoded by way of float16
def test_every_finite_code_of_float8_is_exact(
    dtype: str, subnormals_are_zeros: bool, size: int
) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(getattr(torch, dtype))
    values = codes.to(torch.float32)
    codes = torch.where(values.isfinite(), codes.view(torch.uint8), 0).view(codes.dtype)
    weight = coded(
        "float8 row",
        torch.stack([codes, codes.view(torch.uint8).flip(0).view(codes.dtype)]),
        data_dtype=dtype,
    )
    scale = torch.full((2, 256 // size), 0.75)
    weight = with_part(weight, "scale", scale)
    weight = replace(weight, spec=replace(weight.spec, block_size=(1, size)))
    torch.set_flush_denormal(subnormals_are_zeros)
    try:
        found = one_hot_products(weight)
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(found, weight.parts["qdata"].to(torch.float32) * 0.75)


@there
def test_every_code_of_integers_is_exact() -> None:
    int8 = torch.arange(-128, 128).to(torch.int8)
    found = one_hot_products(coded("int8 row", torch.stack([int8, int8.flip(0)])))
    assert torch.equal(found, torch.stack([int8, int8.flip(0)]) * 0.75)
    int4 = torch.arange(16).repeat(4)
    codes = torch.stack([int4, int4.flip(0)])
    found = one_hot_products(coded("int4 none 32", pack_nibbles(codes.to(torch.uint8))))
    assert torch.equal(found, (codes - 8) * 0.75)


@there
@pytest.mark.parametrize("element", ["float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn_x2"])
def test_every_code_of_small_elements_is_exact(element: str) -> None:
    two_a_byte = element.endswith("x2")
    weight = MAKERS[f"mx {torch.float4_e2m1fn_x2 if two_a_byte else element}"](torch.randn(1, 64))
    codes = torch.arange(16 if two_a_byte else 64, dtype=torch.uint8).repeat(4 if two_a_byte else 1)
    row = pack_nibbles(codes[None]) if two_a_byte else codes[None]
    halves = torch.full((1, 2), 126, dtype=torch.uint8)  # 2**(126 - 127)
    parts = {"qdata": row, "scale": halves}
    parts = {name: part.view(weight.parts[name].dtype) for name, part in parts.items()}
    found = one_hot_products(Weight(spec=weight.spec, parts=parts))
    assert torch.equal(found[0], decode(codes, element_of(element)) / 2)


@there
@pytest.mark.parametrize("domain", ["none", "int", "float", "offset"])
@pytest.mark.parametrize("size", [16, 32, 64, 128, 192])
def test_groups_that_share_a_vector_and_vectors_that_share_a_group(domain: str, size: int) -> None:
    torch.manual_seed(size)
    weight = MAKERS[f"int4 {domain} 32"](torch.randn(37, 384, dtype=torch.bfloat16))
    groups = 384 // size
    parts = {"qdata": weight.parts["qdata"], "scale": torch.rand(37, groups) + 0.5}
    if domain == "int":
        parts["zero_point"] = torch.randint(0, 16, (37, groups), dtype=torch.int8)
    elif domain != "none":
        parts["zero_point"] = torch.randn(37, groups)
    spec = replace(weight.spec, block_size=(1, size))
    weight = Weight(spec=spec, parts={name: parts[name] for name in spec.parts})
    packed = Cpu().pack(weight, CPU)
    assert packed.layout.startswith("native")
    for rows in (1, 2, 15, 17, 32):
        x = torch.randn(rows, 384)
        check(Cpu().linear(x, packed), x, weight, None)


@there
def test_it_takes_codes_where_they_are() -> None:
    for name in ("float8 row", "int8 row", "int4 none 32", "nvfp4"):
        weight = MAKERS[name](torch.randn(48, 64, dtype=torch.bfloat16))
        added = kernel.operands(weight)
        assert added is not None
        assert added.keys() == {"native_scale"}


@there
def test_codes_that_are_not_contiguous() -> None:
    weight = MAKERS["float8 row"](torch.randn(48, 64, dtype=torch.bfloat16))
    parts = {**weight.parts, "qdata": weight.parts["qdata"].t().contiguous().t()}
    weight, x = Weight(spec=weight.spec, parts=parts), torch.randn(3, 64)
    packed = Cpu().pack(weight, CPU)
    assert packed.layout.startswith("native")
    check(Cpu().linear(x, packed), x, weight, None)


@there
def test_parts_of_other_shapes_go_elsewhere() -> None:
    weight = MAKERS["int4 float 32"](torch.randn(48, 64, dtype=torch.bfloat16))
    assert kernel.operands(weight) is not None
    for name, part in weight.parts.items():
        assert kernel.operands(with_part(weight, name, part[:1])) is None
        assert kernel.operands(with_part(weight, name, part[:, :1])) is None


@there
def test_threads_share_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_SMALL", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    weights = [MAKERS[name](torch.randn(333, 64)) for name in ("float8 row", "int4 int 32")]
    weights.append(with_activation(weight_of("int8 row", (333, 64)), int8_activation("row")))
    for weight in weights:
        for rows in (3, 19):
            x = torch.randn(rows, 64)
            check(Cpu().linear(x, Cpu().pack(weight, CPU)), x, weight, None)


UNSEEN = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from aoserial.kernels import linear
from support.kernel_weights import int8_activation, weight_of, with_activation
from support.products import check
weight = weight_of("float8 row", (48, 64))
for held in (weight, with_activation(weight_of("int8 row", (48, 64)), int8_activation("row"))):
    x = torch.randn(2, 64)
    y = linear(x, held)  # packed here
    layer = lambda x: linear(x, held)
    with torch.device("meta"):
        by_meta = layer(x)
    assert not layer(torch._efficientzerotensor(x.shape)).any()
    check(y, x, held, None)
    check(by_meta, x, held, None)
    check(layer(torch._neg_view(-x)), x, held, None)
    check(torch.func.functionalize(layer)(x), x, held, None)
    check(make_fx(layer)(torch.ones(2, 64))(x), x, held, None)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert layer(x).shape == y.shape
print("done")
"""


@there
def test_what_is_not_plain_memory_is_left_to_operators() -> None:
    """In a process of its own, which reading what is not there would kill."""
    done = run_program(UNSEEN)
    assert done.stdout == "done\n", (done.returncode, done.stderr)


FORK = """
import os, torch
import torch.nn.functional as F
from aoserial import Float8Tensor
torch.set_num_threads(2)
weight, x = Float8Tensor.from_float(torch.randn(1024, 512)), torch.randn(1, 512)
expected = F.linear(x, weight)
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(F.linear(x, weight), expected) else 1)
print(os.waitpid(child, 0)[1])
"""


@there
def test_a_fork_does_not_wait_for_the_threads_of_its_parent() -> None:
    done = run_program(FORK)
    assert done.stdout == "0\n", done.stderr


@there
def test_products_of_codes_are_exact_in_int32() -> None:
    x = torch.randint(-128, 128, (3, 1 << 16), dtype=torch.int8)
    zero_point = torch.tensor([-128, 127, 5], dtype=torch.int8)
    codes = torch.full((2, 1 << 16), -128, dtype=torch.int8)
    x[0], x[1] = 127, -128
    weight = products.Numbers(codes, torch.ones(2, 1), None, None, "int8", 8, 1.0)
    rows = RowCodes(x, torch.ones(3), zero_point)
    found = products.Products(weight).of_codes(library.LIBRARY, rows, torch.float32)
    exact = (x.double() - zero_point[:, None].double()) @ codes.double().t()
    assert torch.equal(found.double(), exact.float().double())


@there
def test_a_stored_zero_point_beyond_codes_goes_elsewhere() -> None:
    asks = int8_activation("tensor", static=True, mapping="asymmetric")
    weight = with_activation(weight_of("int8 row", (48, 64)), asks)
    weight = with_part(weight, "act_scale", torch.tensor(0.05))
    weight = with_part(weight, "act_zero_point", torch.tensor(70_000, dtype=torch.int32))
    assert not Cpu().pack(weight, CPU).layout.startswith("native")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is NO C compiler")
def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ("-O0", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-fPIC", "-shared")
    command = [*compiler, *flags, "-o", str(tmp_path / "products.so"), str(library.SOURCE)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_it_torchs_operators_do() -> None:
    program = (
        "import torch\n"
        "from aoserial import Float8Tensor\n"
        "from aoserial.kernels.cpu.native import library\n"
        "weight = Float8Tensor.from_float(torch.randn(48, 64))\n"
        "torch.nn.functional.linear(torch.randn(1, 64), weight)\n"
        "print(library.LIBRARY, weight._remembered.prepared.packed.layout)\n"
    )
    done = run_program(program, **{library.SWITCH: "0"})
    assert done.stdout == "None stream, bytes\n", done.stderr


def test_the_library_of_another_source_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = library.path().name
    source = tmp_path / library.SOURCE.name
    source.write_text(library.SOURCE.read_text() + "\n")
    monkeypatch.setattr(library, "SOURCE", source)
    assert library.path().name != before
    assert library.load() is None


def test_a_library_that_cannot_be_loaded_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / library.SOURCE.name
    monkeypatch.setattr(library, "SOURCE", source)
    monkeypatch.setenv(library.SWITCH, "1")
    assert library.load() is None  # as in a package without its source
    source.write_text(library.SOURCE.name)
    library.path().write_bytes(b"no library")
    with pytest.warns(UserWarning, match="small batches on CPUs run more slowly"):
        assert library.load() is None


def test_compilers_at_once_write_files_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    compiled = run_path(str(ROOT / "hatch_build.py"))["_compiled"]
    compiler = tmp_path / "cc"  # it notes where it was to write to, and writes there
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho "$2" | tee "$2"\n')
    compiler.chmod(0o755)
    made, written = tmp_path / "products-1.so", []
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CC", str(compiler))
            assert compiled(tmp_path / "products.c", made)
        written.append(made.read_text())
    assert written[0] != written[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cc", "products-1.so"]


@there
@pytest.mark.parametrize("name", ["float8 row", "int4 none 32", "int8 row"])
def test_what_does_not_fit_the_weight_is_not_read_beyond_its_end(name: str) -> None:
    """Of a backend alone: `F.linear` says it before."""
    weight = MAKERS[name](torch.randn(48, 128, dtype=torch.bfloat16))
    held = [weight]
    if name == "int8 row":
        held.append(with_activation(weight, int8_activation("row")))
    for each in held:
        run = Cpu().bind(Cpu().pack(each, CPU))
        with pytest.raises(RuntimeError):
            run(torch.randn(1, 64), None)
        with pytest.raises(RuntimeError):
            run(torch.randn(1, 128), torch.randn(47))
        with pytest.raises(RuntimeError):
            run(torch.randn(1, 128), torch.randn(48, device="meta"))


class Marked(torch.Tensor):
    """A class of one's own, which torch's functions keep."""


@there
def test_a_bias_of_a_class_of_its_own_makes_the_result_one() -> None:
    run = Cpu().bind(Cpu().pack(MAKERS["float8 row"](torch.randn(48, 128)), CPU))
    x, bias = torch.randn(1, 128), torch.randn(48)
    found = run(x, bias.as_subclass(Marked))
    assert isinstance(found, Marked)
    torch.testing.assert_close(found.as_subclass(torch.Tensor), run(x, bias))


@there
@pytest.mark.parametrize("name", ["float8 row", "int4 none 32"])
def test_a_bound_kernel_notices_that_its_weight_has_moved(name: str) -> None:
    packed = Cpu().pack(MAKERS[name](torch.randn(48, 128)), CPU)
    run, x = Cpu().bind(packed), torch.randn(1, 128)
    expected = run(x, None)
    for part in packed.parts.values():
        address = part.data_ptr()
        part.share_memory_()
        assert part.data_ptr() != address
    torch.zeros(1 << 16)  # what may take the place of the memory before
    assert torch.equal(run(x, None), expected)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("rows", [1, 3, 64])
def test_torch_func_maps_over_activations_and_leaves_nothing_behind(rows: int) -> None:
    weight = MAKERS["float8 row"](torch.randn(48, 128))
    x = torch.randn(rows, 128)
    for found in (
        linear(x, weight),
        torch.func.functionalize(lambda u: linear(u, weight))(x),
        torch.func.vmap(lambda u: linear(u, weight))(x),
        linear(x, weight),
    ):
        check(found, x, weight, None)


def test_torch_func_does_not_go_through_a_weight() -> None:
    weight = MAKERS["float8 row"](torch.randn(48, 128))

    def of_scale(scale: torch.Tensor) -> torch.Tensor:
        return linear(torch.ones(1, 128), with_part(weight, "scale", scale)).sum()

    with pytest.raises(UnsupportedOperationError, match="only through the activation"):
        torch.func.grad(of_scale)(weight.parts["scale"])
