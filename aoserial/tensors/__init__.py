"""Quantized tensors: torch.Tensor subclasses with a schema, and their way to records and back."""

from aoserial.tensors import ops as ops, views as views  # fill the operator tables
from aoserial.tensors.activation import (
    Activation,
    ActivationKind,
    Granularity,
    GranularityKind,
    KernelHint,
    KernelPreference,
    Mapping,
    MatmulHint,
)
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.classes import CLASSES, Classes, TensorClass
from aoserial.tensors.convert import Build, builder, from_record, to_record
from aoserial.tensors.fieldspec import field
from aoserial.tensors.float8 import Float8Tensor
from aoserial.tensors.inert import InertTensor
from aoserial.tensors.int8 import Int8Tensor
from aoserial.tensors.live import dump, load
from aoserial.tensors.registration import bind, register, register_class

__all__ = [
    "CLASSES",
    "Activation",
    "ActivationKind",
    "Build",
    "Classes",
    "Float8Tensor",
    "Granularity",
    "GranularityKind",
    "InertTensor",
    "Int8Tensor",
    "KernelHint",
    "KernelPreference",
    "Mapping",
    "MatmulHint",
    "TensorClass",
    "VersionedTensor",
    "bind",
    "builder",
    "dump",
    "field",
    "from_record",
    "load",
    "register",
    "register_class",
    "to_record",
]
