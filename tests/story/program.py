"""One release of acme's program: run with that release's `acme.py` on the path.

python program.py write FOLDER      saves RELEASE.safetensors and .pt, and RELEASE+, which uses
                                    what is new; prints the values they stand for
python program.py read FOLDER       prints what it makes of every file there, or the error, in each
                                    way of reading it: that of aoserial, and plain torch.load
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from acme import Int4Tensor

import aoserial


def make(use_new: bool) -> Int4Tensor:
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(0, 256, (4, 16), dtype=torch.uint8, generator=generator)
    scale = torch.rand(4, 4, generator=generator) + 0.5
    fields = {"qdata": codes, "group_size": 8, "shape": (4, 32)}
    fields["scales" if "scales" in Int4Tensor.tensor_data_names else "scale"] = scale
    if "zeros" in Int4Tensor.tensor_data_names:
        fields["zeros"] = -8 * scale
    if has_news():
        fields |= (
            {"zero_point": torch.full((4, 4), 5.0), "gain": 0.25} if use_new else {"gain": 1.0}
        )
    return Int4Tensor(**fields)


def has_news() -> bool:
    return "gain" in getattr(Int4Tensor, "optional_tensor_attribute_names", ())


def write(folder: Path) -> dict:
    release = Path(sys.modules["acme"].__file__).parent.name
    values = {}
    for name, use_new in ((release, False), (f"{release}+", True)):
        if has_news() or not use_new:
            weight = make(use_new)
            for suffix in ("safetensors", "pt"):
                aoserial.save({"m.weight": weight}, folder / f"{name}.{suffix}")
            values[name] = weight.dequantize().tolist()
    return values


def read(path: Path, load: Callable[[Path], dict]) -> dict:
    try:
        weight = load(path)["m.weight"]
    except aoserial.AoserialError as error:
        return {"error": str(error), "kind": type(error).__name__}
    return {
        "values": weight.dequantize().tolist(),
        "gain": getattr(weight, "gain", None),
        "has_zero_point": getattr(weight, "zero_point", None) is not None,
    }


def read_all(folder: Path) -> dict:
    ways = {
        "safetensors": ("*.safetensors", aoserial.load),
        "pt": ("*.pt", aoserial.load),
        "torch": ("*.pt", partial(torch.load, weights_only=True)),
    }
    return {
        way: {path.stem: read(path, load) for path in folder.glob(pattern)}
        for way, (pattern, load) in ways.items()
    }


if __name__ == "__main__":
    verb, folder = sys.argv[1], Path(sys.argv[2])
    print(json.dumps(write(folder) if verb == "write" else read_all(folder)))
