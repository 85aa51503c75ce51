"""Faults that only values show: codes out of range, scales that are not finite or have a sign.

Headers cannot tell these, so they are looked for where every byte is read anyway. Part by part and
piece by piece, so that a check holds one part in memory, and masks of a piece beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aoserial.errors import AoserialError, FieldError, UnknownTypeError, each_of
from aoserial.record import Record
from aoserial.tensors import rules
from aoserial.tensors.convert import builder
from aoserial.tensors.rules import Rule

_SIZE: tuple[Rule, ...] = (rules.size,)
_FINITE: tuple[Rule, ...] = (rules.finite,)
_DIVISOR: tuple[Rule, ...] = (rules.size, rules.not_zero)
_ACTIVATION: Mapping[str, tuple[Rule, ...]] = {
    "act_scale": _SIZE,
    "act_zero_point": (rules.integers_within(-128, 255),),
    "act_pre_scale": _FINITE,  # one for each k, and it may carry a sign
}

# type → part → rules; parts that are not named may hold anything
_RULES: Mapping[str, Mapping[str, tuple[Rule, ...]]] = {
    "aoserial.Float8Tensor": {"qdata": _FINITE, "scale": _SIZE, **_ACTIVATION},
    "aoserial.Int8Tensor": {
        "qdata": (rules.reduced_codes,),
        "scale": _SIZE,
        "zero_point": (rules.zero_points(-128, 127),),
        **_ACTIVATION,
    },
    "aoserial.Int4Tensor": {
        "scale": _SIZE,
        "zero_point": (rules.zero_points(0, 15),),
        "group_index": (rules.groups,),
        **_ACTIVATION,
    },
    "aoserial.IntxTensor": {
        "qdata": (rules.signed_codes,),
        "scale": _SIZE,
        "zero_point": (rules.intx_zero_points,),
        "group_index": (rules.groups,),
        **_ACTIVATION,
    },
    "aoserial.UIntTensor": {"qdata": (rules.unsigned_codes,)},
    "aoserial.MXTensor": {"qdata": (rules.mx_elements,), "scale": (rules.power_of_two,)},
    "aoserial.NVFP4Tensor": {
        "scale": _SIZE,
        "per_tensor_scale": (rules.tensor_scale,),
        "act_per_tensor_scale": _SIZE,
    },
    "aoserial.NF4Tensor": {
        "quantization_factor": (rules.no_divisor,),
        "scaler_mean": _FINITE,
        "nf4": _FINITE,
    },
    "aoserial.OptimState8bit": {"scale": _SIZE, "qmap": (rules.ascending,)},
    "aoserial.OptimState4bit": {"scale": _SIZE, "qmap": (rules.ascending,)},
    "aoserial.OptimStateFp8": {"codes": _FINITE, "scale": _SIZE},
    "aoserial.FloatxTensor": {"qdata": (rules.floatx_codes,), "scale": _SIZE},
    "aoserial.CodebookTensor": {"codes": (rules.entries,), "codebook": _FINITE, "scale": _SIZE},
    "aoserial.GGUFTensor": {
        # torchao rounded none of its codes and kept them in no range, fixtures/torchao-0.11.0/
        # gguf_q4_k: those that are floats stand for themselves
        "qdata": (rules.integers_within(0, 15),),
        "scale": (rules.integers_within(0, 63),),
        "offset": (rules.integers_within(0, 63),),
        "super_scale": _FINITE,  # signs are GGUF's own
        "super_offset": _FINITE,
    },
    "aoserial.BlockSparseTensor": {
        "row_starts": (rules.row_starts,),
        "block_columns": (rules.block_columns,),
        "block_values": _FINITE,
        "scale": _SIZE,
        "zero_point": (rules.zero_points(-128, 127),),
    },
    "aoserial.Float8TrainingTensor": {"qdata": _FINITE, "scale": _DIVISOR},
    "aoserial.UnquantizedTensor": {
        "precomputed_scale": _DIVISOR,
        "last_amax": _SIZE,
        "amax_history": _SIZE,
    },
}


def attribute_faults(record: Record) -> Iterator[AoserialError]:
    """What keeps records of this form from becoming tensors, although their schema allows it.

    Args:
        record: at the head of its type; its parts are not read.
    """
    try:
        builder(record)
    except UnknownTypeError:
        return  # a type without a class: it has a schema alone, and that was checked
    except AoserialError as error:
        yield from each_of(error)


def value_faults(record: Record) -> Iterator[AoserialError]:
    """A fault for each thing that the type of a record does not allow its values to be.

    Args:
        record: at the head of its type; parts are read one after the other. One that cannot be read
            is a fault as well, and does not keep the others from being looked at.
    """
    for name, part in record.parts.items():
        try:
            tensor = part.read()
            for rule in _rules(record, name):
                for reason in rule(record, tensor):
                    yield FieldError(reason).locate(field=name)
        except AoserialError as error:
            for fault in each_of(error):
                yield fault.locate(field=name)


def _rules(record: Record, part: str) -> tuple[Rule, ...]:
    of_type = _RULES.get(record.type)
    if of_type is not None:
        return of_type.get(part, ())
    return _FINITE if part.endswith(("scale", "scales")) else ()
