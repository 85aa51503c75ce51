"""The one place that composes the stages. Torch-free: what needs torch is imported from its module.

`inspect`, `plan` and `verify` work on headers alone; `open`, `load`, `save`, `migrate`, `flatten`,
`unflatten` and `load_into` are in modules of their own that import torch.
"""

from aoserial.checkpoint.planning import MigrationPlan, PlanRow, plan
from aoserial.checkpoint.report import AoserialWarning, LoadReport
from aoserial.checkpoint.summary import Summary, TypeSummary, inspect
from aoserial.checkpoint.verifying import Verdict, verify

__all__ = [
    "AoserialWarning",
    "LoadReport",
    "MigrationPlan",
    "PlanRow",
    "Summary",
    "TypeSummary",
    "Verdict",
    "inspect",
    "plan",
    "verify",
]
