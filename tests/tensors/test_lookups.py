"""Look-ups in quantized tables: the rows of the dequantized table, bit for bit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.tensors import same_bytes

import aoserial

TABLES = {
    "float8 row": aoserial.Float8Tensor.from_float,
    "float8 tensor": lambda w: aoserial.Float8Tensor.from_float(w, granularity="tensor"),
    "float8 blocks": lambda w: aoserial.Float8Tensor.from_float(w, granularity=(8, 32)),
    "int8 row": aoserial.Int8Tensor.from_float,
    "int4": lambda w: aoserial.Int4Tensor.from_float(w, group_size=32, zero_domain="float"),
    "intx": lambda w: aoserial.IntxTensor.from_float(w, bit_width=3, group_size=32),
    "mx fp8": lambda w: aoserial.MXTensor.from_float(w, element=torch.float8_e4m3fn),
    "nvfp4": aoserial.NVFP4Tensor.from_float,
    "nf4": lambda w: aoserial.NF4Tensor.from_float(w, block_size=32, scaler_block_size=16),
}
INDICES = {
    "several": torch.tensor([[3, 0, 3], [39, 17, 1]]),
    "one": torch.tensor(7),
    "none": torch.zeros(2, 0, dtype=torch.int64),
    "int32": torch.tensor([5, 4], dtype=torch.int32),
    "more than there are": torch.arange(80) % 40,
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_rows_are_those_of_the_dequantized_table(name: str, inference: bool) -> None:
    torch.manual_seed(0)
    table = TABLES[name](torch.randn(40, 64, dtype=torch.bfloat16))
    for indices in INDICES.values():
        expected = F.embedding(indices, table.dequantize())
        with torch.inference_mode(inference):
            found = F.embedding(indices, table)
        assert found.dtype == expected.dtype
        assert same_bytes(found, expected)


@pytest.mark.parametrize("name", ["int8 row", "float8 tensor", "int4", "nvfp4"])
def test_a_look_up_dequantizes_what_is_looked_up_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TABLES[name](torch.randn(40, 64, dtype=torch.bfloat16))
    whole, seen = type(table).dequantize, []

    def dequantize(self: torch.Tensor, *args: object) -> torch.Tensor:
        seen.append(tuple(self.shape))
        return whole(self, *args)

    monkeypatch.setattr(type(table), "dequantize", dequantize)
    F.embedding(torch.tensor([[1, 2], [3, 1]]), table)
    assert seen == [(4, 64)]


def test_indices_beyond_the_table_are_refused() -> None:
    table = TABLES["int8 row"](torch.randn(40, 64))
    for index in (40, -1):
        with pytest.raises(IndexError, match="index out of range"):
            F.embedding(torch.tensor([index]), table)


def test_a_module_keeps_its_padding_row_and_is_compiled() -> None:
    plain = torch.nn.Embedding(40, 64, padding_idx=0)
    table = TABLES["int8 row"](plain.weight.detach())
    expected = F.embedding(INDICES["several"], table.dequantize())
    plain.weight = torch.nn.Parameter(table, requires_grad=False)
    assert same_bytes(plain(INDICES["several"]), expected)
    compiled = torch.compile(plain, fullgraph=True, backend="eager")
    assert same_bytes(compiled(INDICES["several"]), expected)
