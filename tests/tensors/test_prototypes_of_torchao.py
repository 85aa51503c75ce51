"""Small floats against torchao 0.18's own quantizer: the same codes and scales.

Skipped where torchao is not installed (`pip install torchao==0.18.0`).
"""

from __future__ import annotations

import warnings

import pytest
import torch
from support.tensors import same_bytes
from support.weights import of_many_sizes

from aoserial.tensors import FloatxTensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torchao warns of what it cannot use on this machine
    torchao = pytest.importorskip(
        "torchao", reason="torchao is NOT installed: quantizers are not compared with the real ones"
    )
    from torchao.quantization.quant_primitives import (
        _choose_qparams_affine_floatx,
        _dequantize_affine_floatx,
        _quantize_affine_floatx,
    )

pytestmark = [
    pytest.mark.skipif(
        not torchao.__version__.startswith("0.18"), reason=f"torchao is {torchao.__version__}"
    ),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize(("ebits", "mbits"), [(1, 1), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_quantized_as_torchao_does(ebits, mbits, dtype):
    for w in of_many_sizes(dtype):
        scale = _choose_qparams_affine_floatx(w, ebits, mbits)
        codes = _quantize_affine_floatx(w, scale, ebits, mbits)
        ours = FloatxTensor.from_float(w, exponent_bits=ebits, mantissa_bits=mbits)
        usual = w.abs().amax(1) > 1e-12  # a scale that torchao does not raise
        assert same_bytes(ours.qdata[usual], codes[usual])
        assert same_bytes(ours.scale[usual], scale[usual, None])
        expected = _dequantize_affine_floatx(codes, scale, ebits, mbits, dtype)
        assert same_bytes(ours.dequantize()[usual], expected[usual])
