"""The progress bar of tqdm, in a terminal and in a notebook that has no ipywidgets."""

import sys
import warnings
from types import SimpleNamespace

import pytest

from dwac.training import progress


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    with progress.progress_bar("training", 2) as watch:
        for epoch in (1, 2):
            watch["on_batch"](1, 2)
            watch["on_epoch"]({"epoch": epoch, "loss": 0.5})
    out, err = capsys.readouterr()
    assert out == ""
    assert "\n" not in err  # drawn over itself, not line by line
    return str(err)


@pytest.fixture(autouse=True)
def _every_state_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    for name in [name for name in sys.modules if name.partition(".")[0] == "tqdm"]:
        monkeypatch.delitem(sys.modules, name)  # it reads the environment, and looks for a notebook, once


def test_a_terminal_gets_a_bar_that_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    text = shown(capsys)
    assert "epoch 2/2  loss 0.500" in text
    assert text.split("\r")[-1].strip() == ""


def test_a_notebook_without_widgets_gets_a_plain_bar(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # tqdm warns of ipywidgets
        assert "epoch 2/2  loss 0.500" in shown(capsys)


def test_a_file_gets_no_bar(capsys) -> None:
    assert shown(capsys) == ""
