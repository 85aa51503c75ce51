"""Checkpoints of several files, in Hugging Face's layout: names, index, folder. Torch-free."""

from aoserial.storage.shards.folder import find_checkpoint
from aoserial.storage.shards.index import (
    Index,
    ShardFacts,
    read_index,
)
from aoserial.storage.shards.names import (
    DEFAULT_MAX_SHARD_SIZE,
    DEFAULT_STEM,
    INDEX_SUFFIX,
    SUFFIX,
    ShardName,
    gaps,
    parse_size,
    split,
)
from aoserial.storage.shards.places import resolve
from aoserial.storage.shards.resuming import Resume
from aoserial.storage.shards.target import Target
from aoserial.storage.shards.writing import Shard, write_set

__all__ = [
    "DEFAULT_MAX_SHARD_SIZE",
    "DEFAULT_STEM",
    "INDEX_SUFFIX",
    "SUFFIX",
    "Index",
    "Resume",
    "Shard",
    "ShardFacts",
    "ShardName",
    "Target",
    "find_checkpoint",
    "gaps",
    "parse_size",
    "read_index",
    "resolve",
    "split",
    "write_set",
]
