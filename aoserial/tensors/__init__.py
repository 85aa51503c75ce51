"""Quantized tensors: torch.Tensor subclasses with a schema, and their way to records and back."""

from aoserial.tensors import (  # they fill the operator tables
    collectives as collectives,
    joins as joins,
    lookups as lookups,
    ops as ops,
    pickling as pickling,  # how they are pickled
    products as products,
    views as views,
)
from aoserial.tensors.activation import (
    Activation,
    ActivationKind,
    Granularity,
    GranularityKind,
    KernelHint,
    KernelPreference,
    Mapping,
    MatmulHint,
    ScaleMode,
)
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.blocksparse import BlockSparseTensor
from aoserial.tensors.classes import CLASSES, Classes, TensorClass
from aoserial.tensors.codebook import CodebookTensor
from aoserial.tensors.convert import Build, builder, from_record, to_record
from aoserial.tensors.domains import ScaleOp, ZeroDomain
from aoserial.tensors.fieldspec import field
from aoserial.tensors.float8 import Float8Tensor
from aoserial.tensors.float8_training import Float8TrainingTensor
from aoserial.tensors.floatx import FloatxTensor
from aoserial.tensors.gguf import GGUFTensor
from aoserial.tensors.inert import InertTensor, Loaded
from aoserial.tensors.int4 import Int4Tensor
from aoserial.tensors.int8 import Int8Tensor
from aoserial.tensors.intx import IntxTensor
from aoserial.tensors.live import dump, load
from aoserial.tensors.mx import MXTensor
from aoserial.tensors.nf4 import NF4Tensor
from aoserial.tensors.nvfp4 import NVFP4Tensor
from aoserial.tensors.optimizer import OptimState4bit, OptimState8bit, OptimStateFp8
from aoserial.tensors.registration import bind, register, register_class
from aoserial.tensors.uint import UIntTensor
from aoserial.tensors.unquantized import UnquantizedTensor

__all__ = [
    "CLASSES",
    "Activation",
    "ActivationKind",
    "BlockSparseTensor",
    "Build",
    "Classes",
    "CodebookTensor",
    "Float8Tensor",
    "Float8TrainingTensor",
    "FloatxTensor",
    "GGUFTensor",
    "Granularity",
    "GranularityKind",
    "InertTensor",
    "Int4Tensor",
    "Int8Tensor",
    "IntxTensor",
    "KernelHint",
    "KernelPreference",
    "Loaded",
    "MXTensor",
    "Mapping",
    "MatmulHint",
    "NF4Tensor",
    "NVFP4Tensor",
    "OptimState4bit",
    "OptimState8bit",
    "OptimStateFp8",
    "ScaleMode",
    "ScaleOp",
    "TensorClass",
    "UIntTensor",
    "UnquantizedTensor",
    "VersionedTensor",
    "ZeroDomain",
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
