"""torchao's UintxTensor by itself: codes in shards of 4, 2 and 1 bits, from pickles."""

from __future__ import annotations

import pytest
import torch
from support.raw import raw, upgraded
from support.tensors import same_bytes

import aoserial
from aoserial.errors import FieldError
from aoserial.tensors import from_record

OF_0_5 = "torchao.dtypes.uintx.Uintx.UintxTensor"
SHAPE = (8, 16)


def packed(codes: torch.Tensor, bits: int, dim: int) -> dict[str, torch.Tensor]:
    """The shards of codes: the widest has their lowest bits, pieces along `dim` share bytes."""
    shards = {}
    for width in (4, 2, 1):
        if bits & width:
            pieces = (codes & (1 << width) - 1).chunk(8 // width, dim)
            shards[f"int{width}_shard"] = sum(
                piece << place * width for place, piece in enumerate(pieces)
            ).to(torch.uint8)
            codes = codes >> width
    return shards


@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("bits", range(1, 8))
def test_codes_of_every_width_come_out_one_a_byte(bits, dim):
    codes = torch.randint(0, 2**bits, SHAPE, dtype=torch.uint8)
    held = packed(codes, bits, dim)
    given = raw(OF_0_5, SHAPE, "uint8", bit_width=bits, pack_dim=dim, packed_shape=SHAPE, **held)
    made = from_record(upgraded(given).record)
    assert isinstance(made, aoserial.UIntTensor)
    assert made.bit_width == bits
    assert same_bytes(made.dequantize(), codes)


def test_another_shape_than_that_of_the_codes_is_refused():
    held = packed(torch.zeros(SHAPE, dtype=torch.uint8), 4, -1)
    given = raw(OF_0_5, SHAPE, "uint8", bit_width=4, pack_dim=-1, packed_shape=(4, 32), **held)
    with pytest.raises(FieldError, match="packed_shape: is not the shape"):
        upgraded(given)


def test_a_shard_that_the_width_has_no_use_for_is_refused():
    held = packed(torch.zeros(SHAPE, dtype=torch.uint8), 5, -1)
    given = raw(OF_0_5, SHAPE, "uint8", bit_width=4, pack_dim=-1, packed_shape=SHAPE, **held)
    with pytest.raises(FieldError, match="cannot be of the shards"):
        upgraded(given)
