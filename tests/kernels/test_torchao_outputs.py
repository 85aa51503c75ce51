"""Real checkpoints of torchao 0.14 to 0.18: dequantized and multiplied as their writer did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from support.cases import safetensors_cases
from support.products import check
from support.tensors import same_bytes

from aoserial.kernels import ActivationSpec, Spec, Weight, dequantize, linear

KINDS = {"Float8Tensor": "float8", "Int8Tensor": "int8"}
GRANULARITIES = {
    "PerTensor": "tensor",
    "PerRow": "row",
    "PerToken": "token",
    "PerAxis": "axis",
    "PerBlock": "block",
    "PerGroup": "group",
}
# The norm of the difference to the writer's CPU output, over the norm of that. torchao multiplies
# int8 codes as integers and rounds twice in bfloat16; 0.17 also rounds the activation's scale.
INT8_DYNAMIC = 1e-2
# 0.14 added the bias before rounding, where later releases round the product first.
FUSED_BIAS = 3e-3


@dataclass(frozen=True)
class Case:
    """One quantized weight of one checkpoint."""

    folder: Path
    name: str
    weight: Weight
    bias: torch.Tensor | None

    def __str__(self) -> str:
        return f"{self.folder.parent.name}-{self.folder.name}-{self.name}"

    @property
    def is_matrix(self) -> bool:
        return len(self.weight.spec.shape) == 2

    @property
    def expected(self) -> dict[str, Any]:
        return torch.load(self.folder / "expected.pt", weights_only=True)


def activation(data: dict[str, Any] | None, static: bool) -> ActivationSpec | None:
    if data is None:
        return None
    fields = data["_data"]
    granularity = fields["granularity"]
    sizes = granularity["_data"]
    block = sizes.get("block_size")
    dtype = fields.get("float8_dtype", {"_data": "int8"})["_data"]
    mapping = fields.get("mapping_type", {"_data": "SYMMETRIC"})["_data"]
    return ActivationSpec(
        static=static,
        dtype=dtype,
        granularity=GRANULARITIES[granularity["_type"]],
        dim=sizes.get("dim", sizes.get("axis")),
        group_size=sizes.get("group_size"),
        block_size=None if block is None else tuple(block),
        mapping=mapping.lower(),
        reduce_range=fields.get("reduce_range", False),
        lower_bound=fields.get("hp_value_lb"),
        upper_bound=fields.get("hp_value_ub"),
    )


def weights(path: Path) -> Iterator[Case]:
    """The float8 and int8 weights of a file, by torchao's own metadata."""
    with safe_open(path, "pt") as file:
        metadata, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}
    for name in json.loads(metadata["tensor_names"]):
        entry = json.loads(metadata[name])
        if entry["_type"] not in KINDS:
            continue
        parent, _, leaf = name.rpartition(".")
        # `m._weight_qdata`; up to 0.14 `m.weight:qdata`
        prefixes = (f"{parent}._{leaf}_", f"{name}:")
        parts = {
            key.removeprefix(prefix).replace("act_quant_", "act_"): tensor
            for prefix in prefixes
            for key, tensor in tensors.items()
            if key.startswith(prefix)
        }
        fields = entry["_data"]
        spec = Spec(
            kind=KINDS[entry["_type"]],
            data_dtype=str(parts["qdata"].dtype).removeprefix("torch."),
            shape=tuple(parts["qdata"].shape),
            dtype=fields["dtype"]["_data"],
            block_size=tuple(fields["block_size"]),
            activation=activation(fields["act_quant_kwargs"], "act_scale" in parts),
            parts=tuple(parts),
        )
        bias = tensors.get(f"{parent}.bias", tensors.get(f"{parent}.bias:_data"))
        yield Case(path.parent, name, Weight(spec=spec, parts=parts), bias)


def cases() -> list[Case]:
    paths = [case / "model.safetensors" for case in safetensors_cases()]
    return [case for path in paths for case in weights(path)]


CASES = cases()


def bound(case: Case) -> float:
    """How far from the writer's output ours may be; 0 is bit for bit."""
    spec = case.weight.spec
    if spec.kind == "int8" and spec.activation is not None:
        return INT8_DYNAMIC
    fused = case.folder.parent.name.endswith("0.14.1") and spec.activation is None
    return FUSED_BIAS if fused else 0.0


def test_there_are_cases() -> None:
    assert len(CASES) >= 15


@pytest.mark.parametrize("case", CASES, ids=str)
def test_dequantized_bytes_are_the_writers(case: Case) -> None:
    expected = case.expected["dequantized"][case.name]
    found = dequantize(case.weight)
    assert same_bytes(found, expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_are_the_writers(case: Case) -> None:
    expected = case.expected
    if "output" not in expected or case.folder.name == "mixed_model":
        pytest.skip("the writer could not run the layer on a CPU, or ran several")
    output = expected["output"]
    found = linear(expected["input"], case.weight, case.bias, backend="reference")
    assert found.dtype == output.dtype
    distance = ((found.float() - output.float()).norm() / output.float().norm()).item()
    assert distance <= bound(case), f"{distance:.2e}"


@pytest.mark.parametrize("case", [each for each in CASES if each.is_matrix], ids=str)
def test_the_cpu_backend_multiplies_them_within_its_bound(case: Case) -> None:
    x = torch.randn(3, case.weight.spec.shape[1], dtype=torch.bfloat16)
    check(linear(x, case.weight, case.bias, backend="cpu"), x, case.weight, case.bias)
