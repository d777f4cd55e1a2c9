"""Reasons: what decides between a row and a real precedent, exactly, for every kind of input and target."""

import itertools
import json
import math
import pickle
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from dwac import DWACClassifier, DWACRegressor, ReferenceSet
from dwac.errors import IdError, InputError, PrivacyError
from dwac.explain import Contribution, Reasons, explain
from dwac.explain.comparing import plan_game
from dwac.explain.hybrids import Pool, mix_images, mix_tables, mix_texts, split_phrases
from tests.explain.helpers import held
from tests.named import named, refuses

Floats = NDArray[np.float64]


def table(n: int = 240, seed: int = 0) -> pd.DataFrame:
    """Loans: numbers with gaps, a date, a boolean, categories, and a column that never varies."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": rng.normal(100, 20, n).round(),
            "years": rng.integers(0, 20, n),
            "records": pd.Categorical(rng.choice(["no", "yes"], n)),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "owner": rng.random(n) < 0.5,
            "country": "de",
        },
        index=[f"loan {seed}-{i}" for i in range(n)],
    )
    frame.loc[rng.random(n) < 0.1, "income"] = np.nan
    return frame


def risk(X: pd.DataFrame) -> Any:
    return 1.5 * (X["records"] == "yes") + 0.1 * (10 - X["years"]) + 0.02 * (100 - X["income"].fillna(100))


def settings() -> dict[str, Any]:
    return {"random_state": 0, "verbose": False, "device": "cpu", "cross_fit": False, "epochs": 6}


@cache
def classifier(kind: str = "classes") -> DWACClassifier:
    X = table()
    cut = np.array(["good", "fair", "bad"])[np.digitize(risk(X), [0.4, 1.2])]
    if kind == "classes":
        y: Any = cut
    elif kind == "ordered":
        y = pd.Categorical(cut, ["good", "fair", "bad"], ordered=True)
    else:
        late = risk(X) > 0.5
        y = pd.DataFrame({"late": late, "owner": X["owner"], "neither": ~late & ~X["owner"]}).astype(int)
    return DWACClassifier(**settings()).fit(X, y)


@cache
def regressor(n_numbers: int = 1) -> DWACRegressor:
    X = table()
    y = 1000 * risk(X)
    return DWACRegressor(**settings()).fit(X, y if n_numbers == 1 else pd.DataFrame({"loss": y, "gain": -2 * y}))


NEW = table(12, seed=1)


def total_of(reasons: Reasons) -> float:
    return math.fsum(part.contribution for part in reasons.contributions)


# Shapley values


def oracle(values: Callable[[Any], Floats], n: int) -> Floats:
    """The mean over all orders of the parts of what each one adds, by the definition."""
    found = np.zeros(n)
    for order in itertools.permutations(range(n)):
        mask = np.ones((1, n), dtype=bool)
        before = values(mask)[0]
        for part in order:
            mask[0, part] = False
            found[part] += values(mask)[0] - before
            before = values(mask)[0]
    return found / math.factorial(n)


def contributions_of(values: Callable[[Any], Floats], n: int) -> tuple[Floats, float]:
    """The contributions of n parts, and the bound on their error, from the values at the planned hybrids."""
    masks, solve = plan_game(n)
    return solve(values(masks))


def game(n: int, seed: int) -> Callable[[Any], Floats]:
    table_of = np.random.default_rng(seed).normal(size=2**n)
    return lambda masks: table_of[np.asarray(masks) @ (1 << np.arange(n))]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_contributions_are_the_mean_over_all_orders(n: int) -> None:
    values = game(n, n)
    found, error = contributions_of(values, n)
    assert np.allclose(found, oracle(values, n), atol=1e-12)
    assert error == 0


def test_sampled_contributions_add_up_and_are_within_their_bound() -> None:
    weights, n = np.linspace(-1, 1, 14), 14

    def values(masks: Any) -> Floats:
        return np.asarray(-(masks @ weights) + 0.5 * masks[:, 0] * masks[:, 1] * masks[:, 2])

    found, error = contributions_of(values, n)
    pairs = 0.5 * np.array([i < 3 for i in range(n)]) / 3  # what three parts do together, each gets a third of
    exact = weights - pairs
    assert found.sum() == pytest.approx(exact.sum(), abs=1e-12)
    assert 0 < error < 0.2
    assert np.abs(found - exact).max() <= error


def test_symmetric_parts_contribute_alike_and_a_part_without_effect_nothing() -> None:
    found, _ = contributions_of(lambda masks: (~masks[:, 0] & ~masks[:, 1]).astype(float), 3)
    assert found[0] == pytest.approx(0.5)
    assert found[0] == pytest.approx(found[1], abs=1e-15)
    assert found[2] == pytest.approx(0, abs=1e-15)


# Tables


@pytest.mark.parametrize("kind", ["classes", pytest.param("ordered", marks=pytest.mark.slow)])
def test_contributions_are_the_difference_between_two_real_cases(kind: str) -> None:
    clf = classifier(kind)
    for e in clf.explain(NEW[:6]):
        r = e.reasons()
        assert r.label == e.label != r.other
        assert r.precedent is not None
        rows = pd.concat([NEW.iloc[:1], clf.examples_.rows([r.precedent.id])])
        assert clf.predict(rows)[1] == r.other == r.precedent.label
        votes = clf.log_class_weights(pd.concat([pd.DataFrame([e.record]), clf.examples_.rows([r.precedent.id])]))
        label, other = (clf.classes_.tolist().index(name) for name in (r.label, r.other))
        apart = votes[:, label] - votes[:, other]
        assert r.total == pytest.approx(apart[0] - apart[1], abs=1e-9)
        assert total_of(r) == pytest.approx(r.total, abs=1e-12)
        assert r.error == 0
        assert set(r.to_frame()["column"]) == set(NEW.columns)


def test_reasons_against_random_examples_add_up_to_the_difference_from_their_mean() -> None:
    clf, row = classifier(), NEW[:1]
    e = clf.explain(row)[0]
    r = e.reasons(precedents="random")
    assert r.is_random
    votes = clf.log_class_weights(pd.concat([row, clf.examples_.rows([each.id for each in r.precedents])]))
    label, other = (clf.classes_.tolist().index(name) for name in (r.label, r.other))
    odds = votes[:, label] - votes[:, other]
    assert r.total == pytest.approx(odds[0] - odds[1:].mean(), abs=1e-9)
    assert total_of(r) == pytest.approx(r.total, abs=1e-9)
    assert str(r.label) in str(r)
    of_number = regressor().explain(row)[0]
    number = of_number.reasons(precedents="random")
    with refuses(InputError, "precedents", "against"):
        of_number.reasons((0.0, 1.0), precedents="random")
    assert total_of(number) == pytest.approx(number.label - number.other, abs=1e-9)
    assert not e.reasons().is_random
    with refuses(InputError, "precedents", "randm"):
        e.reasons(precedents="randm")


def test_enumerated_reasons_are_those_of_the_definition() -> None:
    clf = classifier()
    e = clf.explain(NEW[:1])[0]
    r = e.reasons()
    assert r.precedent is not None
    other = clf.examples_.rows([r.precedent.id])
    label, rival = (clf.classes_.tolist().index(name) for name in (r.label, r.other))
    differing = [part.column for part in r.contributions if part.value != part.other_value and part.column != "country"]

    def values(masks: Any) -> Floats:
        row = NEW[:1].copy().astype(object)
        for name, swapped in zip(differing, masks[0], strict=True):
            if swapped:
                row[name] = other[name].tolist()
        votes = clf.log_class_weights(row.astype(NEW.dtypes.to_dict()))
        return votes[:, label] - votes[:, rival]

    found = dict(zip(differing, oracle(values, len(differing)), strict=True))
    for part in r.contributions:
        assert part.contribution == pytest.approx(found.get(part.column, 0.0), abs=1e-9)


def test_columns_that_are_the_same_or_unused_contribute_nothing() -> None:
    r = classifier().explain(NEW[:1])[0].reasons()
    for part in r.contributions:
        if part.value == part.other_value or part.column == "country":
            assert part.contribution == 0


def test_the_precedent_is_the_most_similar_of_those_with_the_other_label() -> None:
    clf = classifier()
    e = clf.explain(NEW[:1])[0]
    r = e.reasons()
    examples = clf.examples_.frame()
    assert examples is not None
    apart = pd.Series(clf.encoder_.input_distances(NEW[:1], examples), index=examples.index)
    mine = clf.predict(examples) == r.other
    labels = np.array([clf.classes_[code] for code in clf.references_.labels])
    own = pd.Series(labels, index=clf.references_.ids).reindex(examples.index) == r.other
    assert r.precedent is not None
    assert apart[r.precedent.id] == apart[mine & own.to_numpy()].min()


def test_other_voters_are_asked_if_these_explain() -> None:
    clf = classifier()
    few = copy(clf.references_)
    few.remove(few.ids[:60].tolist())
    e = clf.explain_of(clf.embed(NEW[:1]), references=few, X=NEW[:1])[0]
    r = e.reasons()
    assert r.precedent is not None
    assert r.precedent.id in few.ids
    assert r.precedent.label == r.other
    rows = pd.concat([NEW[:1], clf.examples_.rows([r.precedent.id])])
    votes = np.asarray(few.log_class_weights(clf.embed(rows)))
    label, other = (clf.classes_.tolist().index(name) for name in (r.label, r.other))
    apart = votes[:, label] - votes[:, other]
    assert r.total == pytest.approx(apart[0] - apart[1], abs=1e-6)


def test_tied_columns_move_together() -> None:
    e = classifier().explain(NEW[:1])[0]
    free, tied = e.reasons(), e.reasons(tied=[["years", "records"]])
    names = tied.to_frame()["column"].tolist()
    assert "years, records" in names
    assert "years" not in names
    assert tied.total == pytest.approx(free.total, abs=1e-12)
    assert total_of(tied) == pytest.approx(tied.total, abs=1e-12)


def test_against_a_label_or_an_example() -> None:
    clf = classifier()
    e = next(e for e in clf.explain(NEW) if e.label != "bad")
    r = e.reasons("bad")
    assert r.other == "bad"
    assert r.precedent is not None
    again = e.reasons(r.precedent.id)
    assert again.to_frame().equals(r.to_frame())
    with refuses(InputError, "against", e.label):
        e.reasons(e.label)
    with refuses(IdError, "against", "nobody"):
        e.reasons("nobody")
    with refuses(InputError, "precedents", r.precedent.id):
        e.reasons(r.precedent.id, precedents="random")


def test_an_example_that_is_called_like_a_label_can_be_compared_with() -> None:
    X = table(80)
    y = np.where(risk(X) > 0.8, "bad", "good")
    clf = DWACClassifier(**settings()).fit(X.rename(index={X.index[y == "good"][1]: "bad"}), y)
    e = next(e for e in clf.explain(NEW) if e.label == "good")
    assert e.reasons("bad").other == "bad"
    known = e.reasons(example="bad").precedent
    assert known is not None
    assert (known.id, known.label) == ("bad", "good")
    with refuses(InputError, "example"):
        e.reasons("bad", example="bad")


def test_several_precedents_give_means_and_spreads() -> None:
    e = classifier().explain(NEW[:1])[0]
    three = e.reasons(precedents=3)
    each = [e.reasons(precedent.id) for precedent in three.precedents]
    assert len(each) == 3
    assert three.total == pytest.approx(np.mean([r.total for r in each]))
    for part in three.contributions:
        own = [next(p.contribution for p in r.contributions if p.column == part.column) for r in each]
        assert part.contribution == pytest.approx(np.mean(own))
        assert part.spread == pytest.approx(np.std(own))
    assert "spread" in three.to_frame()


def test_hybrids_keep_types_categories_and_gaps() -> None:
    row, other = NEW[:1].reset_index(drop=True), table(2, seed=5)[1:].reset_index(drop=True)
    row["income"] = np.nan
    hybrids = mix_tables(Pool(row, other))
    d = len(hybrids.parts)
    both = hybrids.make(np.array([[False] * d, [True] * d]))
    assert both.dtypes.astype(str).tolist() == row.dtypes.astype(str).tolist()
    assert math.isnan(both["income"][0])
    names = [part.name for part in hybrids.parts]
    pd.testing.assert_frame_equal(both[1:].reset_index(drop=True)[names], other[names])
    with refuses(InputError, "tied", "heigth"):
        mix_tables(Pool(row, other), 1, [["heigth"]])
    with refuses(InputError, "tied", "years"):
        mix_tables(Pool(row, other), 1, [["years", "owner"], ["years"]])
    with refuses(InputError, "tied"):
        mix_tables(Pool(row, other), 1, ["years"])


# Other targets


def test_reasons_for_a_number_are_in_its_unit() -> None:
    reg = regressor()
    e = reg.explain(NEW[:1])[0]
    r = e.reasons()
    assert r.precedent is not None
    numbers = reg.predict(pd.concat([NEW[:1], reg.examples_.rows([r.precedent.id])]))
    assert r.total == pytest.approx(numbers[0] - numbers[1], abs=1e-8)
    assert (r.label, r.other) == (pytest.approx(numbers[0]), pytest.approx(numbers[1]))
    assert total_of(r) == pytest.approx(r.total, abs=1e-8)
    high = e.reasons((1500, 5000))
    assert 1500 <= high.other <= 5000
    with refuses(InputError, "against", 5, 1):
        e.reasons((5, 1))
    with refuses(InputError, "range"):
        e.reasons((1e9, 1e10))


def test_reasons_for_one_of_several_numbers() -> None:
    e = regressor(2).explain(NEW[:1])[0]
    assert e.reasons().unit == "loss"
    r = e.reasons(name="gain")
    assert r.label == pytest.approx(e.prediction[1])
    with refuses(InputError, "name", "los"):
        e.reasons(name="los")


def test_reasons_for_each_of_several_labels() -> None:
    clf = classifier("labels")
    explanations = clf.explain(NEW[:1])[0]
    for place, label in enumerate(clf.classes_):
        r = explanations[label].reasons()
        assert {r.label, r.other} == {label, f"not {label}"}
        assert r.precedent is not None
        rows = pd.concat([NEW[:1], clf.examples_.rows([r.precedent.id])])
        odds = clf.decision_function(rows)[:, place] * (1 if r.label == label else -1)
        assert r.total == pytest.approx(odds[0] - odds[1], abs=1e-9)
    assert explanations["owner"].reasons().contributions[0].column == "owner"


# Private


def test_private_reasons_hold_columns_and_rounded_contributions_alone() -> None:
    clf = classifier()
    exact, private = (clf.explain(NEW[:1], private=private)[0].reasons() for private in (False, True))
    assert exact.precedent is not None
    assert private.precedent is None
    assert all(part.other_value is None for part in private.contributions)
    known = {part.column: part.contribution for part in exact.contributions}
    for part in private.contributions:
        assert part.contribution == pytest.approx(known[part.column], abs=0.05 + 1e-9)
        assert round(part.contribution, 1) == pytest.approx(part.contribution)
    for text in (str(private), repr(private), private.to_html(), json.dumps(private.to_dict())):
        assert str(exact.precedent.id) not in text
        assert "nan" not in text.lower()
    assert "other_value" not in private.to_frame()
    assert not any(value == exact.precedent.id for _, value in held(private) if isinstance(value, str))
    with refuses(PrivacyError, "private"):
        clf.explain(NEW[:1], private=True)[0].reasons(exact.precedent.id)


def test_a_private_number_is_rounded() -> None:
    r = regressor().explain(NEW[:1], private=True)[0].reasons()
    step = 50.0
    assert all(part.contribution % step in (0, step) for part in r.contributions)
    assert r.label % step == r.other % step == 0


# Words and pages


def test_text_page_and_json_name_both_cases() -> None:
    r = classifier().explain(NEW[:1])[0].reasons()
    assert r.precedent is not None
    first = r.contributions[0]
    for text in (str(r), r.to_html()):
        assert str(r.precedent.id) in text
        assert str(first.column) in text
        assert f"{abs(first.contribution):.2f}" in text
    assert max(map(len, r.to_text(70).splitlines())) <= 70
    found = json.loads(json.dumps(r.to_dict()))
    assert found["contributions"][0]["contribution"] == first.contribution
    assert found["precedents"][0]["id"] == r.precedent.id


def test_embeddings_alone_have_no_reasons() -> None:
    e = explain(ReferenceSet([[0.0], [1.0]], [0, 1]), [[0.2]])[0]
    with refuses(InputError, "clf.explain"):
        e.reasons()
    with refuses(InputError, "clf.explain"):  # a copy that leaves the process does not hold the model
        pickle.loads(pickle.dumps(classifier().explain(NEW[:1], private=True)[0])).reasons()


# Texts, images, and networks of your own


def test_phrases_of_a_text_are_replaced_by_those_of_the_precedent() -> None:
    hybrids = mix_texts("the film was very good", "the film was bad")
    assert [(part.value, part.other_value) for part in hybrids.parts] == [("very", "bad"), ("good", "")]
    assert hybrids.make(np.array([[False, False], [True, True], [False, True]])) == [
        "the film was very good",
        "the film was bad",
        "the film was very",
    ]
    long = mix_texts(" ".join(map(str, range(100))), " ".join(map(str, range(200, 250))))
    assert len(long.parts) <= 11


def test_patches_of_an_image_are_replaced_by_those_of_the_precedent() -> None:
    image, other = torch.zeros(1, 1, 9, 9), torch.zeros(1, 1, 9, 9)
    other[..., :3, :3] = 1
    other[..., 8, 8] = 2
    hybrids = mix_images(image, other)
    assert len(hybrids.parts) == 2
    both = hybrids.make(np.array([[False, False], [True, True]]))
    assert torch.equal(both[0], image[0])
    assert torch.equal(both[1], other[0])


def test_a_network_of_your_own_has_reasons_if_it_takes_columns() -> None:
    X = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    y = np.where(X[:, 0] > 0, "up", "down")
    clf = DWACClassifier(nn.Sequential(nn.Linear(3, 8), nn.ReLU()), **settings() | {"epochs": 60}).fit(X, y)
    r = clf.explain(X[:1])[0].reasons()
    assert set(r.to_frame()["column"]) == {0, 1, 2}
    assert total_of(r) == pytest.approx(r.total, abs=1e-9)
    cubes = X[:, :, None]
    other = DWACClassifier(nn.Sequential(nn.Flatten(), nn.Linear(3, 8)), **settings()).fit(cubes, y)
    with refuses(InputError, "columns"):
        other.explain(cubes[:1])[0].reasons()


@cache
def reader() -> DWACClassifier:
    texts = [f"a {word} film number {i}, with {word} music" for i in range(60) for word in ("good", "bad")]
    return DWACClassifier(**settings()).fit(texts, ["up", "down"] * 60)


def test_reasons_for_a_text_are_its_phrases() -> None:
    clf = reader()
    text = "a good film number 3, with good music"
    r = clf.explain([text])[0].reasons("down")
    assert r.precedent is not None
    odds = clf.decision_function([text, r.precedent.record["text"]])
    assert r.total == pytest.approx(odds[0] - odds[1], abs=1e-9)
    assert total_of(r) == pytest.approx(r.total, abs=1e-9)
    assert "good" in r.contributions[0].value
    assert "good" in str(r)
    assert "bad" in r.to_html()
    with refuses(InputError, "tied"):
        clf.explain([text])[0].reasons(tied=[["good", "film"]])
    with refuses(InputError, "columns"):
        clf.importance([text])
    with refuses(InputError, "precedents"):
        clf.explain([text])[0].reasons("down", precedents=2)


def test_the_first_sentence_on_a_text_says_what_the_model_gives_without_its_phrases() -> None:
    clf = reader()
    text = "a good film number 3, with good music"
    e = clf.explain([text])[0]
    turn, first = e.turn, e.sentences()[0]
    assert turn is not None
    assert any("good" in part.value for part in turn.parts)
    assert all(f"“{part.value}”" in first for part in turn.parts)
    left = text.split()
    for part in turn.parts:
        left.remove(part.value)
    assert clf.predict([" ".join(left)])[0] == turn.outcome
    assert turn.changed == (turn.outcome != e.label)
    assert named(first, str(turn.outcome))
    hidden = clf.explain([text], private=True)[0]
    assert hidden.turn is None
    assert "“" not in hidden.sentences()[0]
    assert clf.explain(["good"])[0].turn is None  # nothing would be left


@pytest.mark.parametrize("most", [1, 3, 8])
@pytest.mark.parametrize(
    "text", ["one", "One, two. Three four five six seven eight nine", "第一，第二。第三", " a  b\n"]
)
def test_phrases_are_a_text_in_pieces(text: str, most: int) -> None:
    phrases = split_phrases(text, most)
    assert "".join(phrases) == text.lstrip()
    assert 1 <= len(phrases) <= most


@pytest.mark.slow
def test_reasons_for_an_image_are_patches_drawn_over_it() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 60, size=(80, 12, 12)).astype(np.uint8)
    images[::2, :4, :4] += 180
    clf = DWACClassifier(**settings()).fit(images, ["lit", "dark"] * 40)
    r = clf.explain(images[:1])[0].reasons()
    assert r.precedent is not None
    assert r.contributions[0].column == "patch 1.1"
    assert tuple(r.contributions[0].value) == (0, 0, 4, 4)
    assert total_of(r) == pytest.approx(r.total, abs=1e-9)
    page = r.to_html()
    assert page.count("<image") == 2
    assert page.count("<rect") == len(r.deciding)
    assert len(r.plot().axes) == 2
    e = clf.explain(images[:1])[0]
    assert e.turn is not None
    assert [part.name for part in e.turn.parts] == ["patch 1.1"]
    mixed = images[:1].copy()
    mixed[:, :4, :4] = images[[e.turn.precedent]][:, :4, :4]
    assert clf.predict(mixed)[0] == e.turn.outcome == "dark"
    assert named(e.sentences()[0], "upper left", str(e.turn.precedent), "dark")
    assert "oben links" in e.sentences(language="de")[0]


# Columns over many rows


def test_importance_is_the_mean_size_of_contributions() -> None:
    clf = classifier()
    some = NEW[:6]
    found = clf.importance(some)
    sizes = found.contributions.abs().mean()
    frame = found.to_frame().set_index("column")["importance"]
    assert frame.to_dict() == sizes.to_dict()
    first, h = clf.explain(some[:1])[0], clf.importance(some[:1]).contributions.iloc[0]
    near = first.reasons().contributions
    assert (h != 0).sum() > sum(part.contribution != 0 for part in near)  # a random example differs in more columns
    rounded = clf.importance(some[:1], private=True).contributions.iloc[0]
    assert rounded.tolist() == pytest.approx((10 * h).round() / 10)
    assert len(clf.importance(some, seconds=0.0).contributions) == 1
    assert frame.is_monotonic_decreasing
    assert frame["country"] == 0
    assert found.contributions.index.tolist() == some.index.tolist()
    assert json.loads(json.dumps(found.to_dict()))["rows"] == len(some)
    assert "records" in repr(found)
    assert "records" in found.to_html()


def test_importance_for_a_label_has_its_sign() -> None:
    found = classifier().importance(NEW[:6], label="bad")
    assert found.label == "bad"
    means = found.contributions.groupby(found.inputs["records"].astype(str))["records"].mean()
    assert means["yes"] >= 0 >= means["no"]
    with refuses(InputError, "label", "bda"):
        classifier().importance(NEW[:6], label="bda")
    labels = classifier("labels").importance(NEW[:6], label="owner")
    assert labels.to_frame()["column"].tolist()[0] == "owner"
    assert (labels.contributions["owner"][labels.inputs["owner"]] >= 0).all()
    assert regressor().importance(NEW[:4]).unit == "number"


def test_importance_is_drawn_as_bars_and_by_value() -> None:
    found = classifier().importance(NEW[:6])
    assert len(found.plot().axes[0].patches) == len(NEW.columns)
    for column in ("income", "records", "since", "owner"):
        assert found.plot(column).axes[0].get_xlabel() == column
    with refuses(InputError, "column", "incom"):
        found.plot("incom")
    assert classifier().explain(NEW[:1])[0].reasons().plot().axes


def test_the_title_of_a_picture_has_the_whole_label() -> None:
    part = Contribution("age", 20, 30, 1.5)
    e = Reasons(label="risk: low", other="risk: high", precedents=(), contributions=(part,), total=1.5, error=0.0)
    assert e.headline == "Predicted risk: low, where a similar training example gets risk: high"
    assert e.sentences()[0].startswith(f"{e.headline}: ")
    assert e.plot().axes[0].get_title() == e.headline
