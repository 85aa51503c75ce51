"""What torchao wrote: its types, its files, and the steps that bring them to ours."""

from aoserial.torchao import declarations, steps
from aoserial.torchao.layout import decode_layout, is_torchao

__all__ = ["declarations", "decode_layout", "is_torchao", "steps"]
