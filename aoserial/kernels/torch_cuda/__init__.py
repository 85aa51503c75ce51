"""Kernels that torch itself has for NVIDIA and AMD devices."""

from aoserial.kernels.torch_cuda.backend import TorchCuda

__all__ = ["TorchCuda"]
