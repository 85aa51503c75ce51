"""Checks of a tensor as it is saved, and as it is shown."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import aoserial
from aoserial.storage.dtypes import dtype_name
from aoserial.tensors import from_record, to_record
from aoserial.testing.base import Checks, pointers
from aoserial.testing.expectations import expect, expect_equal, expect_same, own


class Records(Checks):
    """Records, files, looks."""

    def test_a_record_gives_the_tensor_back_over_the_same_parts(self) -> None:
        tensor = own(self.tensor().clone())
        record = to_record(tensor)
        parts = {name: part.read().data_ptr() for name, part in record.parts.items()}
        expect(parts == pointers(tensor), "a record of the tensor's own parts, no copies")
        expect_same(from_record(record), tensor, "the tensor of the record")

    def test_a_file_gives_the_tensor_back(self) -> None:
        tensor = self.tensor()
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            aoserial.save({"model.weight": tensor}, path, durability="rename")
            loaded = aoserial.load(path)["model.weight"]
            expect_same(loaded, tensor.contiguous(), "the loaded tensor")
            del loaded

    def test_plain_tensors_give_it_back(self) -> None:
        """What other checkpoint formats can hold, such as torch's distributed checkpoint."""
        tensor = self.tensor()
        plain, metadata = aoserial.flatten({"weight": tensor, "other": torch.ones(2)})
        for name, part in plain.items():
            expect(type(part) is torch.Tensor, f"{name!r} is a plain tensor")
        state, leftover = aoserial.unflatten(plain, metadata)
        expect(not leftover, "nothing left over")
        expect_same(state["weight"], tensor, "what unflatten gives")
        expect_equal(state["other"], torch.ones(2), "the plain tensor beside it")

    def test_a_tensor_shows_in_one_line_without_its_data(self) -> None:
        tensor = self.tensor()
        text = repr(tensor)
        expect("\n" not in text, "one line")
        expect(str(tensor) == f"{tensor}" == text, "the same text however it is asked for")
        head = f"{type(tensor).__name__}({list(tensor.shape)}, {dtype_name(tensor.dtype)}, cpu, "
        expect(text.startswith(head), f"a text that starts with {head!r}")
        for name in tensor.part_names():
            expect(f"{name}: " in text, f"part {name!r} in the text")
        expect("tensor(" not in text, "no data")
