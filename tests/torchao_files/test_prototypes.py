"""Formats of torchao's prototypes, and what it wraps around weights in training, from pickles."""

from __future__ import annotations

import pytest
import torch
from support.cases import case_id, pickled_cases
from support.raw import instance, member, raw, upgraded
from support.tensors import same_bytes

import aoserial
from aoserial.errors import AoserialError, EraError, FieldError, OpaqueBytesError
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Symbol
from aoserial.storage import TensorPart
from aoserial.tensors import from_record
from aoserial.torchao.steps.blocksparse import block_sparse_of_affine
from aoserial.torchao.steps.floatx import floatx_of_affine, untiled
from aoserial.torchao.steps.uintx import unsharded

CASES = (
    *("codebook_coreml_constructed", "gguf_q4_k", "block_sparse", "float8_fsdp_weight"),
    *("float8_training_tensor", "int8_mixed_training", "int8_training", "bitnet_training"),
    *("moe_training_weight", "autoquant_bf16"),
)
CODEBOOK = "torchao.prototype.quantization.codebook.codebook_quantized_tensor"
COREML = CODEBOOK.replace("codebook.", "codebook_coreml.", 1)
GGUF = "torchao.prototype.quantization.gguf.gguf_quantized_tensor.GGUFQuantizedTensor"
SPARSE = "torchao.sparsity.blocksparse.BlockSparseTensor"
FSDP = "torchao.float8.fsdp_utils"


def expected_of(case) -> dict:
    return torch.load(case / "expected.pt", weights_only=True)


def built(record: Record) -> aoserial.VersionedTensor:
    """The tensor that a raw record becomes."""
    return from_record(upgraded(record).record)


@pytest.mark.parametrize("case", list(pickled_cases(*CASES)), ids=case_id)
def test_a_file_stands_for_what_torchao_had_in_it(case):
    state = aoserial.load(case / "model.pt")
    for name, expected in expected_of(case)["dequantized"].items():
        assert same_bytes(state[name].dequantize(), expected), name


# -- codebooks ----------------------------------------------------------------------------------


def codebook(codes, entries, scales, block_size=(1, 2), **more) -> Record:
    fields = {"codebook": entries, "scales": scales, "block_size": block_size, **more}
    return raw(f"{CODEBOOK}.CodebookQuantizedTensor", (4, 16), "float32", codes=codes, **fields)


def test_a_code_stands_for_a_run_of_columns_that_share_a_scale():
    codes = torch.randint(0, 8, (4, 8), dtype=torch.uint8)
    entries, scales = torch.randn(8, 1, 2), torch.rand(4, 2, 1)
    weight = built(codebook(codes, entries, scales, _dtype="float32"))
    expected = entries[codes.long()].reshape(4, 2, 8) * scales
    assert same_bytes(weight.dequantize(), expected.reshape(4, 16))


@pytest.mark.parametrize(
    "case", list(pickled_cases("codebook_uint4", "codebook_uint4_b2")), ids=case_id
)
def test_narrow_codes_are_put_together_from_their_shards(case):
    """torchao saved such weights dequantized, so what was inside them is taken from beside."""
    expected = expected_of(case)
    inner = {
        name.removeprefix("0.weight."): held
        for name, held in expected["inner"].items()
        if name.startswith("0.weight.")
    }
    shape = (32, 64 // inner["codebook"].shape[-1])
    uintx = "torchao.prototype.dtypes.uintx.uintx_utils.UintxTensor"
    codes = Nested(
        f"pickle.{uintx}",
        1,
        FrozenMap({"(shape)": shape, "packed_shape": shape, "bit_width": 4, "pack_dim": -1}),
    )
    record = raw(
        f"{CODEBOOK}.CodebookQuantizedTensor",
        (32, 64),
        codes=codes,
        block_size=tuple(inner["codebook"].shape[1:]),
        _dtype="bfloat16",
        **inner,
    )
    assert same_bytes(built(record).dequantize(), expected["dequantized"]["0.weight"])


@pytest.mark.parametrize("bits", range(1, 8))
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_codes_of_every_width_come_out_of_their_shards(bits, dim):
    codes = torch.randint(0, 2**bits, (8, 16), dtype=torch.uint8)
    shards, below = {}, 0
    for width in (4, 2, 1):
        if bits & width:
            pieces = (codes >> below & 2**width - 1).chunk(8 // width, dim)
            packed = torch.zeros_like(pieces[0])
            for place, piece in enumerate(pieces):
                packed |= piece << width * place
            shards[f"int{width}_shard"] = TensorPart(packed)
            below += width
    part = unsharded(shards, bits=bits, shape=(8, 16), dim=dim)
    assert torch.equal(part.read(), codes)


def test_shards_that_do_not_make_up_the_codes_are_refused():
    shard = TensorPart(torch.zeros(4, 8, dtype=torch.uint8))
    with pytest.raises(FieldError, match="codes of 3 bits"):
        unsharded({"int4_shard": shard}, bits=3, shape=(4, 16), dim=-1)
    with pytest.raises(FieldError, match=r"which is not 4 bits of \[4, 32\]"):
        unsharded({"int4_shard": shard}, bits=4, shape=(4, 32), dim=-1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scales": torch.rand(4, 3, 1)}, "does not scale"),
        ({"scales": torch.rand(2, 2, 1)}, "does not scale"),
        ({"block_size": (2, 1)}, "but the entries are"),
        ({"codes": None}, "one plain tensor, or shards"),
    ],
)
def test_a_codebook_whose_fields_do_not_fit_is_refused(change, said):
    codes = torch.zeros(4, 8, dtype=torch.uint8)
    given = {"codes": codes, "entries": torch.randn(8, 1, 2), "scales": torch.rand(4, 2, 1)}
    with pytest.raises(AoserialError, match=said):
        built(codebook(**{**given, **change}))


def test_each_block_of_a_coreml_codebook_has_a_table():
    codes = torch.randint(0, 4, (4, 6), dtype=torch.uint8)
    tables = torch.randn(2, 3, 4, 1)
    record = raw(
        f"{COREML}.CodebookQuantizedTensor",
        (4, 6),
        "float32",
        codes=codes,
        codebook=tables,
        code_dtype="uint2",
        block_size=(2, 2),
    )
    expected = torch.empty(4, 6)
    for row in range(4):
        for column in range(6):
            expected[row, column] = tables[row // 2, column // 2, int(codes[row, column]), 0]
    assert same_bytes(built(record).dequantize(), expected)
    with pytest.raises(FieldError, match="the tables have 4 entries"):
        built(
            Record(
                type=record.type,
                version=1,
                shape=record.shape,
                dtype=record.dtype,
                attributes=record.attributes.replace(code_dtype="uint4"),
                parts=record.parts,
            )
        )


def test_a_codebook_that_a_kernel_packed_stays_inert():
    module = COREML.replace("codebook_coreml", "codebook_groupwise")
    record = raw(
        f"{module}.CodebookQuantizedPackedTensor",
        (4, 16),
        packed_weight=torch.zeros(64, dtype=torch.int8),
        bit_width=4,
        lut_block_size=(-1, 8),
        scale_block_size=None,
    )
    with pytest.raises(OpaqueBytesError, match="Arm kernels"):
        upgraded(record)


def test_scales_of_gguf_have_to_fit_the_weight():
    parts = {
        "super_block_scale_scale": torch.rand(2),
        "super_block_min_scale": torch.rand(2),
        "quantized_block_scale": torch.rand(2, 8),
        "quantized_block_min": torch.rand(2, 8),
        "int_data": torch.rand(2, 256),
    }
    assert built(raw(GGUF, (2, 256), n_blocks_per_superblock=8, **parts)).block_size == (1, 32)
    with pytest.raises(FieldError, match=r"expected one for each 64 of \[2, 256\]"):
        built(raw(GGUF, (2, 256), n_blocks_per_superblock=4, **parts))
    with pytest.raises(FieldError, match="expected a divisor of 256"):
        built(raw(GGUF, (2, 256), n_blocks_per_superblock=7, **parts))


# -- small floats -------------------------------------------------------------------------------


def tiled(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes in the order of tensor cores, put there one by one, as FP6-LLM does it."""
    rows, columns = codes.shape
    lanes: list[list[int]] = [[] for _ in range(32)]
    for top in range(0, rows, 64):
        for left in range(0, columns, 16):
            for a, d, b, f in torch.cartesian_prod(*map(torch.arange, (4, 2, 2, 2))).tolist():
                for lane, held in enumerate(lanes):
                    row = top + 16 * a + 8 * b + lane // 4
                    held.append(int(codes[row, left + 8 * d + 2 * (lane % 4) + f]))
    packed = bytearray()
    left_bits = bits
    for width in (1, 2, 4):
        if bits & width:
            left_bits -= width
            count = 32 // width
            order = [4 * i + residue for residue in (1, 3, 0, 2) for i in range(count // 4)]
            for start in range(0, len(lanes[0]), count):
                for held in lanes:
                    word = 0
                    for index in order:
                        word = word << width | held[start + index] >> left_bits & 2**width - 1
                    packed += word.to_bytes(4, "little")
    return torch.frombuffer(packed, dtype=torch.uint8).reshape(rows, columns * bits // 8)


@pytest.mark.parametrize(("ebits", "mbits"), [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3)])
def test_codes_of_every_width_leave_the_order_of_tensor_cores(ebits, mbits):
    bits = 1 + ebits + mbits
    codes = torch.randint(0, 2**bits, (64, 128), dtype=torch.uint8)
    part = untiled(TensorPart(tiled(codes, bits)), ebits, mbits, (64, 128))
    assert torch.equal(part.read(), codes)


@pytest.mark.parametrize("case", list(pickled_cases("fpx_fp5_e2m2", "fpx_fp6_e3m2")), ids=case_id)
def test_small_floats_stand_for_what_torchao_had_in_them(case):
    """0.5 and later have them inside AffineQuantizedTensor; the step is tried by itself here."""
    expected = expected_of(case)
    inner = {name.removeprefix("0.weight."): held for name, held in expected["inner"].items()}
    values = expected["dequantized"]["0.weight"]
    ebits, mbits = (3, 2) if "e3m2" in case.name else (2, 2)
    packed = next(held for name, held in inner.items() if name.endswith("_data"))
    scale = next(held for name, held in inner.items() if name.endswith("scale"))
    layout = Nested("torchao.FloatxTensorCoreLayout", 1, FrozenMap(ebits=ebits, mbits=mbits))
    impl = Nested("torchao.FloatxTensorCoreAQTTensorImpl", 1, FrozenMap(_layout=layout))
    record = Record(
        type="torchao.AffineQuantizedTensor",
        version=1,
        shape=tuple(values.shape),
        dtype=str(values.dtype).removeprefix("torch."),
        attributes=FrozenMap(tensor_impl=impl, block_size=(256, 1)),
        parts={
            "tensor_impl.packed_floatx_data": TensorPart(packed),
            "tensor_impl.scale": TensorPart(scale),
        },
    )
    assert same_bytes(from_record(floatx_of_affine(record)).dequantize(), values)


@pytest.mark.parametrize(
    ("ebits", "mbits", "shape"), [(5, 2, (64, 64)), (3, None, (64, 64)), (3, 2, (64, 32))]
)
def test_small_floats_that_torchao_does_not_pack_are_refused(ebits, mbits, shape):
    with pytest.raises(FieldError):
        untiled(TensorPart(torch.zeros(64, 48, dtype=torch.uint8)), ebits, mbits, shape)


# -- sparse blocks ------------------------------------------------------------------------------


def sparse_parts(values: torch.Tensor) -> dict[str, torch.Tensor]:
    starts, columns = torch.tensor([0, 2, 3]), torch.tensor([0, 3, 1])
    return {"bsr_crow_indices": starts, "bsr_col_indices": columns, "bsr_values": values}


def dense(parts: dict[str, torch.Tensor]) -> torch.Tensor:
    """The matrix, laid out block by block."""
    values = parts["bsr_values"]
    matrix = torch.zeros(8, 16, dtype=values.dtype)
    for block, (row, column) in enumerate([(0, 0), (0, 3), (1, 1)]):
        matrix[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = values[block]
    return matrix


def test_sparse_blocks_lie_where_their_indices_say():
    parts = sparse_parts(torch.randn(3, 4, 4))
    weight = built(raw(SPARSE, (8, 16), "float32", blocksize=4, **parts))
    assert same_bytes(weight.dequantize(), dense(parts))
    with pytest.raises(FieldError, match="the blocks are of 4"):
        built(raw(SPARSE, (8, 16), "float32", blocksize=8, **parts))


def sparse_affine(domain: str, **parts: torch.Tensor) -> Record:
    return Record(
        type="torchao.AffineQuantizedTensor",
        version=1,
        shape=(8, 16),
        dtype="float32",
        attributes=FrozenMap(
            tensor_impl=None,
            block_size=(1, 16),
            quant_min=None,
            quant_max=None,
            zero_point_domain=Symbol("torchao.ZeroPointDomain", domain),
        ),
        parts={f"tensor_impl.{name}": TensorPart(part) for name, part in parts.items()},
    )


def test_sparse_blocks_of_codes_are_an_int8_weight():
    parts = sparse_parts(torch.randint(-127, 128, (3, 4, 4), dtype=torch.int8))
    scale, zero_point = torch.rand(8), torch.randint(-4, 4, (8,))
    weight = from_record(block_sparse_of_affine(sparse_affine("NONE", scale=scale, **parts)))
    assert same_bytes(weight.dequantize(), dense(parts) * scale[:, None])
    parts |= {"scale": scale, "zero_point": zero_point}
    weight = from_record(block_sparse_of_affine(sparse_affine("INT", **parts)))
    expected = (dense(parts) - zero_point[:, None]) * scale[:, None]
    assert same_bytes(weight.dequantize(), expected)


def test_sparse_blocks_of_another_arithmetic_are_refused():
    parts = sparse_parts(torch.zeros(3, 4, 4, dtype=torch.int8))
    with pytest.raises(FieldError, match="lacks scale"):
        block_sparse_of_affine(sparse_affine("INT", **parts))
    with pytest.raises(FieldError, match="is FLOAT"):
        block_sparse_of_affine(sparse_affine("FLOAT", scale=torch.rand(8), **parts))
    plain = sparse_parts(torch.zeros(3, 4, 4))
    with pytest.raises(FieldError, match="lacks codes of int8"):
        block_sparse_of_affine(sparse_affine("INT", scale=torch.rand(8), **plain))


# -- training -----------------------------------------------------------------------------------


def matmul_config(module: str) -> Nested:
    kinds = [instance(f"torchao.float8.{module}.ScaledMMConfig", **{"0": False, "1": True})] * 3
    config = {str(number): kind for number, kind in enumerate(kinds)}
    return instance(f"torchao.float8.{module}.LinearMMConfig", **config)


def test_a_wrapped_weight_is_the_weight_and_its_settings_pairs_of_names_and_values():
    w = torch.randn(4, 8)
    config = matmul_config("float8_tensor")
    fields = {"_tensor": w, "_linear_mm_config": config, "_precomputed_scale": torch.tensor(2.0)}
    weight = built(raw(f"{FSDP}.WeightWithDynamicFloat8CastTensor", (4, 8), "float32", **fields))
    assert same_bytes(weight.dequantize(), w)
    assert weight.precomputed_scale == 2
    matmul = ("ScaledMMConfig", (("emulate", False), ("use_fast_accum", True)))
    names = ("output", "grad_input", "grad_weight")
    assert weight.settings == (
        ("class", "WeightWithDynamicFloat8CastTensor"),
        ("_linear_mm_config", ("LinearMMConfig", tuple((name, matmul) for name in names))),
    )


def test_delayed_and_static_scaling_keep_their_buffers():
    w, config = torch.randn(4, 8), matmul_config("float8_tensor")
    delayed = raw(
        f"{FSDP}.WeightWithDelayedFloat8CastTensor",
        (4, 8),
        "float32",
        _tensor=w,
        _amax_buffer=torch.tensor([3.0]),
        _amax_history_buffer=torch.arange(4.0),
        _scale_buffer=torch.tensor([5.0]),
        _linear_mm_config=config,
        is_amax_initialized=True,
    )
    weight = built(delayed)
    assert (weight.last_amax, weight.precomputed_scale) == (3, 5)
    assert torch.equal(weight.amax_history, torch.arange(4.0))
    assert ("is_amax_initialized", True) in weight.settings
    static = raw(
        f"{FSDP}.WeightWithStaticFloat8CastTensor",
        (4, 8),
        "float32",
        _tensor=w,
        _static_scale=torch.tensor(7.0),
        _linear_mm_config=config,
        _dtype="float8_e5m2",
    )
    assert built(static).precomputed_scale == 7
    assert ("_dtype", "float8_e5m2") in built(static).settings


def test_members_of_enums_are_settings_by_name():
    w = torch.randn(2, 4, 8)
    kind = "torchao.prototype.moe_training.conversion_utils.MoEScalingType"
    preference = "torchao.quantization.quantize_.common.kernel_preference.KernelPreference"
    record = raw(
        "torchao.prototype.moe_training.tensor.ScaledGroupedMMTensor",
        (2, 4, 8),
        "float32",
        _data=w,
        scaling_type=member(kind, "mxfp8"),
        kernel_preference=member(preference, "auto"),
    )
    assert dict(built(record).settings) == {
        "class": "ScaledGroupedMMTensor",
        "scaling_type": "MoEScalingType.mxfp8",
        "kernel_preference": "KernelPreference.AUTO",
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_training_tensor_is_divided_by_its_scale(dtype):
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).reshape(16, 16)
    name = str(dtype).removeprefix("torch.")
    for scale in (torch.tensor(1234.5), torch.rand(16, 1) * 100, torch.rand(1, 16) * 100):
        record = raw(
            "torchao.float8.float8_tensor.Float8Tensor",
            (16, 16),
            name,
            _data=codes,
            _scale=scale,
            _orig_dtype=name,
            _linear_mm_config=matmul_config("float8_tensor"),
            _gemm_input_role=member("torchao.float8.float8_tensor.GemmInputRole", "weight"),
        )
        found = built(record).dequantize()
        assert torch.equal(found.isnan(), codes.float().isnan())
        assert torch.equal(found.nan_to_num(), (codes.to(dtype) / scale).to(dtype).nan_to_num())
    assert dict(built(record).settings)["gemm_input_role"] == "GemmInputRole.weight"


def test_a_wrapper_without_its_weight_fits_no_release():
    with pytest.raises(EraError, match="BitNetTrainingLinearWeight"):
        upgraded(raw("torchao.prototype.quantized_training.bitnet.BitNetTrainingLinearWeight", ()))
