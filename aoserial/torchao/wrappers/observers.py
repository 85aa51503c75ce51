"""Plain weights that torchao wrapped to watch them, or to quantize them later. Torch-free.

What watches them are whole modules, of torchao's or the user's; they are kept as pairs of names and
values, since nothing here computes with them. No file of these classes is at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from aoserial.record import Record
from aoserial.schema import Field, Schema, attribute, optional_tensor, tensor
from aoserial.torchao.forms import Form, PickledType
from aoserial.torchao.training import plain_value

_QUANTIZATION = "torchao.quantization"


@dataclass(frozen=True)
class Watched:
    """One of them.

    Attributes:
        name: of the class.
        paths: under which releases pickled it.
        weight: the field with the weight.
        releases: that had it.
        tensors: what else it holds.
        holds: the fields that hold modules, whose tensors can have any name.
    """

    name: str
    paths: tuple[str, ...]
    weight: str
    releases: str
    tensors: tuple[Field, ...] = ()
    holds: tuple[str, ...] = ()

    @property
    def loses(self) -> str:
        """What does not fit beside the weight."""
        return "what was observed so far" if self.tensors or self.holds else ""

    @property
    def schema(self) -> Schema:
        return Schema(
            type=f"torchao.{self.name}",
            version=1,
            fields=(tensor(self.weight), attribute("settings", "any"), *self.tensors),
            holds=self.holds,
            doc=f"torchao {self.releases}",
        )


WATCHED = (
    Watched(
        "LinearActivationWeightObservedTensor",
        tuple(
            f"{_QUANTIZATION}.{module}.LinearActivationWeightObservedTensor"
            for module in (
                "linear_activation_weight_observer",  # 0.5 and 0.6
                "linear_activation_weight_observed_tensor",
            )
        ),
        "original_weight_tensor",
        "0.5 to 0.17",
        holds=("input_observer.", "weight_observer."),
    ),
    Watched(
        "AffineFakeQuantizedTensor",
        (
            f"{_QUANTIZATION}.prototype.qat.affine_fake_quantized_tensor.AffineFakeQuantizedTensor",
            f"{_QUANTIZATION}.qat.affine_fake_quantized_tensor.AffineFakeQuantizedTensor",
            f"{_QUANTIZATION}.qat.affine_fake_quantized_tensor._AffineFakeQuantizedTensor",
        ),
        "original_tensor",
        "0.5 and later",
    ),
    Watched(
        "GPTQObserverTensor",
        ("torchao.prototype.gptq.observer.GPTQObserverTensor",),
        "hp_data",
        "0.16 and later",
        tensors=(optional_tensor("hessian"), optional_tensor("total_batches", doc="0.18")),
    ),
    Watched(
        "AutoQuantizableLinearWeight",
        tuple(
            f"{module}.AutoQuantizableLinearWeight"
            for module in (
                f"{_QUANTIZATION}.autoquant",
                "torchao.prototype.quantization.autoquant_v2",
            )
        ),
        "weight",
        "0.2 to 0.16",
    ),
)

SCHEMAS = tuple(watched.schema for watched in WATCHED)


def _settings_of_all(record: Record) -> Record:
    """All fields but tensors, as pairs."""
    pairs = tuple((name, plain_value(value)) for name, value in record.attributes.items())
    return record.drop(*record.attributes).set(settings=pairs)


CLASSES = tuple(
    PickledType(
        type=watched.schema.type,
        paths=watched.paths,
        forms=(
            Form(
                version=1,
                releases=watched.releases,
                has=(watched.weight,),
                adapt=_settings_of_all,
            ),
        ),
    )
    for watched in WATCHED
)
