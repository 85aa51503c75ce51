"""The hooks and the GitHub action call commands and options that there are."""

import re
from pathlib import Path

import pytest

from aoserial.cli.app import run

ROOT = Path(__file__).parents[2]
TEXTS = {name: (ROOT / name).read_text() for name in (".pre-commit-hooks.yaml", "action.yml")}
COMMANDS = sorted(
    set(
        re.findall(
            r"^ +(?:entry: )?aoserial ((?:schema )?[a-z]+)", "\n".join(TEXTS.values()), re.MULTILINE
        )
    )
)


def test_there_is_a_hook_for_schemas_and_one_for_checkpoints():
    assert COMMANDS == ["schema check", "verify"]
    assert re.findall("^- id: (.*)", TEXTS[".pre-commit-hooks.yaml"], re.MULTILINE) == [
        "schema-check",
        "verify",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_their_commands_are_there(command, capsys):
    assert run([*command.split(), "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_the_action_gives_options_that_the_check_takes(capsys):
    run(["schema", "check", "--help"])
    known = capsys.readouterr().out
    step = TEXTS["action.yml"].partition("Check schemas")[2].partition("- name")[0]
    options = set(re.findall(r"--[a-z]+", step))
    assert options >= {"--format", "--mode", "--module", "--against", "--goldens"}
    assert all(option in known for option in options)
