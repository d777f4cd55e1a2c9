"""Who helps and who harms, on the page: the values of Python, and what removing somebody changes, to the last digit."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dwac import DWACClassifier, DWACRegressor
from dwac.server.explorer import Explorer
from tests.server.data import AGES, PAID, SIZES, TAGS
from tests.server.explored import Reader, reading

NEW = SIZES[240:]
AGED = AGES[240:].astype(str)
TRUE: dict[str, Any] = {"numbers": PAID[240:], "tags": TAGS[240:], "ordered": AGED}


@pytest.fixture(
    scope="module", params=["numbers", *(pytest.param(each, marks=pytest.mark.slow) for each in ("tags", "ordered"))]
)
def asked(request: pytest.FixtureRequest) -> Iterator[tuple[Reader, Any, Any]]:
    """A page, its model, and the true labels or numbers of its rows."""
    model, true = request.getfixturevalue(request.param), TRUE[request.param]
    for reader in reading(Explorer.of(model, NEW, true)):
        yield reader, model, true


def worths(page: Reader) -> Any:
    return np.frombuffer(page.ask("GET", "worth/values").body, dtype="<f4")


def score(model: Any, true: Any) -> float:
    """The mean probability of what is so, or the squared error in units of the variance."""
    if isinstance(model, DWACRegressor):
        return float((((model.predict(NEW) - true) / model.target_.scale[1]) ** 2).mean())
    p = model.predict_proba(NEW)
    if true is AGED:
        return float(p[np.arange(len(NEW)), [model.classes_.tolist().index(name) for name in true]].mean())
    return float((1 - np.abs(p - true.to_numpy())).mean())


def test_the_page_says_what_python_says_of_every_example(asked: tuple[Reader, Any, Any]) -> None:
    page, model, true = asked
    python, values, found = model.worth(NEW, true, tolerance=1e-3), worths(page), page.get("worth")
    assert page.get("start")["worth"]
    n = page.first_row
    np.testing.assert_allclose(values[:n], python["relative"], atol=0.05)
    assert np.isnan(values[n:]).all()
    assert [found["judges"], found["rows"], found["by_training"], found["n"]] == [60, 60, False, n]
    assert found["before"] == pytest.approx(score(model, true), abs=1e-6)
    best, worst = ([each["relative"] for each in found[end]] for end in ("most", "least"))
    assert best == sorted(best, reverse=True)
    assert worst == sorted(worst)
    assert len(best) == len(worst) == 10
    assert best[0] == pytest.approx(np.nanmax(values), rel=1e-6)
    assert found["harming"] == int((python["worth"] < 0).sum())
    for each in found["most"] + found["least"]:
        assert each["worth"] == pytest.approx(python["worth"].iloc[each["point"]], abs=2e-4)
        assert each["id"] == page.explorer.points.name(each["point"])


def test_removing_one_changes_exactly_what_the_list_says(asked: tuple[Reader, Any, Any]) -> None:
    page = Reader(asked[0].client, asked[0].explorer, "00aa00aa00aa00aa")
    found = page.get("worth")
    gone = found["least"][0]
    page.post("edits", action="remove", point=gone["point"])
    after = page.get("worth")
    assert after["before"] == pytest.approx(gone["after"], abs=1e-9)
    assert after["n"] == found["n"] - 1
    assert np.isnan(worths(page)[gone["point"]])
    assert gone["point"] not in [each["point"] for each in after["most"] + after["least"]]
    page.post("edits", action="undo")
    assert page.get("worth") == found


@pytest.mark.slow
def test_without_known_labels_training_examples_judge_by_the_votes_of_others(ordered: DWACClassifier) -> None:
    for page in reading(Explorer.of(ordered, NEW)):
        found = page.get("worth")
        assert found["by_training"]
        voters = ordered.references_.ids.tolist()
        assert found["judges"] == len(voters)
        labels = ordered.classes_[ordered.references_.labels.numpy()]
        python = ordered.worth(SIZES.loc[voters], labels, ids=voters, tolerance=1e-3)["relative"]
        np.testing.assert_allclose(worths(page)[: page.first_row], python, atol=0.05)
        gone = found["most"][0]
        page.post("edits", action="remove", point=gone["point"])
        assert page.get("worth")["before"] == pytest.approx(gone["after"], abs=1e-9)


def test_a_private_page_says_nothing_of_worth(ordered: DWACClassifier) -> None:
    for page in reading(Explorer.of(ordered, NEW, AGED, private=True)):
        assert not page.get("start")["worth"]
        assert page.ask("GET", "worth").status == 409
        assert page.ask("GET", "worth/values").status == 409
