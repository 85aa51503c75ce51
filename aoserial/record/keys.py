"""The keys under which the parts of a record lie in a safetensors file. Torch-free.

`m.weight`'s part `qdata` lies under `m._weight_qdata` (torchao's scheme since 0.15), that of a name
without a dot, `weight`, under `_weight_qdata`. Keys are made, never taken apart: two names can make
the same key, and then one of them gets another, which the file spells out.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator


def key_prefix(name: str) -> str:
    """What the keys of all parts of `name` begin with."""
    parent, dot, leaf = name.rpartition(".")
    return f"{parent}{dot}_{leaf}_"


def part_key(name: str, part: str) -> str:
    return key_prefix(name) + part


def free_key(name: str, part: str, taken: Container[str]) -> str:
    """The key of a part, or the first variation on it that is not taken."""
    key = candidate = part_key(name, part)
    attempt = 1
    while candidate in taken:
        attempt += 1
        candidate = f"{key}~{attempt}"
    return candidate


def strays(keys: Iterable[str], names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Those of `keys` that lie in the namespace of one of `names`, each with that name.

    A key `m._a_b_c` lies in the namespace of `m.a` and of `m.a_b`.
    """
    for key in keys:
        parent, dot, leaf = key.rpartition(".")
        if not leaf.startswith("_"):
            continue
        at = leaf.find("_", 1)
        while at > 0:
            name = f"{parent}{dot}{leaf[1:at]}"
            if name in names:
                yield key, name
                break
            at = leaf.find("_", at + 1)
