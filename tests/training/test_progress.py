"""How long, and how far: said once from measured steps, then every half minute where there is no bar."""

import logging

import pytest

from dwac.training import progress
from dwac.training.progress import Pace, duration, logger, progress_bar, rows_bar
from tests.named import named


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 30.0)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def work(seconds: float, steps: int, *, first: float = 0.0, lines: bool = True) -> None:
    """Steps of so many seconds altogether, after a first one that takes longer."""
    clock = Clock()
    pace = Pace("training", lines=lines, clock=clock)
    for step in range(1, steps + 1):
        clock.now += seconds / steps + (first if step == 1 else 0.0)
        pace.at(step / steps, f"epoch {step}")


def test_long_work_is_estimated_once_and_reported_every_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger.name):
        work(240, 240)
    first, *rest = said(caplog)
    assert named(first, "training", "4 minutes")
    assert [record.__dict__.get("estimate", False) for record in caplog.records] == [True] + [False] * len(rest)
    assert named(rest[0], "training", "12 %", "epoch 30", "4 minutes")
    assert len(rest) == 7
    assert named(rest[-1], "training", "88 %", "epoch 210", "30 seconds")


def test_short_work_says_nothing_even_if_its_first_step_is_slow(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger.name):
        work(20, 40, first=8)
    assert said(caplog) == []


def test_where_a_bar_is_shown_only_the_estimate_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger.name):
        work(240, 240, lines=False)
    (only,) = said(caplog)
    assert named(only, "training", "4 minutes")


def test_without_a_terminal_the_callbacks_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(Pace.__init__, "__kwdefaults__", {"lines": True, "clock": clock})
    with caplog.at_level(logging.INFO, logger.name), progress_bar("training", 10) as watch:
        for epoch in range(1, 11):
            for batch in range(1, 5):
                clock.now += 5
                watch["on_batch"](batch, 4)
            watch["on_epoch"]({"epoch": epoch, "loss": 0.5, "validation_accuracy": 0.75})
    first, *rest = said(caplog)
    assert named(first, "training", "3 minutes")
    facts = ("training", "30 %", "epoch 2/10", "loss 0.500", "accuracy 0.750", "2 minutes")
    assert sum(named(line, *facts) for line in rest) == 1
    caplog.clear()
    with caplog.at_level(logging.INFO, logger.name), rows_bar("worth", 100, show=False) as done:
        for row in range(100):
            clock.now += 10
            done(row)
    assert said(caplog) == []


def test_a_time_is_said_in_few_words() -> None:
    assert [duration(s) for s in (0.2, 1, 59, 91, 3599, 36000)] == [
        "1 second", "1 second", "60 seconds", "2 minutes", "60 minutes", "10.0 hours"
    ]  # fmt: skip
