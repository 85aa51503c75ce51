"""From a weight for each expert, shown as one by torchao, to one weight. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from aoserial.errors import FieldError, OpaqueBytesError
from aoserial.migrations import Upgrader, migration
from aoserial.record import Record
from aoserial.schema import Nested
from aoserial.storage import Part, compute
from aoserial.torchao.steps.int4_cpu import INT4_CPU_ISA, REPAIRS_INT4_CPU
from aoserial.torchao.wrappers.schemas import EXPERTS
from aoserial.torchao.wrapping import hoisted

if TYPE_CHECKING:
    import torch

_KINDS = ("Int8Tensor", "IntxTensor", "Int4Tensor", "Float8Tensor")


def _packed_for_cpu(record: Record) -> bool:
    return any(
        name.endswith(".packed_weight") and part.dtype == "uint8" and len(part.shape) == 2
        for name, part in record.parts.items()
    )


_ISA = replace(INT4_CPU_ISA, concerns=_packed_for_cpu)


@migration(
    EXPERTS,
    1,
    1,
    becomes=tuple(f"aoserial.{kind}" for kind in _KINDS),
    asks=(_ISA,),
    repairs=REPAIRS_INT4_CPU,
)
def stack_experts(record: Record, *, int4_cpu_isa: str | None) -> Record:
    """FakeExtraDimTensor of torchao 0.11 to 0.15: a chain of weights, the first and the rest.

    Each becomes ours by itself; then their parts are stacked. `tensor_list` names the same tensors
    once more.
    Proved by fixtures/torchao-0.11.0/fake_extra_dim_int8wo.

    Raises:
        FieldError: experts that differ in more than their values.
        OpaqueBytesError: experts in the order of a vendor's kernel.
    """
    upgrader = Upgrader(assume={_ISA.name: int4_cpu_isa} if int4_cpu_isa else {})
    experts = [_alone(expert, upgrader) for expert in _chain(record)]
    first = experts[0]
    if len(experts) != record.shape[0] or record.attributes["num_tensors"] != len(experts):
        raise FieldError(f"holds {len(experts)} tensors, expected {record.shape[0]}").locate(
            field="num_tensors"
        )
    if any(_kind(expert) != _kind(first) for expert in experts):
        raise FieldError("holds tensors of several kinds").locate(field="tensor_list")
    parts = {name: _stacked([expert.parts[name] for expert in experts]) for name in first.parts}
    block: tuple[int, ...] = first.attributes["block_size"]  # type: ignore[assignment]
    return Record(
        type=first.type,
        version=first.version,
        shape=(len(experts), *first.shape),
        dtype=first.dtype,
        attributes=first.attributes.replace(block_size=(1, *block)),
        parts=parts,
    )


def _chain(record: Record) -> Iterator[Record]:
    """The weights, in order; the last chain has no tail."""
    while True:
        yield hoisted(record, "head_tensor")
        if not isinstance(record.attributes.get("tensor_tail"), Nested):
            return
        record = hoisted(record, "tensor_tail")
        if record.type != EXPERTS:
            raise FieldError(f"is a {record.type}").locate(field="tensor_tail")


def _alone(expert: Record, upgrader: Upgrader) -> Record:
    outcome = upgrader.upgrade(expert)
    if outcome.record.type.removeprefix("aoserial.") not in _KINDS:
        raise OpaqueBytesError(f"{outcome.record.type} has no experts")
    return outcome.record


def _kind(record: Record) -> tuple[object, ...]:
    signature = tuple((name, part.dtype, part.shape) for name, part in record.parts.items())
    return record.type, record.version, record.shape, record.dtype, record.attributes, signature


def _stacked(parts: list[Part]) -> Part:
    first = parts[0]
    return compute(_stack, *parts, dtype=first.dtype, shape=(len(parts), *first.shape))


def _stack(*tensors: torch.Tensor) -> torch.Tensor:
    import torch  # torch-free module

    return torch.stack(tensors)
