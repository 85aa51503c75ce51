"""The `cpu` backend: torch's packed kernels where they win, else weights decoded as they stream by.

`backend` has the table of layouts; each of the others has the kernels of one kind of layout.
"""

from aoserial.kernels.cpu.backend import Cpu

__all__ = ["Cpu"]
