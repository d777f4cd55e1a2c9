"""An explanation begins with the reason: the answer, how sure, what decides, against whom; p-values come last."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, DWACRegressor
from dwac.explain.base import series
from tests.named import named

N = 240
RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "insured": np.where(np.arange(N) % 4 == 0, "no", "yes"),
        "income": RNG.normal(100, 20, N).round(),
        "noise": RNG.normal(size=N).round(2),
    },
    index=[f"person {i}" for i in range(N)],
)
DENIED = np.where(X["insured"] == "no", "denied", "granted")
FAST: dict[str, Any] = {"random_state": 0, "verbose": False, "epochs": 15, "cross_fit": False}


@pytest.fixture(scope="module")
def clf() -> DWACClassifier:
    return DWACClassifier(**FAST).fit(X, DENIED)


@pytest.fixture(scope="module")
def reg() -> DWACRegressor:
    return DWACRegressor(**FAST).fit(X, X["income"] + 100 * (X["insured"] == "no"))


def test_the_first_sentence_names_the_column_that_decides_and_the_precedent(clf: DWACClassifier) -> None:
    e = clf.explain(X[:1])[0]
    first = e.sentences()[0]
    reasons = e.main_reasons
    assert reasons is not None
    assert reasons.precedent is not None
    assert named(first, "Predicted denied", "insured no (not yes)", reasons.precedent.id, "granted")
    assert "cases that agree" in first
    assert e.to_text(500).splitlines()[0] == first
    page = e.to_html()
    assert page.index("insured no (not yes)") < page.index("<table")


def test_p_values_follow_the_voters(clf: DWACClassifier) -> None:
    e = clf.explain(X[:1])[0]
    assert e.sentences() == [*e.lead(), *e.details()]
    text, page = e.to_text(500), e.to_html()
    table = text.index("share  ")
    for name in ("credibility", "confidence", "typicality"):
        assert text.index(name) > table
        assert page.index(name) > page.index("<table")


def test_one_line_says_what_speaks_for_the_runner_up(clf: DWACClassifier) -> None:
    e = clf.explain(X[:1])[0]
    assert e.main_reasons is not None
    assert e.main_reasons.precedent is not None
    (line,) = [sentence for sentence in e.lead() if sentence.startswith("Why not granted?")]
    assert named(line, "of the vote", "examples", e.main_reasons.precedent.id, "for granted")


def test_a_number_is_decided_by_columns_too(reg: DWACRegressor) -> None:
    e = reg.explain(X[:1])[0]
    assert e.main_reasons is not None
    assert e.main_reasons.precedent is not None
    assert named(e.sentences()[0], "Predicted", e.main_reasons.precedent.id)
    largest = e.main_reasons.contributions[0]
    assert largest.contribution * e.main_reasons.total < 0 or f"{largest.column} " in e.sentences()[0]


def test_a_private_explanation_names_no_column_and_nobody(clf: DWACClassifier) -> None:
    e = clf.explain(X[:1], private=True)[0]
    assert "because" not in e.sentences()[0]
    assert not any(name in " ".join(e.sentences()) for name in ("person", "insured"))
    assert e.main_reasons is None
    assert e.reasons().private
    assert not any(sentence.startswith("Why not") for sentence in e.sentences())


def test_without_a_model_to_ask_the_sentence_ends_earlier(clf: DWACClassifier) -> None:
    e = clf.explain_of(clf.embed(X[:1]))[0]
    assert e.main_reasons is None
    assert "because" not in e.sentences()[0]


def test_attention_has_a_caption_that_it_did_not_decide() -> None:
    texts = [f"{['goal', 'team', 'coach'][i % 3]} for the {'red' if i % 2 else 'blue'} side" for i in range(120)]
    e = DWACClassifier(**{**FAST, "epochs": 2}).fit(texts, [text.split()[0] for text in texts]).explain(texts[:1])[0]
    page = e.to_html()
    assert e.attention
    assert "not what decided" in " ".join(page.split())


def test_series() -> None:
    assert series([]) == ""
