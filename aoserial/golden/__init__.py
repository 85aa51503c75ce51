"""Golden files of a project: checkpoints written by its old releases, and what they stand for.

Torch-free; recording and checking, which need torch, are in modules of their own.
"""

from aoserial.golden.cases import GoldenCase, golden_case, load_cases
from aoserial.golden.coverage import uncovered
from aoserial.golden.findings import Finding
from aoserial.golden.settings import Settings, find_settings
from aoserial.golden.store import Golden, Store

__all__ = [
    "Finding",
    "Golden",
    "GoldenCase",
    "Settings",
    "Store",
    "find_settings",
    "golden_case",
    "load_cases",
    "uncovered",
]
