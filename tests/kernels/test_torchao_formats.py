"""Real intx, int4, MX and NVFP4 tensors of torchao 0.3 to 0.18: read as their writer reads them.

From the plain tensors inside them, put into our parts by hand: that is no test of reading files.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.cases import safetensors_cases
from support.products import check
from support.tensors import same_bytes

from aoserial.kernels import linear
from aoserial.tensors import (
    Activation,
    ActivationKind,
    Granularity,
    GranularityKind,
    Int4Tensor,
    IntxTensor,
    Mapping,
    MXTensor,
    NVFP4Tensor,
    VersionedTensor,
    ZeroDomain,
)

# torchao's name → the dtype's; before 0.12 fp4 was a name too
ELEMENTS = {
    "'fp6_e2m3'": "float6_e2m3fn",
    "'fp6_e3m2'": "float6_e3m2fn",
    "'fp4_e2m1'": "float4_e2m1fn_x2",
}
ACTIVATION = Activation(
    kind=ActivationKind.dynamic,
    dtype=torch.int8,
    granularity=Granularity(kind=GranularityKind.token),
    mapping=Mapping.asymmetric,
)


@dataclass(frozen=True)
class Case:
    """One tensor of one file: what is in it, and what its writer made of it."""

    release: tuple[int, ...]
    folder: Path
    name: str
    cls: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    attributes: dict[str, str]

    def __str__(self) -> str:
        return f"{self.folder.parent.name}-{self.folder.name}"

    @property
    def expected(self) -> dict[str, Any]:
        return torch.load(self.folder / "expected.pt", weights_only=True)

    @property
    def inner(self) -> dict[str, torch.Tensor]:
        """The plain tensors by the name they have since 0.15."""
        renamed = {"data": "qdata", "scale_e8m0": "scale", "scale_e4m3": "scale"}
        prefix = f"{self.name}."
        held = {
            key.removeprefix(prefix).removeprefix("_"): tensor
            for key, tensor in self.expected["inner"].items()
            if key.startswith(prefix)
        }
        return {renamed.get(name, name): tensor for name, tensor in held.items()}


def cases() -> Iterator[Case]:
    for path in (case / "case.json" for case in safetensors_cases()):
        told = json.loads(path.read_text())
        for name, held in told["keys"].items():
            cls = held.get("class", "").rpartition(".")[2]
            if cls in BUILD and not told["structure_only"]:
                yield Case(
                    release=tuple(int(number) for number in told["torchao"].split(".")),
                    folder=path.parent,
                    name=name,
                    cls=cls,
                    shape=tuple(held["shape"]),
                    dtype=getattr(torch, held["dtype"].removeprefix("torch.")),
                    attributes={
                        key.removeprefix("_"): value["repr"]
                        for key, value in held["attributes"].items()
                    },
                )


def intx(case: Case) -> VersionedTensor:
    inner, told = case.inner, case.attributes
    return IntxTensor(
        inner["qdata"],
        inner["scale"],
        int(told["target_dtype"].removeprefix("torch.int")),
        ast.literal_eval(told["block_size"]),
        ZeroDomain.int,
        inner["zero_point"],
        activation=None if told.get("activation_quantization", "None") == "None" else ACTIVATION,
        dtype=case.dtype,
    )


def int4(case: Case) -> VersionedTensor:
    """torchao has signed codes, w = q s + z, and scales the other way round."""
    inner = case.inner
    return Int4Tensor(
        inner["qdata"].view(torch.uint8) ^ 0x88,
        inner["scale"].mT,
        tuple(ast.literal_eval(case.attributes["block_size"])),
        ZeroDomain.float,
        inner["zero_point"].mT,
        inner.get("act_pre_scale"),
        dtype=case.dtype,
    )


def mx(case: Case) -> VersionedTensor:
    inner, told = case.inner, case.attributes
    element = ELEMENTS.get(told["elem_dtype"], told["elem_dtype"].removeprefix("torch."))
    packed, block = element == "float4_e2m1fn_x2", int(told["block_size"])
    return MXTensor(
        even_low(case) if packed else inner["qdata"],
        scales(case, inner["scale"].view(torch.uint8), block),
        element,
        1 + packed,
        (*[1] * (len(case.shape) - 1), block),
        dtype=case.dtype,
    )


def nvfp4(case: Case) -> VersionedTensor:
    inner = case.inner
    return NVFP4Tensor(
        even_low(case),
        scales(case, inner["scale"], 16),
        (1, 16),
        inner.get("per_tensor_scale"),
        scale_product_dtype=torch.float32 if case.release >= (0, 18) else case.dtype,
        dtype=case.dtype,
    )


def even_low(case: Case) -> torch.Tensor:
    """fp4 codes with even k in the low nibble; before 0.15 it was in the high one."""
    qdata = case.inner["qdata"]
    return qdata if case.release >= (0, 15) else qdata >> 4 | qdata << 4


def scales(case: Case, scale: torch.Tensor, block: int) -> torch.Tensor:
    """[N, K / block]; out of tiles of 128 rows by 4 scales where torchao swizzled them.

    A tile holds the rows r, r + 32, r + 64 and r + 96 side by side, 16 bytes for each r below 32.
    """
    rows, columns = case.shape[0], case.shape[1] // block
    if case.attributes.get("is_swizzled_scales") != "True":
        return scale.reshape(rows, columns)
    across = -(-columns // 4)
    tiles = scale.reshape(-1, across, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-1, 4 * across)[:rows, :columns].contiguous()


BUILD = {
    "IntxUnpackedTensor": intx,
    "IntxUnpackedToInt8Tensor": intx,
    "Int4Tensor": int4,
    "MXTensor": mx,
    "NVFP4Tensor": nvfp4,
}
CASES = list(cases())
COMPUTED = [case for case in CASES if "output" in case.expected]


def test_there_are_cases_of_every_kind() -> None:
    assert len(CASES) >= 15
    assert {case.cls for case in CASES} >= {"Int4Tensor", "MXTensor", "NVFP4Tensor"}
    assert len(COMPUTED) >= 5


@pytest.mark.parametrize("case", CASES, ids=str)
def test_dequantized_bytes_are_the_writers(case: Case) -> None:
    weight = BUILD[case.cls](case)
    assert tuple(weight.shape) == case.shape
    assert same_bytes(weight.dequantize(), case.expected["dequantized"][case.name])


@pytest.mark.parametrize("case", COMPUTED, ids=str)
def test_outputs_are_the_writers(case: Case) -> None:
    expected, weight = case.expected, BUILD[case.cls](case)
    if "embedding" in case.folder.name:
        found = F.embedding(expected["input"], weight)
    else:
        bias = expected["inner"].get("0.bias")
        found = linear(expected["input"], weight.kernel_weight(), bias, backend="reference")
    assert same_bytes(found, expected["output"])


@pytest.mark.parametrize("case", [each for each in CASES if len(each.shape) == 2], ids=str)
def test_the_cpu_backend_multiplies_them_within_its_bound(case: Case) -> None:
    weight = BUILD[case.cls](case).kernel_weight()
    x = torch.randn(3, case.shape[-1], dtype=torch.bfloat16)
    check(linear(x, weight, backend="cpu"), x, weight, None)
