"""The page on what is read of torchao: every case has its row, and what is wrong shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import all_cases
from support.outcomes import Outcome
from torchao_files.report import Row, family_of, page

THEIRS = {"True": "not loaded", "False": "differs"}


def test_every_case_has_a_family():
    assert all(family_of(case.name) for case in all_cases())


def test_a_case_without_a_family_is_an_error():
    with pytest.raises(LookupError, match="no family has a case called something_else"):
        family_of("something_else")


def row(case: str, found: Outcome, release: str = "0.7.0") -> Row:
    return Row(Path(f"torchao-{release}/{case}/model.pt"), found, THEIRS)


def test_the_page_counts_by_release_and_family_and_names_what_is_wrong():
    rows = [
        row("int8wo", Outcome(equal=1)),
        row("int4wo_cpu", Outcome(equal=1, needs={"int4_cpu_isa": "avx512"})),
        row("mx_fp4", Outcome(differs=["w"]), "0.10.0"),
        row("nf4_bf16", Outcome(failed="of its bytes"), "0.10.0"),
        row("int8da_int8w_semisparse", Outcome(inert=["packed by a vendor"]), "0.10.0"),
        row("uintx_tensor_uint3", Outcome(unknown=["torchao.Gone"]), "0.10.0"),
    ]
    text = page(rows, "0.18.0")
    assert "| 0.7.0 | 2 | 2 | 1 | 0 | 0 | 0 | 0 of 2 | 0 of 2 | - |" in text
    assert "| 0.10.0 | 4 | 0 | 0 | 2 | 1 | 1 | 0 of 4 | 0 of 4 | - |" in text
    assert text.index("| 0.7.0 |") < text.index("| 0.10.0 |")
    assert "There is 1 such file." in text
    assert "| packed by a vendor | 1 | `int8da_int8w_semisparse` | 0.10.0 |" in text
    assert "| `int4_cpu_isa` | `avx512` | 1 | `int4wo_cpu` |" in text
    assert "* `torchao.Gone`" in text
    assert "torchao 0.18.0" in text
    assert "0.18" not in page(rows, "").partition("## By release")[2]
