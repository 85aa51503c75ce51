"""Broken pickles and broken files, made from good ones by a seed: the same seed, the same break."""

from __future__ import annotations

import pickle
import pickletools
import random
from collections import OrderedDict
from collections.abc import Iterator

from support import containers, lying_zip, pickle_assembler as asm

OPCODES = [info.code.encode("latin-1") for info in pickletools.opcodes]
EXTREMES = [
    0,
    1,
    127,
    128,
    255,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
]

STORAGES = {"0": containers.FLOATS, "1": bytes(64), "2": b"\0\1\1\0"}


def seeds() -> list[bytes]:
    """Good pickles of every kind."""
    tensors = asm.dict_(
        asm.text("w"),
        asm.tensor(),
        asm.text("v"),
        asm.tensor(asm.storage("1", 16), offset=2, size=(2, 3), stride=(4, 1)),
        asm.text("b"),
        asm.tensor(asm.storage("2", 4, cls="BoolStorage"), size=(2, 2), stride=(1, 2)),
    )
    subclass = asm.wrapper(
        ("torchao.quantization", "Int8Tensor"),
        asm.text("qdata"),
        asm.tensor(),
        asm.text("n"),
        asm.NONE,
    )
    quantized = asm.call(
        asm.global_("torch._utils", "_rebuild_qtensor"),
        asm.storage("2", 4, cls="QInt8Storage"),
        b"K\0",
        asm.ints((2, 2)),
        asm.ints((2, 1)),
        asm.tuple_(asm.global_("torch", "per_tensor_affine"), b"G?\xe0\0\0\0\0\0\0", b"K\0"),
        asm.FALSE,
        asm.EMPTY_DICT,
    )
    state = OrderedDict(lr=0.1, betas=(0.9, 0.999), step=3, name="adam", ids={1, 2}, raw=b"\0\xff")
    plain = [pickle.dumps(state, protocol) for protocol in range(6)]
    gadgets = [body for _, body in list(asm.gadgets("canary"))[::211]]
    made = [tensors, subclass, quantized, asm.list_(subclass, tensors), *gadgets]
    return plain + [asm.stream(body, protocol=2 + n % 4) for n, body in enumerate(made)]


def mutated(good: list[bytes], chance: random.Random) -> bytes:
    """One of these streams, broken in one to four places."""
    data = bytearray(chance.choice(good))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 1, 2, 4, 9, 40)))
        match chance.randrange(9):
            case 0 if data:
                data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
            case 1:
                data[at:at] = chance.choice(OPCODES)
            case 2:
                data[at:end] = b""
            case 3:
                data[at:at] = data[at:end] * chance.choice((1, 2, 50))
            case 4:
                other = chance.choice(good)
                start = chance.randrange(len(other))
                data[at:end] = other[start : start + chance.choice((2, 8, 60))]
            case 5:
                width = chance.choice((1, 2, 4, 8))
                value = chance.choice(EXTREMES) % 256**width
                data[at : at + width] = value.to_bytes(width, "little")
            case 6:
                data = data[: chance.randrange(len(data) + 1)]
            case 7:
                data[at:end] = chance.randbytes(end - at)
            case 8 if at < len(data):
                data[at] = chance.choice(OPCODES)[0]
    return bytes(data)


def streams(count: int, seed: int) -> Iterator[bytes]:
    good = seeds()
    chance = random.Random(seed)
    for _ in range(count):
        yield mutated(good, chance)


def files(count: int, seed: int) -> Iterator[bytes]:
    """Whole files: a broken pickle in a good container, or the container broken itself."""
    good = seeds()
    chance = random.Random(seed)
    whole = [
        lying_zip.build(lying_zip.archive(good[6], STORAGES)),
        containers.legacy(
            good[6], {"0": (4, STORAGES["0"]), "1": (16, STORAGES["1"]), "2": (4, STORAGES["2"])}
        ),
        containers.tarred(asm.stream(asm.NONE)),
    ]
    for _ in range(count):
        if chance.random() < 0.3:
            wrap = chance.choice(list(containers.CONTAINERS.values()))
            yield wrap(mutated(good, chance))
        else:
            yield mutated(whole, chance)
