"""Products in tiles: what the processor has of them, held against products without."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.kernel_weights import int8_activation, weight_of, with_activation, with_part
from support.products import FP4, MAKERS as OTHERS, check, int4_maker, native_products
from support.programs import run_program

from aoserial import Float8Tensor, Int8Tensor
from aoserial.kernels import DeviceInfo, Weight
from aoserial.kernels.cpu import Cpu
from aoserial.kernels.cpu.native import library, products, threads
from aoserial.kernels.cpu.native.kernel import operands
from aoserial.kernels.cpu.native.library import Tiles
from aoserial.kernels.cpu.native.quantizing import RowCodes

CPU = DeviceInfo.of(torch.device("cpu"))
HERE = (
    [] if library.LIBRARY is None else [each for each in Tiles if 0 < each <= library.LIBRARY.tiles]
)
ROWS = (16, 33)  # a side, and two with a row of a third
# groups that are no steps, no stretches, and longer than one
GROUPED: dict[str, Callable[[torch.Tensor], Weight]] = {
    "int4 float 128": int4_maker("float", 128),
    "int8 groups of 8": lambda w: Int8Tensor.from_float(w, granularity=(1, 8)).kernel_weight(),
    "int8 groups of 16": lambda w: Int8Tensor.from_float(w, granularity=(1, 16)).kernel_weight(),
    "float8 groups of 96": lambda w: Float8Tensor.from_float(
        w, granularity=(1, 96)
    ).kernel_weight(),
    "float8 blocks of 3 rows": lambda w: Float8Tensor.from_float(
        w, granularity=(3, 32)
    ).kernel_weight(),
}
MAKERS = {**OTHERS, **GROUPED}
TAKEN = [name for name in MAKERS if name != "float8 e5m2fnuz"]

pytestmark = pytest.mark.skipif(
    not HERE, reason="this processor multiplies NO tiles, or products.c is not compiled"
)


@pytest.fixture(params=HERE, ids=lambda tiles: tiles.name)
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tiles:
    """Each that is here."""
    monkeypatch.setattr(library.LIBRARY, "tiles", request.param)
    return request.param


def without(monkeypatch: pytest.MonkeyPatch, weight: Weight, x: torch.Tensor) -> torch.Tensor:
    """The compiled code's product by no tiles."""
    with monkeypatch.context() as now:
        now.setattr(library.LIBRARY, "tiles", Tiles.NONE)
        return native_products(weight).of_numbers(library.LIBRARY, x)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("name", TAKEN)
def test_weights_of_every_kind_are_within_the_bound(name: str) -> None:
    outputs = 48 if name == "float8 block" else 51
    weight = MAKERS[name](torch.randn(outputs, 384, dtype=torch.bfloat16))
    packed = Cpu().pack(weight, CPU)
    assert packed.layout.startswith("native"), packed.layout
    for rows in ROWS:
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            x, bias = torch.randn(rows, 384, dtype=dtype), torch.randn(outputs, dtype=dtype)
            check(Cpu().linear(x, packed), x, weight, None)
            check(Cpu().linear(x, packed, bias), x, weight, bias)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("name", ["float8 row", "float8 groups of 96", "int4 int 64", "nvfp4"])
@pytest.mark.parametrize("columns", [576, 1152])
def test_rows_longer_than_a_stretch(name: str, columns: int) -> None:
    weight = MAKERS[name](torch.randn(130, columns, dtype=torch.bfloat16))
    packed = Cpu().pack(weight, CPU)
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.randn(40, columns, dtype=dtype)
        check(Cpu().linear(x, packed), x, weight, None)


@pytest.mark.parametrize("name", ["float8 row", "int4 offset 64"])
def test_more_rows_than_at_once(name: str, tiles: Tiles) -> None:
    weight = MAKERS[name](torch.randn(18, 64, dtype=torch.bfloat16))
    x = torch.randn(256 + 17, 64, dtype=torch.bfloat16)
    if tiles == Tiles.AMX:
        check(Cpu().linear(x, Cpu().pack(weight, CPU)), x, weight, None)
    check(native_products(weight).of_numbers(library.LIBRARY, x), x, weight, None)


@pytest.mark.usefixtures("tiles")
def test_threads_share_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_SMALL", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    asks = int8_activation("row")
    weights = [MAKERS[name](torch.randn(333, 64)) for name in ("float8 row", "int4 int 32")]
    weights.append(with_activation(weight_of("int8 row", (333, 64)), asks))
    for weight in weights:
        for rows in (16, 70):
            x = torch.randn(rows, 64)
            check(Cpu().linear(x, Cpu().pack(weight, CPU)), x, weight, None)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("name", TAKEN)
def test_every_element_by_itself_is_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = MAKERS[name](torch.randn(48, 384, dtype=torch.bfloat16))
    x = torch.eye(384)
    found = torch.cat(
        [native_products(weight).of_numbers(library.LIBRARY, some) for some in x.split(32)]
    )
    assert torch.equal(
        found, torch.cat([without(monkeypatch, weight, some) for some in x.split(32)])
    )


@pytest.mark.usefixtures("tiles")
def test_a_number_of_float32_loses_no_bit() -> None:
    """A weight of ones and zeros, one column each, gives back what it is multiplied by."""
    weight = OTHERS["float8 row"](torch.eye(64))
    weight = with_part(weight, "scale", torch.ones_like(weight.parts["scale"]))
    ones = torch.eye(64).to(torch.float8_e4m3fn)
    weight = with_part(weight, "qdata", ones)
    x = torch.randn(33, 64) * 2.0 ** torch.randint(-90, 120, (33, 64))
    x[0, 0], x[1, 1] = torch.finfo(torch.float32).max, -torch.finfo(torch.float32).max
    assert torch.equal(native_products(weight).of_numbers(library.LIBRARY, x), x)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize(
    "name", ["float8 row", "int8 group", "int4 none 32", "int4 float 64", "nvfp4"]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_infinities_and_nan_stay_in_their_rows(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = MAKERS[name](torch.randn(20, 64, dtype=torch.bfloat16))
    x = torch.randn(18, 64, dtype=dtype)
    x[1, 3], x[4, 60], x[17, 0] = torch.inf, -torch.inf, torch.nan
    x[6, :2] = torch.tensor([torch.inf, -torch.inf])
    x[7, 5] = torch.tensor([0x7F800001], dtype=torch.int32).view(torch.float32)  # NaN's lowest bit
    found = native_products(weight).of_numbers(library.LIBRARY, x)
    expected = without(monkeypatch, weight, x)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isinf(), expected.isinf())
    assert torch.equal(found.sign().nan_to_num(), expected.sign().nan_to_num())
    finite = x.isfinite().all(dim=1)
    check(found[finite], x[finite], weight, None)


@pytest.mark.usefixtures("tiles")
def test_scales_of_any_number_of_rows() -> None:
    w = torch.randn(48, 64, dtype=torch.bfloat16)
    for rows in (1, 2, 3, 16, 24, 48):
        weight = Float8Tensor.from_float(w, granularity=(rows, 32)).kernel_weight()
        x = torch.randn(20, 64, dtype=torch.bfloat16)
        check(native_products(weight).of_numbers(library.LIBRARY, x), x, weight, None)


@pytest.mark.parametrize("name", ["float8 row", "int8 row", "nvfp4", f"mx {FP4}", "int4 int 32"])
def test_where_memory_ends_nothing_is_read_beyond(name: str) -> None:
    """Codes that end where a page does, before one that nobody may read."""
    done = run_program(GUARDED.replace("NAME", name))
    assert done.stdout == "done\n", (done.returncode, done.stderr)


GUARDED = """
import ctypes, mmap
import torch
from aoserial.kernels import DeviceInfo, Weight
from aoserial.kernels.cpu import Cpu
from support.kernel_weights import int8_activation, with_activation
from support.products import MAKERS, check
libc = ctypes.CDLL(None, use_errno=True)
held = []
def at_the_end(part):
    size = part.numel() * part.element_size()
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, whole + mmap.PAGESIZE)
    held.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert not libc.mprotect(ctypes.c_void_p(address + whole), mmap.PAGESIZE, 0)
    raw = torch.frombuffer(memory, dtype=torch.uint8, count=whole)[whole - size:]
    raw.copy_(part.contiguous().view(-1).view(torch.uint8))
    return raw.view(part.dtype).view(part.shape)
weight = MAKERS["NAME"](torch.randn(21, 64, dtype=torch.bfloat16))
weights = [weight]
if "NAME" == "int8 row":
    weights.append(with_activation(weight, int8_activation("token", mapping="asymmetric")))
for weight in weights:
    weight = Weight(spec=weight.spec, parts={k: at_the_end(v) for k, v in weight.parts.items()})
    packed = Cpu().pack(weight, DeviceInfo.of(torch.device("cpu")))
    for dtype in (torch.bfloat16, torch.float32):
        for rows in (1, 3, 16, 35):
            x = at_the_end(torch.randn(rows, 64, dtype=dtype))
            check(Cpu().linear(x, packed), x, weight, None)
print("done", flush=True)
import os
os._exit(0)
"""


@pytest.mark.skipif(Tiles.AMX not in HERE, reason="this processor has NO AMX")
@pytest.mark.parametrize("columns", [64, 576, 1 << 16])
@pytest.mark.parametrize("rows", [1, 17, 35, 256 + 3])
def test_tiles_of_codes_are_exact_in_int32(rows: int, columns: int) -> None:
    if columns == 1 << 16 and rows > 17:
        rows = 18
    x = torch.randint(-128, 128, (rows, columns), dtype=torch.int8)
    codes = torch.randint(-128, 128, (45, columns), dtype=torch.int8)
    x[0], codes[0], codes[1] = -128, -128, 127
    zero_point = torch.randint(-128, 128, (rows,), dtype=torch.int8)
    zero_point[0] = 127
    sums = codes.sum(dim=1, dtype=torch.int32).float()
    weight = products.Numbers(codes, torch.ones(45, 1), sums, None, "int8", 8, 1.0)
    for zero in (None, zero_point):
        found = products.Products(weight).of_codes(
            library.LIBRARY, RowCodes(x, torch.ones(rows), zero), torch.float32
        )
        exact = x.double() if zero is None else x.double() - zero[:, None].double()
        assert torch.equal(found, (exact @ codes.double().t()).float())


@pytest.mark.skipif(Tiles.AMX not in HERE, reason="this processor has NO AMX")
def test_int8_weights_with_other_columns_are_multiplied_elsewhere() -> None:
    for columns, is_tiled in ((64, True), (96, False), (128, True)):
        weight = with_activation(weight_of("int8 row", (5, columns)), int8_activation("row"))
        packed = Cpu().pack(weight, CPU)
        assert packed.layout.startswith("tiled int8 products") == is_tiled
        x = torch.randn(40, columns)
        check(Cpu().linear(x, packed), x, weight, None)


@pytest.mark.usefixtures("tiles")
def test_an_unaligned_weight_is_multiplied_where_it_lies() -> None:
    weight = MAKERS["int4 none 32"](torch.randn(20, 64, dtype=torch.bfloat16))
    codes = weight.parts["qdata"]
    room = torch.zeros(codes.numel() + 3, dtype=torch.uint8)
    moved = room[3:].view(codes.shape).copy_(codes)
    held = with_part(weight, "qdata", moved)
    assert operands(held) is not None
    x = torch.randn(17, 64, dtype=torch.bfloat16)
    found = native_products(held).of_numbers(library.LIBRARY, x)
    assert torch.equal(found, native_products(weight).of_numbers(library.LIBRARY, x))


@pytest.mark.usefixtures("tiles")
def test_rows_do_not_depend_on_how_many_there_are() -> None:
    weight = MAKERS["float8 row"](torch.randn(40, 1088, dtype=torch.bfloat16))
    x = torch.randn(300, 1088, dtype=torch.bfloat16)
    whole = native_products(weight).of_numbers(library.LIBRARY, x)
    for rows in (10, 16, 31, 257):
        some = native_products(weight).of_numbers(library.LIBRARY, x[:rows].contiguous())
        assert torch.equal(some, whole[:rows])
