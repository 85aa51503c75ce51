"""Writes docs/torchao.md: what becomes of every file of a folder of golden cases.

    PYTHONPATH=tests python -m torchao_files.report FOLDER [PYTHON_WITH_TORCHAO]

With a Python that has torchao, what that makes of the same files stands beside it. Exit status 1
when anything is read otherwise than it was written, fails, or is of an unknown class.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.outcomes import Outcome, outcome
from torchao_files import by_torchao

PAGE = Path(__file__).parents[2] / "docs/torchao.md"

# families of cases by their names; the first that fits
FAMILIES = (
    ("vendors' sparse and preshuffled", r".*(semisparse|sparse_cutlass|sparse_2d|preshuffled).*"),
    ("int4, int3 with activations", r"int8da_int[34]w.*|int4da_.*|float8da_int4w|fbgemm_int4"),
    ("int8", r"int8(wo|da|static).*|old_int8.*"),
    ("int4, tinygemm's tiles", r"int4wo_(tinygemm|hqq|fmt_tile).*|old_int4wo|awq_.*"),
    ("int4, packed for a CPU", r"int4wo_(cpu|opaque|fmt_opaque).*"),
    ("int4, other", r"int4(_3d|_act|_plain|wo_plain|wo_fmt_plain|wo_marlin|wo_fmt_marlin).*"),
    ("intx and uintx", r"u?int\dwo.*|intx_.*|stretched_.*|uintx_.*"),
    ("float8", r"float8(wo|da_float8w|static|_3d).*|fbgemm_fp8"),
    ("MX", r"mx_.*"),
    ("NVFP4", r"nvfp4.*"),
    (
        "wrappers, several in a model",
        r"act_scale_wrapper|smoothquant|fake_extra_dim.*|mixed_model|gptq_.*",
    ),
    ("autoquant", r"autoquant_.*"),
    ("NF4", r"nf4_.*"),
    ("optimizer states", r"optim_.*"),
    ("training", r"(float8_(fsdp|training)|(mxfp8|int8(_mixed)?|bitnet)_training|moe_).*"),
    ("first few-bit tensors", r"uint[24]_.*|bitnet_.*"),
    ("prototypes", r"codebook_.*|gguf_.*|fpx_.*|block_sparse"),
    ("modules with plain tensors", r"module_.*"),
)

TEMPLATE = """\
# What aoserial reads of torchao

torchao writes no version into a tensor. What a file means depends on the release that wrote it:
classes moved and were renamed, enums were renumbered, nibbles changed their order, and files that
look the same have to be computed with in different ways. torchao reads what its own release wrote,
and some of what earlier ones did. aoserial reads all of it. `aoserial history` lists the types,
`aoserial history TYPE` tells the versions of one, who wrote each and what each step repairs, and
`aoserial inspect FILE` which releases can have written a file.

This page is written by `make torchao-report`; its figures are of the {files} files of {cases} cases
of {releases} releases, {first} to {last}. Each is a small model or tensor, written by the
unmodified release with the values that it had for it: a sample of what these releases write on a
CPU, with what a GPU packs done by plain torch where that was possible. Files are opened without
torchao, and each tensor's `dequantize()` is held against the writer's value, bit for bit.

* **equal**: every tensor of the file has the writer's bits.
* **needs `assume`**, of those that are equal: the file does not tell something, and the answer was
  given. Without it, what needs `int4_cpu_isa` is refused; where `scale_product_dtype` matters, the
  newest release's arithmetic is taken, and the load report says so.
* **inert**: a tensor lies in the order of one vendor's kernel, which no public arithmetic reads. It
  is shown, kept and saved again byte for byte, and computing with it raises. The reasons are below.
* **fails**: the file is not read, or not all of it.
* **differs**: read without an error, and not equal. There {differs} such file{s}.

{torchao_words}## By release

{by_release}

## By family

{by_family}

## What stays inert, and why

{inert}

## What a file does not tell

{needs}
{unknown}"""

TORCHAO = """\
In the last columns, torchao {version} reads the same files: pickles by `torch.load` with
`weights_only=True` and `False`, the others by its `unflatten_tensor_state_dict`; they say how many
it reads as equal. All of its modules were imported beforehand, so that everything it allows is
allowed, and a tensor that has no `dequantize` counts as equal when its parts are: it is the most it
can do. Of the rest it reads {silent} without an error and with other values.

"""


@dataclass
class Row:
    """A file, what became of it here, and what torchao makes of it."""

    path: Path
    found: Outcome
    theirs: dict[str, str]

    @property
    def release(self) -> str:
        return self.path.parent.parent.name.removeprefix("torchao-")

    @property
    def case(self) -> str:
        return self.path.parent.name

    @property
    def family(self) -> str:
        return family_of(self.case)


def family_of(case: str) -> str:
    """The family of a case.

    Raises:
        LookupError: it has none: add it to the table.
    """
    for title, pattern in FAMILIES:
        if re.fullmatch(pattern, case):
            return title
    raise LookupError(f"no family has a case called {case}")


def main(folder: Path, python: str = "") -> int:
    theirs = figures(folder, python) if python else {}
    files: dict[str, dict[str, str]] = theirs.get("files", {})
    rows = [
        Row(path, outcome(path), files.get(str(path.relative_to(folder)), {}))
        for path in sorted(folder.glob("torchao-*/*/model.*"))
    ]
    PAGE.write_text(page(rows, theirs.get("torchao", "")))
    bad = [row for row in rows if row.found.verdict not in ("equal", "inert")]
    for row in bad:
        print(f"{row.path}: {row.found}", file=sys.stderr)
    return 1 if bad else 0


def figures(folder: Path, python: str) -> dict[str, Any]:
    """What torchao makes of the files, in a process of the Python that has it."""
    with tempfile.TemporaryDirectory() as scratch:
        told = Path(scratch) / "figures.json"
        command = [python, "-W", "ignore", by_torchao.__file__, str(folder), str(told)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(told.read_text())


# -- the page -----------------------------------------------------------------------------------


def page(rows: list[Row], torchao: str) -> str:
    releases = sorted({row.release for row in rows}, key=_number)
    names = [title for title, _ in FAMILIES if any(row.family == title for row in rows)]
    differs = sum(row.found.verdict == "differs" for row in rows)
    return TEMPLATE.format(
        cases=len({(row.release, row.case) for row in rows}),
        files=len(rows),
        releases=len(releases),
        first=releases[0],
        last=releases[-1],
        differs="is 1" if differs == 1 else f"are {differs or 'no'}",
        s="" if differs == 1 else "s",
        torchao_words=_beside(rows, torchao) if torchao else "",
        by_release=_table("release", releases, rows, lambda row: row.release, torchao),
        by_family=_table("family", names, rows, lambda row: row.family, torchao),
        inert=_reasons(rows),
        needs=_needs(rows),
        unknown=_unknown(rows),
    )


def _beside(rows: list[Row], torchao: str) -> str:
    modes = (("pt", "True"), ("pt", "False"), ("safetensors", "True"))
    silent = [
        sum(row.theirs[mode] == "differs" for row in rows if row.path.suffix == f".{kind}")
        for kind, mode in modes
    ]
    words = "{} and {} pickles, and {} safetensors files".format(*silent)
    return TORCHAO.format(version=torchao, silent=words)


def _table(
    heading: str, names: list[str], rows: list[Row], key: Callable[[Row], str], torchao: str
) -> str:
    columns = [heading, "files", "equal", "needs `assume`", "inert", "fails", "differs"]
    if torchao:
        short = ".".join(torchao.split(".")[:2])
        columns += [f"{short}, `True`", f"{short}, `False`", f"{short}, safetensors"]
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1)]
    for name in (*names, ""):
        held = [row for row in rows if not name or key(row) == name]
        lines.append([name or "**all**", *_cells(held), *(_theirs(held) if torchao else [])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(rows: list[Row]) -> list[str]:
    verdicts = [row.found.verdict for row in rows]
    inert = verdicts.count("inert") + verdicts.count("unknown")
    needs = sum(bool(row.found.needs) for row in rows if row.found.verdict == "equal")
    numbers = (len(rows), verdicts.count("equal"), needs, inert)
    return [*map(str, numbers), str(verdicts.count("failed")), str(verdicts.count("differs"))]


def _theirs(rows: list[Row]) -> list[str]:
    cells = []
    for kind, mode in (("pt", "True"), ("pt", "False"), ("safetensors", "True")):
        verdicts = [row.theirs[mode] for row in rows if row.path.suffix == f".{kind}"]
        cells.append(f"{verdicts.count('equal')} of {len(verdicts)}" if verdicts else "-")
    return cells


def _reasons(rows: list[Row]) -> str:
    reasons = sorted({reason for row in rows for reason in row.found.inert})
    lines = ["| reason | files | cases | releases |", "|---|---:|---|---|"]
    for reason in reasons:
        held = [row for row in rows if reason in row.found.inert]
        cases = ", ".join(f"`{case}`" for case in sorted({row.case for row in held}))
        lines.append(f"| {reason} | {len(held)} | {cases} | {_span(held)} |")
    return "\n".join(lines)


def _needs(rows: list[Row]) -> str:
    lines = ["| question | answer | files | cases |", "|---|---|---:|---|"]
    for name, answer in sorted({pair for row in rows for pair in row.found.needs.items()}):
        held = [row for row in rows if row.found.needs.get(name) == answer]
        cases = ", ".join(f"`{case}`" for case in sorted({row.case for row in held}))
        lines.append(f"| `{name}` | `{answer}` | {len(held)} | {cases} |")
    return "\n".join(lines)


def _unknown(rows: list[Row]) -> str:
    classes = sorted({path for row in rows for path in row.found.unknown})
    if not classes:
        return ""
    listed = "\n".join(f"* `{path}`" for path in classes)
    return f"\n## Classes that are not known\n\nTheir tensors are inert.\n\n{listed}\n"


def _span(rows: list[Row]) -> str:
    releases = sorted({row.release for row in rows}, key=_number)
    return releases[0] if len(releases) == 1 else f"{releases[0]} to {releases[-1]}"


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:3]))
