"""The steps that leave torchao's own types for ours, registered on import. Torch-free."""

from aoserial.torchao.steps import float8, fp4, int4, int8, microscaling

__all__ = ["float8", "fp4", "int4", "int8", "microscaling"]
