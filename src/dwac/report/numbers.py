"""The values of the report on numbers: errors, intervals, quantiles; the text is in `templates/numbers.html`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dwac import metrics
from dwac.drawing.records import shorten
from dwac.estimator.evaluation import Fact, amount
from dwac.report import card, plots
from dwac.report.findings import EPSILONS, Floats, NumberFindings
from dwac.report.grouped import in_shown_groups
from dwac.report.measures import Measure, on_one_line, percent, share
from dwac.report.parts import Plot, ReportTable, images
from dwac.report.summary import number_summary

_LEVELS = np.linspace(0.05, 0.95, 19)  # levels of quantiles
_FIFTHS = 5  # parts of the predictions, from the lowest to the highest
_MOST_DRAWN = 4  # numbers with a plot of their own
_LARGE = 0.9  # quantile above which an error is called large
_UNUSUAL = 8  # listed examples that are unlike any other


def number_values(findings: NumberFindings) -> dict[str, Any]:
    """The values of the report on numbers that other reports do not have."""
    ends = findings.predictions.intervals(findings.result.epsilon)
    guarantee = 0.0
    if findings.calibrated and findings.clf.cross_fitted_:
        guarantee = findings.clf.expected_intervals(findings.result.epsilon).guarantee or 0.0
    quantiles, quantile_plots = _quantiles(findings)
    return {
        "target": _target(findings),
        "summary": number_summary(findings),
        "coverage": card.coverage_meaning(findings, "Intervals", "the true number", "intervals could be narrower")
        if findings.calibrated
        else "",
        "width": _width(findings),
        "median_error": amount(float(np.median(np.abs(findings.values - findings.truth)))),
        "by_number": _by_number(findings) if len(findings.names) > 1 else None,
        "error_plots": [] if findings.private else _error_plots(findings, ends),
        "n_undrawn": 0 if findings.private else max(len(findings.names) - _MOST_DRAWN, 0),
        "by_size": [_by_size(findings, ends, t) for t in range(min(len(findings.names), _MOST_DRAWN))],
        "group_tables": _groups(findings),
        "intervals": _intervals(findings) if findings.calibrated else None,
        "theory": percent(1 - guarantee),
        "quantiles": quantiles,
        "quantile_plots": quantile_plots,
        "unusual": _unusual(findings, ends),
    }


# Quality


def _width(findings: NumberFindings) -> str:
    epsilon, width = findings.result.epsilon, findings.result.median_width
    low, high = np.quantile(findings.truth, [epsilon / 2, 1 - epsilon / 2])
    if not width or not np.isfinite(width) or high <= low:
        return "Intervals are infinite where there are too few calibration examples for this ε."
    return (
        f"Without the model, the same share of these examples lies between {amount(float(low))} and "
        f"{amount(float(high))}: intervals are {percent(width / (high - low))} as wide as that."
    )


def _target(findings: NumberFindings) -> Fact:
    references = findings.clf.references_
    assert references.targets is not None
    numbers = references.targets.cpu().numpy()
    ends = [f"{amount(float(column.min()))} to {amount(float(column.max()))}" for column in numbers.T]
    if findings.private:
        return Fact("Target", "a number" if len(ends) == 1 else f"{len(ends)} numbers", "What is predicted.")
    if len(ends) == 1:
        return Fact("Target", f"a number from {ends[0]}", "The range of the training examples' numbers.")
    each = ", ".join(f"{name} ({end})" for name, end in zip(findings.names, ends, strict=True))
    return Fact(f"{len(ends)} numbers", shorten(each, 300), "The ranges of the training examples' numbers.")


# Errors


def _error_plots(findings: NumberFindings, ends: Floats | None) -> list[tuple[str, list[Plot]]]:
    """The name of each number, with plots of its errors; of many numbers, only the first few."""
    drawn = []
    for t, name in enumerate(findings.names[:_MOST_DRAWN]):
        title, interval = "" if len(findings.names) == 1 else name, None if ends is None else ends[:, t]
        panels = plots.number_panels(findings.truth[:, t], findings.values[:, t], interval, title)
        drawn.append((name, images(*(plots.alone(painter, 3.6, 3.3) for painter in panels))))
    return drawn


def _by_number(findings: NumberFindings) -> ReportTable:
    rows = []
    for row in findings.result.by_number.to_dict("records"):
        cells = {
            "number": shorten(row["number"]),
            "RMSE": amount(row["rmse"]),
            "mean absolute error": amount(row["mae"]),
            "CRPS": amount(row["crps"]),
            "R²": f"{row['r2']:.3f}",
        }
        if findings.calibrated:
            cells |= {"coverage": share(row["coverage"]), "median width": amount(row["median_width"])}
        rows.append(cells)
    return ReportTable.of("Results per number", rows, range(1, len(rows[0])))


def _by_size(findings: NumberFindings, ends: Floats | None, t: int) -> ReportTable:
    """Errors in fifths of the predictions, from the lowest to the highest."""
    values, truth = findings.values[:, t], findings.truth[:, t]
    rows = []
    for some in np.array_split(np.argsort(values, kind="stable"), min(_FIFTHS, len(values))):
        wrong = truth[some] - values[some]
        cells = {
            "predicted": f"{amount(values[some].min())} to {amount(values[some].max())}",
            "test examples": f"{len(some):,}",
            "mean error (true - predicted)": amount(float(wrong.mean())),
            "mean absolute error": amount(float(np.abs(wrong).mean())),
        }
        if ends is not None:
            cells["coverage"] = share(metrics.interval_coverage(truth[some], ends[some, t]))
            cells["median width"] = amount(metrics.interval_widths(ends[some, t]).median)
        rows.append(cells)
    which = "" if len(findings.names) == 1 else f" of {findings.names[t]}"
    return ReportTable.of(f"Errors by the size of the prediction{which}", rows, range(1, len(rows[0])))


# Intervals and quantiles


def _intervals(findings: NumberFindings) -> ReportTable:
    rows, alone = [], len(findings.names) == 1
    for epsilon in EPSILONS:
        ends = findings.intervals(epsilon)
        assert ends is not None
        chance = findings.chance(epsilon)
        cells = {
            "allowed error rate ε": f"{epsilon:g}",
            "requested": percent(1 - epsilon),
            "coverage": percent(metrics.interval_coverage(findings.truth, ends)),
            "range by chance": on_one_line(f"{percent(chance[0])} to {percent(chance[1])}") if chance else "–",
        }
        for t, name in enumerate(findings.names):
            width = "median width" if alone else f"median width of {name}"
            cells[width] = amount(metrics.interval_widths(ends[:, t]).median)
        rows.append(cells)
    return ReportTable.of("Intervals on the test examples", rows, range(len(rows[0])))


def _quantiles(findings: NumberFindings) -> tuple[list[Fact], list[Plot]]:
    """How often true numbers are at or below quantiles of the votes: the largest gap, and a plot."""
    quantiles = findings.predictions.quantiles(_LEVELS.tolist())
    n, n_drawn = len(findings.truth), min(len(findings.names), _MOST_DRAWN)
    shares = [(findings.truth[:, t, None] <= quantiles[:, t]).mean(axis=0) for t in range(n_drawn)]
    worst = max(float(np.abs(each - _LEVELS).max()) for each in shares)
    names = ["this model"] if len(findings.names) == 1 else findings.names[:n_drawn]
    near = 1.36 / np.sqrt(n)  # Kolmogorov's bound at 5 %
    verdict = "chance alone explains this" if worst <= near else "this is more than chance explains"
    meaning = (
        "Between a quantile's level and the share of true numbers at or below it, "
        f"over {len(_LEVELS)} levels; with {n:,} examples {verdict}."
    )
    painter = plots.quantile_panel(_LEVELS, shares, names)
    return [Fact("Largest gap", percent(worst), meaning)], images(plots.alone(painter, 3.6, 3.4))


# Groups, typicality and single examples


def _groups(findings: NumberFindings) -> list[ReportTable]:
    references = in_shown_groups(findings.clf)[0]
    assert references.targets is not None
    targets = references.groups.targets(references.targets.cpu().numpy(), references.sizes)
    names = [
        "; ".join(f"{amount(m)} ({amount(a)} to {amount(b)})" for m, a, b in zip(*ends, strict=True))
        for ends in zip(*targets, strict=True)
    ]
    odd = (findings.errors > np.quantile(findings.errors, _LARGE)) | findings.strange
    measure = Measure.of_numbers(findings.values, findings.truth, findings.clf.target_.scale[1])
    return card.group_tables(findings, names, measure, odd, "among the tenth with the largest errors")


def _unusual(findings: NumberFindings, ends: Floats | None) -> ReportTable | None:
    """The least typical test examples; None if private."""
    if findings.typicality is None or findings.private:
        return None
    rows = []
    for row in findings.unusual[:_UNUSUAL]:
        known = [] if ends is None else [on_one_line(f"{amount(low)} to {amount(high)}") for low, high in ends[row]]
        rows.append(
            {
                "example": shorten(findings.ids[row]),
                "typicality": f"{findings.typicality[row]:.3f}",
                "predicted": "; ".join(map(amount, findings.values[row])),
                "interval": "; ".join(known) or "–",
                "true": "; ".join(map(amount, findings.truth[row])),
                "": findings.example(row),
            }
        )
    return ReportTable.of("The least typical test examples", rows, [1, 2, 4])
