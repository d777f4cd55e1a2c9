"""Reports without pictures, for tests of words alone."""

import pytest

from dwac.drawing.picture import Picture


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are prepared but not drawn, which takes half the time of a report: for tests of words alone."""
    monkeypatch.setattr(Picture, "svg", lambda self: "<svg/>")
