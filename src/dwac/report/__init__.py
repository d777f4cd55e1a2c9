"""The report: errors, calibration, prediction sets or intervals and typicality of a model, in one HTML file.

write(clf, X_test, y_test, "report.html", unlike=X_strange)    # to mail, print, or open offline
label_issues(clf, X, y)                                        # labels that look wrong, judged out of fold
label_noise(log_probabilities, y)                              # the rule behind it, for probabilities from anywhere
embedding_map(clf, X_test, y_test)                             # a matplotlib figure, like the other plots

Needs the extra `dwac[report]`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from dwac.drawing.pages import render
from dwac.drawing.records import shorten
from dwac.errors import EPSILON, InputError, StorageError
from dwac.estimator import DWACClassifier, DWACRegressor
from dwac.estimator.evaluation import Fact, amount
from dwac.estimator.observed import Observed
from dwac.languages import speaking
from dwac.report.card import model_values
from dwac.report.cases import explain_cases
from dwac.report.classes import class_values
from dwac.report.decisions import decision_values
from dwac.report.filing import filed_facts, filing_values
from dwac.report.findings import ClassFindings, Findings, LabelFindings, NumberFindings
from dwac.report.importance import column_sections
from dwac.report.labels import label_values
from dwac.report.maps import embedding_map
from dwac.report.markdown import card_text, limits
from dwac.report.measures import number, of_100, percent, share, used_in_training
from dwac.report.numbers import number_values
from dwac.report.plots import history, reliability, sets, typicality
from dwac.report.worth import MOST_GROUPS, columns_of_people, worth_section
from dwac.report.wrong_labels import LabelNoise, label_issues, label_noise, leave_one_out
from dwac.storage.files import replace_file
from dwac.tasks import LABELS, NUMBERS

__all__ = [
    "LabelNoise",
    "embedding_map",
    "history",
    "label_issues",
    "label_noise",
    "leave_one_out",
    "reliability",
    "sets",
    "typicality",
    "used_in_training",
    "write",
]


# For each kind of target: the findings, the function for the values of its own sections, and the template.
_Kind = tuple[type[Findings], Callable[[Any], dict[str, Any]], str]
_CLASSES: _Kind = (ClassFindings, class_values, "report/templates/classes.html")
_OTHERS: dict[str, _Kind] = {
    NUMBERS: (NumberFindings, number_values, "report/templates/numbers.html"),
    LABELS: (LabelFindings, label_values, "report/templates/labels.html"),
}


def write(
    clf: DWACClassifier | DWACRegressor,
    X: Any,
    y: Any,
    path: str | PathLike[str],
    *,
    ids: Iterable[Hashable] | None = None,
    unlike: Any = None,
    title: str = "Report on a model",
    epsilon: float = EPSILON,
    k: int = 5,
    cases: int = 3,
    private: bool | None = None,
    note: str = "",
    issues: pd.DataFrame | None = None,
    by: Any = None,
    costs: Any = None,
    tolerance: Any = None,
    source: str | PathLike[str] | None = None,
    target: Sequence[str] = (),
    importance: int | None = None,
    language: str | None = None,
    purpose: str = "",
    licence: str = "",
    place: str = "model",
) -> Path:
    """Write a report on a model, measured on test examples X with known targets y, to one HTML file.

    If the path ends in .md, write a model card instead: purpose, data, results, groups compared and limits in Markdown,
    below the fields of Hugging Face's cards.

    Args:
        clf: a fitted classifier or regressor.
        X: test examples, new to the model; or what `clf.observe` returned for the readable ones.
        y: their labels, each one of the training classes; or their numbers, or several labels each, as in fit.
        path: the file to write, .html or .md; an existing file is replaced.
        ids: names of the test examples; by default the index of a DataFrame or Series, else 0 … n-1.
        unlike: out-of-distribution examples, to see whether their typicality is low.
        title: the heading.
        epsilon: the error rate of the sets and intervals shown at a single level.
        k: how many training examples to show per prediction.
        cases: how many predictions of each kind (typical, doubtful, wrong) to explain.
        private: show only labels and numbers in whole per cent: no id or record of a training or test example, no map
            and no list of suspicious labels. The default for a model saved without its training examples.
        note: shown at the top, such as where the test examples come from.
        issues: labels to check, from `label_issues(clf, X_train, y_train)`: out of fold, for the time of a few fits.
            By default the model's own votes judge its training examples, at no cost. Only for classes.
        by: the groups to compare, as for `evaluate` of an estimator: names of columns of X, such as ["sex", "clinic"],
            or one value per row. The report shows the results of each group with intervals and, where the model holds
            such a column of its training data, what each group is worth, that is, whose data carries the model. A
            private report joins groups of fewer than 30 rows, and shows no intersections and no worth. By default
            columns whose names suggest groups of people, such as "sex".
        costs: what errors cost, as for `evaluate`: the report shows the decisions that cost least.
        tolerance: for numbers: how far off a decided number may be, as for `decide`; by default the standard
            deviation of the training numbers. The report says how many rows can be decided at a risk of 5 % and 10 %.
        source: the file of the test examples; the report names it with its SHA-256.
        target: the names of the target columns; by default those of y.
        importance: over how many test rows, drawn at random, to measure how much each column of a table contributes; a
            row takes some 30 ms. By default 60; 0: not at all.
        language: of the explained predictions, such as "de"; the rest of the report is in English.
        purpose: what the model is for, in your words.
        licence: of the model, as Hugging Face's cards name it, such as "apache-2.0".
        place: where a model card says that the model is, such as "hf://owner/name".
    """
    kind = clf.target_.kind
    if kind in _OTHERS and issues is not None:
        raise InputError(f"labels to check are for models of classes; this one predicts {kind}; leave issues out")
    held = None if clf.private_ else clf.examples_.frame()
    known: list[str] = [] if held is None else [str(name) for name in held.columns]
    rows = X.rows.X if isinstance(X, Observed) else X
    if by is None and private is not True and isinstance(rows, pd.DataFrame):
        people = [name for name in columns_of_people(clf) if name in rows]
        by = [name for name in people if rows[name].nunique() <= MOST_GROUPS] or None
    findings_of, values_of, template = _OTHERS.get(kind, _CLASSES)
    more: dict[str, Any] = {"language": language} | ({} if kind in _OTHERS else {"known_issues": issues})
    is_card = Path(path).suffix.lower() == ".md"
    all_rows = ["all"] * len(y) if is_card and by is None else by  # for intervals
    findings = findings_of.of(
        clf, X, y, ids=ids, unlike=unlike, epsilon=epsilon, private=private, by=all_rows, costs=costs, **more
    )
    notes = [text for text in (note, _privacy_note(findings), _training_note(findings)) if text]
    if is_card:
        filed = filed_facts(clf, y, source, target, private=findings.private)
        return _write(path, card_text(findings, filed, title, notes, purpose, licence, place))
    names = [by] if isinstance(by, str) else list(by) if isinstance(by, list | tuple | pd.DataFrame | Mapping) else []
    worthy = [name for name in names if isinstance(name, str) and name in known]
    values = {
        **model_values(findings),
        **values_of(findings),
        **filing_values(findings, y, source, target),
        **decision_values(findings, tolerance),
        "columns": column_sections(findings, importance),
        "cases": explain_cases(findings, cases, k),
        "worth": worth_section(findings, None if by is None else worthy),
        "limits": limits(findings),
    }
    values["filed"] = [Fact("Purpose", purpose or "not stated", "What the model is for."), *values["filed"]]
    writers = {each.__name__: each for each in (amount, number, of_100, percent, share, shorten)}
    with speaking(language):
        content = render(
            template, title=title, notes=notes, version=version("dwac"), findings=findings, **writers, **values
        )
    return _write(path, content)


def _write(path: str | PathLike[str], content: str) -> Path:
    """Write a file as a whole."""
    try:
        replace_file(Path(path), content.encode("utf-8", "replace"))
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror}; choose another path, or make this one writable"
        ) from None
    return Path(path)


def _privacy_note(findings: Findings) -> str:
    if not findings.private:
        return ""
    rounded = " Predicted numbers are rounded, and intervals are rounded outwards."
    return (
        "This report is private. Shares are rounded to whole per cent, p-values and typicality above 10 % count as 1, "
        "and results are computed from the rounded numbers. No training example is shown or named."
        + (rounded if findings.clf.target_.kind == NUMBERS else "")
    )


def _training_note(findings: Findings) -> str:
    """A warning if test examples were used in training."""
    n = int(findings.in_training.sum())
    if not n:
        return ""
    some = "Some of the" if findings.private else f"{n:,} of the {len(findings.in_training):,}"
    return f"{some} test examples were used in training, so the results are too optimistic."
