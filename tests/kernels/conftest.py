"""The cpu backend with its compiled code, and without."""

from __future__ import annotations

import pytest

from aoserial.kernels.cpu.native import library

_BUILT = library.LIBRARY is not None


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where products.c could not be compiled."""
    monkeypatch.setattr(library, "LIBRARY", None)


@pytest.fixture(params=["native", "torch alone"])
def either(request: pytest.FixtureRequest) -> None:
    """Both, one after the other."""
    if request.param == "torch alone":
        request.getfixturevalue("without_native")
    elif not _BUILT:
        pytest.skip("products.c is NOT compiled: the cpu backend runs on torch's operators alone")
