"""Decide or hand over, in a report: what can be decided at a risk, whether the risk was kept, and the strangers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac._checks import warn
from dwac.conformal.decisions import DecisionRule, RiskControl, fewest_strangers, strange
from dwac.drawing.records import shorten
from dwac.estimator.evaluation import Fact
from dwac.report import plots
from dwac.report.findings import Findings, Floats
from dwac.report.measures import on_one_line, percent, share
from dwac.report.parts import Plot, ReportTable, images
from dwac.tasks import NUMBERS
from dwac.tasks.decisions import control_of, forecast_rows, stake_of
from dwac.tasks.group_statistics import rate_interval

RISKS = (0.05, 0.1)
RATE = 0.1  # of false discoveries among strangers
_CURVE = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2)  # risks of the picture
_LISTED, _MOST_LABELS = 10, 12  # examples in a list, labels in a table


class DecisionSection(NamedTuple):
    """What can be decided at several risks, and what is handed over."""

    loss: str  # what counts as one, in the plural
    rule: DecisionRule  # of the first risk
    table: ReportTable
    plots: list[Plot]
    by_label: ReportTable | None  # what is handed over at the first risk, by predicted label
    handed_over: ReportTable | None  # some such examples; None if private, or if there are none
    notes: Sequence[str]


class StrangerSection(NamedTuple):
    """Test examples unlike the training data, at a controlled rate of false discoveries."""

    facts: list[Fact]
    table: ReportTable | None  # None if private, or if there are none


def decision_values(findings: Findings, tolerance: Any = None) -> dict[str, Any]:
    """The sections on decisions and strangers; each None without calibration.

    A model that is calibrated for rows from elsewhere decides none. tolerance: how far off a decided number may be.
    """
    if len(findings.clf.calibration_y_) == 0:
        if tolerance is not None:
            warn("without calibration rows there are no decisions, so tolerance has no effect")
        return {"decisions": None, "strangers": None}
    decided = None if findings.clf.fitted_.shift is not None else _decisions(findings, tolerance)
    return {"decisions": decided, "strangers": _strangers(findings)}


# Decisions


def _decisions(findings: Findings, tolerance: Any) -> DecisionSection:
    clf = findings.clf
    if clf.target_.kind == NUMBERS and tolerance is None:
        tolerance = [float(f"{spread:.2g}") for spread in clf.target_.scale[1]]  # as far as the mean is, usually
    stake = stake_of(clf.sets_, "error", None, tolerance, private=findings.private)
    control, forecast = control_of(clf.fitted_, stake), forecast_rows(clf.sets_, findings.observed, stake)
    lost = stake.lost(forecast.answers, findings.truth, findings.truth)
    rules = [control.rule(risk) for risk in RISKS]
    decided = forecast.expected <= rules[0].threshold
    shown = decided.any() and not decided.all()
    return DecisionSection(
        stake.text,
        rules[0],
        _by_risk(rules, forecast.expected, lost),
        _curve(control, forecast.expected, lost),
        _by_label(findings, decided, lost) if shown else None,
        _handed_over(findings, forecast.expected, decided) if shown and not findings.private else None,
        [_obstacle(findings, rule) for rule in rules if not rule.decided],
    )


def _by_risk(rules: Sequence[DecisionRule], expected: Floats, lost: NDArray[np.bool_]) -> ReportTable:
    chosen = [(percent(rule.risk), expected <= rule.threshold) for rule in rules]
    rows = []
    for name, decided in [*chosen, ("all are decided", np.ones(len(lost), dtype=bool))]:
        n, k, left = int(decided.sum()), int(lost[decided].sum()), int((~decided).sum())
        low, high = (percent(float(end)) for end in rate_interval(k, n))
        rows.append(
            {
                "allowed risk": name,
                "decided": f"{n:,} ({percent(n / len(lost))})",
                "errors among these": f"{k:,} ({percent(k / n)})" if n else "–",
                "95 % interval": on_one_line(f"{low} to {high}") if n else "–",
                "handed over": f"{left:,}",
                "errors if they were not": share(float(lost[~decided].mean()) if left else None),
            }
        )
    return ReportTable.of("Decisions on the test examples", rows, range(1, len(rows[0])))


def _curve(control: RiskControl, expected: Floats, lost: NDArray[np.bool_]) -> list[Plot]:
    """The share decided, and the errors among these, against the allowed risk."""
    decided = [expected <= control.rule(risk).threshold for risk in _CURVE]
    shares = [float(each.mean()) for each in decided]
    if not any(shares):
        return []
    counts = np.array([(lost[each].sum(), each.sum()) for each in decided if each.any()])
    risks = [risk for risk, each in zip(_CURVE, decided, strict=True) if each.any()]
    ends = np.stack(rate_interval(*counts.T), axis=1)
    panels = plots.risk_panels(_CURVE, shares, risks, counts[:, 0] / counts[:, 1], ends)
    return images(*(plots.alone(painter, 3.3, 2.7) for painter in panels))


def _obstacle(findings: Findings, rule: DecisionRule) -> str:
    """Why no row can be decided."""
    text = str(replace(rule, n_calibration=findings.count(rule.n_calibration)))
    return f"{text[:1].upper()}{text[1:]}."


def _by_label(findings: Findings, decided: NDArray[np.bool_], lost: NDArray[np.bool_]) -> ReportTable | None:
    """How many examples of each predicted label are handed over; None unless classes are predicted."""
    codes = getattr(findings.predictions, "codes", None)
    if codes is None:
        return None
    names, counts = findings.clf.classes_.tolist(), np.bincount(codes, minlength=len(findings.clf.classes_))
    rows = []
    for code in np.argsort(-counts, kind="stable")[: min(_MOST_LABELS, int((counts > 0).sum()))]:
        mine, handed = codes == code, (codes == code) & ~decided
        rows.append(
            {
                "predicted": shorten(names[code]),
                "test examples": f"{counts[code]:,}",
                "handed over": f"{handed.sum():,} ({percent(handed.sum() / counts[code])})",
                "wrong among these": f"{lost[handed].sum():,}",
                "wrong among decided": f"{lost[mine & decided].sum():,}",
            }
        )
    left = int((counts > 0).sum()) - len(rows)
    return ReportTable.of(f"Handed over at a risk of {percent(RISKS[0])}, by label", rows, range(1, 5), left)


def _handed_over(findings: Findings, expected: Floats, decided: NDArray[np.bool_]) -> ReportTable:
    rows = [row for row in np.argsort(-expected, kind="stable").tolist() if not decided[row]]
    caption = f"Handed over at a risk of {percent(RISKS[0])}, the most doubtful first"
    return _listed(findings, caption, rows, "expected loss", [percent(value) for value in expected[rows]])


def _listed(findings: Findings, caption: str, rows: Sequence[int], measure: str, values: Sequence[str]) -> ReportTable:
    """The first of these examples: each with a value, what is predicted, whether that is right, and its record."""
    body = [
        (shorten(findings.ids[row]), value, *findings.answer(row), findings.example(row))
        for row, value in list(zip(rows, values, strict=True))[:_LISTED]
    ]
    return ReportTable(caption, ("example", measure, "predicted", "", ""), body, [1], len(rows) - len(body))


# Strangers


def _strangers(findings: Findings) -> StrangerSection | None:
    known, outside = findings.typicality, findings.typicality_outside
    if known is None:
        return None
    found, n = np.flatnonzero(strange(known, RATE)), len(known)
    n_calibration, rate = findings.count(len(findings.clf.calibration_y_)), percent(RATE)
    meaning = (
        f"Test examples unlike the training data; on average, at most {rate} of such a list is wrong (false discovery "
        "rate, by Benjamini and Hochberg's procedure on typicality)."
    )
    fewest = fewest_strangers(n, n_calibration, RATE)
    if not len(found) and fewest > 1:
        meaning += f" Fewer than {fewest:,} cannot be found among {n:,} examples with so few for calibration."
    facts = [Fact("Strangers", f"{len(found):,} of {n:,}", meaning)]
    if outside is not None:
        both = strange(np.concatenate([known, outside]), RATE)[n:]
        facts.append(
            Fact("Strangers found", f"{both.sum():,} of {len(both):,}", "How many out-of-distribution examples are in "
                 "such a list of all examples.")
        )  # fmt: skip
    if not len(found) or findings.private:
        return StrangerSection(facts, None)
    rows = found[np.argsort(known[found], kind="stable")].tolist()
    listed = _listed(findings, "Strangers", rows, "typicality", [f"{known[row]:.3f}" for row in rows])
    return StrangerSection(facts, listed)
