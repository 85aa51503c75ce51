"""How long do `from_float` and `dequantize` of each type take at 4096 × 4096, beside torchao's own?

Needs torchao 0.18 (the `torchao` extra). torchao has no CPU quantizer for plain int4, so that row
has the format's own arithmetic, written with torch, as its peer.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

import aoserial
from benchmarks.measure import compare

SIZE = 4096
RUNS = 5


def main() -> None:
    if find_spec("torchao") is None:
        print("from_float and dequantize: SKIPPED, torchao is not installed")
        return
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
    from torchao.quantization import (
        Float8Tensor,
        Int8Tensor,
        IntxUnpackedToInt8Tensor,
        PerRow,
    )
    from torchao.quantization.granularity import PerBlock

    w = torch.randn(SIZE, SIZE, dtype=torch.bfloat16)
    fp4 = torch.float4_e2m1fn_x2
    rows = {
        "float8 row": (
            lambda: aoserial.Float8Tensor.from_float(w),
            lambda: Float8Tensor.from_hp(w, granularity=PerRow()),
        ),
        "float8 128 × 128": (
            lambda: aoserial.Float8Tensor.from_float(w, granularity=(128, 128)),
            lambda: Float8Tensor.from_hp(w, granularity=PerBlock([128, 128])),
        ),
        "int8 row": (
            lambda: aoserial.Int8Tensor.from_float(w),
            lambda: Int8Tensor.from_hp(w, granularity=PerRow()),
        ),
        "intx 4 bit, groups of 128": (
            lambda: aoserial.IntxTensor.from_float(w, bit_width=4, group_size=128),
            lambda: IntxUnpackedToInt8Tensor.from_hp(w, (1, 128), torch.int4),
        ),
        "mx fp8": (
            lambda: aoserial.MXTensor.from_float(w),
            lambda: MXTensor.to_mx(w, torch.float8_e4m3fn, 32),
        ),
        "mx fp4": (
            lambda: aoserial.MXTensor.from_float(w, element=fp4),
            lambda: MXTensor.to_mx(w, fp4, 32),
        ),
        "nvfp4": (
            lambda: aoserial.NVFP4Tensor.from_float(w),
            lambda: NVFP4Tensor.to_nvfp4(w),
        ),
    }
    for name, (ours, theirs) in rows.items():
        compare(f"from_float, {name}", ours, theirs, at_most=1.0, runs=RUNS)
        made, peer = ours(), theirs()
        compare(f"dequantize, {name}", made.dequantize, peer.dequantize, at_most=1.0, runs=RUNS)


if __name__ == "__main__":
    main()
