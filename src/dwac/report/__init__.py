"""The report: what a model is, how good, how honest and how wary, in pictures, words and one HTML file.

write(clf, X_test, y_test, "report.html", unlike=X_strange)    # to mail, print, or open without a network
label_issues(clf)                                              # training labels that look wrong
embedding_map(clf, X_test, y_test)                             # a matplotlib figure, as are the other pictures

Needs the extra `dwac[report]`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from dwac.errors import StorageError
from dwac.estimator.classifier import DWACClassifier
from dwac.report.findings import find
from dwac.report.label_issues import label_issues, leave_one_out
from dwac.report.maps import embedding_map, plane_of
from dwac.report.page import page
from dwac.report.plots import credibility, history, reliability, sets
from dwac.report.seen import seen
from dwac.storage.files import replace_file

__all__ = [
    "credibility",
    "embedding_map",
    "history",
    "label_issues",
    "leave_one_out",
    "plane_of",
    "reliability",
    "seen",
    "sets",
    "write",
]


def write(
    clf: DWACClassifier,
    X: Any,
    y: Any,
    path: str | PathLike[str],
    *,
    ids: Iterable[Hashable] | None = None,
    unlike: Any = None,
    title: str = "Report on a classifier",
    epsilon: float = 0.05,
    k: int = 5,
    cases: int = 3,
    private: bool | None = None,
    note: str = "",
) -> Path:
    """Write a report on a classifier, as measured on test examples X with true labels y, to one HTML file.

    Args:
        clf: a fitted classifier whose head is "dwac".
        X: test examples, new to the classifier.
        y: their labels, each one of the classes of training.
        path: where to; a file of that name is replaced.
        ids: names of the test examples; by default the index of a DataFrame or Series, else 0 … n-1.
        unlike: examples of another kind, to see whether their credibility is low.
        title: the heading.
        epsilon: the error rate for which coverage is told class by class.
        k: how many training examples to show beside a prediction.
        cases: how many typical, doubtful and mistaken predictions to explain, of each.
        private: tell labels and numbers in whole per cent alone: no id or record, neither of training nor of X, no
            map and no list of suspicious labels. By default so for a model saved without its training examples.
        note: what a reader should know beforehand, such as where the test examples come from.
    """
    found = find(clf, X, y, ids=ids, unlike=unlike, epsilon=epsilon, private=private)
    content = page(found, title=title, k=k, n_cases=cases, note=note)
    try:
        replace_file(Path(path), content.encode("utf-8", "replace"))
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror}; choose another place or free this one"
        ) from None
    return Path(path)
