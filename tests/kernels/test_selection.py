"""Which backend takes what, on devices that need not be here: one table."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from support import selection
from support.kernel_weights import FORMATS, weight_of

from aoserial.errors import OptionError
from aoserial.kernels import BACKENDS, DEVICES, DeviceInfo, explain

ROOT = Path(__file__).parents[2]
COMPILATION = runpy.run_path(str(ROOT / "tests/gpu/compiled.py"))
LETTERS = {"triton": "T", "torch_cuda": "C", "cpu": "p", "reference": "r"}

#   sm80 sm89 sm90 sm100 sm120, gfx942 gfx950, xpu, cpu with AVX2 and with AVX-512
TABLE = {
    "float8 tensor": "TTTTT TT r pp",
    "float8 row": "TTTTT TT r pp",
    "float8 128x128": "TTTTT TT r pp",
    "float8 tensor, dynamic": "TCCCC TC r pp",  # gfx942 multiplies the fnuz forms alone
    "float8 row, dynamic": "TCCCC TC r pp",
    "float8 128x128, dynamic": "TTCTT TT r pp",
    "float8 e5m2 row": "TTTTT TT r pp",
    "int8 row": "TTTTT TT r pp",
    "int8 row, dynamic": "CCCCC CC r pp",
    "int4 g128": "CCCCC TT r pp",
    "int4 g128, float zero point": "CCCCC TT r pp",
    "int4 g128, int zero point": "CCCCC TT r pp",
    "int4 g32, offset zero point": "CCCCC TT r pp",
    "int8 g32": "TTTTT TT r pp",
    "intx 4 bits": "TTTTT TT r pp",
    "mx fp8": "rrrrr rr r pp",
    "nvfp4": "rrrrr rr r pp",
}


def test_each_format_goes_to_the_backend_of_the_table_on_each_device() -> None:
    found = {
        name: "".join(LETTERS[selection.chosen(name, device)] for device in DEVICES)
        for name in FORMATS
    }
    assert found == {name: cells.replace(" ", "") for name, cells in TABLE.items()}


def test_without_triton_its_weights_go_to_the_reference() -> None:
    for name, cells in TABLE.items():
        for device, letter in zip(DEVICES, cells.replace(" ", ""), strict=True):
            bare = DeviceInfo.named(device, packages=frozenset())
            answers = BACKENDS.refusals(selection.spec_of(name), bare)
            first = next(backend.name for backend, refusal in answers if refusal is None)
            assert LETTERS[first] == letter.replace("T", "r"), (name, device)


def test_a_weight_says_what_it_would_run_on_elsewhere() -> None:
    weight = weight_of("float8 row, dynamic")
    lines = explain(weight, device=DeviceInfo.named("sm80")).splitlines()
    assert lines[:2] == [
        "torch_cuda: torch multiplies float8 from sm89 on, and on gfx942 and gfx950",
        "triton: takes it",
    ]


def test_a_device_nobody_knows_is_named_with_those_that_are() -> None:
    with pytest.raises(OptionError, match="no device 'sm91'; there are sm80, sm89"):
        DeviceInfo.named("sm91")


def test_what_counts_as_compiled_is_compiled_by_the_script() -> None:
    assert tuple(COMPILATION["TARGETS"]) == selection.COMPILED
    by_triton = {name for name, cells in TABLE.items() if "T" in cells}
    assert by_triton <= set(COMPILATION["COMPILED"])


@pytest.mark.parametrize(
    ("page", "table"),
    [("README.md", selection.support()), ("docs/kernels.md", selection.backends())],
)
def test_the_tables_of_the_documentation_are_true(page: str, table: str) -> None:
    assert table in (ROOT / page).read_text(), "python -m support.selection prints them"


def test_each_cell_of_the_support_table_is_one_of_three_words() -> None:
    cells = [
        cell for line in selection.support().splitlines()[2:] for cell in line.split("|")[2:-1]
    ]
    assert {cell.strip() for cell in cells} == {"run", "compiled", "not tested"}
