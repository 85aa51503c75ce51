"""The steps of wrappers around weights and of torchao's first weights, registered on import."""

from aoserial.torchao.steps.wrappers import experts, first, hoisting, observers

__all__ = ["experts", "first", "hoisting", "observers"]
