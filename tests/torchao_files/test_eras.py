"""Which releases of torchao wrote a file: told by its fields, and true of every file at hand."""

from __future__ import annotations

import pytest
from support.cases import all_files, case_id

import aoserial
from aoserial.checkpoint.archives import open_archive
from aoserial.record import Era, shared
from aoserial.torchao.classes import CLASSES
from aoserial.torchao.eras import era_of_form, era_said


@pytest.mark.parametrize(
    "path", list(all_files()), ids=lambda path: f"{case_id(path.parent)}{path.suffix}"
)
def test_the_release_that_wrote_a_file_is_among_those_that_are_told(path):
    release = path.parent.parent.name.removeprefix("torchao-")
    with open_archive(path) as archive:
        eras = [group.era for group in archive.catalog.groups]
    assert all(era is None or release in era for era in eras)
    told = aoserial.inspect(path).era
    assert told is None if not any(eras) else release in told


@pytest.mark.parametrize(
    ("words", "releases"),
    [
        ("0.13", "0.13"),
        ("0.13 and 0.14", "0.13 to 0.14"),
        ("0.9 to 0.12", "0.9 to 0.12"),
        ("0.17 and later; absent here", "0.17 and later"),
        ("up to 0.8: what the tensor itself holds", "up to 0.8"),
        ("after 0.18", "0.19 and later"),
        ("torchao 0.4 to 0.9: the scale of each cast", "0.4 to 0.9"),
    ],
)
def test_what_tables_say_in_words_is_a_range(words, releases):
    assert era_said(words).releases == releases


@pytest.mark.parametrize("words", ["", "flat up to 0.11", "2048 at first", "0.9 was the first"])
def test_words_that_do_not_begin_with_releases_say_nothing(words):
    assert era_said(words) is None


def test_every_form_of_the_tables_names_its_releases():
    for row in CLASSES:
        for form in row.forms:
            assert form.releases == "all" or era_of_form(form, None).first


def era(first: str, last: str, *evidence: str) -> Era:
    return Era(program="torchao", first=first, last=last, evidence=evidence)


def test_ranges_are_met_and_what_narrows_nothing_is_no_evidence():
    both = era("0.7", "0.17", "has tensor_impl") & era("0.2", "", "is there")
    assert both == era("0.7", "0.17", "has tensor_impl")
    assert both & era("", "0.9", "lacks x") == era("0.7", "0.9", "has tensor_impl", "lacks x")


def test_ranges_that_contradict_each_other_tell_nothing():
    assert shared([era("0.7", "0.9"), era("0.10", "")]) is None
    assert shared([None, era("0.7", "0.9"), None]) == era("0.7", "0.9")
    assert shared([None]) is None


def test_releases_are_compared_by_number():
    assert "0.10.0" in era("0.9", "0.11")
    assert "0.2" not in era("0.11", "")
