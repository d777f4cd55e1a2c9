"""The first page: what the model does, how good and how sure it is, and where not to trust it.

Five sentences and three pictures, without jargon, for readers who decide whether to use the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.records import shorten
from dwac.estimator.evaluation import amount
from dwac.report import plots
from dwac.report.card import KINDS, OFF
from dwac.report.findings import ClassFindings, Findings, Floats, LabelFindings, NumberFindings
from dwac.report.measures import likely_share, of_100
from dwac.report.parts import Figure
from dwac.report.plots import Bar, share_bar

HEADS = ("What it does", "How good it is", "How sure it is", "When in doubt", "Where not to trust it")
_FEW = 20  # cases: below this, "of 100" would feign precision
_SURE = 0.9  # a probability that people call sure
MOST_BARS = 7  # bars of classes or labels
_SHARES = (0.5, 0.8, 0.9, 0.95)  # shares of cases that ranges should contain
_RANGES = "The thin lines are the margin that chance leaves (95 of 100 times)."


class FirstPage(NamedTuple):
    """Five sentences, one for each of HEADS, and three pictures."""

    sentences: tuple[str, str, str, str, str]
    pictures: tuple[Figure, Figure, Figure]

    @property
    def points(self) -> Iterator[tuple[str, str]]:
        """Each heading with its sentence."""
        return zip(HEADS, self.sentences, strict=True)


def _things(findings: Findings) -> str:
    """The word for examples, in the plural."""
    return KINDS.get(findings.clf.encoder_.kind, "cases")


def _tests(findings: Findings) -> str:
    """The number of tested cases, in words."""
    return f"{findings.result.n:,} test{'s' * (findings.result.n != 1)}"


def frequency(hits: Any) -> str:
    """How often something was so: of 100, or the plain count if there are few cases."""
    n = len(hits)
    return f"{int(hits.sum())} of {n}" if n < _FEW else of_100(float(hits.mean()))


def _list(names: Any, most: int = 6) -> str:
    """Names in a sentence, at most `most`."""
    texts = [shorten(name, 30) for name in names]
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more:,} more" if more > 0 else "")


def _unfamiliar(findings: Findings, outcome: str) -> str:
    """A sentence on cases unlike the training data. outcome: how predictions on these turned out."""
    if findings.typicality is None:
        return "it cannot tell when a case is unlike anything it has learned from"
    if not findings.strange.any():
        return "no tested case looked unlike what it has learned from"
    share = frequency(findings.strange)
    return f"{share} cases look unlike anything it has learned from, and {outcome}: let a person check those"


# Classes


def class_summary(findings: ClassFindings) -> FirstPage:
    """Five sentences and three pictures on classes."""
    sentences = (
        f"It sorts {_things(findings)} into {len(findings.clf.classes_):,} classes "
        f"({_list(findings.clf.classes_.tolist())}), by comparing each new one with {findings.n_examples:,} examples "
        "whose class is known.",
        _class_quality(findings),
        f"{_when_sure(findings.probability, findings.right)}; {_judge_percentages(findings)}.",
        _class_doubt(findings),
        _class_weakness(findings),
    )
    return FirstPage(sentences, _class_pictures(findings))


def _class_quality(findings: ClassFindings) -> str:
    (low, high), (name, share) = likely_share(findings.right), findings.commonest
    quality = f"Of 100 new cases it gets about {100 * findings.result.accuracy:.0f} right"
    quality += f" (judging by {_tests(findings)}, between {100 * low:.0f} and {100 * high:.0f})"
    if low > share:
        return f"{quality}; always answering {shorten(name, 30)} would get {100 * share:.0f} right."
    return f"{quality}, no better than always answering {shorten(name, 30)}, which gets {100 * share:.0f} right."


def _when_sure(stated: Floats, right: NDArray[np.bool_], what: str = "cases") -> str:
    """How often the model is right when it says that it is sure."""
    sure = stated >= _SURE
    if not sure.any():
        return f"It is never sure: it says {100 * _SURE:.0f} % or more for none of the tested {what}"
    often = frequency(right[sure])
    return f"When it says {100 * _SURE:.0f} % or more, as for {frequency(sure)} {what}, it is right {often} times"


def _judge_percentages(findings: ClassFindings) -> str:
    """Whether percentages can be taken literally, as judged in the section on calibration."""
    test = findings.calibration
    if not test.informative:
        return "but its percentages say nothing about a single case"
    if not test.miscalibrated:
        return "the tests give no reason to doubt its percentages"
    excess = max(error.excess for error in (test.error, test.top_label) if error.beyond)
    how = "too sure" if findings.probability.mean() > findings.right.mean() else "too cautious"
    if excess < OFF:
        return f"overall it is a little {how}"
    return f"overall it is {how}: read its percentages as a rough guide"


def _class_doubt(findings: ClassFindings) -> str:
    curve, covered = findings.set_curve([findings.result.epsilon]), findings.covered
    if curve is None or covered is None:
        return "It always gives one answer, however doubtful: no examples were set aside to learn when to doubt."
    single = float(curve["single"].iloc[0])
    clear = f"{of_100(single)}, and several or none for the others, which a person should decide"
    return (
        f"Asked to miss the truth in at most {100 * findings.result.epsilon:g} of 100 cases, it gives one answer for "
        f"{'every case' if single == 1 else clear}; the truth was among its answers in "
        f"{of_100(float(covered.mean()))} tests."
    )


def _class_weakness(findings: ClassFindings) -> str:
    bars = [bar for bar in _class_bars(findings) if bar.bad]
    weak = "In these tests, no class is clearly worse than the others"
    if bars:
        weak = f"It is weakest for {bars[0].name}: of 100 such cases it gets only {100 * bars[0].value:.0f} right"
    return f"{weak}; {_unfamiliar(findings, f'it gets {frequency(findings.right[findings.strange])} of these right')}."


def _class_bars(findings: ClassFindings) -> list[Bar]:
    """How often predictions are right for each class, the weakest first."""
    names, usual = findings.predictions.classes.tolist(), float(findings.right.mean())
    bars = [
        share_bar(shorten(names[code], 30), findings.right[findings.truth == code], usual)
        for code in np.unique(findings.truth)
    ]
    return sorted(bars, key=lambda bar: (not bar.bad, bar.value))


def _class_pictures(findings: ClassFindings) -> tuple[Figure, Figure, Figure]:
    right = float(findings.right.mean())
    every = _class_bars(findings)
    bars = every[:MOST_BARS] + _familiar(findings, findings.right, right)
    shown = f"The dashed line is the average. {_RANGES}"
    return (
        Figure(plots.hundred(right), f"Of 100 cases {100 * right:.0f} are right",
              "Of 100 new cases: right and wrong."),
        Figure(plots.bars_by_confidence(findings.probability, findings.right),
              "How often it is right, by how sure it says it is",
              f"Bars: how often it was right. Thick lines: how often it says it is. {_RANGES}"),
        Figure(plots.bars_across(bars, "right, of 100 such cases", right), "How often it is right, by kind of case",
              f"Where it is weak: kinds of cases, the weakest first{_some(every, 'classes')}. {shown}"),
    )  # fmt: skip


def _some(bars: Sequence[Bar], what: str) -> str:
    """How many of all bars are shown, if not all."""
    return f" ({MOST_BARS} of {len(bars):,} {what})" if len(bars) > MOST_BARS else ""


def _familiar(findings: Findings, right: NDArray[np.bool_], usual: float) -> list[Bar]:
    """How often predictions are right on familiar and on unfamiliar cases, if there are both."""
    strange = findings.strange
    if not strange.any() or strange.all():
        return []
    kinds = {"familiar cases": right[~strange], "unfamiliar cases": right[strange]}
    return [share_bar(name, hits.ravel(), usual) for name, hits in kinds.items()]


# Several labels


def label_summary(findings: LabelFindings) -> FirstPage:
    """Five sentences and three pictures on several labels."""
    has, truth, p = findings.predictions.has, findings.truth, findings.predictions.probabilities
    right, stated = has == truth, np.maximum(p, 1 - p)
    every, usual = right.all(axis=1), float(right.mean())
    guess = float(np.maximum(truth.mean(axis=0), 1 - truth.mean(axis=0)).mean())
    names = [shorten(name, 30) for name in findings.clf.classes_.tolist()]
    low, high = likely_share(every)
    bars = sorted((share_bar(f"has {name}", right[truth[:, i], i], usual) for i, name in enumerate(names)
                   if truth[:, i].any()), key=lambda bar: (not bar.bad, bar.value))  # fmt: skip
    weak = "In these tests, no label is clearly harder to find than the others"
    if bars and bars[0].bad:
        weak = f"Of 100 cases that have {bars[0].name.removeprefix('has ')}, it finds only {100 * bars[0].value:.0f}"
    odd = f"it gets every label right for {frequency(every[findings.strange])} of these"
    sentences = (
        f"It predicts which of {len(names):,} labels ({_list(names)}) {_things(findings)} have, by "
        f"comparing each new one with {findings.n_examples:,} examples whose labels are known.",
        f"Of 100 new cases it gets every label right for about {100 * every.mean():.0f} (judging by "
        f"{_tests(findings)}, between {100 * low:.0f} and {100 * high:.0f}), and of 100 single labels "
        f"{100 * usual:.0f}, where always giving the more common answer would get {100 * guess:.0f}.",
        f"{_when_sure(stated.ravel(), right.ravel(), 'labels')}; overall it says {100 * stated.mean():.0f} % and is "
        f"right {of_100(usual)} times.",
        _label_doubt(findings),
        f"{weak}; {_unfamiliar(findings, odd)}.",
    )
    drawn = plots.bars_across(bars[:MOST_BARS] + _familiar(findings, right, usual), "right, of 100 such cases", usual)
    return FirstPage(sentences, (
        Figure(plots.hundred(float(every.mean())), f"Of 100 cases {100 * every.mean():.0f} have every label right",
              "Of 100 new cases: every label right, or some wrong."),
        Figure(plots.bars_by_confidence(stated.ravel(), right.ravel()),
              "How often it is right, by how sure it says it is",
              "Bars: how often it was right about a label, yes or no. Thick lines: how often it says it is."),
        Figure(drawn, "How often it is right, by label and kind of case",
              f"Where it is weak: of cases that have a label, how often it finds that{_some(bars, 'labels')}; and of "
              "all labels of cases that look familiar or not, how many are right. The dashed line is the average. "
              f"{_RANGES}"),
    ))  # fmt: skip


def _label_doubt(findings: LabelFindings) -> str:
    result = findings.result
    if result.undecided is None or result.wrong_of_having is None or result.wrong_of_lacking is None:
        return "It always decides, however doubtful: no examples were set aside to learn when to doubt."
    return (
        f"Asked to be wrong for at most {100 * result.epsilon:g} of 100 cases that have a label, and of 100 that lack "
        f"it, it decides {of_100(1 - result.undecided)} labels and leaves the others to a person; it was wrong for "
        f"{of_100(result.wrong_of_having)} that have the label and {of_100(result.wrong_of_lacking)} that lack it."
    )


# Numbers


def number_summary(findings: NumberFindings) -> FirstPage:
    """Five sentences and three pictures on numbers."""
    off, guess = _off(findings), _off(findings, guessing=True)
    half, most = (float(np.quantile(off, share)) for share in (0.5, 0.9))
    alone = len(findings.names) == 1
    unit = "" if alone else " times the average error of a guess"
    known = findings.predictions.names[0] is not None
    single = f"the number “{findings.names[0]}”" if known else "a number"
    what = single if alone else f"{len(findings.names):,} numbers ({_list(findings.names)})"
    bars, usual = _number_bars(findings, off), float(off.mean())
    worst = max(bars, key=lambda bar: bar.value)
    strange_off = float(off[findings.strange].sum() / max(findings.strange.sum(), 1))
    sentences = (
        f"It estimates {what} for {_things(findings)}, by averaging the numbers of the most similar of "
        f"{findings.n_examples:,} known examples.",
        f"Half of its estimates are off by at most {amount(half)}{unit}, and 9 of 10 by at most {amount(most)} "
        f"(judging by {_tests(findings)}); always giving the average, half would be off by at most "
        f"{amount(float(np.median(guess)))}.",
        _number_sure(findings),
        _number_doubt(findings),
        f"It is worst for {worst.name}, off by {amount(worst.value)} on average instead of {amount(usual)}; "
        f"{_unfamiliar(findings, f'it is off by {amount(strange_off)} for these on average')}.",
    )
    return FirstPage(sentences, _number_pictures(findings, off, guess, unit))


def _off(findings: NumberFindings, *, guessing: bool = False) -> Floats:
    """(n,): errors of the estimates, or of guessing the mean; several numbers: the average in units of the latter."""
    guess = np.abs(findings.truth - findings.truth.mean(axis=0))
    errors = guess if guessing else np.abs(findings.values - findings.truth)
    if errors.shape[1] == 1:
        return np.asarray(errors[:, 0])
    unit = guess.mean(axis=0)
    return np.asarray((errors / np.where(unit > 0, unit, 1)).mean(axis=1))


def _number_sure(findings: NumberFindings) -> str:
    result = findings.result
    if result.coverage is None:
        return "It gives no ranges: no examples were set aside to learn how far off it may be."
    chance, target = findings.chance(result.epsilon), f"{100 * (1 - result.epsilon):g} of 100"
    ranges = (
        f"Its ranges, meant to contain the true number for {target} cases, contain it for {of_100(result.coverage)}"
    )
    if result.coverage >= 1 - result.epsilon:
        return f"{ranges}, as they should."
    if chance is None:
        return f"{ranges}."
    if result.coverage < chance[0]:
        return f"{ranges}, fewer than chance explains: these cases differ from those it was calibrated on."
    return f"{ranges}, as chance allows."


def _number_doubt(findings: NumberFindings) -> str:
    ends = findings.predictions.intervals(findings.result.epsilon)
    if ends is None:
        return "It cannot say of a single case how far off it may be."
    low, high = np.quantile(findings.truth, [findings.result.epsilon / 2, 1 - findings.result.epsilon / 2], axis=0)
    median = np.median(ends[..., 1] - ends[..., 0], axis=0)
    if not np.isfinite(median).all():
        return "Its ranges are infinite: too few examples were set aside for them."
    if not (high > low).all():
        return "The wider its range for a case, the less sure it is; the tested cases are too similar to judge widths."
    of = float((median / (high - low)).mean())
    wide = f"Half of its ranges are at most {amount(float(median[0]))} wide" if len(median) == 1 else "Its ranges"
    verb = "," if len(median) == 1 else " are"
    return (
        f"{wide}{verb} {100 * of:.0f} % as wide as a single range for all cases would be; the wider a range, the less "
        "sure it is."
    )


def _number_bars(findings: NumberFindings, off: Floats) -> list[Bar]:
    """The mean error by size of the estimate, in fifths; of several numbers, by number, the worst first."""
    values = findings.values
    if values.shape[1] > 1:
        guess = np.abs(findings.truth - findings.truth.mean(axis=0)).mean(axis=0)
        mean = np.abs(values - findings.truth).mean(axis=0) / np.where(guess > 0, guess, 1)
        bars = [Bar(name, float(value)) for name, value in zip(findings.names, mean, strict=True)]
        return sorted(bars, key=lambda bar: -bar.value)
    fifths = np.array_split(np.argsort(values[:, 0], kind="stable"), min(5, len(values)))
    return [
        Bar(f"estimates of {amount(values[some, 0].min())} to {amount(values[some, 0].max())}", float(off[some].mean()))
        for some in fifths
    ]


def _number_pictures(findings: NumberFindings, off: Floats, guess: Floats, unit: str) -> tuple[Figure, Figure, Figure]:
    errors = [Bar(f"{100 * share:g} of 100", float(np.quantile(off, share))) for share in _SHARES]
    errors += [Bar("50, by a guess", float(np.median(guess)), bad=True)]
    usual, strange = float(off.mean()), findings.strange
    every = _number_bars(findings, off)
    bars = [bar._replace(name=bar.name.removeprefix("estimates of ")) for bar in every[:MOST_BARS]]
    kinds = "by the size of the estimate" if len(findings.names) == 1 else f"by number{_some(every, 'numbers')}"
    if strange.any() and not strange.all():
        bars += [
            Bar("familiar cases", float(off[~strange].mean())),
            Bar("unfamiliar cases", float(off[strange].mean())),
        ]
    bars = [bar._replace(bad=bar.value > 1.25 * usual) for bar in bars]
    x = "off by, on average" if not unit else "off by, in average errors of a guess"
    return (
        Figure(plots.bars_across(errors, "off by at most", percent=False), "How far off estimates are",
              "Of 100 estimates, how many are off by at most so much; hatched: always giving the average."),
        _ranges(findings),
        Figure(plots.bars_across(bars, x, usual, percent=False), "How far off estimates are, by kind of case",
              f"Where it is weak: {kinds}, and by whether the case looks familiar. The dashed line is the average; "
              "hatched bars are a quarter above it or more."),
    )  # fmt: skip


def _ranges(findings: NumberFindings) -> Figure:
    """How often ranges contain the truth; without ranges, how often quantiles of the votes do."""
    hits = []
    for share in _SHARES:
        ends = _ends(findings, 1 - share)
        hits.append(((findings.truth >= ends[..., 0]) & (findings.truth <= ends[..., 1])).ravel())
    meant = f"Bars: how often ranges contain the true number. Thick lines: how often they should. {_RANGES}"
    return Figure(plots.bars_by_coverage(_SHARES, hits), "How often ranges contain the true number", meant)


def _ends(findings: NumberFindings, epsilon: float) -> Floats:
    """Intervals at ε (n, T, 2); without calibration, between quantiles of the votes."""
    ends = findings.intervals(epsilon)
    return np.asarray(findings.predictions.quantiles([epsilon / 2, 1 - epsilon / 2]) if ends is None else ends)
