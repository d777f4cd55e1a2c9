"""How sure the vote itself is: the effective number of voters, and where the vote would be with voters drawn again."""

import json
from typing import Any

import numpy as np
import pytest

from dwac import ReferenceSet
from dwac.explain import Explanation, explain, explain_numbers
from dwac.explain.votes import share_interval
from tests.named import named

CASES = [  # spread of the voters, log-odds of the label, their slope: P* from 0.54 to 0.98
    (0.5, 0.0, 2.0),
    (0.5, 4.0, 1.0),
    (3.0, 0.0, 1.0),
    (3.0, 2.0, 0.5),
]
QUERY = np.array([[0.3, 0.0]])


def draw(rng: np.random.Generator, n: int, case: tuple[float, float, float]) -> tuple[Any, Any, Any]:
    """Embeddings, labels and numbers of n voters."""
    spread, odds, slope = case
    h = rng.normal(size=(n, 2)) * spread
    labels = rng.random(n) < 1 / (1 + np.exp(-(odds + slope * h[:, 0])))
    return h, labels.astype(int), 3 * h[:, 0] + rng.normal(size=n)


def coverage(case: tuple[float, float, float], n: int, repeats: int, weights: Any = None) -> tuple[float, float]:
    """How often the intervals of a share and of a mean hold what all of the population would vote."""
    rng = np.random.default_rng(0)
    h, labels, y = draw(rng, 400_000, case)
    w = np.exp(-np.square(h - QUERY).sum(axis=1))
    weighted = w if weights is None else w * np.asarray(weights)[labels]
    share, mean = weighted @ (labels == 1) / weighted.sum(), w @ y / w.sum()
    hits = np.zeros(2)
    for _ in range(repeats):
        h, labels, y = draw(rng, n, case)
        refs = ReferenceSet(h, labels, n_classes=2, class_weights=weights)
        e = explain(refs, QUERY)[0]
        assert e.vote_interval is not None
        low, high = e.vote_interval if e.label == 1 else (1 - e.vote_interval[1], 1 - e.vote_interval[0])
        number = explain_numbers(ReferenceSet(h, np.zeros(n, dtype=int), targets=y), QUERY)[0]
        hits += low <= share <= high, number.vote_interval[0] <= mean <= number.vote_interval[1]
    return tuple((hits / repeats).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 50, 400])
@pytest.mark.parametrize("case", CASES)
def test_intervals_hold_the_vote_of_the_whole_population(case: tuple[float, float, float], n: int) -> None:
    share, mean = coverage(case, n, 300)
    assert share >= (0.9 if n == 10 else 0.92)  # ten voters are sometimes worth less than two
    assert mean >= 0.92


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 400])
def test_intervals_hold_with_class_weights(n: int) -> None:
    share, _ = coverage((0.5, -2.0, 1.0), n, 300, [1.0, 10.0])
    assert share >= 0.92


def test_intervals_hold_the_vote_of_the_whole_population_of_a_few_draws() -> None:
    share, mean = coverage(CASES[2], 50, 60)
    assert share >= 0.85
    assert mean >= 0.85


def voted(n: int, against: int = 0, **more: Any) -> Explanation:
    """A vote of n equal examples, of which some are against."""
    refs = ReferenceSet(
        np.zeros((n + 1, 1)) + np.append(np.zeros(n), 9)[:, None], [*([0] * (n - against)), *[1] * against, 1]
    )
    return explain(refs, [[0.0]], classes=["no", "yes"], **more)[0]


def test_the_effective_number_of_equal_votes_is_their_number() -> None:
    assert voted(7).n_effective == pytest.approx(7)
    shares = np.array([n.share for n in voted(7).neighbors])
    assert shares == pytest.approx(1 / 7)
    one = explain(ReferenceSet([[0.0], [3.0]], [0, 1]), [[0.0]])[0]
    assert one.n_effective == pytest.approx(1, abs=1e-3)


def test_a_representative_counts_for_all_that_it_votes_for() -> None:
    refs = ReferenceSet([[0.0], [9.0]], [0, 1], weights=[30.0, 1.0])
    assert explain(refs, [[0.0]])[0].n_effective == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("n", "against", "words"),
    [(4, 0, "few cases that agree"), (5, 2, "few cases that disagree"),
     (90, 1, "many cases that agree"), (90, 40, "many cases that disagree")],
)  # fmt: skip
def test_few_cases_and_cases_that_disagree_are_told_apart(n: int, against: int, words: str) -> None:
    e = voted(n, against)
    assert named(e.sentences()[0], words)
    assert e.vote_interval is not None
    low, high = e.vote_interval
    assert low <= e.probability <= high
    assert (low, high) == pytest.approx(share_interval(n, e.probability), abs=1e-6)


def test_more_voters_narrow_the_interval_and_disagreement_does_not_widen_it_much() -> None:
    widths = []
    for n in (5, 50, 500):
        interval = voted(n, n // 5).vote_interval
        assert interval is not None
        widths.append(interval[1] - interval[0])
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_class_weights_move_the_interval_with_the_probability() -> None:
    labels = [0] * 20 + [1] * 20
    e = explain(ReferenceSet(np.zeros((40, 1)), labels, class_weights=[9.0, 1.0]), [[0.0]])[0]
    plain = explain(ReferenceSet(np.zeros((40, 1)), labels), [[0.0]])[0]
    assert e.probability == pytest.approx(0.9)
    assert e.vote_interval is not None
    assert plain.vote_interval is not None
    for weighted, end in zip(e.vote_interval, plain.vote_interval, strict=True):
        assert weighted / (1 - weighted) == pytest.approx(9 * end / (1 - end))


def test_numbers_have_an_interval_of_the_mean_or_the_median() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=(100, 2)) + np.array([0, 50])
    refs = ReferenceSet(np.zeros((100, 1)), [0] * 100, targets=y)
    for average in ("mean", "median"):
        e = explain_numbers(refs, [[0.0]], average=average, names=["a", "b"])[0]
        assert e.n_effective == pytest.approx(100)
        for (low, high), prediction in zip(e.vote_interval, e.prediction, strict=True):
            assert low < prediction < high
            assert 0.2 < high - low < 0.7
        assert named(e.sentences()[0], "many cases that disagree")
    one = explain_numbers(ReferenceSet([[0.0]], [0], targets=[4.0]), [[0.0]])[0]
    assert one.vote_interval == (4.0, 4.0)


def test_a_private_vote_does_not_say_how_many_it_comes_from() -> None:
    for private in (voted(5, private=True), voted(333, 100, private=True)):
        assert (private.n_effective, private.vote_interval) == (None, None)
        assert not any(word in " ".join(private.sentences()) for word in ("equal ones", "few cases", "many cases"))
    number = explain_numbers(ReferenceSet(np.zeros((5, 1)), [0] * 5, targets=range(5)), [[0.0]], private=True)[0]
    assert (number.n_effective, number.vote_interval) == (None, None)


def test_they_are_in_the_answer_of_every_form() -> None:
    given = json.loads(json.dumps(voted(7).to_dict()))
    assert given["n_effective"] == pytest.approx(7)
    assert given["vote_interval"] == pytest.approx(list(voted(7).vote_interval or ()))
    assert "equal ones" in voted(7).to_html()
