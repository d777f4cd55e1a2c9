"""What the report says of numbers: errors, intervals, quantiles, and examples unlike any other."""

from __future__ import annotations

import numpy as np

from dwac import metrics
from dwac.drawing.records import written
from dwac.estimator.evaluation import Fact, amount
from dwac.estimator.preparation import take
from dwac.report import plots, words
from dwac.report.cases import brief, told_cases
from dwac.report.findings import EPSILONS
from dwac.report.group_tables import group_tables
from dwac.report.grouped import in_shown_groups
from dwac.report.markup import Html, joined, table, tag
from dwac.report.measures import Measure
from dwac.report.number_findings import Floats, NumberFindings
from dwac.report.parts import Section, fact_table, figure, model, share, tiles, typicality
from dwac.report.summaries import number_summary
from dwac.report.summary import summary_page
from dwac.report.words import percent
from dwac.report.worthy import worth_section

_LEVELS = np.linspace(0.05, 0.95, 19)  # of quantiles
_FIFTHS = 5  # parts of the predictions, from the lowest to the highest
_MOST_DRAWN = 4  # numbers with a plot of their own
_LARGE = 0.9  # quantile above which an error is called large
_UNUSUAL = 8  # examples unlike any other, listed
_KINDS = {
    "typical": "Predictions of examples of average typicality.",
    "doubtful": "The least typical examples. A person should check these.",
    "wrong": "The largest errors.",
}


def number_story(found: NumberFindings, k: int, n_cases: int, by: str | None) -> list[Section]:
    """The report on numbers: summary, quality, trust, cases, and the model behind them."""
    explained = told_cases(found, found.cases(n_cases), _KINDS, _said, k=k, epsilon=found.result.epsilon)
    return [
        ("summary", "Summary", summary_page(number_summary(found))),
        ("quality", "Quality: how far off it is", joined((tiles(_headline(found)), _errors(found)))),
        ("groups", "Typical and strange groups", _groups(found)),
        ("intervals", "Trust: intervals and their coverage", _intervals(found)),
        ("quantiles", "Trust: quantiles", _quantiles(found)),
        ("typicality", "Trust: unfamiliar data", _unusual(found)),
        ("cases", "Cases: explained predictions", explained),
        ("worth", "Cases: the most and the least helpful training examples", worth_section(found, by)),
        ("model", "The model", model(found, _target(found))),
    ]


# Quality


def _headline(found: NumberFindings) -> list[Fact]:
    result, facts = found.result, []
    if result.rmse is not None and result.mae is not None and result.crps is not None:
        spread = float(found.truth.std())
        guess = (
            "The root of the mean squared error, in units of the target. Always predicting the mean of these "
            f"examples, {amount(float(found.truth.mean()))}, would give {amount(spread)}."
        )
        crps = (
            "The error of the whole distribution of votes, the continuous ranked probability score, in units of the "
            "target. If all votes were for the prediction, it would be the mean absolute error."
        )
        half = float(np.median(np.abs(found.values - found.truth)))
        off = f"The mean absolute error. Half of the predictions are off by at most {amount(half)}."
        facts = [
            Fact("RMSE", amount(result.rmse), guess),
            Fact("MAE", amount(result.mae), off),
            Fact("CRPS", amount(result.crps), crps),
        ]
    explained = "The share of the variance that is explained: 1 is perfect, 0 as good as always predicting the mean."
    facts.append(Fact("R²", f"{result.r2:.3f}", explained))
    if found.calibrated:
        promise = f"Coverage at ε\u00a0=\u00a0{result.epsilon:g}"
        facts.append(Fact(promise, share(result.coverage), words.interval_coverage(found)))
        if result.median_width is not None:
            facts.append(Fact("Median width of intervals", amount(result.median_width), _width(found)))
    return facts


def _width(found: NumberFindings) -> str:
    low, high = np.quantile(found.truth, [found.result.epsilon / 2, 1 - found.result.epsilon / 2])
    if not found.result.median_width or not np.isfinite(found.result.median_width) or high <= low:
        return "Intervals are infinite where there are too few calibration examples for this ε."
    of = found.result.median_width / (high - low)
    return (
        f"Without the model, the same share of these examples lies between {amount(float(low))} and "
        f"{amount(float(high))}: intervals are {percent(of)} as wide as that."
    )


def _target(found: NumberFindings) -> Fact:
    references = found.clf.references_
    assert references.targets is not None
    numbers = references.targets.cpu().numpy()
    ends = [f"{amount(float(column.min()))} to {amount(float(column.max()))}" for column in numbers.T]
    if found.private:
        return Fact("Target", "a number" if len(ends) == 1 else f"{len(ends)} numbers", "What is predicted.")
    if len(ends) == 1:
        return Fact("Target", f"a number from {ends[0]}", "The range of the training examples' numbers.")
    each = ", ".join(f"{name} ({end})" for name, end in zip(found.names, ends, strict=True))
    return Fact(f"{len(ends)} numbers", written(each, 300), "The ranges of the training examples' numbers.")


# Errors


def _errors(found: NumberFindings) -> Html:
    parts: list[Html | None] = []
    ends = found.predictions.intervals(found.result.epsilon)
    if len(found.names) > 1:
        parts.append(_by_number(found))
    if not found.private:
        for t, name in enumerate(found.names[:_MOST_DRAWN]):
            panels = plots.number_panels(
                found.truth[:, t],
                found.values[:, t],
                None if ends is None else ends[:, t],
                "" if len(found.names) == 1 else name,
            )
            drawn = [plots.alone(painter, 3.6, 3.3) for painter in panels]
            caption = (
                "First: true against predicted numbers; on the dashed line, a prediction is exact. Second: the errors. "
                "A slope or bend of the second cloud is a bias; a cloud that widens means that errors grow with "
                f"the prediction. Thin lines are intervals at ε = {found.result.epsilon:g}."
            )
            parts.append(figure(drawn, f"True numbers and errors against predictions of {name}", caption))
        left = len(found.names) - _MOST_DRAWN
        parts.append(
            tag("p", f"{left:,} more number{'s are' if left > 1 else ' is'} not drawn.", class_="note")
            if left > 0
            else None
        )
    parts += [_by_size(found, ends, t) for t in range(min(len(found.names), _MOST_DRAWN))]
    return joined(parts)


def _by_number(found: NumberFindings) -> Html:
    rows = [
        (
            written(row["number"]),
            *(amount(row[name]) for name in ("rmse", "mae", "crps")),
            f"{row['r2']:.3f}",
            *((share(row["coverage"]), amount(row["median_width"])) if found.calibrated else ()),
        )
        for row in found.result.by_number.to_dict("records")
    ]
    trust = ("coverage", "median width") if found.calibrated else ()
    head = ("number", "RMSE", "mean absolute error", "CRPS", "R²", *trust)
    return table(head, rows, caption="Results per number", numbers=range(1, len(head)))


def _by_size(found: NumberFindings, ends: Floats | None, t: int) -> Html:
    """Errors in fifths of the predictions, from the lowest to the highest."""
    values, truth = found.values[:, t], found.truth[:, t]
    rows = []
    for some in np.array_split(np.argsort(values, kind="stable"), min(_FIFTHS, len(values))):
        wrong = truth[some] - values[some]
        row = [f"{amount(values[some].min())} to {amount(values[some].max())}", f"{len(some):,}"]
        row += [amount(float(wrong.mean())), amount(float(np.abs(wrong).mean()))]
        if ends is not None:
            row += [share(metrics.interval_coverage(truth[some], ends[some, t]))]
            row += [amount(metrics.interval_widths(ends[some, t]).median)]
        rows.append(row)
    trust = ("coverage", "median width") if ends is not None else ()
    head = ("predicted", "test examples", "mean error (true - predicted)", "mean absolute error", *trust)
    behind = "" if len(found.names) == 1 else f" of {found.names[t]}"
    return table(head, rows, caption=f"Errors by the size of the prediction{behind}", numbers=range(1, len(head)))


# Intervals and quantiles


def _intervals(found: NumberFindings) -> Html | None:
    if not found.calibrated:
        return None
    rows = []
    for epsilon in EPSILONS:
        ends = found.intervals(epsilon)
        assert ends is not None
        chance = found.chance(epsilon) if len(found.names) == 1 else None
        by_chance = (f"{percent(chance[0])} to {percent(chance[1])}" if chance else "–",)
        widths = [amount(metrics.interval_widths(ends[:, t]).median) for t in range(len(found.names))]
        covered = percent(metrics.interval_coverage(found.truth, ends))
        rows.append((f"{epsilon:g}", percent(1 - epsilon), covered, *by_chance, *widths))
    each = ["median width"] if len(found.names) == 1 else [f"median width of {name}" for name in found.names]
    head = ("allowed error rate ε", "asked for", "coverage", "chance gives", *each)
    n = found.count(len(found.clf.calibration_y_))
    what = (
        "Instead of one number, the model can give an interval that misses the true one no more often than the error "
        "rate ε that you allow. A smaller ε is safer and gives wider intervals. "
        f"With {n:,} calibration examples, intervals at an ε below {1 / (n + 1):.2g} are infinite."
    )
    if found.clf.cross_fitted_:
        least = found.clf.expected_intervals(found.result.epsilon).guarantee
        what += (
            " As every training example calibrates, judged by networks that left it out, the error rate is about ε. "
            f"This is measured, not proved; theory has at most {percent(1 - (least or 0))} at "
            f"ε = {found.result.epsilon:g}."
        )
    return joined(
        (tag("p", what), table(head, rows, caption="Intervals on the test examples", numbers=range(len(head))))
    )


def _quantiles(found: NumberFindings) -> Html:
    asked = found.predictions.quantiles(_LEVELS.tolist())
    shares = [(found.truth[:, t, None] <= asked[:, t]).mean(axis=0) for t in range(len(found.names))][:_MOST_DRAWN]
    worst = max(float(np.abs(each - _LEVELS).max()) for each in shares)
    names = ["this model"] if len(found.names) == 1 else found.names[:_MOST_DRAWN]
    near = 1.36 / np.sqrt(len(found.truth))  # Kolmogorov's bound at 5 %
    judged = "chance alone explains this" if worst <= near else "this is more than chance explains"
    facts = [
        Fact("Largest gap", percent(worst), f"Between a quantile's level and the share of true numbers at or below it, "
             f"over {len(_LEVELS)} levels; with {len(found.truth):,} examples {judged}.")
    ]  # fmt: skip
    caption = (
        "x-axis: the level of a quantile of the votes; y-axis: the share of true numbers at or below it. On the dashed "
        "line, half of the numbers are below the median. A flat middle means that the votes are spread too little, a "
        "steep one too widely. Quantiles have no guarantee; intervals, above, have one."
    )
    drawn = plots.alone(plots.quantile_panel(_LEVELS, shares, names), 3.6, 3.4)
    alt = "Share of true numbers at or below the quantiles of the votes, against their level"
    return joined((fact_table(facts, "Quantiles"), figure(drawn, alt, caption)))


# Groups, typicality and single examples


def _groups(found: NumberFindings) -> Html | None:
    if found.private:
        return None
    references = in_shown_groups(found.clf)[0]
    assert references.targets is not None
    targets = references.groups.targets(references.targets.cpu().numpy(), references.sizes)
    names = [
        "; ".join(f"{amount(m)} ({amount(a)} to {amount(b)})" for m, a, b in zip(*ends, strict=True))
        for ends in zip(*targets, strict=True)
    ]
    large = found.errors > np.quantile(found.errors, _LARGE)
    measure = Measure.of_numbers(found.values, found.truth, found.clf.target_.scale[1])
    return group_tables(found, names, measure, large | found.strange, "among the tenth with the largest errors")


def _unusual(found: NumberFindings) -> Html | None:
    general = typicality(found)
    if general is None or found.typicality is None or found.private:
        return general
    ends, rows = found.predictions.intervals(found.result.epsilon), []
    for row in found.unusual[:_UNUSUAL]:
        record = found.clf.encoder_.records(take(found.X, np.array([row]))).to_dict("records")
        interval = "–" if ends is None else "; ".join(f"{amount(low)} to {amount(high)}" for low, high in ends[row])
        rows.append(
            (
                written(found.ids[row]),
                f"{found.typicality[row]:.3f}",
                "; ".join(map(amount, found.values[row])),
                interval,
                "; ".join(map(amount, found.truth[row])),
                brief(record[0] if record else None),
            )
        )
    head = ("example", "typicality", "predicted", "interval", "true", "")
    return joined((general, table(head, rows, caption="The least typical test examples", numbers=[1, 2, 4])))


def _said(found: NumberFindings, row: int) -> tuple[str, str]:
    """The prediction of a row, and how it compares with the truth."""
    predicted = ", ".join(map(amount, found.values[row]))
    true, off = ", ".join(map(amount, found.truth[row])), found.truth[row] - found.values[row]
    return predicted, f"true: {true}; off by {', '.join(map(amount, np.abs(off)))}"
