"""Our records as what torchao's constructors take; no torchao is needed to know that."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from support.cases import FIXTURES

import aoserial
from aoserial.errors import UnsupportedOperationError, UnsupportedTensorError
from aoserial.record import Record
from aoserial.schema import REGISTRY, Nested, Symbol, resolve
from aoserial.tensors import to_record
from aoserial.torchao.counterparts import counterpart
from aoserial.torchao.homes import HOMES


def resolved(tensor: torch.Tensor) -> Record:
    """The record of a tensor with every field filled in, as chains give it."""
    record = to_record(tensor)
    whole = resolve(
        REGISTRY[record.type].head,
        shape=record.shape,
        attributes=record.attributes,
        parts=record.parts,
        registry=REGISTRY,
    )
    return record.set(**whole.attributes)


def test_nf4_has_its_number_of_blocks():
    theirs = counterpart(resolved(aoserial.NF4Tensor.from_float(torch.randn(64, 256))))
    assert theirs.type == "torchao.NF4Tensor"
    assert dict(theirs.attributes) == {
        "block_size": 64,
        "scaler_block_size": 256,
        "n_blocks": 256,
    }


@pytest.mark.parametrize("bits", [8, 4])
def test_an_optimizer_state_shows_a_dtype_and_derives_its_block_size(bits):
    cls = getattr(aoserial, f"OptimState{bits}bit")
    theirs = counterpart(resolved(cls.from_float(torch.randn(4, 256))))
    shape = {"shape": (4, 256)} if bits == 4 else {}
    assert dict(theirs.attributes) == {"signed": True, "dtype": "float32"} | shape
    assert theirs.parts.keys() == {"codes", "scale", "qmap"}


def test_gguf_has_scales_in_torchaos_shapes():
    parts = {"qdata": (2, 512), "scale": (2, 16), "offset": (2, 16)}
    parts |= {"super_scale": (2, 2), "super_offset": (2, 2)}
    given = {name: torch.ones(shape) for name, shape in parts.items()}
    theirs = counterpart(
        resolved(aoserial.GGUFTensor(**given, block_size=(1, 32), superblock_size=256))
    )
    assert {name: part.shape for name, part in theirs.parts.items()} == {
        "int_data": (2, 512),
        "quantized_block_scale": (2, 16),
        "quantized_block_min": (2, 16),
        "super_block_scale_scale": (4,),
        "super_block_min_scale": (4,),
    }
    assert theirs.attributes["n_blocks_per_superblock"] == 8


def codebook(table: tuple[int, ...], codes: tuple[int, int], **given: object) -> torch.Tensor:
    return aoserial.CodebookTensor(
        codes=torch.zeros(codes, dtype=torch.uint8), codebook=torch.ones(table), **given
    )


def test_a_codebook_is_one_table_with_scales_or_a_table_a_block():
    one = codebook(
        (1, 1, 16, 1, 2),
        (4, 8),
        rows_per_code=1,
        columns_per_code=2,
        rows_per_table=4,
        columns_per_table=16,
        scale=torch.ones(4, 1),
        columns_per_scale=16,
        shape=(4, 16),
    )
    theirs = counterpart(resolved(one))
    assert theirs.type == "torchao.CodebookQuantizedTensor"
    assert theirs.parts["codebook"].shape == (16, 1, 2)
    assert theirs.parts["scales"].shape == (4, 1, 1)
    several = codebook(
        (1, 4, 8, 1, 1),
        (4, 16),
        rows_per_code=1,
        columns_per_code=1,
        rows_per_table=4,
        columns_per_table=4,
        shape=(4, 16),
    )
    theirs = counterpart(resolved(several))
    assert theirs.type == "torchao.CoreMLCodebookQuantizedTensor"
    assert theirs.parts["codebook"].shape == (1, 4, 8, 1)
    assert theirs.attributes["code_dtype"] == "uint3"
    assert theirs.attributes["block_size"] == (4, 4)


def test_settings_of_float8_training_become_objects_again():
    products = (("emulate", False), ("use_fast_accum", True))
    settings = (
        ("linear_mm_config", ("LinearMMConfig", (("output", ("ScaledMMConfig", products)),))),
        ("gemm_input_role", "GemmInputRole.weight"),
        ("axiswise_dim", -1),
    )
    tensor = aoserial.Float8TrainingTensor(
        torch.ones(2, 4).to(torch.float8_e4m3fn), torch.ones(()), settings=settings
    )
    given = counterpart(resolved(tensor)).attributes
    assert given["gemm_input_role"] == Symbol("torchao.GemmInputRole", "WEIGHT")
    assert given["axiswise_dim"] == -1
    config = given["linear_mm_config"]
    assert isinstance(config, Nested)
    assert config.fields["output"].fields["use_fast_accum"] is True


def test_a_setting_that_torchao_has_as_an_enum_is_one():
    path = FIXTURES / "torchao-0.18.0/int8da_int4w_intx_v2/model.safetensors"
    weight = aoserial.load(path)["0.weight"]
    found = counterpart(resolved(weight)).attributes["activation_quantization"]
    assert isinstance(found, Symbol)
    assert found.name == "INT8_ASYM_PER_TOKEN"


def test_what_torchao_has_no_class_for_is_refused_by_name():
    floatx = aoserial.FloatxTensor.from_float(torch.randn(64, 64))
    with pytest.raises(UnsupportedTensorError, match="no class for aoserial.FloatxTensor"):
        counterpart(resolved(floatx))


def test_everything_is_looked_up_inside_torchao():
    assert all(home.startswith("torchao.") for homes in HOMES.values() for home in homes)


def test_without_torchao_or_with_an_old_one_it_says_what_is_needed(tmp_path, monkeypatch):
    aoserial.save({"w": torch.ones(2)}, tmp_path / "x")
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(UnsupportedOperationError, match="not installed: pip install torchao"):
        aoserial.load(tmp_path / "x", into="torchao")
    monkeypatch.setitem(sys.modules, "torchao", SimpleNamespace(__version__="0.15.0"))
    with pytest.raises(UnsupportedOperationError, match=r"0\.16 and later, 0\.15\.0 is installed"):
        aoserial.load(tmp_path / "x", into="torchao")
    with pytest.raises(ValueError, match="is not 'aoserial' or 'torchao'"):
        aoserial.load(tmp_path / "x", into="numpy")
