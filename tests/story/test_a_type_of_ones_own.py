"""The life of acme.Int4Tensor over its releases, each a real process with its own class.

Once as annotated fields, once as a class written for torchao's base class with nothing but the base
changed; in safetensors files, and in torch.save archives, which are read by aoserial and by plain
torch.load. Every release writes its files, then every release reads all of them. A file is named
for the release that wrote it; `+` means that it uses what that release had anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOLERANCE = 1e-6  # two formulas of the same numbers in float32, near 1
RELEASES = {
    "annotated": ("v1", "v1_extended", "v1_renamed", "v2"),
    "listed": ("v1", "v1_extended", "v2"),
}


@dataclass
class Story:
    """What the files stand for, and what each release made of each."""

    values: dict[str, list]
    told: dict[str, dict[str, dict]]


def program(style: str, release: str, *arguments: str | Path) -> dict:
    """Runs one release of the program and returns what it printed."""
    path = os.pathsep.join([str(HERE / style / release), str(HERE.parent.parent)])
    result = subprocess.run(
        [sys.executable, HERE / "program.py", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


WAYS = ("safetensors", "pt", "torch")
TELLINGS = [f"{style} {way}" for style in sorted(RELEASES) for way in WAYS]


@pytest.fixture(scope="module")
def lives(tmp_path_factory) -> Callable[[str], tuple[dict, dict]]:
    """Of a style: what its files stand for, and what each release makes of them in every way."""

    @cache
    def live(style: str) -> tuple[dict, dict]:
        folder = tmp_path_factory.mktemp(style)
        values = {}
        for release in RELEASES[style]:
            values |= program(style, release, "write", folder)
        return values, {name: program(style, name, "read", folder) for name in RELEASES[style]}

    return live


@pytest.fixture(scope="module", params=TELLINGS)
def story(request, lives) -> Story:
    style, way = request.param.split()
    values, told = lives(style)
    return Story(values, {release: ways[way] for release, ways in told.items()})


# a torchao-style class has no place to declare an older name of a field
annotated_only = pytest.mark.parametrize(
    "story", [f"annotated {way}" for way in WAYS], indirect=True
)


def test_an_old_file_loads_with_the_declared_defaults_after_optional_fields_were_added(story):
    told = story.told["v1_extended"]["v1"]
    assert told["values"] == story.values["v1"]
    assert told["gain"] == 1.0  # what absence means; annotated, new objects get another default
    assert not told["has_zero_point"]


def test_a_new_file_that_uses_nothing_new_stays_readable_by_the_old_class(story):
    assert story.told["v1"]["v1_extended"]["values"] == story.values["v1_extended"]


def test_a_new_file_that_uses_something_new_is_refused_by_the_old_class_clearly(story):
    told = story.told["v1"]["v1_extended+"]
    assert told["kind"] == "Faults"  # an optional tensor and an optional attribute
    for field in ("zero_point", "gain"):
        assert (
            f"acme.Int4Tensor@1 has no {'tensor' if field == 'zero_point' else 'attribute'} "
            in (told["error"])
        )
        assert f"'{field}'; a newer writer may have added it" in told["error"]


def test_every_release_reads_its_own_files(story):
    for release, told in story.told.items():
        for written in (release, f"{release}+"):
            if written in story.values:
                assert told[written]["values"] == story.values[written]


@annotated_only
def test_a_renamed_field_is_read_under_its_older_name(story):
    for written in ("v1", "v1_extended", "v1_extended+"):
        assert story.told["v1_renamed"][written]["values"] == story.values[written]


@annotated_only
def test_a_file_with_the_new_name_is_refused_by_the_class_before_the_rename(story):
    assert "has no tensor 'scales'" in story.told["v1_extended"]["v1_renamed"]["error"]


def test_after_a_change_of_meaning_with_a_migration_every_old_file_means_what_it_meant(story):
    for written, expected in story.values.items():
        told = story.told["v2"][written]
        for row, expected_row in zip(told["values"], expected, strict=True):
            assert row == pytest.approx(expected_row, abs=TOLERANCE)


def test_a_file_of_the_next_version_is_refused_by_the_old_class_with_both_numbers(story):
    told = story.told["v1"]["v2"]
    assert told["kind"] == "VersionError"
    assert (
        "acme.Int4Tensor@2 is newer than this reader, which knows up to version 1" in told["error"]
    )
