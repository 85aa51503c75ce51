"""The hooks and the GitHub action call commands and options that there are."""

import os
import re
import subprocess
import textwrap
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


# -- the action's own shell, with a stand-in that prints the words it is called with -------------


@pytest.fixture
def step(tmp_path):
    """Runs a step of the action in `tmp_path` as a runner would, its inputs as given."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin/aoserial"
    stand_in.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    stand_in.chmod(0o755)

    def run(name: str, **inputs: str) -> tuple[int, list[str]]:
        script = re.search(
            rf"- name: {name}\n.*?run: \|\n(.*?)(?:\n\n|\Z)", TEXTS["action.yml"], re.DOTALL
        )
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", textwrap.dedent(script[1])],
            cwd=tmp_path,
            env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path), **inputs},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.split("\n")[:-1]

    return run


def test_the_check_gets_the_inputs_that_were_given_and_no_others(step):
    nothing = {"MODULES": "", "AGAINST": "", "MODE": "read", "GOLDENS": ""}
    start = ["schema", "check", "--format", "github", "--mode", "read"]
    assert step("Check schemas", **nothing) == (0, start)
    told = {**nothing, "MODULES": "acme beta.x", "AGAINST": "a b", "GOLDENS": "$(touch taken)"}
    assert step("Check schemas", **told) == (
        0,
        [*start, "--module", "acme", "--module", "beta.x", "--against", "a b",
         "--goldens", "$(touch taken)"],
    )  # fmt: skip


def test_checkpoints_are_named_by_globs_and_one_without_a_match_fails(step, tmp_path):
    for name in ("a", "b/c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "model.safetensors").touch()
    found = ["verify", "--", "a/model.safetensors", "b/c/model.safetensors"]
    assert step("Verify checkpoints", VERIFY="**/*.safetensors") == (0, found)
    status, told = step("Verify checkpoints", VERIFY="a/*.safetensors none/*.pt")
    assert (status, told) == (1, [])


def test_a_commit_is_fetched_only_if_it_is_not_there(step, tmp_path):
    def git(*arguments: str, at: Path = tmp_path) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        words = ["git", "-C", str(at), *who, *arguments]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    origin = tmp_path / "origin"
    origin.mkdir()
    git("init", "-q", at=origin)
    git("config", "uploadpack.allowAnySHA1InWant", "true", at=origin)
    for message in ("base", "head"):
        git("commit", "-q", "--allow-empty", "-m", message, at=origin)
    base = git("rev-parse", "HEAD~1", at=origin)
    git("init", "-q")
    git("remote", "add", "origin", str(origin))
    assert step("Fetch the commit to compare with", AGAINST=base) == (0, [])
    assert git("cat-file", "-t", base) == "commit"
    git("remote", "remove", "origin")
    for present in (base, "origin"):  # a commit that is there; a folder
        assert step("Fetch the commit to compare with", AGAINST=present) == (0, [])
    for bad in ("0" * 40, "--upload-pack=touch taken"):
        assert step("Fetch the commit to compare with", AGAINST=bad)[0] != 0
    assert not (tmp_path / "taken").exists()
