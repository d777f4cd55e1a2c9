"""clf.label_next: which rows of a pool to label, and what their labels are expected to be worth."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dwac import DWACClassifier
from dwac.errors import InputError, UnreadableWarning
from dwac.estimator.worth import expected_worth
from dwac.tasks.worth import log_shares
from tests.estimator.helpers import SPLIT, noisy_rows
from tests.named import refuses, warns


@pytest.fixture(scope="module")
def of_sixty_rows() -> DWACClassifier:
    return DWACClassifier(**SPLIT).fit(*noisy_rows(60, 0))


POOL = noisy_rows(80, 1, "pool")[0]


def divergence(log_w: float, votes: Any, label: int) -> float:
    """Of the shares with one more vote from those without it, by definition."""
    before, after = np.exp(votes), np.exp(votes)
    after[label] += np.exp(log_w)
    before, after = before / before.sum(), after / after.sum()
    return float((after * np.log(after / before)).sum())


def test_expected_worth_is_the_mean_rise_of_the_log_probability() -> None:
    rng = np.random.default_rng(0)
    log_w, votes, p = rng.normal(size=(4, 3)), 2 * rng.normal(size=(4, 5)), rng.dirichlet(np.ones(5), 3)
    found = expected_worth(*(torch.as_tensor(part) for part in (log_w, p, votes)))
    by_hand = [
        np.mean([sum(p[c, y] * divergence(log_w[j, c], votes[j], y) for y in range(5)) for j in range(4)])
        for c in range(3)
    ]
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)


def test_votes_far_apart_keep_their_digits() -> None:
    votes = torch.tensor([[0.0, -1.0]]).double()
    tiny = torch.linspace(-60, -20, 200)[None].double()
    assert (expected_worth(tiny, torch.full((200, 2), 0.5).double(), votes) >= 0).all()
    found = expected_worth(torch.tensor([[-800.0, -20.0, 800.0]]).double(), torch.full((3, 2), 0.5).double(), votes)
    p = votes.softmax(dim=1)
    assert abs(float(found[0])) < 1e-15
    assert 0 < found[1] < 1e-8
    assert float(found[2]) == pytest.approx(float(-0.5 * p.log().sum()))  # one vote decides all


def test_the_first_row_is_worth_most_to_the_pool(of_sixty_rows) -> None:
    table = of_sixty_rows.label_next(POOL, n=16)  # 5 times as many: all of them are compared
    assert table.index.isin(POOL.index).all()
    assert table.index.is_unique
    assert table.index.name == "id"
    assert len(table) == 16
    votes, prior = of_sixty_rows.log_class_weights(POOL), np.exp(log_shares(of_sixty_rows.references_))
    smooth = np.log(np.exp(votes) + 0.01 * prior * np.exp(votes).sum(axis=1, keepdims=True))
    h, p = of_sixty_rows.embed(POOL).astype(float), of_sixty_rows.predict_proba(POOL)
    worth = {}
    for c, name in enumerate(POOL.index):
        squares = torch.as_tensor(((h - h[c]) ** 2).sum(axis=1))
        log_w = of_sixty_rows.references_.voters.log_weights_at(squares).numpy()
        each = [[divergence(log_w[j], smooth[j], y) for y in range(2)] for j in range(len(h))]
        worth[name] = float((np.array(each) @ p[c]).mean())
    first = table.index[0]
    assert worth[first] == pytest.approx(max(worth.values()), rel=1e-4)
    assert table["expected_worth"].iloc[0] == pytest.approx(worth[first], rel=1e-4)
    assert table.loc[first, "probability"] == pytest.approx(of_sixty_rows.predict_proba(POOL.loc[[first]]).max())
    assert table.loc[first, "prediction"] == of_sixty_rows.predict(POOL.loc[[first]])[0]


def test_one_of_two_equal_rows_is_enough(of_sixty_rows) -> None:
    twice = pd.concat([POOL, POOL.rename(index="again {}".format)])
    table = of_sixty_rows.label_next(twice, n=4)
    assert len({name.removeprefix("again ") for name in table.index}) == 4


def test_rows_that_should_profit_can_be_others(of_sixty_rows) -> None:
    table = of_sixty_rows.label_next(POOL, n=3, X=noisy_rows(20, 5)[0])
    assert table.attrs["judges"] == 20
    assert of_sixty_rows.label_next(POOL, n=3).attrs["judges"] == len(POOL)


def test_names_and_small_pools(of_sixty_rows) -> None:
    table = of_sixty_rows.label_next(POOL.iloc[:3], n=10, ids=["a", "b", "c"])
    assert sorted(table.index) == ["a", "b", "c"]


def test_rows_that_cannot_be_read_are_not_asked_for() -> None:
    texts = ["good film"] * 20 + ["bad film"] * 20
    clf = DWACClassifier(**{**SPLIT, "epochs": 2}).fit(texts, ["yes"] * 20 + ["no"] * 20)
    with warns(UnreadableWarning, "1 of 3"):
        table = clf.label_next(["", "good", "bad"], n=3)
    assert sorted(table.index) == [1, 2]


def test_classes_with_weights_vote_with_them() -> None:
    clf = DWACClassifier(**SPLIT, class_weight={"yes": 5.0, "no": 1.0}).fit(*noisy_rows(60, 0))
    assert np.isfinite(clf.label_next(POOL, n=3)["expected_worth"]).all()


def test_errors_say_what_to_do(of_sixty_rows) -> None:
    with refuses(InputError, "n", 1, 0):
        of_sixty_rows.label_next(POOL, n=0)
    X = np.random.default_rng(2).normal(size=(60, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        several = DWACClassifier(**{**SPLIT, "epochs": 1}).fit(X, (X > 0).astype(int))
    with refuses(InputError, "label_next"):
        several.label_next(X)
