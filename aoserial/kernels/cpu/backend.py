"""The backend: which kernel and which decoder a weight is packed for."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from aoserial.kernels.backend import Backend, Packed, Run
from aoserial.kernels.cpu import stream
from aoserial.kernels.cpu.decoder import Decoder
from aoserial.kernels.cpu.int4pack import Int4Pack
from aoserial.kernels.cpu.int8pack import Int8Pack
from aoserial.kernels.cpu.int8products import ByCompiledCode, ByOneDnn, ByTiles, InBfloat16
from aoserial.kernels.cpu.kernel import Kernel, Stream, finished, rows
from aoserial.kernels.cpu.native import Native, NativeNibbles
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.reference import Reference
from aoserial.kernels.spec import Spec, Weight

# The first that takes a weight gets what activations suit it; the last takes none.
KERNELS: dict[str, Kernel] = {
    "tiled int8 products": ByTiles(),
    "oneDNN int8 products": ByOneDnn(),
    "native int8 products": ByCompiledCode(),
    "bfloat16 int8 products": InBfloat16(),
    "native nibbles": NativeNibbles(),
    "native": Native(),
    "int4pack": Int4Pack(),
    "int8pack": Int8Pack(),
    "stream": Stream(),
}


class Layout(NamedTuple):
    """What multiplies by a weight: a kernel, and a decoder for what it leaves to the stream."""

    kernel: Kernel
    decoder: Decoder


LAYOUTS = {
    f"{kernel}, {decoder}": Layout(KERNELS[kernel], stream.DECODERS[decoder])
    for kernel in KERNELS
    for decoder in stream.DECODERS
}


class Cpu(Backend):
    """Takes what `reference` takes, on a CPU.

    A packed weight has the weight's parts, in the same memory, and what its layout adds to them.
    """

    name = "cpu"
    devices = frozenset({"cpu"})

    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        """None, or what `reference` says of the weight."""
        return Reference().supports(spec, device)

    def pack(self, weight: Weight, device: DeviceInfo) -> Packed:
        """The weight with what the first kernel and the first decoder that take it need beside."""
        parts = {name: part.detach() for name, part in weight.parts.items()}
        weight = Weight(spec=weight.spec, parts=parts)
        kernel, for_kernel = next(
            (name, added)
            for name, kernel in KERNELS.items()
            if (added := kernel.pack(weight, device)) is not None
        )
        decoder, for_decoder = next(
            (name, added)
            for name, decoder in stream.DECODERS.items()
            if (added := decoder.pack(weight)) is not None
        )
        return Packed(
            spec=weight.spec,
            parts={**parts, **for_kernel, **for_decoder},
            layout=f"{kernel}, {decoder}",
        )

    def alone(self, packed: Packed) -> Packed:
        """Without the weight's codes, where the kernel has them in a form of its own."""
        if not LAYOUTS[packed.layout].kernel.holds_codes:
            return packed
        parts = {name: part for name, part in packed.parts.items() if name != "qdata"}
        return replace(packed, parts=parts)

    def unpack(self, packed: Packed) -> Weight:
        """The weight's own parts, which have been kept; its codes perhaps by the kernel alone."""
        spec, parts = packed.spec, dict(packed.parts)
        if "qdata" not in parts:
            parts["qdata"] = LAYOUTS[packed.layout].kernel.codes(spec, parts)
        return Weight(spec=spec, parts={name: parts[name] for name in spec.parts})

    def linear(
        self, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`F.linear(x, weight, bias)`, rounded once to the dtype of `x` after the bias is added."""
        return self.bind(packed)(x, bias)

    def bind(self, packed: Packed) -> Run:
        """What `linear` computes by the packed weight, with the kernel found and told of it."""
        weight = Weight(spec=packed.spec, parts=packed.parts)
        kernel, decoder = LAYOUTS[packed.layout]
        by_kernel = kernel.bind(weight)

        def run(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            y = by_kernel(x, bias)
            return by_stream(x, bias) if y is None else y

        def by_stream(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            held = weight if "qdata" in packed.parts else self.unpack(packed)
            parts = {**packed.parts, **held.parts}
            return finished(stream.linear(rows(x, held), decoder, packed.spec, parts), x, bias)

        return run
