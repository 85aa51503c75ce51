"""What the tensors of a pickle are, as records. Torch-free."""

from aoserial.record.pickled.decode import Pickled, decode_pickle
from aoserial.record.pickled.own import own_record
from aoserial.record.pickled.walk import unwrapped

__all__ = ["Pickled", "decode_pickle", "own_record", "unwrapped"]
