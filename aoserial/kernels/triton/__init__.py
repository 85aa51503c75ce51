"""Kernels in Triton's language. Triton itself is imported when the first layer runs."""

from aoserial.kernels.triton.backend import Triton

__all__ = ["Triton"]
