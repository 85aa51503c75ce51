"""Comparing tensors by their bytes, as the suites for third parties do."""

from aoserial.testing.expectations import as_bytes, same_bytes

__all__ = ["as_bytes", "same_bytes"]
