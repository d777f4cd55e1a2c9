"""What notebooks show is HTML in which names, labels and values from data are escaped."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dwac

pytestmark = pytest.mark.usefixtures("few_steps")
BAD = "<script>alert(1)</script>"
RNG = np.random.default_rng(0)
X = pd.DataFrame({BAD: RNG.normal(size=70), "job": RNG.choice([BAD, "clerk"], 70)})
Y = np.where(X[BAD] > 0, BAD, "<img src=x onerror=alert(1)>")


@pytest.fixture(scope="module")
def clf(few_steps: None) -> Any:
    return dwac.DWACClassifier(random_state=0, device="cpu", verbose=False).fit(X, Y)


@pytest.mark.parametrize("what", ["estimator", "explanation", "explanations", "reasons", "conformal", "evaluation"])
def test_everything_shows_a_page_and_escapes_it(clf: Any, what: str) -> None:
    made = {
        "estimator": lambda: clf,
        "explanation": lambda: clf.explain(X[:1])[0],
        "explanations": lambda: clf.explain(X[:3]),
        "reasons": lambda: clf.explain(X[:1])[0].reasons(),
        "conformal": lambda: clf.conformal(X),
        "evaluation": lambda: clf.evaluate(X, Y, by="job"),
    }
    page = made[what]()._repr_html_()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert what == "estimator" or "&lt;" in page


def test_a_long_conformal_prediction_shows_its_first_examples(clf: Any) -> None:
    assert clf.conformal(X)._repr_html_().count("<tr") == 11
