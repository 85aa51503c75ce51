"""torchao's safetensors functions under their own names: change the import, keep the code.

They stand for those of `torchao.prototype.safetensors` of 0.15 and later: same arguments, same
returns, same metadata. They differ where torchao loses data: nothing is cloned, nothing is dropped,
and time is linear in the number of tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from aoserial.errors import (
    AoserialError,
    CollisionError,
    UnsupportedTensorError,
    locating,
    raise_all,
)
from aoserial.migrations import Upgrader
from aoserial.record import Catalog, Record, key_prefix
from aoserial.storage import Part, TensorPart
from aoserial.storage.collecting import collector_paused
from aoserial.tensors import CLASSES, InertTensor, to_record
from aoserial.tensors.assembling import assemble, entries_of, tensor_of
from aoserial.torchao.converting import to_torchao
from aoserial.torchao.layout import NAMES_KEY, decode_layout, describes
from aoserial.torchao.live import is_live, to_torchao_record
from aoserial.torchao.metadata import PLAIN, check_readable, describe


def flatten_tensor_state_dict(
    tensors_dict: Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """A state dict as plain tensors and torchao's metadata, for `safetensors.torch.save_file`.

    Args:
        tensors_dict: plain tensors, torchao's live tensors, and ours of the types torchao has.

    Returns:
        `parent._leaf_part` → tensor, and name → JSON with the list of names under `tensor_names`.

    Raises:
        UnsupportedTensorError: a tensor that torchao's layout has no type for.
        CollisionError: two tensors that would lie under one key (torchao keeps the last).
    """
    with collector_paused():
        parts, metadata = lay_out(tensors_dict)
    return {key: tensor_of(part) for key, part in parts.items()}, metadata


def lay_out(
    state: Mapping[str, torch.Tensor], *, for_torchao: bool = False
) -> tuple[dict[str, Part], dict[str, str]]:
    """A state dict as parts by key and torchao's metadata; reads and copies nothing.

    Args:
        for_torchao: refuse also what torchao's own reader would lose or fail on.
    """
    plain, records = sort_state_dict(state)
    return lay_out_records(list(state), plain, records, for_torchao=for_torchao)


def lay_out_records(
    names: Sequence[str],
    plain: Mapping[str, Part],
    records: Mapping[str, Record],
    *,
    for_torchao: bool = False,
) -> tuple[dict[str, Part], dict[str, str]]:
    """`lay_out` of plain tensors and records of torchao's types; each name is in one of the two."""
    if for_torchao:
        check_readable(names, records)
    known = set(names)
    parts: dict[str, Part] = {}
    metadata: dict[str, str] = {}
    texts: dict[object, str] = {}  # most tensors of a model are described alike
    for name in names:
        held: dict[str, Part] = {name: plain[name]} if name in plain else {}
        if name in records:
            prefix = key_prefix(name)
            held = {prefix + part_name: part for part_name, part in records[name].parts.items()}
        for key, part in held.items():
            if key in parts or (key != name and key in known):
                raise CollisionError(f"two tensors would lie under {key!r:.200}").locate(name=name)
            parts[key] = part
        metadata[name] = PLAIN
        if name in records:
            record = records[name]
            # repr, since 1, 1.0 and True are equal and are not the same attribute
            alike = (record.type, repr(record.attributes), tuple(record.parts))
            if alike not in texts:
                texts[alike] = describe(record)
            metadata[name] = texts[alike]
    if NAMES_KEY in metadata:
        raise CollisionError("is the key of the list of names in torchao's metadata").locate(
            name=NAMES_KEY
        )
    metadata[NAMES_KEY] = json.dumps(list(names))
    return parts, metadata


def unflatten_tensor_state_dict(
    tensors_data_dict: Mapping[str, torch.Tensor], metadata: Mapping[str, str]
) -> tuple[dict[str, torch.Tensor | InertTensor], dict[str, torch.Tensor]]:
    """The inverse, of all tensors or of one shard's; reads 0.14's layout as well.

    Returns:
        The state dict of what is complete, in our classes, and the tensors of what is not.

    Raises:
        AoserialError: metadata that does not describe the tensors; `Faults` for several faults.
    """
    if NAMES_KEY not in metadata:
        raise UnsupportedTensorError(f"the metadata is not torchao's: it has no {NAMES_KEY!r}")
    with collector_paused():
        catalog = decode_layout(metadata, entries_of(tensors_data_dict), partial=True)
        return _unflatten(catalog, tensors_data_dict)


def _unflatten(
    catalog: Catalog, tensors_data_dict: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor | InertTensor], dict[str, torch.Tensor]]:
    state: dict[str, torch.Tensor | InertTensor] = {}
    used = set(catalog.plain.values())
    upgrader, faults = Upgrader(), list[AoserialError]()
    for group in catalog.groups:
        try:
            known = upgrader.registry.find(group.template.type) is not None
            with locating(name=next(iter(group.members))):
                outcome = upgrader.upgrade(group.template) if known else None
        except AoserialError as fault:
            faults.append(fault)
            continue
        state.update(assemble(group, outcome, tensors_data_dict))
        used.update(key for keys in group.members.values() for key in keys)
    raise_all(f"{len(faults)} faults in torchao's records", faults)
    state |= {name: tensors_data_dict[key] for name, key in catalog.plain.items()}
    return state, {key: tensor for key, tensor in tensors_data_dict.items() if key not in used}


def is_metadata_torchao(metadata: Mapping[str, Any]) -> bool:
    """Whether metadata is torchao's: every name of its list is described, by a type it knows."""
    return bool(metadata) and describes(metadata)


def sort_state_dict(
    state: Mapping[str, torch.Tensor],
) -> tuple[dict[str, TensorPart], dict[str, Record]]:
    """Plain tensors, and the others as records of torchao's types."""
    plain: dict[str, TensorPart] = {}
    records: dict[str, Record] = {}
    for name, tensor in state.items():
        with locating(name=name):
            if is_live(tensor):
                records[name] = to_torchao_record(tensor)
            elif isinstance(tensor, torch.Tensor) and type(tensor) in CLASSES:
                records[name] = to_torchao(to_record(tensor))
            elif type(tensor) in (torch.Tensor, torch.nn.Parameter):
                plain[name] = TensorPart(tensor.detach())
            else:
                raise UnsupportedTensorError(
                    f"is a {type(tensor).__module__}.{type(tensor).__qualname__}, which torchao's "
                    f"safetensors layout has no type for"
                )
    return plain, records
