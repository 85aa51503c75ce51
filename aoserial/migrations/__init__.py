"""Bringing records from one version to the next."""

from aoserial.migrations.chain import Outcome, Upgrader, bind, is_header_only
from aoserial.migrations.step import STEPS, Question, Step, Steps, migration, spell

__all__ = [
    "STEPS",
    "Outcome",
    "Question",
    "Step",
    "Steps",
    "Upgrader",
    "bind",
    "is_header_only",
    "migration",
    "spell",
]
