"""`DWACRegressor.explain`: it says what predict, predict_interval and typicality say, and in private little enough."""

import json
import math
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dwac import load
from dwac.errors import InputError, UnreadableWarning
from dwac.estimator.regressor import DWACRegressor
from dwac.metrics import ood_scores
from dwac.reference.references import without_members
from tests.explain.helpers import UNSEEN, all_numbers, aurocs, held, moved, numbers, patients
from tests.named import named, refuses

pytestmark = pytest.mark.usefixtures("few_steps")

X = patients(300, 1, "patient")
NEW = UNSEEN[:6]


def cost(rows: pd.DataFrame) -> Any:
    noise = np.random.default_rng(len(rows)).normal(size=len(rows))
    return 1000 * np.exp(0.5 * rows["height"] + 0.3 * rows["pulse"] + 0.2 * noise)


def fitted(y: Any, *, crossed: bool, **more: Any) -> DWACRegressor:
    settings = {"cross_fit": True} if crossed else {"cross_fit": False, "epochs": 4}
    return DWACRegressor(random_state=0, device="cpu", verbose=False, **settings, **more).fit(X, y)


@pytest.fixture(scope="module")
def of_costs() -> DWACRegressor:
    return fitted(cost(X).rename("cost"), crossed=False)


@pytest.fixture(scope="module", params=["cross-fitted", "split"])
def either(request: pytest.FixtureRequest) -> DWACRegressor:
    return (
        request.getfixturevalue("of_costs")
        if request.param == "split"
        else fitted(cost(X).rename("cost"), crossed=True)
    )


@pytest.fixture(scope="module")
def two() -> DWACRegressor:
    y = pd.DataFrame({"cost": cost(X), "days": 5 + 2 * X["height"]})
    return fitted(y, crossed=False, average="median")


def test_explanations_agree_with_predictions_intervals_and_typicality(either: DWACRegressor) -> None:
    for epsilon in (0.1, 0.3):
        found = either.explain(NEW, epsilon=epsilon)
        assert [e.prediction for e in found] == either.predict(NEW).tolist()
        assert [list(e.interval) for e in found] == either.predict_interval(NEW, epsilon).tolist()
        assert [e.typicality for e in found] == either.typicality(NEW).tolist()
        certain = either.expected_intervals(epsilon).guarantee
        assert {e.guarantee for e in found} == {1 - epsilon if certain is None else certain}
        assert {e.epsilon for e in found} == {epsilon}
    levels = list(found[0].quantiles or {})
    assert [list((e.quantiles or {}).values()) for e in found] == either.predict_quantiles(NEW, levels).tolist()
    for row, e in enumerate(found):
        assert e.record == NEW.iloc[row].to_dict()
        assert e.neighbors[0].record == X.loc[e.neighbors[0].id].to_dict()
        assert e.neighbors[0].label == cost(X)[e.neighbors[0].id]
        assert e.groups[0].words
        assert e.names == ("cost",)
        assert json.loads(json.dumps(e.to_dict()))["prediction"] == e.prediction


def test_removal_does_what_was_said(of_costs: DWACRegressor) -> None:
    e = of_costs.explain(NEW[:1], k=3)[0]
    most = e.influential[0]
    left = copy(of_costs.references_)
    left.remove([most.id])
    h = torch.as_tensor(of_costs.embed(NEW[:1]))
    assert float(left.distribution(h).mean[0, 0]) - e.prediction == pytest.approx(most.move, rel=1e-6)
    for other in of_costs.references_.ids[:40]:
        one = copy(of_costs.references_)
        one.remove([other])
        assert abs(float(one.distribution(h).mean[0, 0]) - e.prediction) <= abs(most.move) * (1 + 1e-9)


def test_embeddings_may_be_given_and_other_voters_asked(of_costs: DWACRegressor) -> None:
    h = torch.as_tensor(of_costs.embed(NEW))
    first, asked = of_costs.explain(NEW, 4), of_costs.explain_of(h, 4)
    assert [e.prediction for e in first] == pytest.approx([e.prediction for e in asked])
    assert asked[0].typicality is None
    left = copy(of_costs.references_)
    left.remove([first[0].neighbors[0].id])
    other = of_costs.explain_of(h, 4, references=left)[0]
    assert other.neighbors[0].id == first[0].neighbors[1].id
    assert other.prediction != first[0].prediction


def test_several_numbers_agree_with_predictions(two: DWACRegressor) -> None:
    found = two.explain(NEW)
    assert [list(e.prediction) for e in found] == two.predict(NEW).tolist()
    assert [[list(ends) for ends in e.interval] for e in found] == two.predict_interval(NEW).tolist()
    e = found[0]
    assert e.names == ("cost", "days")
    assert e.average == "median"
    assert named(e.sentences()[0], "cost", "days")
    assert len(e.plot().axes) == 2
    assert len(json.loads(json.dumps(e.to_dict()))["quantiles"]["0.5"]) == 2


def test_few_representatives_explain_for_all(of_costs: DWACRegressor) -> None:
    few = of_costs.condense(40)
    found = few.explain(NEW)
    assert [e.prediction for e in found] == few.predict(NEW).tolist()
    e = found[0]
    assert (e.n_references, e.n_examples) == (40, len(of_costs.references_))
    assert sum(group.share for group in e.groups) == pytest.approx(1, abs=1e-9)
    assert e.groups[0].words
    assert named(e, "40 representatives", few.agreement_)
    left = without_members(few.references_)
    left.remove([e.influential[0].id])
    h = torch.as_tensor(few.embed(NEW[:1]))
    assert float(left.distribution(h).mean[0, 0]) - e.prediction == pytest.approx(e.influential[0].move, rel=1e-6)


def test_an_unreadable_row_costs_no_other_row_its_explanation() -> None:
    texts = [f"{'good' if i % 2 else 'bad'} film number {i}" for i in range(90)]
    y = np.where(np.arange(90) % 2, 5.0, 1.0)
    model = DWACRegressor(epochs=1, random_state=0, device="cpu", verbose=False).fit(texts, y)
    for private in (False, True):
        first, second, third = model.explain([texts[0], "", texts[1]], epsilon=0.1, private=private)
        assert (first.unreadable, third.unreadable) == (None, None)
        assert second.unreadable is not None
        assert (second.neighbors, second.groups, second.influential, second.histogram) == ((), (), (), None)
        assert (math.isnan(second.prediction), second.interval, second.typicality) == (True, None, None)
        assert named(second, second.unreadable)
        assert "<table>" not in second.to_html()
        answer = json.loads(json.dumps(second.to_dict(), allow_nan=False))
        assert (answer["prediction"], answer["interval"]) == (None, None)
        second.plot()
    with pytest.warns(UnreadableWarning):
        assert np.isnan(model.predict(["", texts[0]])).tolist() == [True, False]
    with pytest.warns(UnreadableWarning):
        assert np.isnan(model.predict_interval(["", texts[0]], epsilon=0.1)).all(axis=1).tolist() == [True, False]
    with pytest.warns(UnreadableWarning):
        assert np.isfinite(model.score(["", *texts[:9]], [0, *y[:9]]))


def test_wrong_settings_are_an_error(of_costs: DWACRegressor) -> None:
    with refuses(InputError, "epsilon", "(0, 1)", 1.5):
        of_costs.explain(NEW, epsilon=1.5)
    with refuses(InputError, "k", 0):
        of_costs.explain(NEW, 0)


# Privacy


def answers(model: DWACRegressor, rows: pd.DataFrame) -> list[Any]:
    return [{"explain": e.to_dict(), "sentences": e.sentences()} for e in model.explain(rows, private=True)]


def test_a_model_saved_without_its_examples_explains_in_private(either: DWACRegressor, tmp_path: Path) -> None:
    model: Any = load(either.save(tmp_path / "model", include_examples=False), device="cpu")
    for mine, theirs in zip(either.explain(NEW, private=True), model.explain(NEW), strict=True):
        assert theirs.private
        assert (theirs.prediction, theirs.interval, theirs.histogram) == (
            mine.prediction,
            mine.interval,
            mine.histogram,
        )
        for path, value in held(theirs):
            assert not isinstance(value, torch.Tensor | pd.DataFrame), path
            assert "patient-0" not in str(value)
        for _, number in numbers({**theirs.to_dict(), "sentences": theirs.sentences()}):
            assert np.abs(number / cost(X) - 1).min() > 1e-6
        assert "patient" not in str(theirs) + theirs.to_html() + json.dumps({**theirs.to_dict(), "record": None})
    assert not model.explain(NEW, private=False)[0].private


def test_private_intervals_hold_the_exact_ones_and_are_hardly_wider(of_costs: DWACRegressor) -> None:
    for exact, rounded in zip(of_costs.explain(NEW), of_costs.explain(NEW, private=True), strict=True):
        step = rounded._numerals[0].step
        assert rounded.interval[0] <= exact.interval[0] < rounded.interval[0] + step
        assert rounded.interval[1] - step < exact.interval[1] <= rounded.interval[1]
        assert abs(rounded.prediction - exact.prediction) <= step / 2


@pytest.mark.slow
def test_no_number_reveals_membership(either: DWACRegressor) -> None:
    voters = X.loc[list(either.references_.ids)[:100]]
    given = {"training": voters, "unseen": UNSEEN}
    shown = {who: all_numbers(answers(either, rows)) for who, rows in given.items()}
    for who, rows in given.items():
        near = all_numbers(answers(either, moved(rows)))
        for name, auroc in aurocs(shown[who], near).items():
            assert abs(auroc - 0.5) < 0.05, (who, "near copies", name, auroc)
        changed = (shown[who] != near.reindex(columns=shown[who].columns)).any(axis=1)
        assert changed.mean() <= 0.2, (who, changed.mean())
    for name, auroc in aurocs(shown["training"], shown["unseen"]).items():
        assert abs(auroc - 0.5) < 0.25, ("new rows", name, auroc)
    exact = [
        pd.Series([e.neighbors[0].log_weight for e in either.explain(rows, 1)]) for rows in (voters, moved(voters))
    ]
    assert ood_scores(*exact).auroc > 0.9  # so that the test can fail
