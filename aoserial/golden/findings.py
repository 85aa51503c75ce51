"""What can be wrong with golden files: rules with names, and findings under them. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

# rule → what it holds
RULES = {
    "GOLDEN_MISSING": "what today's code writes, and each frozen schema, has a golden",
    "GOLDEN_NOT_UNSEEN": "what is listed as unseen is frozen, and no golden holds it",
    "GOLDEN_UNWRITABLE": "each case is made, saved and run by today's code",
    "GOLDEN_UNUSED": "each golden belongs to a declared case",
    "GOLDEN_EDITED": "each file of a golden has the bytes that MANIFEST.json lists",
    "GOLDEN_UNLISTED": "each file among the goldens is listed in MANIFEST.json",
    "GOLDEN_UNREADABLE": "each golden is read, by types and versions that are known here",
    "GOLDEN_FIELDS_DIFFER": "each golden is read with the types and fields it was written with",
    "GOLDEN_VALUES_DIFFER": "each golden dequantizes to its values, bit for bit",
    "GOLDEN_OUTPUTS_DIFFER": "each golden computes its outputs, bit for bit",
    "GOLDEN_SHAPE_CHANGED": "today's code writes of a version what was written of it before",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        rule: a key of `RULES`.
        where: the golden (`acme-1.0/int4_weight`), file, case, or type.
        message: what was found, what was expected, what to do.
    """

    rule: str
    where: str
    message: str

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"{self.rule} is no rule")

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.message}"
