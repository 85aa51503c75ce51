"""What torchao wrote: its types, its files, and the steps that bring them to ours.

`flatten_tensor_state_dict`, `unflatten_tensor_state_dict` and `is_metadata_torchao` are torchao's
own functions under their own names; they need torch, and everything else here does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aoserial.torchao import steps
from aoserial.torchao.layout import decode_layout, is_torchao
from aoserial.torchao.types import OWNER

if TYPE_CHECKING:
    from aoserial.torchao.support import (
        flatten_tensor_state_dict,
        is_metadata_torchao,
        unflatten_tensor_state_dict,
    )

__all__ = [
    "OWNER",
    "decode_layout",
    "flatten_tensor_state_dict",
    "is_metadata_torchao",
    "is_torchao",
    "steps",
    "unflatten_tensor_state_dict",
]

_NEED_TORCH = ("flatten_tensor_state_dict", "is_metadata_torchao", "unflatten_tensor_state_dict")


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module 'aoserial.torchao' has no attribute {name!r}")
    from aoserial.torchao import support  # imports torch

    return getattr(support, name)
