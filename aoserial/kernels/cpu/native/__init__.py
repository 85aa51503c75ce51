"""Few rows of activations times codes as they are in memory, by compiled code of our own."""

from aoserial.kernels.cpu.native.kernel import Native, NativeNibbles

__all__ = ["Native", "NativeNibbles"]
