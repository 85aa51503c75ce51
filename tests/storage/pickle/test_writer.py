"""Archives of torch.save, written without torch.save: what we and torch read of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.cases import FIXTURES, case_id
from support.trees import assert_same

from aoserial.storage.pickle import PickleFile, write_archive

MORE = os.environ.get("AOSERIAL_FIXTURES")
CASES = sorted(
    path.parent
    for root in (FIXTURES, *([Path(MORE)] if MORE else []))
    for path in root.glob("torchao-*/*/model.pt")
)


@pytest.mark.skipif(not CASES, reason="no model.pt in fixtures/ or where AOSERIAL_FIXTURES says")
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_file_of_torchao_is_the_same_when_it_is_written_again(case, tmp_path):
    with PickleFile.open(case / "model.pt") as file:
        write_archive(tmp_path / "x.pt", file.tree, durability="rename")
        with PickleFile.open(tmp_path / "x.pt") as again:
            assert_same(file.tree, again.tree)
            assert not again.notes
            assert again.verify() == []
