"""`load(into="torchao")` with a real torchao, 0.16 to 0.18: old files in the installed release.

Skipped where torchao is not installed (`pip install torchao==0.18.0`).
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch
from support.cases import FIXTURES, all_files, described, file_id
from support.tensors import same_bytes

import aoserial
from aoserial.checkpoint import AoserialWarning
from aoserial.errors import AoserialError, Faults, UnsupportedTensorError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torchao warns of what it cannot use on this machine
    torchao = pytest.importorskip(
        "torchao", reason="torchao is NOT installed: nothing is checked against the real one"
    )

RELEASE = torchao.__version__[:4]
pytestmark = [
    pytest.mark.skipif(
        RELEASE not in ("0.16", "0.17", "0.18"), reason=f"torchao is {torchao.__version__}"
    ),
    pytest.mark.filterwarnings("ignore"),
]

# classes of torchao's that do not dequantize; they are read back instead
SILENT = ("Int4Tensor", "Int4PlainInt32Tensor")
DEQUANTIZE = {
    "NF4Tensor": "get_original_weight",
    "Float8TrainingTensor": "to_original_precision",
}
# what the installed release has no class or place for: what is refused, and said so
REFUSED = (
    "has no class for aoserial.(UnquantizedTensor|UIntTensor|FloatxTensor)"
    "|Int4Tensor has one dtype|rows alone|only asymmetric activations|this one divides"
    "|int8 zero points|every activation alike|has no act_scale"
    "|0.1[67].0 has no (Int8Tensor with reduce_range|Int4Tensor with activation_dtype)"
    "|0.16.0 has no OptimState8bit with dtype"
)


def answers(case: Path) -> dict[str, str]:
    capability = str(described(case).get("cpu_capability")).lower()
    return {
        "scale_product_dtype": "float32" if RELEASE == "0.18" else "bfloat16",
        "int4_cpu_isa": capability if capability in ("avx512", "avx2") else "default",
    }


@pytest.mark.parametrize("path", list(all_files()), ids=file_id)
def test_old_files_stand_for_the_same_values_in_the_installed_torchao(path, tmp_path):
    assume = answers(path.parent)
    try:
        ours = aoserial.load(path, assume=assume)
    except AoserialError:
        pytest.skip("holds what nobody can read")
    theirs, refusal = {}, ""
    try:
        theirs = aoserial.load(path, into="torchao", assume=assume)
    except (UnsupportedTensorError, Faults) as error:
        refusal = str(error)
    if refusal:
        assert re.search(REFUSED, refusal)
        return
    assert theirs.keys() == ours.keys()
    for name, tensor in ours.items():
        live = theirs[name]
        if not isinstance(tensor, aoserial.VersionedTensor):
            assert same_bytes(live, tensor)
            continue
        kind = type(live)
        assert kind.__module__.startswith("torchao.")
        assert (live.shape, live.device) == (tensor.shape, tensor.device)
        if kind.__name__ in SILENT:
            assert_equal_to(live, tensor)
        elif kind.__name__ == "BlockSparseTensor":
            assert same_bytes(live.bsr_values, tensor.block_values)
            assert same_bytes(live.bsr_crow_indices, tensor.row_starts)
            assert same_bytes(live.bsr_col_indices, tensor.block_columns)
        elif not is_another_product(tensor):
            values = getattr(live, DEQUANTIZE.get(kind.__name__, "dequantize"))()
            assert same_bytes(values, tensor.dequantize())


def is_another_product(tensor: torch.Tensor) -> bool:
    """Whether a pickle told of scales that are multiplied otherwise than here."""
    if not isinstance(tensor, aoserial.NVFP4Tensor):
        return False
    here = torch.float32 if RELEASE == "0.18" else tensor.dtype
    return tensor.per_tensor_scale is not None and tensor.scale_product_dtype != here


def assert_equal_to(live: torch.Tensor, tensor: torch.Tensor) -> None:
    """Taken back from torchao, it is as it was but for how it is rounded, which torchao lacks."""
    back, _ = aoserial.unflatten(*aoserial.flatten({"m.w": live}))
    tensor.narrow_arithmetic = back["m.w"].narrow_arithmetic
    assert same_bytes(back["m.w"].dequantize(), tensor.dequantize())
    assert same_bytes(back["m.w"].qdata, tensor.qdata)
    assert same_bytes(back["m.w"].scale, tensor.scale)


def fields_of(tensor: torch.Tensor) -> dict[str, object]:
    lists = ("tensor_attribute_names", "optional_tensor_attribute_names")
    return {name: getattr(tensor, name) for names in lists for name in getattr(tensor, names, [])}


SETTINGS = (
    "torchao-0.18.0/float8da_float8w_perrow_v2",
    "torchao-0.18.0/int4wo_intx_asym_fp16scale_v2",
    "torchao-0.18.0/int8da_int4w_intx_v2",
    "torchao-0.18.0/int8da_int8w_reduce_range_v2",
    "torchao-0.18.0/int8static_int8w",
    "torchao-0.18.0/mx_config_fp4",
    "torchao-0.18.0/mx_fp6_e2m3",
    "torchao-0.18.0/nvfp4_config",
)


@pytest.mark.skipif(RELEASE != "0.18", reason=f"the files are of 0.18, torchao is {RELEASE}")
@pytest.mark.parametrize("case", SETTINGS)
def test_settings_are_those_that_torchao_reads_itself(case):
    from safetensors import safe_open
    from torchao.prototype.safetensors.safetensors_support import unflatten_tensor_state_dict

    path = FIXTURES / case / "model.safetensors"
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
        original, _ = unflatten_tensor_state_dict(tensors, file.metadata())
    for name, live in aoserial.load(path, into="torchao").items():
        assert type(live) is type(original[name])
        if type(live) is not torch.Tensor:
            expected = fields_of(original[name])
            expected.update(is_swizzled_scales=False) if "is_swizzled_scales" in expected else None
            assert fields_of(live) == expected


def test_a_weight_of_an_old_file_multiplies_in_todays_torchao():
    path = FIXTURES / "torchao-0.4.0/int8wo/model.pt"
    ours, theirs = aoserial.load(path), aoserial.load(path, into="torchao")
    x = torch.randn(2, ours["0.weight"].shape[1], dtype=ours["0.weight"].dtype)
    expected = torch.nn.functional.linear(x, ours["0.weight"].dequantize())
    found = torch.nn.functional.linear(x, theirs["0.weight"])
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


@pytest.fixture
def path(tmp_path):
    """A pickle of a weight that torchao has, tied and a Parameter, and of two it has not."""
    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 32))
    lost = aoserial.FloatxTensor.from_float(torch.randn(64, 64))
    tied = torch.nn.Parameter(weight, requires_grad=False)
    state = {"a": tied, "b": tied, "x": lost, "y": torch.ones(2)}
    state["z"] = aoserial.UIntTensor(torch.ones(2, 8, dtype=torch.uint8), 4)
    torch.save(state, tmp_path / "x.pt")
    return tmp_path / "x.pt"


def test_what_has_no_counterpart_is_one_error_that_lists_all(path):
    for strict in (True, False):
        with pytest.raises(Faults, match="no counterpart for 2 kinds") as caught:
            aoserial.load(path, into="torchao", strict=strict)
        assert [fault.location.name for fault in caught.value.exceptions] == ["x", "z"]


def test_only_what_is_asked_for_needs_a_counterpart_and_ties_and_parameters_stay(path):
    state = aoserial.load(path, into="torchao", names=["b", "a", "y"])
    assert list(state) == ["b", "a", "y"]
    assert state["a"] is state["b"]
    assert isinstance(state["a"], torch.nn.Parameter)
    assert type(state["a"].data).__name__ == "Int8Tensor"


def test_lists_are_each_tensors_own(tmp_path):
    weights = {name: aoserial.Int8Tensor.from_float(torch.randn(8, 32)) for name in ("a", "b")}
    aoserial.save(weights, tmp_path / "x")
    state = aoserial.load(tmp_path / "x", into="torchao")
    assert state["a"].block_size == [1, 32]
    assert state["a"].block_size is not state["b"].block_size


def test_scales_that_the_release_multiplies_otherwise_are_warned_of():
    path = FIXTURES / "torchao-0.17.0/nvfp4_config/model.safetensors"
    other = "bfloat16" if RELEASE == "0.18" else "float32"
    with pytest.warns(AoserialWarning, match=f"scales of NVFP4 in .*, not in {other}"):
        aoserial.load(path, into="torchao", assume={"scale_product_dtype": other})
    with warnings.catch_warnings():
        warnings.simplefilter("error", AoserialWarning)
        same = "float32" if RELEASE == "0.18" else "bfloat16"
        aoserial.load(path, into="torchao", assume={"scale_product_dtype": same})


def test_zero_points_wider_than_torchaos_are_an_error(tmp_path):
    zero = torch.full((2, 1), 300, dtype=torch.int32)
    weight = aoserial.IntxTensor.from_float(torch.randn(2, 32), bit_width=4, granularity="row")
    fields = {name: getattr(weight, name) for name in ("qdata", "scale")}
    wide = aoserial.IntxTensor(
        **fields,
        bit_width=4,
        block_size=(1, 32),
        zero_domain=aoserial.ZeroDomain.int,
        zero_point=zero,
        shape=(2, 32),
        dtype=torch.float32,
    )
    aoserial.save({"w": wide}, tmp_path / "x")
    with pytest.raises(AoserialError, match="zero points of int8, these are wider"):
        aoserial.load(tmp_path / "x", into="torchao")
