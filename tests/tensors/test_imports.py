"""What a program that loads weights and runs layers need not wait for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SLOW = ("torch._dynamo", "torch.distributed.tensor", "pytest")

LOAD_AND_RUN = """
import sys, torch, torch.nn.functional as F
from torch import nn
from aoserial.tensors import Int8Tensor

weight = Int8Tensor.from_float(torch.randn(8, 16))
model = nn.Linear(16, 8)
model.weight = nn.Parameter(weight, requires_grad=False)
with torch.device("meta"):
    other = nn.Linear(16, 8)
other.load_state_dict(model.state_dict(), assign=True)
x = torch.randn(2, 16)
assert torch.equal(other(x), F.linear(x, weight, model.bias))
other(x).sum().backward()
"""


def imported_by(program: str) -> list[str]:
    """Which slow modules a program imports, in a process of its own."""
    report = f"print([name for name in {SLOW!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{report}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return eval(done.stdout)


def test_loading_weights_and_running_layers_imports_no_compiler_and_no_dtensor() -> None:
    assert imported_by(LOAD_AND_RUN) == []


def test_the_suite_imports_no_pytest() -> None:
    assert "pytest" not in imported_by("import sys, aoserial.testing")
