"""Table 3: how often the k nearest training examples alone give the label that all of them give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dwac import metrics
from dwac.paper import published
from dwac.paper.cases import Case, plain_cases
from dwac.paper.fit import Fitted
from dwac.paper.settings import DATASETS, SETTINGS
from dwac.paper.tables import Found, Section, number, paragraphs, table

TITLE = "Agreement of the top-k vote (Table 3)"
KS = (1, 5, 10, 100)
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
    return {"rows": len(chosen), "share": agreed}


# The report


def report(found: Found) -> Section:
    """One row per dataset: published / paper's model / best, for each k."""
    how = (
        f"The share of test rows (up to {MOST:,}) on which the k nearest training examples, with their usual weights, "
        "give the same label as all training examples: published / paper's model / our best; means over trials."
    )
    rows = [[DATASETS[name].title, *(_cell(found, name, k) for k in KS)] for name in DATASETS]
    return Section(TITLE, paragraphs(how, table(["dataset", *(f"k = {k}" for k in KS)], rows)))


def _cell(found: Found, name: str, k: int) -> str:
    ours = [number(found.mean((name, setting, "dwac"), "agreement", "share", k)) for setting in SETTINGS]
    return " / ".join([f"{published.AGREEMENT[name][k]:.2f}", *ours])
