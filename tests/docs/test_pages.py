"""Every block on every page is run, or held against what exists; none is skipped without a mark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), ROOT / "examples/acme/README.md"]


def check(page: Path) -> tuple[int, str]:
    result = subprocess.run(
        [sys.executable, "-B", "-W", "error", Path(__file__).with_name("check_page.py"), page],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_hold(page):
    status, told = check(page)
    assert status == 0, told


def test_blocks_that_do_not_hold_are_told_with_their_lines(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nassert False\n```\n"
        "```console\n$ aoserial inspect --such-option x\n```\n"
        "```console\n$ aoserial nothing\n```\n"
        "```console\n$ rm -r /\n```\n"
        "```console\n$ python examples/nothing.py\n```\n"
        "<!-- fragment: half of it -->\n```python\n    x = 1\n```\n"
        "<!-- fragment: no Python -->\n```python\nx = = 1\n```\n"
        "```json\n{]\n```\n"
        "```console\n$ aoserial history torchao.NF4Tensor\nnot a line of it\n```\n"
    )
    status, told = check(page)
    assert status == 1
    assert "9 blocks, 8 failed" in told
    for line in (1, 4, 7, 10, 13, 21, 24, 27):
        assert f"block at line {line}:" in told


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("```ruby\n```\n", "line 1: no check knows 'ruby' blocks"),
        ("text\n```python\n", "line 2: the block is not closed"),
        ("<!-- not run: why -->\n```python\n```\n", "'not run' is no mark of a python block"),
    ],
)
def test_a_block_that_cannot_be_checked_is_an_error(text, match, tmp_path):
    (tmp_path / "page.md").write_text(text)
    status, told = check(tmp_path / "page.md")
    assert status == 1
    assert match in told
