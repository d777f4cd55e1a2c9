"""The progress bar in a notebook that has no ipywidgets."""

import warnings

import pytest
import rich.console

from dwac.training import progress


@pytest.mark.slow
def test_a_notebook_without_widgets_gets_a_plain_bar(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # rich warns of ipywidgets
        with progress.progress_bar("training", 2) as watch:
            for epoch in (1, 2):
                watch["on_epoch"]({"epoch": epoch, "loss": 0.5})
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "epoch 2/2" in shown.err
    assert "━" in shown.err
    lines = [line for line in shown.err.split("\n") if "training" in line]
    assert len(lines) == 1  # drawn over itself, not line by line
