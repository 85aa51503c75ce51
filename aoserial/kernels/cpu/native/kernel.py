"""The kernel: which weights `products.c` takes, and what it is called with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from aoserial.kernels.cpu.bits import has_other_codes
from aoserial.kernels.cpu.decoder import Parts
from aoserial.kernels.cpu.floats import FP4, format_name, scale_of
from aoserial.kernels.cpu.integers import MEANINGS, MIDDLE
from aoserial.kernels.cpu.kernel import Attempt, Kernel, finished, in_rows
from aoserial.kernels.cpu.native import library
from aoserial.kernels.cpu.native.library import LANES, Library, Tiles
from aoserial.kernels.cpu.native.products import DTYPES, Numbers, Products
from aoserial.kernels.cpu.native.quantizing import RowCodes
from aoserial.kernels.cpu.scales import are_whole_blocks, exact
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.reference import activated, is_met_as_it_is
from aoserial.kernels.spec import Spec, Weight

_keys, _Key = torch._C.DispatchKeySet, torch._C.DispatchKey
_OTHER = ~(
    _keys(_Key.CPU)
    | _keys(_Key.BackendSelect)
    | _keys(_Key.ADInplaceOrView)
    | _keys(_Key.AutogradCPU)
    | _keys(_Key.AutocastCPU)
).raw_repr()
_BIASES = (*DTYPES, torch.float16, torch.float64)
_MOST_TAKEN = 23  # from a nibble less 8, whose magnitude is then no more than 31
_MANY = 32  # rows of an activation above which decoding once for all of them is faster


class Form(NamedTuple):
    """How codes are read.

    Attributes:
        decoder: the one of `FORMATS` that reads them.
        bits: of a code.
        unit: of the values that it gives.
        less: what these are less than the codes.
        factor: what scales are to be multiplied by.
        in_integers: of so many rows products in integers are faster.
    """

    decoder: str
    bits: int = 8
    unit: float = 1.0
    less: int = 0
    factor: float = 1.0
    in_integers: int = 0


_FORMS: Mapping[str, Form] = {
    "int4": Form("int4", 4, unit=2.0**-28, less=MIDDLE, in_integers=2),
    "int8": Form("int8", unit=2.0**-24),
    "intx": Form("int8", unit=2.0**-24),
    "float8_e5m2": Form("float8_e5m2"),
    "float8_e4m3fn": Form("float8_e4m3fn"),
    "float8_e4m3fnuz": Form("float8_e4m3fn", factor=0.5),  # its bits mean half as much
    "float6_e3m2fn": Form("float6_e3m2fn"),
    "float6_e2m3fn": Form("float6_e2m3fn"),
    FP4: Form(FP4, 4, in_integers=4),
}


class Native(Kernel):
    """Few rows of any dtype but float64, by the weight's own codes."""

    in_integers = False

    def pack(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        del device
        return operands(weight)

    def bind(self, weight: Weight) -> Attempt:
        products = products_of(weight, in_integers=self.in_integers)
        as_it_is, shape = is_met_as_it_is(weight), weight.spec.shape
        most = math.inf if _there().tiles == Tiles.AMX else _MANY

        def run(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
            if not takes(x, shape, bias, most):
                return None
            met = in_rows(x if as_it_is else activated(x, weight)[0])
            if met.dtype is not torch.bfloat16:
                met = met.to(torch.float32)
            y = products.of_numbers(_there(), met, addable(bias))
            return y if y.dtype is x.dtype and x.dim() == 2 else finished(y, x, None)

        return run


class NativeNibbles(Native):
    """The same of nibbles, which the fewest rows multiply in integers.

    That gives the same, but for how sums are rounded, and is faster.
    """

    in_integers = True

    def pack(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        found = super().pack(weight, device)
        return found if found is not None and _are_whole_nibbles(weight.spec, found) else None


def bind_codes(
    weight: Weight,
) -> Callable[[RowCodes, torch.Tensor, torch.Tensor | None], torch.Tensor]:
    """Products of codes of an activation with those of a weight, which has `row_scale`.

    In tiles, if it has `row_sums`. They are given the layer's activation, too, for its dtype and
    shape, and the bias.
    """
    parts = weight.parts
    codes, scale = parts.get("native_codes", parts["qdata"]), parts["row_scale"].view(-1, 1)
    products = Products(Numbers(codes, scale, parts.get("row_sums"), None, "int8", 8, 1.0))

    def run(rows: RowCodes, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        dtype = x.dtype if x.dtype == torch.bfloat16 else torch.float32
        return finished(products.of_codes(_there(), rows, dtype, addable(bias)), x, None)

    return run


def takes(
    x: torch.Tensor, shape: tuple[int, ...], bias: torch.Tensor | None, most: float = _MANY
) -> bool:
    """Whether these are memory, of dtypes that float32 holds, and as much as a weight [N, K] asks.

    The library trusts what it is told; torch's operators say what does not fit.

    Args:
        most: rows of `x` to take.
    """
    if x.dtype is torch.float64 or x.shape[-1] != shape[1] or x.numel() > most * shape[1]:
        return False
    return is_plain(x) and (bias is None or _is_addable(bias, shape[0]))


def _is_addable(bias: torch.Tensor, rows: int) -> bool:
    """Of a class of one's own torch would make the result one."""
    if bias.shape != (rows,) or type(bias) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return bias.dtype in _BIASES and is_plain(bias)


def addable(bias: torch.Tensor | None) -> torch.Tensor | None:
    """The bias as `products.c` adds it: in bfloat16 or float32, contiguous."""
    if bias is None or (bias.dtype in DTYPES and bias.is_contiguous()):
        return bias
    return bias.to(torch.float32).contiguous()


def is_plain(x: torch.Tensor) -> bool:
    """Whether all there is to `x` is its memory, and torch's operators do nothing but compute.

    Tracers, fake tensors and `torch.func` see operators alone, and so would miss the product; a
    tensor to be negated when it is read, or of zeros that nobody has stored, is not its memory.
    """
    if torch._C._dispatch_keys(x).raw_repr() & _OTHER:
        return False
    return not torch._C._dispatch_tls_local_include_set().raw_repr() & _OTHER


def operands(weight: Weight) -> dict[str, torch.Tensor] | None:
    """What `products_of` needs beside the weight's parts; None where it does not take the weight.

    `native_scale`, `native_taken` and `native_added` are float32, [N or less, K or less], a number
    a block; `native_codes` are the codes where those of the weight are not contiguous.
    """
    spec, codes = weight.spec, weight.parts["qdata"]
    form = _form(spec)
    if library.LIBRARY is None or form is None or not _fits(spec, form):
        return None
    if "group_index" in weight.parts:
        return None
    name = format_name(spec)
    if name not in ("", FP4) and has_other_codes(codes, name):
        return None
    numbers = _numbers(weight, form)
    if numbers is None or not _have_shapes(numbers, weight, form):
        return None
    return {**numbers, **contiguous(weight)}


def contiguous(weight: Weight) -> dict[str, torch.Tensor]:
    """Its codes, if they are not contiguous."""
    codes = weight.parts["qdata"]
    return {} if codes.is_contiguous() else {"native_codes": codes.contiguous()}


def products_of(weight: Weight, *, in_integers: bool = False) -> Products:
    """Products with a weight whose parts have those of `operands`.

    Activations are multiplied by the decoder's unit before, and products with float8 may be 2^-8 of
    themselves: what is below 2^-98 then may lose bits, as subnormal numbers do.
    """
    form, parts = _form(weight.spec), weight.parts
    assert form is not None, "packed by `operands`"
    return Products(
        Numbers(
            codes=parts.get("native_codes", parts["qdata"]),
            scale=parts["native_scale"],
            taken=parts.get("native_taken"),
            added=parts.get("native_added"),
            decoder=form.decoder,
            bits=form.bits,
            unit=form.unit,
            in_integers=form.in_integers if in_integers else 0,
        )
    )


def _there() -> Library:
    found = library.LIBRARY
    assert found is not None, "it was there when the weight was packed"
    return found


def _form(spec: Spec) -> Form | None:
    return _FORMS.get(format_name(spec) or spec.kind)


def _fits(spec: Spec, form: Form) -> bool:
    """Whether rows are whole vectors, and these have one group each, or two or four."""
    codes = 32 // form.bits  # of neighbouring columns, in a lane
    if not are_whole_blocks(spec) or 0 in spec.shape or spec.shape[1] % (codes * LANES):
        return False
    size = min(spec.block_size[1], spec.shape[1])
    return size % (codes * LANES) == 0 or size in (2 * codes, 4 * codes)


def _are_whole_nibbles(spec: Spec, numbers: Parts) -> bool:
    """Whether products of nibbles with integers are exact; see `Numbers.in_integers`."""
    form = _form(spec)
    if form is None or not form.in_integers:
        return False
    if not all(
        bool(number.isfinite().all())
        for number in numbers.values()
        if number.dtype == torch.float32
    ):
        return False
    taken = numbers.get("native_taken")
    if taken is None:
        return True
    taken = taken * form.unit
    return bool(((taken == taken.round()) & (taken.abs() <= _MOST_TAKEN)).all())


def _have_shapes(numbers: Parts, weight: Weight, form: Form) -> bool:
    """Whether parts are as large as the weight says; `products.c` would read beyond others."""
    (rows, columns), sizes = weight.spec.shape, weight.spec.block_size
    blocks = (-(-rows // sizes[0]), -(-columns // sizes[1]))
    codes = (rows, columns * form.bits // 8)
    return weight.parts["qdata"].shape == codes and all(
        number.shape == blocks for number in numbers.values()
    )


def _numbers(weight: Weight, form: Form) -> dict[str, torch.Tensor] | None:
    """Scales, and what is taken and added; None where float32 does not hold them."""
    spec, zero = weight.spec, weight.parts.get("zero_point")
    found = {"scale": exact(scale_of(weight), form.factor)}
    if not format_name(spec):
        meaning, adds = MEANINGS[spec.kind, spec.zero_domain]
        taken = torch.full_like(weight.parts["scale"], -form.less, dtype=torch.float64)
        if meaning == "middle":
            taken += MIDDLE
        elif meaning == "zero" and zero is not None:
            taken += zero
        if adds and zero is not None:
            found["added"] = exact(zero, 1 / form.unit)
        if "added" in found or bool(taken.any()):
            found["taken"] = exact(taken, 1 / form.unit)
    numbers = {f"native_{name}": value for name, value in found.items() if value is not None}
    return numbers if len(numbers) == len(found) else None
