"""The declarations of every type that ships, registered on import. Torch-free."""

from aoserial.schema.builtin.activation import ENUMS, OBJECTS
from aoserial.schema.builtin.blocksparse import BLOCK_SPARSE_TENSOR
from aoserial.schema.builtin.codebook import CODEBOOK_TENSOR
from aoserial.schema.builtin.domains import ZERO_DOMAIN
from aoserial.schema.builtin.float8 import FLOAT8_TENSOR
from aoserial.schema.builtin.float8_training import FLOAT8_TRAINING_TENSOR
from aoserial.schema.builtin.floatx import FLOATX_TENSOR
from aoserial.schema.builtin.gguf import GGUF_TENSOR
from aoserial.schema.builtin.int4 import INT4_TENSOR
from aoserial.schema.builtin.int8 import INT8_TENSOR
from aoserial.schema.builtin.intx import INTX_TENSOR
from aoserial.schema.builtin.mx import MX_TENSOR
from aoserial.schema.builtin.nf4 import NF4_TENSOR
from aoserial.schema.builtin.nvfp4 import NVFP4_TENSOR, SCALE_OP
from aoserial.schema.builtin.optimizer import (
    OPTIM_STATE_4BIT,
    OPTIM_STATE_8BIT,
    OPTIM_STATE_FP8,
)
from aoserial.schema.builtin.uint import UINT_TENSOR
from aoserial.schema.builtin.unquantized import UNQUANTIZED_TENSOR
from aoserial.schema.registry import REGISTRY, builtin_documents

__all__ = [
    "BLOCK_SPARSE_TENSOR",
    "CODEBOOK_TENSOR",
    "FLOAT8_TENSOR",
    "FLOAT8_TRAINING_TENSOR",
    "FLOATX_TENSOR",
    "GGUF_TENSOR",
    "INT4_TENSOR",
    "INT8_TENSOR",
    "INTX_TENSOR",
    "MX_TENSOR",
    "NF4_TENSOR",
    "NVFP4_TENSOR",
    "OBJECTS",
    "OPTIM_STATE_4BIT",
    "OPTIM_STATE_8BIT",
    "OPTIM_STATE_FP8",
    "OWNER",
    "TENSORS",
    "UINT_TENSOR",
    "UNQUANTIZED_TENSOR",
]

OWNER = "aoserial"
TENSORS = (
    *(FLOAT8_TENSOR, INT8_TENSOR, INT4_TENSOR, INTX_TENSOR, MX_TENSOR, NVFP4_TENSOR),
    *(NF4_TENSOR, OPTIM_STATE_8BIT, OPTIM_STATE_4BIT, OPTIM_STATE_FP8, UINT_TENSOR),
    *(CODEBOOK_TENSOR, GGUF_TENSOR, FLOATX_TENSOR, BLOCK_SPARSE_TENSOR),
    *(FLOAT8_TRAINING_TENSOR, UNQUANTIZED_TENSOR),
)

for _enum in (*ENUMS, ZERO_DOMAIN, SCALE_OP):
    REGISTRY.add_enum(_enum)
for _schema in (*OBJECTS, *TENSORS):
    REGISTRY.add(_schema, owner=OWNER, frozen=builtin_documents())
