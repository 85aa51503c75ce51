"""The cpu backend with its compiled code, and without."""

from __future__ import annotations

import pytest

from aoserial.kernels.cpu.native import library

_BUILT = library.LIBRARY is not None
_HAS_TILES = library.LIBRARY is not None and library.LIBRARY.tiles != library.Tiles.NONE
_WAYS = ["native", "torch alone", *(["without tiles"] if _HAS_TILES else [])]


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where products.c could not be compiled."""
    monkeypatch.setattr(library, "LIBRARY", None)


@pytest.fixture
def without_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where the processor multiplies none."""
    if library.LIBRARY is not None:
        monkeypatch.setattr(library.LIBRARY, "tiles", library.Tiles.NONE)


@pytest.fixture(params=_WAYS)
def either(request: pytest.FixtureRequest) -> None:
    """All, one after the other."""
    if request.param == "torch alone":
        request.getfixturevalue("without_native")
    elif not _BUILT:
        pytest.skip("products.c is NOT compiled: the cpu backend runs on torch's operators alone")
    elif request.param == "without tiles":
        request.getfixturevalue("without_tiles")
