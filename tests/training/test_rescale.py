"""What is fitted once the weights stand: the scale (test_loop.py), raw features, and novelty."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import dwac
from dwac import DWACClassifier, storage, training
from dwac.errors import StorageError
from dwac.nn import WeightedAverage

SETTINGS: dict[str, Any] = {"epochs": 3, "device": "cpu", "random_state": 0, "verbose": False}
LONGER = {**SETTINGS, "epochs": 8}


def chess_board(n: int = 1500, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Two numbers, and the colour of their field on a board of 4 × 4: near rows tell it, brief training does not."""
    x = np.random.default_rng(seed).uniform(0, 8, (n, 2))
    return pd.DataFrame(x, columns=["a", "b"]), np.asarray((x // 2).astype(int).sum(axis=1) % 2)


def weight(clf: DWACClassifier) -> float:
    assert isinstance(clf.model_, WeightedAverage)
    return clf.model_.raw_feature_weight


def novelty(clf: DWACClassifier) -> float:
    assert isinstance(clf.model_, WeightedAverage)
    return clf.model_.novelty_weight


@pytest.fixture(scope="module")
def near() -> DWACClassifier:
    return DWACClassifier(**SETTINGS).fit(*chess_board())


def test_raw_features_count_if_validation_improves(near: DWACClassifier) -> None:
    X, y = chess_board(seed=1)
    plain = DWACClassifier(**SETTINGS, raw_features=False).fit(*chess_board())
    assert weight(plain) == 0 < weight(near)
    assert near.score(X, y) > plain.score(X, y) + 0.1


def test_raw_features_do_not_count_if_validation_does_not_improve() -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 3)))
    clf = DWACClassifier(**SETTINGS).fit(X, np.random.default_rng(1).integers(0, 2, 400))
    assert weight(clf) == 0
    assert clf.embed(X).shape == (400, clf.model_.embedding_size + 1)  # and the novelty


def test_vectors_are_the_embedding_and_the_scaled_numbers(near: DWACClassifier) -> None:
    X, _ = chess_board()
    model = near.model_
    assert isinstance(model, WeightedAverage)
    size = model.embedding_size
    assert model.vector_size == size + 3 == near.embed(X).shape[1]  # two, and how far beyond training
    numeric = near.encoder_.transform(X)[0].numpy()
    np.testing.assert_allclose(near.embed(X)[:, size:], model.raw_feature_weight * numeric, rtol=1e-5)
    voters = X.loc[list(near.references_.ids)]
    np.testing.assert_allclose(near.embed(voters), near.references_.embeddings.numpy(), atol=1e-5)


def test_a_row_far_from_all_others_loses_its_credibility(near: DWACClassifier) -> None:
    strange = pd.DataFrame({"a": [3.5, 900.0], "b": [3.5, -900.0]})
    usual, far = near.conformal(strange).credibility
    assert far < 0.05 < usual


def test_explanations_add_up_with_weight(near: DWACClassifier) -> None:
    X, _ = chess_board(seed=2)
    explained = near.explain(X.iloc[:3], k=len(near.references_))
    for one, p in zip(explained, near.predict_proba(X.iloc[:3]), strict=True):
        shares = sum(neighbor.share for neighbor in one.neighbors if neighbor.label == one.label)
        assert shares == pytest.approx(p.max(), abs=1e-4)


def test_scaling_scales_the_numbers_too(near: DWACClassifier) -> None:
    X, _ = chess_board()
    model = WeightedAverage(near.encoder_.network(), 2, near.model_.embedding_size)
    inputs = near.encoder_.transform(X)
    model.eval()
    model.remember([(inputs, torch.zeros(len(X), dtype=torch.int64))])
    model.raw_feature_weight = 2.0
    model.remember([(inputs, torch.zeros(len(X), dtype=torch.int64))])
    before = model.embed(inputs)
    model.scale_embeddings(0.5)
    torch.testing.assert_close(model.embed(inputs), 0.5 * before)
    torch.testing.assert_close(model.references.embeddings, 0.5 * before.detach())


def test_the_loss_knows_no_weight(near: DWACClassifier) -> None:
    X, y = chess_board(64)
    model = near.model_
    assert isinstance(model, WeightedAverage)
    inputs, labels = near.encoder_.transform(X), torch.as_tensor(y)
    before, kept = float(model.loss(inputs, labels).detach()), model.raw_feature_weight
    model.raw_feature_weight = 0.0
    after = float(model.loss(inputs, labels).detach())
    model.raw_feature_weight = kept
    assert before == after
    assert model.support(10).h.shape == (10, model.embedding_size)


def test_it_travels_with_the_state_dict(near: DWACClassifier) -> None:
    X, _ = chess_board()
    inputs = near.encoder_.transform(X.iloc[:5])
    model = near.model_
    assert isinstance(model, WeightedAverage)
    state = model.state_dict()
    state["ref_ids"] = torch.arange(len(model.references))
    other = WeightedAverage(near.encoder_.network(), 2, model.embedding_size, n_features=model.embedding.in_features)
    other.load_state_dict(state)
    torch.testing.assert_close(other.eval()(inputs), model(inputs))


def test_it_survives_saving_and_loading(near: DWACClassifier, tmp_path) -> None:
    X, _ = chess_board(seed=1)
    loaded = dwac.load(near.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(X), near.predict_proba(X))
    np.testing.assert_array_equal(loaded.conformal(X).credibility, near.conformal(X).credibility)


@pytest.mark.parametrize("value", [-1.0, "2", True, None, [1.0], 0.0])
def test_a_hostile_weight_of_raw_features_is_refused(near: DWACClassifier, tmp_path, value) -> None:
    stored = storage.read_model(near.save(tmp_path / "model"))
    path = storage.write_model(
        tmp_path / "forged", {**stored.config, "raw_feature_weight": value}, stored.tensors, stored.examples
    )
    with pytest.raises(StorageError):
        dwac.load(path, device="cpu")


def test_an_embedding_size_that_is_asked_for_is_kept() -> None:
    X, y = chess_board()
    assert DWACClassifier(**SETTINGS, embedding_size=2).fit(X, y).embed(X).shape == (1500, 2)


def test_a_softmax_and_the_papers_network_have_no_coordinates() -> None:
    X, y = chess_board(300)
    paper = DWACClassifier("tabular:paper", **SETTINGS).fit(X, y)
    assert isinstance(paper.model_, WeightedAverage)
    assert paper.model_.n_raw_features == 0
    twin = DWACClassifier(head="softmax", **SETTINGS).fit(X, y)
    inputs = twin.encoder_.transform(X)
    assert training.fit_raw_features(twin.model_, inputs, inputs, torch.as_tensor(y), class_weights=None) == 0


def test_class_weights_still_count_with_weight() -> None:
    X, y = chess_board()
    plain, weighed = (DWACClassifier(**SETTINGS, class_weight=w).fit(X, y) for w in (None, {0: 1.0, 1: 5.0}))
    assert weight(weighed) > 0
    assert (weighed.predict(X) == 1).mean() > (plain.predict(X) == 1).mean()


# Novelty: the numbers do not vote, but weights fall where they are unlike any that are known


def two_sides(n: int = 1200, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """The sign of a tells the class; b and c tell nothing, so that the network forgets that they are always alike."""
    a, b, noise = np.random.default_rng(seed).normal(size=(3, n))
    return pd.DataFrame({"a": a, "b": b, "c": b + 0.05 * noise}), np.asarray(a > 0)


@pytest.fixture(scope="module")
def high() -> DWACClassifier:
    clf = DWACClassifier(**LONGER).fit(*two_sides())
    assert weight(clf) == 0 < novelty(clf)
    return clf


def test_voters_have_novelty_0_and_unfamiliar_rows_a_larger_one(high: DWACClassifier) -> None:
    X, _ = two_sides()
    voters = X.loc[list(high.references_.ids)]
    np.testing.assert_allclose(high.embed(voters), high.references_.embeddings.numpy(), atol=1e-5)
    assert (high.references_.embeddings[:, -1] == 0).all()
    new = two_sides(50, seed=1)[0]
    z, known = (high.encoder_.transform(rows)[0].double() for rows in (new, voters))
    nearest = torch.cdist(z, known).amin(dim=1).numpy()
    np.testing.assert_allclose(high.embed(new)[:, -1], high.model_.novelty_weight * nearest, rtol=1e-4)


def test_novelty_lowers_credibility_of_unfamiliar_rows_and_changes_no_share(high: DWACClassifier) -> None:
    plain = DWACClassifier(**LONGER, raw_features=False).fit(*two_sides())
    X, y = two_sides(300, seed=1)
    np.testing.assert_allclose(high.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    unfamiliar = X.assign(c=-X["c"])[X["b"].abs() > 0.5]  # each number is as usual
    assert high.conformal(unfamiliar).credibility.mean() < 0.05
    assert plain.conformal(unfamiliar).credibility.mean() > 0.3  # or the test would be too easy
    p_values = high.conformal(X).p_values[np.arange(300), y.astype(int)]
    assert 0.4 < p_values.mean() < 0.6
    assert (p_values > 0.1).mean() > 0.82  # 0.9, apart from the chance of 120 calibration rows


def test_gaps_and_numbers_outside_training_are_novel(high: DWACClassifier) -> None:
    usual = pd.DataFrame({"a": [1.0], "b": [0.2], "c": [0.2]})
    strange = {"all gaps": usual * np.nan, "far away": usual.assign(a=1e6), "beyond": usual.assign(b=60.0, c=60.0)}
    before = high.conformal(usual).credibility[0]
    assert before > 0.2
    for name, row in strange.items():
        assert high.conformal(row).credibility[0] < 0.05, name
        assert np.isfinite(high.predict_proba(row)).all()
    assert high.predict(strange["far away"]) == high.predict(usual)  # it is weights that fall


def test_what_is_added_is_known_and_what_is_forgotten_is_not(high: DWACClassifier, tmp_path) -> None:
    clf = dwac.load(high.save(tmp_path / "model"), device="cpu")
    row = pd.DataFrame({"a": [1.0], "b": [2.0], "c": [-2.0]}, index=["new"])
    before = clf.conformal(row).credibility[0]
    clf.add_references(row, [True])
    assert clf.embed(row)[0, -1] == clf.references_.embeddings[-1, -1] == 0
    assert clf.conformal(row).credibility[0] > before
    again = dwac.load(clf.save(tmp_path / "more"), device="cpu")
    np.testing.assert_array_equal(again.embed(row), clf.embed(row))
    clf.forget(["new"])
    assert clf.embed(row)[0, -1] > 1
    with pytest.raises(dwac.errors.IdError):
        clf.add_references(row, [True], ids=[clf.references_.ids[0]])
    assert clf.embed(row)[0, -1] > 1  # a refused edit changes nothing


def test_novelty_survives_saving_without_a_voter_and_the_state_dict(high: DWACClassifier, tmp_path) -> None:
    X, _ = two_sides(40, seed=2)
    clf = dwac.load(high.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(clf.conformal(X).credibility, high.conformal(X).credibility)
    clf.references_.remove(clf.references_.ids[:3])  # they vote no more, and are not kept
    loaded = dwac.load(clf.save(tmp_path / "fewer"), device="cpu")
    assert isinstance(loaded.model_, WeightedAverage)
    assert loaded.model_.known is not None
    assert len(loaded.model_.known) == len(loaded.references_) == len(high.references_) - 3
    model, inputs = high.model_, high.encoder_.transform(X)
    other = WeightedAverage(high.encoder_.network(), 2, model.embedding_size, n_features=model.embedding.in_features)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.eval().embed(inputs), model.embed(inputs))
    torch.testing.assert_close(other.double().float().eval().embed(inputs), model.embed(inputs))


@pytest.mark.parametrize("value", [-1.0, "2", True, None])
def test_a_hostile_novelty_is_rejected(high: DWACClassifier, tmp_path, value) -> None:
    stored = storage.read_model(high.save(tmp_path / "model"))
    for config, tensors in (
        ({**stored.config, "novelty_weight": value}, stored.tensors),
        (stored.config, {**stored.tensors, "known_z": stored.tensors["known_z"][:, :1]}),
        (stored.config, {name: part for name, part in stored.tensors.items() if name != "known_z"}),
    ):
        path = storage.write_model(tmp_path / "forged", config, tensors, stored.examples)
        with pytest.raises(StorageError):
            dwac.load(path, device="cpu")


def test_another_kernel_and_rows_that_all_repeat_have_no_novelty() -> None:
    X, y = two_sides()
    assert novelty(DWACClassifier(**LONGER, kernel="laplace").fit(X, y)) == 0
    few = X.assign(a=np.sign(X["a"]), b=0.0, c=0.0)
    clf = DWACClassifier(**LONGER).fit(few, y)
    assert novelty(clf) == 0
    assert clf.score(few, y) == 1


def test_sets_keep_their_coverage_whoever_is_forgotten_or_added(high: DWACClassifier, tmp_path) -> None:
    clf = dwac.load(high.save(tmp_path / "model"), device="cpu")
    X, y = two_sides(1500, seed=3)
    clf.forget(list(clf.references_.ids[100:]))
    covered = clf.conformal(X).p_values[np.arange(len(y)), y.astype(int)] > 0.1
    assert 0.82 < covered.mean() < 0.97
    more, labels = two_sides(900, seed=4)
    clf.add_references(more.set_axis([f"new {i}" for i in range(900)]), labels)
    covered = clf.conformal(X).p_values[np.arange(len(y)), y.astype(int)] > 0.1
    assert 0.82 < covered.mean() < 0.97


def test_removed_voters_are_not_known_and_their_ids_can_be_reused(high: DWACClassifier, tmp_path) -> None:
    clf = dwac.load(high.save(tmp_path / "model"), device="cpu")
    name, X = clf.references_.ids[0], two_sides()[0]
    row = X.loc[[name]]
    clf.references_.remove([name])
    assert clf.embed(row)[0, -1] > 0
    again = dwac.load(clf.save(tmp_path / "again"), device="cpu")
    np.testing.assert_array_equal(again.log_class_weights(X), clf.log_class_weights(X))
    other = row + 0.7
    clf.add_references(other, [True])
    assert clf.embed(other)[0, -1] == 0 < clf.embed(row)[0, -1]


def test_without_examples_no_number_of_a_row_is_kept(high: DWACClassifier, tmp_path) -> None:
    X, _ = two_sides(50, seed=5)
    path = high.save(tmp_path / "bare", include_examples=False)
    assert not [name for name in storage.read_model(path).tensors if name.startswith("known")]
    bare = dwac.load(path, device="cpu")
    assert novelty(bare) == 0
    np.testing.assert_allclose(bare.predict_proba(X), high.predict_proba(X), atol=1e-12)


def test_the_explorer_gives_a_training_row_the_novelty_of_a_new_row(high: DWACClassifier, tmp_path) -> None:
    explorer = pytest.importorskip("dwac.server.explorer.views")
    clf = dwac.load(high.save(tmp_path / "model"), device="cpu")
    predictions = explorer.first_view(clf, explorer.Examples.of(clf)).predictions
    X, ids = two_sides()[0], clf.references_.ids[:5]
    for place, name in enumerate(ids):
        without = dwac.load(high.save(tmp_path / "one"), device="cpu").forget([name])
        np.testing.assert_allclose(
            predictions.log_class_weights[place], without.log_class_weights(X.loc[[name]])[0], atol=1e-4
        )


def test_a_class_without_references_makes_no_novelty_infinite(high: DWACClassifier) -> None:
    inputs, held = (high.encoder_.transform(two_sides(60, seed=seed)[0]) for seed in (0, 1))
    model = WeightedAverage(high.encoder_.network(), 3, 4)
    model.eval().remember([(inputs, torch.arange(60) % 2)])
    assert 0 < training.fit_novelty(model, inputs, held, torch.arange(60) % 3) < 1e6


def test_one_absurd_validation_row_does_not_disable_novelty(high: DWACClassifier) -> None:
    X, held, found = two_sides(300)[0], two_sides(60, seed=1)[0], []
    absurd = held.copy()
    absurd.iloc[0, 0] = 1e6
    for rows in (held, absurd):
        torch.manual_seed(0)
        inputs, model = high.encoder_.transform(X), WeightedAverage(high.encoder_.network(), 2, 4)
        model.eval().remember([(inputs, torch.arange(300) % 2)])
        found.append(training.fit_novelty(model, inputs, high.encoder_.transform(rows), torch.arange(60) % 2))
    usual, odd = found
    assert odd > 0.3 * usual > 0  # without care less than a hundredth
