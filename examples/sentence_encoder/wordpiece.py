"""WordPiece over a vocab.txt, as BERT's uncased models use it (Devlin et al. 2018, section 3)."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import torch

LONGEST_WORD = 100  # characters; a longer one is unknown, as in BERT's own tokenizer

# Written without spaces, so that each character is a word: CJK ideographs and their extensions.
IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """Sentences to rows of token ids.

    Args:
        vocabulary: a file of one piece a line, whose number is its id. Pieces that go on within a
            word start with ##.
        longest: tokens of a sentence, the two around it included; what is beyond is cut off.
    """

    def __init__(self, vocabulary: Path, longest: int = 256) -> None:
        pieces = vocabulary.read_text(encoding="utf-8").splitlines()
        self.ids = {piece: number for number, piece in enumerate(pieces)}
        self.longest = longest

    def __call__(self, sentences: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """int64 ids [B, T], padded to the longest, and a bool mask [B, T] of what counts."""
        rows = [self.encode(sentence) for sentence in sentences]
        width = max(map(len, rows))
        padding = self.ids["[PAD]"]
        ids = torch.tensor([row + [padding] * (width - len(row)) for row in rows])
        mask = torch.tensor([[place < len(row) for place in range(width)] for row in rows])
        return ids, mask

    def encode(self, sentence: str) -> list[int]:
        """The ids of one sentence between [CLS] and [SEP]."""
        ids = [self.ids[piece] for word in words(sentence) for piece in self._pieces(word)]
        return [self.ids["[CLS]"], *ids[: self.longest - 2], self.ids["[SEP]"]]

    def _pieces(self, word: str) -> list[str]:
        """The longest piece that fits, then the longest that goes on from there, to the end."""
        found: list[str] = []
        start = 0
        while start < len(word):
            ends = range(len(word), start, -1)
            candidates = ("##" * bool(start) + word[start:end] for end in ends)
            piece = next((one for one in candidates if one in self.ids), None)
            if piece is None or len(word) > LONGEST_WORD:
                return ["[UNK]"]
            found.append(piece)
            start += len(piece) - 2 * bool(start)
        return found


def words(sentence: str) -> list[str]:
    """Lower case, without accents and control characters, cut at spaces and around punctuation."""
    text = unicodedata.normalize("NFD", "".join(map(_spaced, sentence)))
    # character by character: a final sigma is one like any other
    letters = (one.lower() for one in text if unicodedata.category(one) != "Mn")
    return "".join(f" {one} " if _is_punctuation(one) else one for one in letters).split()


def _spaced(character: str) -> str:
    """A character that stands alone between spaces, white space as one, control as none."""
    if character in "\t\n\r":
        return " "
    if character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co"):
        return ""
    code = ord(character)
    alone = any(first <= code <= last for first, last in IDEOGRAPHS)
    return f" {character} " if alone else character


def _is_punctuation(character: str) -> bool:
    """Unicode's, and all of ASCII that is no letter, digit or space ($, + and ^ among it)."""
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")
