"""The steps of AffineQuantizedTensor, registered on import. Torch-free."""

from aoserial.torchao.steps.affine import history, leaving, marlin_qqq, stretched

__all__ = ["history", "leaving", "marlin_qqq", "stretched"]
