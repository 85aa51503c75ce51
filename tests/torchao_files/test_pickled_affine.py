"""Every pickle of a real torchao release with an AffineQuantizedTensor, something around one, or a
class that came before it: the weight stands for the values that the release had for it.

The files are those in fixtures/, and any AOSERIAL_FIXTURES names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.cases import case_id, described, pickled_cases
from support.tensors import same_bytes

import aoserial
from aoserial.errors import EraError
from aoserial.torchao import affine, wrappers

PATHS = {path for family in (affine, wrappers) for row in family.CLASSES for path in row.paths}
# in the order of a vendor's kernel, which no CPU undoes
OPAQUE = ("SemiSparse", "Gemlite", "PackedLinearInt8", "DA8W4")


def cases() -> Iterator[Path]:
    for case in pickled_cases():
        if any(told["class"] in PATHS for told in described(case)["keys"].values()):
            yield case


@pytest.fixture(params=list(cases()), ids=case_id)
def case(request) -> Path:
    return request.param


def weights_of(case: Path) -> Iterator[tuple[str, dict]]:
    for name, told in described(case)["keys"].items():
        if told["class"] in PATHS:
            yield name, told


def assume_for(case: Path) -> dict[str, str]:
    """The machine that packed, which no file says."""
    capability = described(case)["cpu_capability"].lower()
    return {"int4_cpu_isa": capability if capability.startswith("avx") else "default"}


def loaded(case: Path) -> dict[str, torch.Tensor | aoserial.InertTensor]:
    return aoserial.load(case / "model.pt", assume=assume_for(case), strict=False)


def test_the_dequantized_values_are_torchaos_bit_for_bit(case):
    expected = torch.load(case / "expected.pt", weights_only=True)["dequantized"]
    state = loaded(case)
    for name, told in weights_of(case):
        if any(word in str(told) for word in OPAQUE):
            assert isinstance(state[name], aoserial.InertTensor)
        else:
            assert same_bytes(state[name].dequantize(), expected[name]), name


def test_a_migrated_file_stands_for_the_same_values_and_settings(case, tmp_path):
    new = tmp_path / "model.safetensors"
    aoserial.migrate(case / "model.pt", new, assume=assume_for(case), allow_lossy=True)
    before, after = loaded(case), aoserial.load(new, strict=False)
    for name, tensor in before.items():
        if isinstance(tensor, aoserial.VersionedTensor):
            assert same_bytes(tensor.dequantize(), after[name].dequantize())
            assert getattr(tensor, "activation", None) == getattr(after[name], "activation", None)


# what the names of functions promise: dtype, granularity, mapping
PROMISES = {
    "_int8_asymm_per_token_quant": ("int8", "token", "asymmetric"),
    "_int8_symm_per_token_quant": ("int8", "token", "symmetric"),
    "_int8_symm_per_token_reduced_range_quant": ("int8", "token", "symmetric"),
    "_int8_symm_per_token_reduced_range_quant_noop_decode": ("int8", "token", "symmetric"),
    "_int8_symm_per_token_reduced_range_quant_cutlass": ("int8", "token", "symmetric"),
    "_int8_symm_cutlass_quant": ("int8", "token", "symmetric"),
    "_int4_symm_cutlass_quant": ("int4", "token", "symmetric"),
    "_int4_symm_per_token_quant_cutlass": ("int4", "token", "symmetric"),
}


def tensors_in(told: dict) -> Iterator[tuple[str, dict]]:
    for name, held in told.get("tensors", {}).items():
        for one in held if isinstance(held, list) else [held]:
            yield name, one


def said_of_activation(told: dict) -> str:
    """The text of a wrapper's function and its arguments, empty where there is no wrapper."""
    texts = [value["repr"] for value in told.get("attributes", {}).values()]
    inner = [said_of_activation(one) for _, one in tensors_in(told)]
    return " ".join(text for text in (*texts, *inner) if "quant" in text or "activation_" in text)


def test_the_settings_of_the_activation_are_what_the_file_said(case):
    state = loaded(case)
    for name, told in weights_of(case):
        said = said_of_activation(told)
        function = re.search(r"<function (\w+) at", said)
        if not function or isinstance(state[name], aoserial.InertTensor):
            continue
        activation = state[name].activation
        found = re.search(r"activation_dtype[=':]+ ?torch\.(\w+)", said)
        if function[1] in PROMISES:
            kind = ("dynamic", *PROMISES[function[1]])
        elif function[1] == "_identity":
            assert activation is None
            continue
        elif "mxfp" in function[1]:
            kind = ("dynamic", found[1], "group", "symmetric")
        else:
            static = "input_quant_func_static" in told["attributes"]
            granularity = "row" if "PerRow" in said else "tensor"
            kind = ("static" if static else "dynamic", found[1], granularity, "symmetric")
        dtype = str(activation.dtype).removeprefix("torch.")
        made = (activation.kind.name, dtype, activation.granularity.kind.name)
        assert (*made, activation.mapping.name) == kind
        assert activation.skip_decode == ("noop_decode" in function[1])


def test_the_order_of_the_machine_that_packed_has_to_be_said(case):
    """And the error says how; files of other orders need no answer."""
    if not any(is_packed_for_cpu(told) for _, told in weights_of(case)):
        aoserial.load(case / "model.pt", strict=False)
        return
    with pytest.raises(EraError, match=r"assume=\{'int4_cpu_isa'"):
        aoserial.load(case / "model.pt", strict=False)


def is_packed_for_cpu(told: dict) -> bool:
    field = {"Int4CPUAQTTensorImpl": "packed_weight", "Int4WeightOnly": "int_data"}
    return any(
        kind in told["class"] and told["tensors"][name]["dtype"] == "torch.uint8"
        for kind, name in field.items()
    ) or any(is_packed_for_cpu(one) for _, one in tensors_in(told))
