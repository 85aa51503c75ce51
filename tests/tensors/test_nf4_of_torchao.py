"""NF4 against torchao 0.18's own: the same codes, scales and values.

Skipped where torchao is not installed (`pip install torchao==0.18.0`).
"""

from __future__ import annotations

import warnings

import pytest
import torch
from support.tensors import same_bytes

from aoserial.tensors import NF4Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torchao warns of what it cannot use on this machine
    theirs = pytest.importorskip(
        "torchao.quantization.quantize_.workflows.nf4.nf4_tensor",
        reason="torchao 0.18 is NOT installed: NF4 is not compared with the real one",
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("block", "scaler_block"), [(64, 256), (16, 4)])
def test_the_bits_are_torchaos(dtype: torch.dtype, block: int, scaler_block: int) -> None:
    torch.manual_seed(0)
    w = (torch.randn(64, 512) * 0.02).to(dtype)
    ours = NF4Tensor.from_float(w, block_size=block, scaler_block_size=scaler_block)
    made = theirs.to_nf4(w, block, scaler_block)
    for name in ours.part_names():
        assert same_bytes(getattr(ours, name), getattr(made, name)), name
    assert same_bytes(ours.dequantize(), made.get_original_weight())
