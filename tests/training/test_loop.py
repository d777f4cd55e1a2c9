"""The loop trains both heads, stops early with the best weights, and cannot run away."""

from typing import Any

import pytest
import torch
from torch import nn

from dwac.errors import DwacError
from dwac.nn import SoftmaxTwin, WeightedAverage
from dwac.nn.heads import Model
from dwac.training import evaluate, predict_log_probabilities, train
from dwac.training.validation import fit_scale
from tests.named import refuses
from tests.training import stability
from tests.training.helpers import clusters, model_of

HEADS = [WeightedAverage, SoftmaxTwin]


@pytest.mark.parametrize("head", HEADS)
def test_learns_separable_clusters(head: type[Model]) -> None:
    model = model_of(head)
    history = train(model, *clusters(), epochs=20, batch_size=32, learning_rate=1e-2)
    assert history["loss"].iloc[-1] < history["loss"].iloc[0] / 2
    assert evaluate(model, *clusters(seed=1))[1] > 0.95


@pytest.mark.parametrize("head", HEADS)
def test_same_seed_gives_the_same_model(head: type[Model]) -> None:
    x, y = clusters()
    answers = []
    for _ in range(2):
        model = model_of(head)
        train(model, x, y, epochs=3)
        answers.append(predict_log_probabilities(model, x))
    assert torch.equal(*answers)


@pytest.mark.parametrize("head", HEADS)
def test_early_stopping_restores_the_best_weights(head: type[Model]) -> None:
    model = model_of(head)
    validation = clusters(60, seed=1)
    # A rate this high makes later epochs worse.
    history = train(model, *clusters(), validation=validation, epochs=40, batch_size=16, learning_rate=0.3, patience=3)
    best = history["validation_loss"].min()
    assert evaluate(model, *validation)[0] == pytest.approx(best, rel=1e-5)
    assert len(history) == history["validation_loss"].to_numpy().argmin() + 1 + 3 < 40


@pytest.mark.parametrize("head", HEADS)
def test_without_patience_all_epochs_run_and_the_last_weights_are_kept(head: type[Model]) -> None:
    model, validation = model_of(head), clusters(60, seed=1)
    history = train(model, *clusters(), validation=validation, epochs=10, batch_size=16, learning_rate=0.3, patience=0)
    losses = history["validation_loss"].tolist()
    assert evaluate(model, *validation)[0] == pytest.approx(losses[-1], rel=1e-5)
    assert len(losses) == 10
    assert min(losses) < losses[-1]


def test_references_carry_the_given_ids() -> None:
    model = model_of(WeightedAverage)
    assert isinstance(model, WeightedAverage)
    x, y = clusters(30)
    train(model, x, y, epochs=1, ids=torch.arange(30) + 100)
    assert model.references.ids.tolist() == list(range(100, 130))


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return x * factor[:, None]


def test_an_input_may_be_one_number_for_each_row() -> None:
    (x, y), factor = clusters(30), torch.linspace(1, 2, 30)
    model = WeightedAverage(Scaled(), 3, n_features=x.shape[1])
    assert len(train(model, (x, factor), y, epochs=1)) == 1
    factor[7] = torch.nan
    with refuses(DwacError, "finite", "row 7"):
        train(model, (x, factor), y, epochs=1)


def test_predicting_leaves_the_mode_alone() -> None:
    model = model_of(SoftmaxTwin).train()
    predict_log_probabilities(model, clusters()[0])
    assert model.training


def test_bad_input_is_refused_before_any_step() -> None:
    x, y = clusters()
    model = model_of(WeightedAverage)
    before = [p.clone() for p in model.backbone.parameters()]
    gap = x.index_fill(0, torch.tensor([3]), torch.nan)
    wrong = y.index_fill(0, torch.tensor([5]), 7)
    cases: list[tuple[list[object], Any, dict[str, Any]]] = [
        ([120, 119], (x, y[:-1]), {}),
        (["row 3", "NaN"], (gap, y), {}),
        (["0 … 2", 7, "row 5"], (x, wrong), {}),
        (["tensors", "ndarray"], (x.numpy(), y), {}),
        ([2, 1], (x[:1], y[:1]), {}),
        (["epochs"], (x, y), {"epochs": 0}),
        (["learning_rate"], (x, y), {"learning_rate": -1.0}),
        (["weight_decay"], (x, y), {"weight_decay": -1.0}),
        (["ids", 120], (x, y), {"ids": torch.arange(5)}),
        (["ids", 120], (x, y), {"ids": torch.zeros(120)}),
        (["validation y", "0 … 2"], (x, y), {"validation": (x, wrong)}),
        (["validation x", "finite"], (x, y), {"validation": (gap, y)}),
        (["validation y", 120, 119], (x, y), {"validation": (x, y[:-1])}),
        (["validation", 1], (x, y), {"validation": (x[:0], y[:0])}),
    ]
    for facts, arguments, settings in cases:
        with refuses(DwacError, *facts):
            train(model, *arguments, batch_size=16, **settings)
    assert all(torch.equal(a, b) for a, b in zip(before, model.backbone.parameters(), strict=True))


@pytest.mark.parametrize("head", HEADS)
def test_a_last_batch_of_one_joins_the_one_before(head: type[Model]) -> None:
    x, y = clusters(33)
    model = head(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), n_classes=3)
    assert len(train(model, x, y, epochs=2, batch_size=16)) == 2


@pytest.mark.slow
def test_training_cannot_run_away() -> None:
    table = stability.grid()
    assert len(table) == 16
    behind = table[table["twin"] - table["dwac"] > 0.02]
    assert behind.empty, behind
    assert table["max |h| dwac"].max() < 100


@pytest.mark.slow
def test_an_epsilon_inside_the_log_loses_what_ours_keeps() -> None:
    # Unscaled inputs: embeddings start so far apart that an epsilon hides an example's own class.
    ours, theirs = (stability.run(head, stability.WIDE, size=4, rate=1e-2, depth=1) for head in ("dwac", "epsilon"))
    assert ours["accuracy"] > 0.9 > 0.75 > theirs["accuracy"]
    assert ours["spread"] < 100 < theirs["spread"]


@pytest.mark.parametrize("head", HEADS)
def test_a_few_right_answers_do_not_make_the_model_endlessly_sure(head: type[Model]) -> None:
    x, y = clusters()
    model = model_of(head)
    train(model, x, y, epochs=10, batch_size=32, learning_rate=1e-2)
    few = slice(0, 6)  # all of them right: the likelihood alone would take the largest factor allowed, exp(1.5)
    assert evaluate(model, x[few], y[few])[1] == 1
    assert 0.5 < fit_scale(model, x[few], y[few]) < 3


def test_the_scale_lowers_the_loss_of_a_model_that_is_too_sure() -> None:
    x, y = clusters(600)
    y = torch.where(torch.rand(600, generator=torch.Generator().manual_seed(0)) < 0.2, (y + 1) % 3, y)  # some are wrong
    model = model_of(WeightedAverage)
    train(model, x[:300], y[:300], epochs=15, batch_size=64, learning_rate=1e-2)
    model.scale_embeddings(6.0)
    before = evaluate(model, x[300:], y[300:])[0]
    assert fit_scale(model, x[300:], y[300:]) < 0.8
    assert evaluate(model, x[300:], y[300:])[0] < before


class OneByOne(nn.Sequential):
    """Predicts row by row; keeps the sizes of the batches that it evaluates."""

    rows_at_once = {"cpu": 1}  # noqa: RUF012

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            self.sizes = [*getattr(self, "sizes", []), len(x)]
        features: torch.Tensor = super().forward(x)
        return features


def test_validation_embeds_batches_even_if_predictions_are_made_row_by_row() -> None:
    torch.manual_seed(0)
    network = OneByOne(nn.Linear(4, 16), nn.ReLU())
    model = WeightedAverage(network, n_classes=3)
    validation = clusters(60, seed=1)
    history = train(model, *clusters(), validation=validation, epochs=2, batch_size=32, rescale=True)
    assert 1 not in network.sizes
    assert max(network.sizes[1:-4]) <= 32  # before the rows are remembered
    same = model_of(WeightedAverage)  # the same start, and more rows at once
    again = train(same, *clusters(), validation=validation, epochs=2, batch_size=32, rescale=True)
    assert history["validation_loss"].tolist() == pytest.approx(again["validation_loss"].tolist(), rel=1e-6)
    network.sizes = []
    assert evaluate(model, *validation)[0] == pytest.approx(evaluate(same, *validation)[0], rel=1e-5)
    assert set(network.sizes) == {1}
