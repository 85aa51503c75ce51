"""A conformance suite for quantized tensor classes: one's own, and those that ship."""

from aoserial.testing.conformance import Conformance, check, checks
from aoserial.testing.expectations import quiet, refused
from aoserial.testing.sharding import ShardingConformance

__all__ = ["Conformance", "ShardingConformance", "check", "checks", "quiet", "refused"]
