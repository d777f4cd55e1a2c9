"""Few texts: linear classifiers of n-grams, and votes from where those place a text that left it out."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import dwac
from dwac import DWACClassifier
from dwac.encoders import TextEncoder
from dwac.encoders.text_networks import LinearNetwork
from dwac.errors import InputError
from dwac.training.lines import _PRIORS, _fit_bayes, _fit_machine, _join, _sparse
from tests.named import refuses

NOUNS = {
    "fruit": ["apple", "pear", "plum", "cherry"],
    "tool": ["hammer", "saw", "drill", "wrench"],
    "sea": ["wave", "tide", "shell", "gull"],
}
OTHERS = ["the", "old", "one", "fell", "here", "again", "today", "we", "saw", "it", "was", "near"]


def texts(n: int, seed: int = 0, kinds: tuple[str, ...] = ("fruit", "sea", "tool")) -> tuple[list[str], list[str]]:
    """Short texts of which most have a word of their class."""
    rng = np.random.default_rng(seed)
    y = rng.choice(kinds, n).tolist()
    words = [[*rng.choice(OTHERS, 4), rng.choice(NOUNS[kind]) if rng.random() < 0.9 else "thing"] for kind in y]
    return [" ".join(rng.permutation(some)) for some in words], y


@pytest.fixture(scope="module")
def clf() -> DWACClassifier:
    X, y = texts(150)
    return DWACClassifier(random_state=0, device="cpu").fit(X, y, ids=[f"text{i}" for i in range(150)])


def test_every_text_votes_and_calibrates(clf: DWACClassifier) -> None:
    assert clf.cross_fitted_
    assert {*clf.references_.ids} == {*clf.calibration_ids_} == {f"text{i}" for i in range(150)}
    X, y = texts(200, seed=1)
    assert clf.score(X, y) > 0.85
    np.testing.assert_allclose(clf.predict_proba(X).sum(axis=1), 1)


def test_a_text_votes_from_where_the_classifier_places_it_that_left_it_out(clf: DWACClassifier) -> None:
    X, y = texts(150)
    network = cast(LinearNetwork, clf.model_.backbone)
    rows = _sparse(clf.encoder_.transform(X), len(network.weight))
    folds = clf.fitted_.folds
    assert folds is not None
    fold, scale = folds.numbers(clf.references_.voters.ids), clf.model_.embedding.weight[0, 0].item()
    others = rows[fold != 2], np.searchsorted(clf.classes_, y)[fold != 2], 3, np.ones(120)
    fits = [_fit_machine(*others, 0), *(_fit_bayes(*others, prior) for prior in _PRIORS)]
    scores = np.stack([(rows[fold == 2] @ line + start).ravel() for line, start in fits], axis=1)
    h = clf.references_.embeddings.numpy()
    own = h[fold == 2].ravel() / scale
    factors = np.linalg.lstsq(scores, own)[0]
    assert (factors > -0.1).all()
    np.testing.assert_allclose(scores @ factors, own, atol=2e-2)
    of_all = clf.embed(X)  # as new texts, whose score is the mean of all five classifiers
    assert np.abs(h - of_all).max() > 0.1 * scale


def test_naive_bayes_adds_up_the_evidence_of_n_grams_and_ignores_those_of_no_text() -> None:
    shares = np.array([[0.0, 1.0, 0.5, 0.0], [0.0, 0.0, 2.0, 0.0], [0.0, 0.3, 0.0, 0.0]])
    labels, counts, prior = np.array([0, 1, 2]), np.array([1.0, 2.0, 1.0]), 0.2
    line, start = _fit_bayes(csr_matrix(shares), labels, 3, counts, prior)
    for k in range(3):
        own = counts * (labels == k)
        usual = ((own @ shares).sum() + 1) / ((counts @ shares).sum() + 3)
        for g in range(4):
            n, rest = own @ shares[:, g] + prior * usual, (counts - own) @ shares[:, g] + prior * (1 - usual)
            assert line[g, k] == pytest.approx(np.log(n / rest) - np.log(usual / (1 - usual)))
        q = (own.sum() + 1) / (counts.sum() + 3)
        assert start[k] == pytest.approx(np.log(q / (1 - q)))
    np.testing.assert_allclose(line[[0, 3]], 0, atol=1e-12)


def test_the_factors_of_classifiers_minimise_the_loss_of_texts_left_out() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 4_000)
    good = 2 * np.eye(3)[labels] + rng.normal(size=(4_000, 3)) * 2**0.5  # log P(y) apart from a constant
    noise = rng.normal(size=(4_000, 3))
    np.testing.assert_allclose(_join(np.stack([noise, good, 3 * noise]), labels, np.ones(4_000)), [0.1, 1, 0], atol=0.1)


def test_a_text_has_the_same_numbers_alone_in_a_batch_and_after_loading(clf: DWACClassifier, tmp_path: Path) -> None:
    X = [*texts(20, seed=2)[0], "unknown", "?"]
    p, c = clf.predict_proba(X), clf.conformal(X)
    np.testing.assert_array_equal(np.concatenate([clf.predict_proba([x]) for x in X]), p)
    loaded = dwac.load(clf.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(X), p)
    np.testing.assert_array_equal(loaded.conformal(X).p_values, c.p_values)
    np.testing.assert_array_equal(loaded.out_of_fold_, clf.out_of_fold_)


def test_the_word_that_decides_has_the_most_attention(clf: DWACClassifier) -> None:
    (words,) = clf.encoder_.attention(clf.model_.backbone, ["we fell near the hammer"]) or [()]
    assert max(words, key=lambda word: word[1])[0] == "hammer"
    assert sum(share for _, share in words) == pytest.approx(1)
    assert clf.explain(["we fell near the hammer"])[0].label == "tool"


def test_two_labels_weights_and_a_label_that_only_one_text_has() -> None:
    X, y = texts(60, kinds=("fruit", "tool"))
    clf = DWACClassifier(random_state=0, device="cpu").fit(X, y, sample_weight=np.linspace(1, 2, 60))
    assert clf.score(*texts(60, seed=1, kinds=("fruit", "tool"))) > 0.85
    rare = DWACClassifier(random_state=0, device="cpu").fit([*X, "a rare one"], [*y, "rare"])
    assert rare.predict_proba(X).shape == (60, 3)
    few = DWACClassifier(random_state=0, device="cpu").fit(X, ["usual"] * 59 + ["rare"])
    assert few.predict(X[:2]).tolist() == ["usual"] * 2  # classifiers without the rare one know one label


def test_many_texts_have_a_network_unless_linear_scores_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = texts(60)
    monkeypatch.setattr("dwac.estimator.settings.SMALL_TEXTS", 61)
    assert DWACClassifier(random_state=0, device="cpu").fit(X, y).cross_fitted_
    monkeypatch.setattr("dwac.estimator.settings.SMALL_TEXTS", 60)
    assert not DWACClassifier(random_state=0, device="cpu").fit(X, y).cross_fitted_
    assert DWACClassifier("text:linear", random_state=0, device="cpu").fit(X, y).cross_fitted_


def test_a_table_cut_for_many_classes_keeps_the_ngrams_that_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dwac.encoders.text._SCORES", 3 * 400)
    clf = DWACClassifier(random_state=0, device="cpu").fit(*texts(150))
    assert cast(LinearNetwork, clf.model_.backbone).weight.shape == (401, 3)
    assert clf.score(*texts(200, seed=1)) > 0.85


@pytest.mark.parametrize("settings", [{"encoder": "text:default", "epochs": 1}, {"epochs": 1}], ids=str)
def test_other_ways_of_training_are_left_alone(settings: dict[str, Any]) -> None:
    assert not DWACClassifier(random_state=0, device="cpu", **settings).fit(*texts(40)).cross_fitted_


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder": TextEncoder("linear")},
        {"encoder": "text:linear", "cross_fit": False},
        {"encoder": "text:linear", "shards": 2},
    ],
    ids=["its own encoder", "not cross-fitted", "shards"],
)
def test_linear_scores_are_not_trained_in_another_way(settings: dict[str, Any]) -> None:
    with refuses(InputError, "text:linear", "encoder='text'"):
        DWACClassifier(random_state=0, device="cpu", **settings).fit(*texts(200), ids=range(200))


def test_several_labels_per_text_are_not_cross_fitted() -> None:
    X, y = texts(40)
    with refuses(InputError, "one label", "cross_fit"):
        DWACClassifier(cross_fit=True).fit(X, [[label] for label in y])


@pytest.mark.slow
def test_sets_of_texts_with_random_labels_cover_as_promised() -> None:
    """Nothing can be learned: a classifier that had seen the text would place it with its label."""
    covered = []
    for seed in range(30):
        X, _ = texts(160, seed=seed)
        y = np.random.default_rng(seed).choice(["a", "b", "c"], 160)
        clf = DWACClassifier(random_state=seed, device="cpu").fit(X[:60], y[:60])
        p = clf.conformal(X[60:]).p_values
        covered.append((p[np.arange(100), np.searchsorted(clf.classes_, y[60:])] > 0.2).mean())
    assert np.mean(covered) >= 0.8 - 2 * np.std(covered) / np.sqrt(30)
