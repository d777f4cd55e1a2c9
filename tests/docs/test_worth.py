"""The numbers that how-to/worth.md quotes are those of the records."""

import json
import re
from typing import Any

import pandas as pd
import pytest

from tests.docs.pages import DOCS

PAGE = (DOCS / "how-to" / "worth.md").read_text()
NAMES = {
    "KNN-Shapley on the same embeddings": "KNN-Shapley, embeddings",
    "KNN-Shapley on the features": "KNN-Shapley, features",
    "self-confidence (cleanlab)": "self-confidence",
}


def record(name: str) -> Any:
    return pd.DataFrame(json.loads((DOCS / "results" / f"{name}.json").read_text())["rows"])


def cells(start: str) -> list[list[str]]:
    """The rows of the table whose first line starts so."""
    lines = PAGE[PAGE.index(f"| {start}") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_accuracies_after_removal_are_those_of_the_record() -> None:
    table = record("worth_curves")
    means = table[table["dataset"].str.startswith("mean")].set_index(["flipped", "network", "what", "order"])
    quoted = cells("least worthy removed, by")
    assert len(quoted) == 7
    for name, *shown in quoted:
        what = (
            ("nothing removed", "all") if name == "nothing removed" else ("least worthy removed", NAMES.get(name, name))
        )
        for place, text in zip([(0.2, "fixed"), (0.2, "retrained"), (0.0, "retrained")], shown, strict=True):
            assert 100 * means.loc[(*place, *what), "mean accuracy"] == pytest.approx(float(text[:-2]), abs=0.051)


def gains(start: str) -> list[tuple[float, float]]:
    """What the paragraph that starts so says: gains in points, and their standard errors."""
    paragraph = PAGE[PAGE.index(start) :].split("\n\n")[0]
    return [(float(gain), float(error)) for gain, error in re.findall(r"(-?\d\.\d)\s±\s(\d\.\d)", paragraph)]


def test_gains_by_label_next_are_those_of_the_record() -> None:
    table, quoted = record("worth_next").set_index(["dataset", "choice"]), gains("Measured with a network")
    datasets = ("digits", "covertype", "adult", "subjectivity")
    places = [(dataset, other) for other in ("random", "margin") for dataset in datasets]
    for (dataset, other), (gain, error) in zip(places, quoted, strict=True):
        found = table.loc[(dataset, "label_next")]
        assert 100 * found[f"above {other}"] == pytest.approx(gain, abs=0.051)
        assert 100 * found[f"± s.e. ({other})"] == pytest.approx(error, abs=0.051)


def test_expected_shapley_worth_was_worse_than_random() -> None:
    table = record("worth_next").set_index(["choice"])
    assert (table.loc["expected Shapley worth", "above random"] < 0).all()
