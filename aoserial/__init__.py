"""Quantized PyTorch checkpoints that outlive the code that wrote them.

Importing this is cheap: torch is imported by the first name that needs it.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from aoserial._version import __version__
from aoserial.errors import AoserialError, Faults

if TYPE_CHECKING:
    from aoserial import kernels, testing, torchao
    from aoserial.checkpoint import (
        AoserialWarning,
        LoadReport,
        MigrationPlan,
        Summary,
        Verdict,
        inspect,
        plan,
        verify,
    )
    from aoserial.checkpoint.feeding import Loader
    from aoserial.checkpoint.flattening import flatten, unflatten
    from aoserial.checkpoint.loading import load
    from aoserial.checkpoint.migrating import migrate
    from aoserial.checkpoint.modules import load_into
    from aoserial.checkpoint.opening import Checkpoint, open  # noqa: A004
    from aoserial.checkpoint.saving import save
    from aoserial.migrations import migration
    from aoserial.record import Record
    from aoserial.schema import MISSING
    from aoserial.storage import Part, compute
    from aoserial.storage.progress import Progress, ShardProgress
    from aoserial.tensors import (
        Activation,
        BlockSparseTensor,
        CodebookTensor,
        Float8Tensor,
        Float8TrainingTensor,
        FloatxTensor,
        GGUFTensor,
        Granularity,
        InertTensor,
        Int4Tensor,
        Int8Tensor,
        IntxTensor,
        KernelHint,
        MatmulHint,
        MXTensor,
        NF4Tensor,
        NVFP4Tensor,
        OptimState4bit,
        OptimState8bit,
        OptimStateFp8,
        ScaleMode,
        ScaleOp,
        UIntTensor,
        UnquantizedTensor,
        VersionedTensor,
        ZeroDomain,
        field,
        register,
        register_class,
    )
    from aoserial.tensors.pickling import safe_globals

__all__ = [
    "AoserialError",
    "Faults",
    "AoserialWarning",
    # the torch-free side
    "inspect",
    "plan",
    "verify",
    "Summary",
    "MigrationPlan",
    "Verdict",
    "LoadReport",
    # reading and writing
    "open",
    "load",
    "load_into",
    "save",
    "migrate",
    "flatten",
    "unflatten",
    "Loader",
    "Checkpoint",
    "Progress",
    "ShardProgress",
    # types that ship
    "VersionedTensor",
    "Float8Tensor",
    "Int8Tensor",
    "Int4Tensor",
    "IntxTensor",
    "MXTensor",
    "NVFP4Tensor",
    "NF4Tensor",
    "OptimState8bit",
    "OptimState4bit",
    "OptimStateFp8",
    "UIntTensor",
    "CodebookTensor",
    "GGUFTensor",
    "FloatxTensor",
    "BlockSparseTensor",
    "Float8TrainingTensor",
    "UnquantizedTensor",
    "InertTensor",
    "Activation",
    "Granularity",
    "KernelHint",
    "MatmulHint",
    "ZeroDomain",
    "ScaleMode",
    "ScaleOp",
    # types of one's own
    "register",
    "register_class",
    "field",
    "migration",
    "safe_globals",
    "Record",
    "Part",
    "compute",
    "MISSING",
    # submodules
    "kernels",
    "testing",
    "torchao",
    "__version__",
]

_HOMES = {
    name: home
    for home, names in {
        "checkpoint": (
            *("AoserialWarning", "LoadReport", "MigrationPlan", "Summary", "Verdict"),
            *("inspect", "plan", "verify"),
        ),
        "checkpoint.feeding": ("Loader",),
        "checkpoint.flattening": ("flatten", "unflatten"),
        "checkpoint.loading": ("load",),
        "checkpoint.migrating": ("migrate",),
        "checkpoint.modules": ("load_into",),
        "checkpoint.opening": ("Checkpoint", "open"),
        "checkpoint.saving": ("save",),
        "migrations": ("migration",),
        "record": ("Record",),
        "schema": ("MISSING",),
        "storage": ("Part", "compute"),
        "storage.progress": ("Progress", "ShardProgress"),
        "tensors.pickling": ("_rebuild", "safe_globals"),
        "tensors": (
            *("VersionedTensor", "Float8Tensor", "Int8Tensor", "Int4Tensor", "IntxTensor"),
            *("CodebookTensor", "GGUFTensor", "FloatxTensor", "BlockSparseTensor"),
            *("Float8TrainingTensor", "UnquantizedTensor"),
            *("NF4Tensor", "OptimState8bit", "OptimState4bit", "OptimStateFp8", "UIntTensor"),
            *("MXTensor", "NVFP4Tensor", "InertTensor", "ZeroDomain", "ScaleMode", "ScaleOp"),
            *("Activation", "Granularity", "KernelHint", "MatmulHint"),
            *("field", "register", "register_class"),
        ),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    if name in ("kernels", "testing", "torchao"):
        return importlib.import_module(f"aoserial.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'aoserial' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"aoserial.{_HOMES[name]}"), name)
    globals()[name] = value  # the next access is a plain one
    return value


if "torch" in sys.modules:  # then a torch.load may come that needs to know our one function
    importlib.import_module("aoserial.tensors.pickling")


def __dir__() -> list[str]:
    return sorted(__all__)
