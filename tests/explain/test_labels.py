"""Explanations of several labels: each label is a yes/no vote of the same voters, exact, lazy, and private if asked."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dwac import DWACClassifier, ReferenceSet
from dwac.conformal import LabelCalibration
from dwac.errors import InputError, LabelError, ShapeError
from dwac.explain import Explanation, LabelExplanations, explain_labels, privacy
from dwac.explain.labels import unreadable_labels
from dwac.explain.reasons import Reasoner
from dwac.reference.references import with_classes
from tests import oracle
from tests.explain.helpers import held
from tests.named import named, refuses, warns

pytestmark = pytest.mark.usefixtures("few_steps")

NAMES = ["calm", "sad", "loud"]
TABLE = np.array(list(itertools.product([0, 1], repeat=3)))  # every label set
M = 150


def voters(seed: int = 0, m: int = M) -> tuple[ReferenceSet, Any]:
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(8), rng.integers(0, 8, max(0, m - 8))])[:m]
    points = TABLE[codes][:, :2] + 0.6 * rng.normal(size=(m, 2))
    refs = ReferenceSet(points, codes, [f"r{i}" for i in range(m)], n_classes=8)
    return refs, rng.normal(size=(2, 2)) / 2 + 0.5


def probabilities(refs: ReferenceSet, queries: Any) -> Any:
    return refs.probabilities(queries) @ TABLE


def explained(refs: ReferenceSet, queries: Any, **more: Any) -> list[LabelExplanations]:
    return explain_labels(refs, queries, TABLE, names=NAMES, probabilities=probabilities(refs, queries), **more)


def has(refs: ReferenceSet, label: int) -> Any:
    return TABLE[refs.labels.numpy(), label] > 0


# Each label by itself


def test_each_label_is_a_vote_of_those_who_have_it_against_those_who_have_not() -> None:
    refs, queries = voters()
    votes = np.exp(oracle.log_weights(queries, refs.embeddings.numpy(), "gaussian"))
    for row, found in enumerate(explained(refs, queries, k=M)):
        assert list(found) == NAMES
        for place, label in enumerate(NAMES):
            e = found[label]
            share = votes[row, has(refs, place)].sum() / votes[row].sum()
            assert e.probabilities[label] == pytest.approx(share, abs=1e-5)
            assert e.label == (label if share >= 0.5 else f"not {label}")
            assert sum(n.share for n in e.neighbors if n.label == label) == pytest.approx(share, abs=1e-5)
            assert sum(n.share for n in e.neighbors) == pytest.approx(1, abs=1e-5)
            mine = sum(group.share for group in e.groups if group.label == label)
            assert mine == pytest.approx(share, rel=1e-6)
            assert sum(group.share for group in e.groups) == pytest.approx(1, abs=1e-9)
            assert sum(group.size for group in e.groups) == M
        assert found.labels == tuple(label for label in NAMES if found[label].label == label)


@pytest.mark.parametrize("seed", range(8))
def test_the_flip_set_is_a_smallest_one_that_changes_the_label(seed: int) -> None:
    refs, queries = voters(seed, m=9)
    votes = np.exp(oracle.log_weights(queries, refs.embeddings.numpy(), "gaussian"))[0]
    found = explained(refs, queries)[0]
    for place, label in enumerate(NAMES):
        e = found[label]

        def predicted(without: Sequence[Any], place: int = place) -> bool:
            left = np.delete(np.arange(9), refs.voters.positions(without))
            return bool(votes[left][has(refs, place)[left]].sum() >= votes[left].sum() / 2)

        before, flip = e.label == label, e.flip_set()
        assert flip is not None
        assert predicted(flip) != before
        for size in range(1, len(flip)):
            assert all(predicted(some) == before for some in itertools.combinations(refs.ids.tolist(), size))


@pytest.mark.parametrize("seed", range(4))
def test_deciding_is_the_least_number_that_the_rest_cannot_overturn(seed: int) -> None:
    refs, queries = voters(seed, m=8)
    near = refs.nearest(queries, k=8)
    votes = np.exp(oracle.log_weights(queries, refs.embeddings.numpy(), "gaussian"))[0]
    found = explained(refs, queries)[0]
    for place, label in enumerate(NAMES):
        order = refs.voters.positions(near.ids[0])

        def fixed(j: int, place: int = place, order: Any = order) -> bool:
            own = has(refs, place)
            first = [votes[order[:j]][own[order[:j]] == side].sum() for side in (True, False)]
            lead = first[0] - first[1] if found[NAMES[place]].label == NAMES[place] else first[1] - first[0]
            return bool(lead > votes[order[j:]].sum())

        assert found[label].deciding == next((j for j in range(9) if fixed(j)), 8)


def test_a_condensed_set_removes_whom_its_representatives_vote_for() -> None:
    refs, queries = voters()
    few = refs.condensed()
    e = explained(few, queries)[0]["sad"]
    assert (e.n_references, e.n_examples) == (len(few), M)
    assert sum(group.share for group in e.groups) == pytest.approx(1, abs=1e-9)
    flip = e.flip_set()
    assert flip is not None
    assert len(flip) > (e.flip_size or 0)
    few.remove(flip)
    assert (probabilities(few, queries)[0, 1] >= 0.5) != (e.label == "sad")


def test_a_label_that_everybody_has_cannot_be_changed() -> None:
    refs, queries = voters()
    table = np.column_stack([TABLE[:, :2], np.ones(8)])
    p = np.column_stack([probabilities(refs, queries)[:, :2], np.ones(2)])
    e = explain_labels(refs, queries, table, names=NAMES, probabilities=p)[0]["loud"]
    assert (e.label, e.probability, e.flip_size) == ("loud", 1.0, None)


def test_labels_are_explained_when_asked_for() -> None:
    refs, queries = voters()
    asked: list[int] = []

    def describe(label: int, references: ReferenceSet) -> list[str | None]:
        asked.append(label)
        return [f"group {g}" for g in range(len(references.groups))]

    found = explained(refs, queries, descriptions=describe)
    assert asked == []
    assert found[0]["sad"].groups[0].words is not None
    assert found[1]["sad"] is found[1]["sad"]
    assert asked == [1]  # once for all rows
    assert len(found[0]) == 3
    with pytest.raises(KeyError):
        found[0]["glad"]


def test_groups_are_found_again_for_each_label_and_leaves_stay() -> None:
    refs, _ = voters()
    yes_no = with_classes(refs, [1, 0, 1, 0, 1, 0, 1, 0], 2)
    assert (yes_no.groups.labels[yes_no.groups.of] == yes_no.labels.numpy()).all()
    assert (yes_no.groups.leaves == refs.groups.leaves).all()
    assert len(yes_no.groups) <= len(refs.groups)
    assert yes_no.groups is with_classes(refs, [1, 0, 1, 0, 1, 0, 1, 0], 2).groups  # found once
    few = with_classes(refs.condensed(), [1, 0, 1, 0, 1, 0, 1, 0], 2)
    assert few.members is not None
    assert (few.groups.parents == few.members.groups.parents).all()
    log_votes = yes_no.log_class_weights([[0.3, 0.4]])
    assert log_votes[0, 1] == pytest.approx(np.logaddexp.reduce(refs.log_class_weights([[0.3, 0.4]])[0, ::2]))
    with refuses(InputError, "class_weights"):
        with_classes(ReferenceSet([[0.0], [1.0]], [0, 1], class_weights=[1, 2]), [0, 0], 1)


# Words, plain values, pages


def test_words_name_the_labels_that_are_predicted() -> None:
    refs, _ = voters()
    found = explain_labels(
        refs, [[0.0, 0.0]], TABLE, names=NAMES, probabilities=[[0.9, 0.6, 0.25]], typicality=np.array([0.03])
    )[0]
    predicted, others, typicality = found.sentences()
    assert named(predicted, "calm (90.0 %)", "sad (60.0 %)")
    assert named(others, "loud (25.0 %)")
    assert named(typicality, "0.030", "3 %", "unlike")
    assert named(found, "calm", "90.0 %")
    assert not named(found, "not loud")
    assert named(found["loud"], "not loud", "75.0 %")
    none = explain_labels(refs, [[0.0, 0.0]], TABLE, names=NAMES, probabilities=[[0.1, 0.2, 0.3]])[0]
    assert none.labels == ()
    assert named(none.sentences()[0], "no label")
    assert named(none, "not loud")  # the most probable one


def test_a_dict_survives_json_and_html_is_escaped() -> None:
    refs, queries = voters()
    p, names = probabilities(refs, queries), ["<b>", 7, "loud"]
    found = explain_labels(refs, queries, TABLE, names=names, probabilities=p, shown=[{"record": {"a": "<img>"}}] * 2)[
        0
    ]
    given = found.to_dict()
    assert json.loads(json.dumps(given)) == given
    assert list(given["explanations"]) == ["<b>", "7", "loud"]
    assert given["explanations"]["7"]["probabilities"].keys() == {"label 7", "not label 7"}
    page = found.to_html()
    assert "<b>" not in page
    assert page.count("&lt;img&gt;") == 1  # the example once, not for each label
    assert page.count("<details") == 3
    assert page == found._repr_html_()


def test_wrong_shapes_are_an_error() -> None:
    refs, queries = voters()
    with refuses(ShapeError, "table", (8, 2)):
        explain_labels(refs, queries, TABLE, names=NAMES[:2], probabilities=probabilities(refs, queries))


def test_an_unreadable_example_has_no_label() -> None:
    refs, _ = voters()
    for private in (False, True):
        found = unreadable_labels("it is empty", NAMES, refs, private=private)
        assert found.unreadable == "it is empty"
        assert (found.labels, found.typicality, found["sad"].label, found["sad"].p_values) == ((), None, None, None)
        assert np.isnan(list(found.probabilities.values())).tolist() == [True] * len(NAMES)
        answer = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert (answer["labels"], set(answer["probabilities"].values())) == (None, {None})
        assert named(found, "it is empty")
        assert "<table>" not in found.to_html()


# Privacy


def test_a_private_explanation_keeps_nothing_of_a_voter() -> None:
    refs, queries = voters()
    records = {name: {"name": f"record of {name}"} for name in refs.ids}
    for found in explained(refs, queries, records=records, private=True):
        assert found._make is None
        texts = [str(found), found.to_html(), json.dumps(found.to_dict())]
        assert not any(name in text for text in texts for name in ("record of", "r1", "r2"))
        for path, value in held(found):
            assert not isinstance(value, torch.Tensor | np.ndarray | ReferenceSet), path
            assert not callable(value) or isinstance(value, Explanation | LabelExplanations | Reasoner), path
            assert not (isinstance(value, float) and abs(value * 100 - round(value * 100)) > 1e-9), (path, value)


def test_private_p_values_give_either_side_the_benefit_of_rounding() -> None:
    rng = np.random.default_rng(0)
    p = rng.random((400, 2))
    calibration = LabelCalibration(p, rng.random((400, 2)) < p)
    asked = rng.random((200, 2))
    exact, rounded = calibration.predict(asked), privacy.labels(calibration, asked)
    assert (rounded.p_yes >= exact.p_yes - 1e-12).all()
    assert (rounded.p_no >= exact.p_no - 1e-12).all()
    near = privacy.labels(calibration, np.clip(asked + 1e-6, 0, 1))
    assert ((near.p_yes != rounded.p_yes) | (near.p_no != rounded.p_no)).mean() < 0.01
    assert np.allclose(rounded.probabilities, np.round(asked, 2), rtol=0, atol=1e-12)
    # It still decides: what is ruled out at 5 % is ruled out by the exact p-values, and mostly the other way round.
    assert (exact.decisions(0.05)[rounded.decisions(0.05) >= 0] >= 0).all()
    assert (rounded.decisions(0.05) == exact.decisions(0.05)).mean() > 0.9


# The classifier


def emotions(n: int = 240, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        rng.normal(size=(n, 3)), columns=["tempo", "pitch", "volume"], index=[f"song-{i}" for i in range(n)]
    )
    scores = X.to_numpy() + 0.4 * rng.normal(size=(n, 3))
    return X, pd.DataFrame((scores > [0.0, 0.3, 0.6]).astype(int), columns=NAMES, index=X.index)


def fitted(**settings: Any) -> DWACClassifier:
    with pytest.warns(UserWarning, match="label"):
        return DWACClassifier(random_state=0, device="cpu", verbose=False, **settings).fit(*emotions())


@pytest.fixture(scope="module")
def of_moods() -> DWACClassifier:
    return fitted(cross_fit=False, epochs=12)


@pytest.fixture(scope="module", params=["cross-fitted", "split"])
def either(request: pytest.FixtureRequest) -> DWACClassifier:
    return request.getfixturevalue("of_moods") if request.param == "split" else fitted(cross_fit=True)


def test_explanations_agree_with_predictions_and_p_values(either: DWACClassifier) -> None:
    X = emotions(20, seed=1)[0]
    p, c, predicted = either.predict_proba(X), either.conformal(X), either.predict(X)
    for row, found in enumerate(either.explain(X)):
        assert list(found.probabilities.values()) == p[row].tolist()
        assert found.labels == tuple(np.array(NAMES)[predicted[row] > 0])
        assert found.typicality == c.typicality[row]
        for place, label in enumerate(NAMES):
            e = found[label]
            assert e.probabilities == {label: p[row, place], f"not {label}": 1 - p[row, place]}
            assert e.p_values == {label: c.p_yes[row, place], f"not {label}": c.p_no[row, place]}
            assert e.credibility == max(e.p_values.values())
            assert e.record == X.iloc[row].to_dict()
            assert e.groups[0].words is not None


def test_one_label_may_be_explained_alone(of_moods: DWACClassifier) -> None:
    X = emotions(4, seed=1)[0]
    alone, all_ = of_moods.explain(X, label="sad"), of_moods.explain(X)
    assert [type(e) for e in alone] == [Explanation] * 4
    assert [e.to_dict() for e in alone] == [found["sad"].to_dict() for found in all_]
    with refuses(LabelError, "label", "calm", "sad", "loud", "glad"):
        of_moods.explain(X, label="glad")


def test_private_explanations_agree_with_private_decisions(either: DWACClassifier) -> None:
    X = emotions(20, seed=1)[0]
    decided = either.conformal_of(*either.evidence(X), private=True)
    for row, found in enumerate(either.explain(X, private=True)):
        assert found.private
        for place, label in enumerate(NAMES):
            p_values = {label: decided.p_yes[row, place], f"not {label}": decided.p_no[row, place]}
            assert found[label].p_values == p_values
            assert found.probabilities[label] == pytest.approx(decided.probabilities[row, place])
        assert "song-" not in str(found) + found.to_html() + json.dumps(found.to_dict())


def test_a_condensed_model_explains_its_labels(of_moods: DWACClassifier) -> None:
    X = emotions(3, seed=1)[0]
    few = of_moods.condense(40)
    found = few.explain(X)
    assert [list(each.probabilities.values()) for each in found] == few.predict_proba(X).tolist()
    e = found[0]["sad"]
    assert (e.n_references, e.n_examples) == (40, len(of_moods.references_))
    assert e.groups[0].words is not None
    assert named(e, "40 representatives")


def test_descriptions_follow_edits(of_moods: DWACClassifier) -> None:
    X = emotions(3, seed=1)[0]
    before = of_moods.explain(X, label="sad")[0]
    assert of_moods.explain(X, label="sad")[0]._source.descriptions is before._source.descriptions  # found once
    few = of_moods.condense(40)
    few.forget([before.neighbors[0].id])
    assert before.neighbors[0].id not in {n.id for n in few.explain(X, 40, label="sad")[0].neighbors}


def test_an_unreadable_row_costs_no_other_row_its_explanation() -> None:
    texts = [f"{'good' if i % 2 else 'bad'} film {'long' if i % 3 else 'short'} {i}" for i in range(90)]
    Y = [[word for word in ("good", "long") if word in text.split()] for text in texts]
    model = DWACClassifier(epochs=1, random_state=0, device="cpu", verbose=False)
    with warns(UserWarning, "label"):
        model.fit(texts, Y)
    first, second, third = model.explain([texts[0], "", texts[1]])
    assert (first.unreadable, third.unreadable) == (None, None)
    assert second.unreadable is not None
    assert np.isnan([second.probabilities[word] for word in ("good", "long")]).all()
    assert model.explain([""], label="good")[0].unreadable == second.unreadable


# Labels in an order


def test_labels_in_an_order_have_plain_explanations_and_intervals_as_sets() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    grades = ["low", "fair", "good", "best"]
    codes = np.digitize(X["a"] + 0.5 * rng.normal(size=300), [-0.7, 0.0, 0.7])
    y = pd.Categorical([grades[code] for code in codes], categories=grades, ordered=True)
    model = DWACClassifier(epochs=10, random_state=0, device="cpu", verbose=False).fit(X, y)
    c, sets = model.conformal(X[:40]), model.predict_set(X[:40], 0.1)
    for row, e in enumerate(model.explain(X[:40])):
        assert isinstance(e, Explanation)
        assert list(e.p_values or {}) == ["low", "fair", "good", "best"]
        assert list((e.p_values or {}).values()) == c.p_values[row].tolist()
        held_ = np.flatnonzero(sets[row])
        assert len(held_) == 0 or (np.diff(held_) == 1).all()
        assert e.label == model.predict(X.iloc[[row]])[0]
    private = model.explain(X[:5], private=True)
    assert all(e.private and e.p_values for e in private)
    with refuses(InputError, "label"):
        model.explain(X[:1], label="low")
