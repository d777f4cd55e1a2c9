"""Decisions of a fitted model on rows, as many as a bound on their errors allows; a person decides the others.

Every kind of target says what loss it expects of a row, by its own votes, and which loss a row with a known answer has.
`dwac.conformal.decisions` finds how large an expected loss may be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac._checks import listed, percent, warn
from dwac.conformal.decisions import DecisionRule, RiskControl, fewest_strangers, strange
from dwac.errors import CalibrationError, CalibrationWarning, InputError
from dwac.explain import privacy
from dwac.tasks.base import LABELS, NUMBERS, Bools, Fitted, Floats, zero_nan
from dwac.tasks.local import judged_rows
from dwac.tasks.predicted_numbers import as_numpy

MEASURES = ("error", "false positives", "false negatives")


class Forecast(NamedTuple):
    """What a model answers, and the loss that it expects, from 0 to 1."""

    answers: Any  # (n,) codes, (n, L) of 0 and 1, or (n, T) numbers
    expected: Floats  # (n,)


class Stake(NamedTuple):
    """What counts as a loss."""

    name: Any  # by which the calibration is remembered
    text: str  # of a loss, in the plural
    forecast: Callable[[Any], Forecast]  # from votes (n, K), or the distribution of votes on numbers
    lost: Callable[[Any, Any, Floats], Bools]  # from answers, true codes (n,) and true numbers or labels


def stake_of(sets: Any, measure: str, label: Any, tolerance: Any, *, private: bool = False) -> Stake:
    """What counts as a loss for this kind of target.

    private: expected losses are rounded up to whole per cent before they are compared with any threshold, those of
    calibration rows, too. Otherwise many decisions on one row, at different risks, would reveal its exact vote.
    """
    stake = _stake_of(sets, measure, label, tolerance)
    if not private:
        return stake

    def forecast(votes: Any) -> Forecast:
        answers, expected = stake.forecast(votes)
        return Forecast(answers, np.ceil(np.round(expected * privacy.STEPS, 6)) / privacy.STEPS)

    return stake._replace(name=("private", stake.name), forecast=forecast)


def _stake_of(sets: Any, measure: str, label: Any, tolerance: Any) -> Stake:
    target = sets.fitted.target
    if target.kind == NUMBERS:
        if measure != "error" or label is not None:
            raise InputError("measure and label are for predicted labels; this model predicts numbers; leave them out")
        return _off_by_more(sets, tolerance)
    if tolerance is not None:
        raise InputError(f"tolerance is for predicted numbers; this model predicts {target.noun}; leave it out")
    if measure not in MEASURES:
        raise InputError(f"measure must be one of {listed(MEASURES)}; got {measure!r}")
    names = target.plain_names
    if measure == "error" and label is None:
        return _any_label_wrong(target) if target.kind == LABELS else _wrong_class(target)
    if label is None and (target.kind == LABELS or len(names) != 2):
        raise InputError(f"{measure} are those of one label; give label=…, one of {listed(names)}")
    label = names[1] if label is None else label
    if label not in names:
        raise InputError(f"label must be one of {listed(names)}; got {label!r}")
    return _wrong_about(target, names.index(label), measure)


def _wrong_class(target: Any) -> Stake:
    def forecast(votes: Floats) -> Forecast:
        p = target.probabilities(votes)
        return Forecast(votes.argmax(axis=1), 1 - p.max(axis=1))

    return Stake("error", "errors", forecast, lambda answers, codes, _: answers != codes)


def _any_label_wrong(target: Any) -> Stake:
    def forecast(votes: Floats) -> Forecast:
        has = (target.probabilities(votes) >= 0.5).astype(np.float64)
        codes, shares = target.codes(has), np.exp(votes - np.logaddexp.reduce(votes, axis=1, keepdims=True))
        right = np.where(codes >= 0, shares[np.arange(len(codes)), codes], 0.0)
        return Forecast(has, 1 - right)

    return Stake("error", "errors", forecast, lambda answers, _, exact: (answers != exact).any(axis=1))


def _wrong_about(target: Any, which: int, measure: str) -> Stake:
    """Errors about one label, of one kind or of both."""
    several, kinds = target.kind == LABELS, {"error": (True, True), "false positives": (True, False)}
    positives, negatives = kinds.get(measure, (False, True))

    def has(answers: Any) -> Any:
        return answers[:, which] > 0 if several else answers == which

    def forecast(votes: Floats) -> Forecast:
        p = target.probabilities(votes)
        answers = (p >= 0.5).astype(np.float64) if several else votes.argmax(axis=1)
        wrong = np.where(has(answers), (1 - p[:, which]) * positives, p[:, which] * negatives)
        return Forecast(answers, np.clip(wrong, 0.0, 1.0))

    def lost(answers: Any, codes: Any, exact: Floats) -> Bools:
        predicted, true = has(answers), has(exact if several else codes)
        return np.asarray((predicted & ~true & positives) | (~predicted & true & negatives))

    name = target.plain_names[which]
    text = f"errors about {name}" if measure == "error" else f"{measure} of {name}"
    return Stake((measure, which), text, forecast, lost)


def _off_by_more(sets: Any, tolerance: Any) -> Stake:
    target = sets.fitted.target
    allowed = np.asarray(np.nan if tolerance is None else tolerance, dtype=np.float64)
    if allowed.size not in (1, len(target.names)) or not (allowed > 0).all():
        raise InputError(
            "decisions on numbers need tolerance=… (--tolerance), how far off a decided one may be: a positive number"
            f"{'' if target.single else f', or one for each of {listed(target.names.tolist())}'}; got {tolerance!r}"
        )
    allowed = np.broadcast_to(allowed.ravel(), len(target.names))

    def forecast(votes: Any) -> Forecast:
        answers = sets.average_of(votes)
        above = 1 - as_numpy(votes.cdf(answers + allowed))
        below = 1 - np.exp(as_numpy(votes.tails(answers - allowed)[1]))
        return Forecast(answers, np.clip((above + below).sum(axis=1), 0.0, 1.0))

    text = f"numbers off by more than {listed(allowed.tolist(), show=lambda value: f'{value:,g}')}"
    name = sets.average, tuple(allowed.tolist())
    return Stake(name, text, forecast, lambda answers, _, exact: (np.abs(answers - exact) > allowed).any(axis=1))


def forecast_rows(sets: Any, observed: Any, stake: Stake) -> Forecast:
    """What the model answers for the readable rows, and the loss that it expects of each."""
    if sets.fitted.target.kind == NUMBERS:
        return stake.forecast(sets.fitted.references.distribution(observed.h))
    return stake.forecast(zero_nan(observed.votes)[observed.readable])


def control_of(fitted: Fitted, stake: Stake) -> RiskControl:
    """The losses of the calibration rows, each judged by votes that know nothing of it."""

    def compute() -> RiskControl:
        rows = fitted.calibration
        rows.require()
        if fitted.shift is not None:
            raise CalibrationError(
                "decisions count the errors of calibration rows as they are, and this model is calibrated for rows "
                "from elsewhere; label some of those and call recalibrate(X, y)"
            )
        expected, lost = np.empty(len(rows.y)), np.empty(len(rows.y), dtype=bool)
        for here, votes in judged_votes(fitted):
            forecast = stake.forecast(votes)
            expected[here] = forecast.expected
            lost[here] = stake.lost(forecast.answers, rows.y[here], rows.exact[here])
        return RiskControl(expected, lost, certain=fitted.folds is None)

    control: RiskControl = fitted.derive(("decisions", stake.name), compute)
    return control


def judged_votes(fitted: Any) -> Any:
    """Positions of calibration rows, and the votes on them by models that left them out."""
    rows = fitted.calibration
    if fitted.target.kind != NUMBERS:
        yield slice(None), fitted.judge(fitted.references, rows.h)
        return
    for here, h, voters in judged_rows(fitted.references, rows, fitted.folds):
        yield here, voters.distribution(h)


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a model decides, and what it hands over to a person, and why; prints as a summary."""

    # (n,) labels, tuples of labels or numbers, or (n, T) numbers; of rows that are handed over, too
    answers: NDArray[Any]
    decided: Bools  # (n,)
    expected: Floats  # (n,): the expected loss; NaN for a row that could not be read
    why: tuple[str | None, ...]  # (n,): why a row is handed over
    rule: DecisionRule
    loss: str  # what counts as one
    ids: pd.Index[Any]

    def __len__(self) -> int:
        return len(self.decided)

    def hand_over(self, rows: Any, why: str) -> Decisions:
        """The same, but these rows, by position, are handed over, too."""
        decided, reasons = self.decided.copy(), list(self.why)
        for row in np.asarray(rows).tolist():
            if decided[row]:
                decided[row], reasons[row] = False, why
        return replace(self, decided=decided, why=tuple(reasons))

    def to_frame(self) -> pd.DataFrame:
        """One row per row, by id: decided, decision (None if it is handed over), expected_loss, why."""
        decision = np.empty(len(self), dtype=object)
        for row in np.flatnonzero(self.decided).tolist():
            answer = self.answers[row]
            decision[row] = answer.tolist() if isinstance(answer, np.ndarray | np.generic) else answer
        columns = {"decided": self.decided, "decision": decision, "expected_loss": self.expected}
        why = pd.Series(self.why, index=self.ids, dtype="str")
        return pd.DataFrame(columns, index=self.ids).assign(why=why)

    def __str__(self) -> str:
        n, most = int(self.decided.sum()), percent(self.rule.risk, most=1)
        rows = f"{n:,} of {len(self):,} rows decided, {len(self) - n:,} handed over"
        return f"{rows}: at most {most} {self.loss}\n{self.rule}"


def decide_rows(sets: Any, observed: Any, stake: Stake, rule: DecisionRule, ids: pd.Index[Any]) -> Decisions:
    """Decide observed rows by a rule."""
    target, readable = sets.fitted.target, observed.readable
    if target.kind == NUMBERS:
        values = sets.values(observed)
        answers = values[:, 0] if target.single else values
    else:
        answers = target.predict(observed.votes)
    expected = np.full(len(readable), np.nan)
    if readable.any():
        expected[readable] = forecast_rows(sets, observed, stake).expected
    decided = readable & (np.nan_to_num(expected, nan=np.inf) <= rule.threshold)
    why = tuple(
        reason if reason is not None else None if fine else _too_uncertain(value, rule)
        for reason, fine, value in zip(observed.reasons, decided, expected, strict=True)
    )
    return Decisions(answers, decided, expected, why, rule, stake.text, ids)


def _too_uncertain(expected: float, rule: DecisionRule) -> str:
    if not rule.decided:
        return str(rule)
    loss, most = percent(expected, most=1), percent(rule.threshold, most=1)
    return f"its votes expect a loss of {loss}; rows are decided up to {most}"


def list_strangers(fitted: Fitted, observed: Any, rate: float, ids: Any, *, private: bool) -> pd.DataFrame:
    """The observed rows that are unlike the training data, the strangest first: id, position and typicality."""
    fitted.calibration.require()
    typicality = observed.typicality(private=private)
    rows, n, n_rows = np.flatnonzero(strange(typicality, rate)), len(fitted.calibration.y), len(observed)
    fewest = fewest_strangers(n_rows, n, rate)
    if len(rows) == 0 and fewest > 1:
        warn(
            f"{n:,} calibration rows cannot find fewer than {fewest:,} strangers among {n_rows:,} rows at a rate of "
            f"{rate:g}; ask about fewer rows at once, or allow a higher rate",
            CalibrationWarning,
        )
    rows = rows[np.argsort(typicality[rows], kind="stable")]
    index = pd.Index(ids, name="id", tupleize_cols=False)[rows]
    return pd.DataFrame({"position": rows, "typicality": typicality[rows]}, index=index)
