"""What is fitted once the weights stand: the scale (test_loop.py), raw features, and what counts how much."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import dwac
from dwac import DWACClassifier, Training, storage
from dwac.errors import StorageError
from dwac.nn import SoftmaxTwin, WeightedAverage
from dwac.nn.ensemble import SharedBackbone
from dwac.training.validation import Candidates, HeldOut, fit_balance, fit_raw_features, race

SETTINGS: dict[str, Any] = {"epochs": 3, "device": "cpu", "random_state": 0, "verbose": False}


def chess_board(n: int = 1500, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Two numbers, and the colour of their field on a board of 4 × 4: near rows tell it, brief training does not."""
    x = np.random.default_rng(seed).uniform(0, 8, (n, 2))
    return pd.DataFrame(x, columns=["a", "b"]), np.asarray((x // 2).astype(int).sum(axis=1) % 2)


def weight(clf: DWACClassifier) -> float:
    assert isinstance(clf.model_, WeightedAverage)
    return clf.model_.raw_feature_weight


@pytest.fixture(scope="module")
def near() -> DWACClassifier:
    return DWACClassifier(**SETTINGS).fit(*chess_board())


def test_raw_features_count_if_validation_improves(near: DWACClassifier) -> None:
    X, y = chess_board(seed=1)
    plain = DWACClassifier(**SETTINGS, training=Training(raw_features=False)).fit(*chess_board())
    assert weight(plain) == 0 < weight(near)
    assert near.score(X, y) > plain.score(X, y) + 0.1


def test_raw_features_do_not_count_if_validation_does_not_improve() -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 3)))
    clf = DWACClassifier(**SETTINGS).fit(X, np.random.default_rng(1).integers(0, 2, 400))
    assert weight(clf) == 0
    assert clf.embed(X).shape == (400, clf.model_.embedding_size)


def test_vectors_are_the_embedding_and_the_scaled_numbers(near: DWACClassifier) -> None:
    X, _ = chess_board()
    model = near.model_
    assert isinstance(model, WeightedAverage)
    size = model.embedding_size
    assert model.vector_size == size + 2 == near.embed(X).shape[1]
    numeric = near.encoder_.transform(X)[0].numpy()[:, :2]  # without how far it is beyond training
    np.testing.assert_allclose(near.embed(X)[:, size:], model.raw_feature_weight * numeric, rtol=1e-5)
    voters = X.loc[list(near.references_.ids)]
    np.testing.assert_allclose(near.embed(voters), near.references_.embeddings.numpy(), atol=1e-5)


def test_candidates_are_judged_by_the_votes_that_they_would_have(near: DWACClassifier) -> None:
    model = near.model_
    assert isinstance(model, WeightedAverage)
    X, y = chess_board(60, seed=2)
    h, labels = torch.as_tensor(near.embed(X), dtype=torch.float32), torch.as_tensor(y)
    voters = model.references
    held_out = HeldOut(model, h, labels, (voters.embeddings, voters.labels), torch.tensor([1.0, 3.0]))
    judged = held_out.judge([1.0, 0.5])
    for losses, factor in zip(judged.losses, (1.0, 0.5), strict=True):
        heard = dwac.ReferenceSet(factor * voters.embeddings, voters.labels, class_weights=[1.0, 3.0])
        own = heard.probabilities(factor * h)[torch.arange(60), labels]
        torch.testing.assert_close(losses, -own.double().clamp_min(1e-30).log(), rtol=1e-4, atol=1e-4)


def test_columns_are_scaled_and_weights_squared_as_if_computed_anew(near: DWACClassifier) -> None:
    model = near.model_
    assert isinstance(model, WeightedAverage)
    X, y = chess_board(60, seed=2)
    h, labels, voters = torch.as_tensor(near.embed(X), dtype=torch.float32), torch.as_tensor(y), model.references
    columns = torch.linspace(0.5, 2, h.shape[1])
    factors = [2 ** (step / 2) for step in (-3, -2, 0, 1)] + [1.1]
    held_out = HeldOut(model, h, labels, (voters.embeddings, voters.labels), torch.ones(2))
    judged = held_out.judge(factors, step=2, columns=columns)
    for losses, factor in zip(judged.losses, factors, strict=True):
        scaled = dwac.ReferenceSet(factor * columns * voters.embeddings, voters.labels)
        own = scaled.probabilities(factor * columns * h)[torch.arange(60), labels][::2]
        torch.testing.assert_close(losses, -own.double().clamp_min(1e-30).log(), rtol=1e-4, atol=1e-4)
    sums = held_out.sums(factors)
    for place, factor in enumerate(factors):
        scaled = dwac.ReferenceSet(factor * voters.embeddings, voters.labels)
        log_sums = sums[:, place, :-1].log() + sums[:, place, -1:]
        torch.testing.assert_close(
            log_sums.logsumexp(1), scaled.log_class_weights(factor * h).logsumexp(1), rtol=1e-4, atol=1e-4
        )


def test_few_examples_narrow_candidates_down_and_all_of_them_choose() -> None:
    quality = torch.arange(40.0).flip(0)  # the last is the best, the first the default
    noise = torch.rand(40, 800, generator=torch.Generator().manual_seed(0))
    calls: list[tuple[int, int]] = []

    def judge(step: int, numbers: list[int]) -> Candidates:
        losses = (quality[:, None] + noise)[numbers][:, ::step].double()
        calls.append((step, len(numbers)))
        return Candidates(losses, torch.zeros_like(losses), torch.zeros_like(losses))

    assert race(judge, 800, 40) == 39
    assert calls == [(4, 40), (2, 7), (1, 7)]
    assert race(judge, 800, 40, default=39) == 39
    assert calls[3:] == [(4, 40), (2, 6)]  # half of them are enough to keep the default


def test_a_row_far_from_all_others_is_not_typical(near: DWACClassifier) -> None:
    strange = pd.DataFrame({"a": [3.5, 900.0], "b": [3.5, -900.0]})
    found: Any = near.conformal(strange).typicality
    usual, far = found
    assert far < 0.05 < usual


@pytest.mark.slow
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
    X, _ = chess_board(100, seed=1)
    loaded = dwac.load(near.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(X), near.predict_proba(X))
    np.testing.assert_array_equal(loaded.conformal(X).credibility, near.conformal(X).credibility)
    np.testing.assert_array_equal(loaded.conformal(X).typicality, near.conformal(X).typicality)


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
    assert DWACClassifier(**SETTINGS, training=Training(embedding_size=2)).fit(X, y).embed(X).shape == (1500, 2)


def test_a_softmax_and_the_papers_network_have_no_coordinates() -> None:
    X, y = chess_board(300)
    paper = DWACClassifier("tabular:paper", **SETTINGS).fit(X, y)
    assert isinstance(paper.model_, WeightedAverage)
    assert paper.model_.n_raw_features == 0
    inputs = paper.encoder_.transform(X)
    twin = SoftmaxTwin(paper.encoder_.network(), 2)
    assert fit_raw_features(twin, inputs, inputs, torch.as_tensor(y), class_weights=None) == 0


def test_class_weights_still_count_with_weight(near: DWACClassifier) -> None:
    X, y = chess_board()
    weighed = DWACClassifier(**SETTINGS, class_weight={0: 1.0, 1: 5.0}).fit(X, y)
    assert weight(weighed) > 0
    assert (weighed.predict(X[:400]) == 1).mean() > (near.predict(X[:400]) == 1).mean()


@torch.no_grad()
def loss(model: Any, x: Any, y: torch.Tensor) -> float:
    return float(-model(x).gather(1, y[:, None]).mean())


@pytest.mark.parametrize("head", [WeightedAverage, SoftmaxTwin])
@pytest.mark.parametrize("noisy", ["members", "beside"])
def test_the_kind_of_network_that_knows_nothing_counts_little(head: Any, noisy: str) -> None:
    torch.manual_seed(0)
    y = torch.arange(900) % 3
    told, noise = torch.eye(3)[y] + 0.7 * torch.randn(900, 3), torch.randn(900, 3)
    x = (noise, told) if noisy == "members" else (told, noise)
    backbone = SharedBackbone(torch.nn.Identity(), [torch.nn.Identity()], beside=[torch.nn.Identity()], n_inputs=1)
    model = head(backbone, 3, n_features=3)
    with torch.no_grad():
        model.embedding.weight.copy_(2 * torch.eye(3).repeat(2, 1))
        model.embedding.bias.zero_()
    rows = slice(600)
    model.remember([(tuple(part[rows] for part in x), y[rows])])
    held = tuple(part[600:] for part in x)
    before = loss(model.eval(), held, y[600:])
    share = fit_balance(model, held, y[600:])
    assert share < 0.5 if noisy == "beside" else share > 0.5
    assert loss(model, held, y[600:]) < before
    if isinstance(model, WeightedAverage):  # the references are embedded as queries are
        torch.testing.assert_close(model.references.embeddings, model.embed(tuple(part[rows] for part in x)))


def test_nothing_is_balanced_without_networks_beside() -> None:
    model = WeightedAverage(torch.nn.Linear(2, 4), 2, n_features=4)
    assert fit_balance(model, torch.randn(6, 2), torch.arange(6) % 2) == 0
