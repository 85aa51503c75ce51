"""Computed parts made whole and by rows."""

from __future__ import annotations

import pytest
import torch

from aoserial.errors import MigrationError
from aoserial.storage import Slabs, TensorPart, compute
from aoserial.storage.pickle import write_archive
from aoserial.storage.safetensors import SafetensorsFile, write_safetensors

CODES = torch.arange(7 * 6, dtype=torch.uint8).reshape(7, 6)


class Counted:
    """A function that pairs rows up and notes how many it was given at a time."""

    def __init__(self):
        self.given = []

    def __call__(self, rows):
        self.given.append(len(rows))
        return torch.cat([rows, rows + 1], dim=1)


def pieces_of(part, size):
    return [bytes(piece.numpy()) for piece in part.pieces(size)]


@pytest.mark.parametrize("size", [1, 12, 25, 50, 10_000])
def test_pieces_are_the_bytes_of_the_whole_in_order(size):
    part = compute(Counted(), TensorPart(CODES), dtype="uint8", shape=(7, 12), by_rows=1)
    assert b"".join(pieces_of(part, size)) == bytes(part.read_bytes().numpy())
    assert b"".join(pieces_of(part.view("int32", (21,)), size)) == bytes(part.read_bytes().numpy())


def test_only_as_many_rows_are_made_at_a_time_as_a_piece_holds():
    function = Counted()
    part = compute(function, TensorPart(CODES), dtype="uint8", shape=(7, 12), by_rows=1)
    assert [len(piece) for piece in pieces_of(part, 25)] == [24, 24, 24, 12]
    assert function.given == [2, 2, 2, 1]


def test_a_row_may_make_several_and_the_last_fewer():
    """Rows in pairs, as tiles have them, of which the last is padding."""

    def untile(tiles):
        return tiles.reshape(-1, 3)[:5]

    tiles = torch.arange(18).reshape(3, 6)
    part = compute(untile, TensorPart(tiles), dtype="int64", shape=(5, 3), by_rows=2)
    pieces = pieces_of(part, 1)
    assert [len(piece) // 24 for piece in pieces] == [2, 2, 1]
    assert b"".join(pieces) == bytes(part.read_bytes().numpy())


def test_what_says_nothing_of_rows_is_one_piece():
    part = compute(Counted(), TensorPart(CODES), dtype="uint8", shape=(7, 12))
    assert len(pieces_of(part, 1)) == 1


def test_rows_that_are_not_as_declared_are_refused():
    slabs = Slabs(lambda start, stop, rows: rows[start : stop + 1])
    part = compute(lambda rows: rows, TensorPart(CODES), dtype="uint8", shape=(7, 6), by_rows=slabs)
    with pytest.raises(MigrationError, match=r"declared uint8\[1, 6\] but made uint8\[2, 6\]"):
        pieces_of(part, 6)


def test_a_part_written_by_rows_is_the_same_file(tmp_path):
    big = TensorPart(torch.randint(0, 256, (3000, 4096), dtype=torch.uint8))  # 24 MB are made
    functions = Counted(), Counted()
    whole = compute(functions[0], big, dtype="uint8", shape=(3000, 8192))
    by_rows = compute(functions[1], big, dtype="uint8", shape=(3000, 8192), by_rows=1)
    for number, part in enumerate((whole, by_rows)):
        write_safetensors(tmp_path / f"{number}.st", {"w": part}, metadata={})
        write_archive(tmp_path / f"{number}.pt", {"w": part})
    assert max(functions[1].given) < 1600 < max(functions[0].given)
    for suffix in ("st", "pt"):
        assert (tmp_path / f"0.{suffix}").read_bytes() == (tmp_path / f"1.{suffix}").read_bytes()
    assert torch.equal(SafetensorsFile.open(tmp_path / "1.st").tensor("w"), by_rows.read())


@pytest.mark.parametrize("slabs", [None, 1])
def test_a_part_that_is_not_as_declared_leaves_no_file_and_is_named(tmp_path, slabs):
    part = compute(lambda rows: rows, TensorPart(CODES), dtype="uint8", shape=(7, 5), by_rows=slabs)
    with pytest.raises(MigrationError, match="w: .*declared"):
        write_safetensors(tmp_path / "x", {"w": part}, metadata={})
    assert list(tmp_path.iterdir()) == []
