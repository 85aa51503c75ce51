"""What migrations and dequantizing make some rows at a time is what they make at once."""

from __future__ import annotations

import pytest
import torch
from support.cases import all_files, file_id
from support.outcomes import answers

from aoserial.checkpoint.archives import open_archive
from aoserial.checkpoint.contents import prepare, upgrader_for
from aoserial.checkpoint.dequantizing import dequantized
from aoserial.checkpoint.rewriting import contents_of
from aoserial.storage import ComputedPart


@pytest.mark.parametrize("path", list(all_files()), ids=file_id)
def test_pieces_of_all_parts_are_the_parts(path):
    with open_archive(path) as file:
        prepared = prepare(file.catalog, upgrader_for(answers(path.parent)))
        contents = contents_of(file, prepared)
        plain = dequantized(contents, prepared, []).plain
        records = {name: stored.record for name, stored in contents.records.items()}
        parts = {
            **{f"{name}: {key}": p for name, r in records.items() for key, p in r.parts.items()},
            **plain,
        }
        for name, part in parts.items():
            if isinstance(part, ComputedPart) and part.slabs is not None:
                for rows in (1, 3):
                    size = rows * part.nbytes // max(1, part.shape[0])
                    joined = torch.cat(list(part.pieces(size)))
                    assert torch.equal(joined, part.read_bytes()), (name, rows)
