"""Tensors whose type nobody here knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aoserial.errors import InertError
from aoserial.record import Record
from aoserial.storage.part import SlotPart, TensorPart
from aoserial.tensors import InertTensor


def record(parts: int = 1, type_id: str = "acme.Unknown") -> Record:
    return Record(
        type=type_id,
        version=3,
        shape=(2, 4),
        dtype="bfloat16",
        attributes={"block_size": (1, 4), "text": "x" * 1000},
        parts={f"p{index}": SlotPart(f"p{index}", "int8", (2, 4)) for index in range(parts)},
    )


def test_it_shows_what_it_holds_in_one_bounded_line() -> None:
    text = repr(InertTensor(record()))
    assert text.startswith("<InertTensor acme.Unknown@3 bfloat16[2, 4] (block_size=(1, 4), text=")
    assert "p0: int8[2, 4]" in text
    assert len(repr(InertTensor(record(parts=5000)))) < 600
    assert "… 4994 more" in repr(InertTensor(record(parts=5000)))


def test_control_characters_of_a_file_are_escaped() -> None:
    text = repr(InertTensor(record(type_id="acme.\x1b[31mRed\n")))
    assert "\x1b" not in text
    assert "\n" not in text


def test_it_has_a_shape_and_a_dtype_and_is_no_tensor() -> None:
    inert = InertTensor(record(), fingerprint="abc")
    assert inert.shape == torch.Size([2, 4])
    assert inert.dtype == torch.bfloat16
    assert inert.fingerprint == "abc"
    assert not isinstance(inert, torch.Tensor)


@pytest.mark.parametrize(
    "compute",
    [
        lambda inert: inert.dequantize(),
        lambda inert: torch.nn.functional.linear(torch.ones(1, 4), inert),
        lambda inert: torch.ones(2, 4) + inert,
        lambda inert: inert @ torch.ones(4, 2),
        lambda inert: torch.add(torch.ones(2, 4), other=inert),
        lambda inert: torch.cat([torch.ones(2, 4), inert]),
    ],
)
def test_computing_with_it_says_why_not(compute: Callable[[InertTensor], object]) -> None:
    inert = InertTensor(record(), reason="its bytes are packed for one kernel")
    with pytest.raises(InertError):
        compute(inert)
    with pytest.raises(TypeError, match="acme.Unknown@3.* dequantized: its bytes are packed"):
        inert.dequantize()


def test_its_record_is_what_was_stored() -> None:
    stored = record().put(p0=TensorPart(torch.ones(2, 4, dtype=torch.int8)))
    assert InertTensor(stored).record is stored
