"""The gate: schemas as the code declares them against those that are frozen. Torch-free."""

from aoserial.gate.checking import check
from aoserial.gate.code import Code, code_of, our_code
from aoserial.gate.drafting import Draft, draft
from aoserial.gate.finding import Finding, Report, Witness
from aoserial.gate.freezing import freeze
from aoserial.gate.goldens import Goldens
from aoserial.gate.rules import RULES, Mode, Rule

__all__ = [
    "RULES",
    "Code",
    "Draft",
    "Finding",
    "Goldens",
    "Mode",
    "Report",
    "Rule",
    "Witness",
    "check",
    "code_of",
    "draft",
    "freeze",
    "our_code",
]
