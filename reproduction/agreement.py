"""Table 3: how often the k nearest training examples, or the k heaviest groups, give the label that all give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dwac import metrics
from reproduction import published
from reproduction.cases import Case, plain_cases
from reproduction.fit import Fitted
from reproduction.settings import DATASETS, SETTINGS
from reproduction.tables import Found, Section, number, paragraphs, table

TITLE = "Agreement of the top-k vote (Table 3)"
KS = (1, 5, 10, 100)
GROUPS = (1, 5)
MOST = 10_000  # test rows


def cases() -> Iterator[Case]:
    """Every DWAC model of Table 2."""
    yield from plain_cases(heads=["dwac"])


def measure(fitted: Fitted) -> dict[str, Any]:
    """By k: the share of test rows on which the k nearest agree with all."""
    chosen = fitted.library.sample(np.arange(len(fitted.trial.y_test)), MOST, fitted.case.trial)
    references = fitted.clf.references_
    ks = [k for k in KS if k <= len(references)]
    near = references.nearest(fitted.test_h[chosen], max(ks))
    agreed = metrics.top_k_agreement(fitted.labels[chosen], near.labels, near.log_weights, ks)
    log_w = references.log_group_weights(fitted.test_h[chosen])
    order = np.argsort(-log_w, axis=1, kind="stable")[:, : max(GROUPS)]
    heaviest = np.take_along_axis(log_w, order, axis=1)
    by_groups = [k for k in GROUPS if k <= log_w.shape[1]]
    grouped = metrics.top_k_agreement(fitted.labels[chosen], references.groups.labels[order], heaviest, by_groups)
    held = np.exp(heaviest - np.logaddexp.reduce(log_w, axis=1, keepdims=True)).sum(axis=1).mean()
    groups = {"n": log_w.shape[1], "share": grouped, "held": float(held)}
    return {"rows": len(chosen), "share": agreed, "groups": groups}


# The report


def report(found: Found) -> Section:
    """One row per dataset: published / paper's model / best, for each k."""
    how = (
        f"The share of test rows (up to {MOST:,}) on which the k nearest training examples, with their usual weights, "
        "give the same label as all training examples: published / paper's model / our best; means over trials. Last, "
        "the same for the heaviest groups of examples that vote alike, and the share of the vote that five of them "
        "hold: paper's model / our best."
    )
    heads = [*(f"k = {k}" for k in KS), *(f"{k} group{'s' * (k > 1)}" for k in GROUPS), "held by 5"]
    rows = [
        [
            DATASETS[name].title,
            *(_cell(found, name, k) for k in KS),
            *(_ours(found, name, "groups", "share", k) for k in GROUPS),
            _ours(found, name, "groups", "held"),
        ]
        for name in DATASETS
    ]
    return Section(TITLE, paragraphs(how, table(["dataset", *heads], rows)))


def _cell(found: Found, name: str, k: int) -> str:
    return " / ".join([f"{published.AGREEMENT[name][k]:.2f}", _ours(found, name, "share", k)])


def _ours(found: Found, name: str, *keys: str | int) -> str:
    return " / ".join(number(found.mean((name, setting, "dwac"), "agreement", *keys)) for setting in SETTINGS)
