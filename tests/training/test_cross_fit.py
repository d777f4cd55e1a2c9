"""Cross-fitting: no member sees its fold, and out-of-fold votes judge rows that were not seen."""

import math

import pytest
import torch
from torch import Tensor

from dwac.encoders.tabular_networks import WideEnsemble, WideNetwork
from dwac.errors import InputError, ShapeError
from dwac.nn import Ensemble, WeightedAverage
from dwac.nn.batches import embed
from dwac.training.cross_fit import FOLDS, _Run, cross_fit, fit_out_of_fold, folds_of, out_of_fold

Data = tuple[tuple[Tensor, Tensor], Tensor]


def data(n: int = 60, *, signal: float = 2.0, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    numeric = torch.randn(n, 3, generator=generator)
    numeric[:, 0] += signal * y
    return (numeric, torch.randint(0, 3, (n, 1), generator=generator)), y


def new_model(members: int = 10, seed: int = 0) -> WeightedAverage:
    torch.manual_seed(seed)
    network = WideNetwork(3, [2], 8, dropout=0.3, coordinates=[0, 1, 2])
    return WeightedAverage(WideEnsemble(members, network), 2, 4)


def test_folds_are_even_overall_and_within_each_class() -> None:
    y = torch.tensor([0] * 17 + [1] * 6 + [2] * 30)
    folds = folds_of(y, seed=4)
    assert sorted(torch.bincount(folds).tolist()) == [10, 10, 11, 11, 11]
    for label in range(3):
        counts = torch.bincount(folds[y == label], minlength=FOLDS)
        assert counts.max() - counts.min() <= 1
    assert not folds.equal(folds_of(y, seed=5))


def test_no_member_is_trained_on_a_row_of_its_fold() -> None:
    (numeric, categorical), y = data()
    folds = folds_of(y)
    changed = numeric.clone()
    changed[folds == 2] = 1e3 * torch.randn(int((folds == 2).sum()), 3)
    weights = []
    for x in (numeric, changed):
        model = new_model()
        model.embed((x, categorical))  # lazy layers take their shape
        torch.manual_seed(1)
        run = _Run(model, (x, categorical), y, None, folds, 0, 20, 16, 1e-2, 0.0)
        list(run.rounds(None))
        backbone = model.backbone
        assert isinstance(backbone, WideEnsemble)
        weights.append(backbone.weight.detach())
    same = [bool((weights[0][m] == weights[1][m]).all()) for m in range(10)]
    assert same == [m % FOLDS == 2 for m in range(10)]


def test_every_member_is_trained_on_all_rows_outside_its_fold() -> None:
    inputs, y = data()
    model, folds = new_model(), folds_of(y)
    model.embed(inputs)
    batches = _Run(model, inputs, y, None, folds, 0, 20, 16, 1e-2, 0.0)._batches()
    seen = torch.cat([next(batches) for _ in range(12)], dim=1)
    for m, rows in enumerate(seen):
        assert set(rows.tolist()) == set(torch.nonzero(folds != m % FOLDS)[:, 0].tolist())


def test_out_of_fold_votes_equal_a_double_loop_over_members_and_voters() -> None:
    inputs, y = data(30)
    model, folds = new_model(), folds_of(y)
    cross_fit(model, inputs, y, steps=10, rescale=False)
    parts = model.backbone(*inputs).detach()  # (n, M, features)
    weight = model.embedding.weight.detach().view(10, 4, -1)
    seen = 0
    for rows, held in out_of_fold(model, embed(model, inputs), y, folds):
        p = held.judge([1.0]).losses[0].neg().exp()
        for place, i in enumerate(rows.tolist()):
            votes = [0.0, 0.0]
            for j in range(30):
                if folds[j] == folds[i]:
                    continue
                apart = [
                    float((weight[m] @ (parts[i, m] - parts[j, m])).double().square().sum())
                    for m in range(10)
                    if m % FOLDS == int(folds[i])
                ]
                votes[int(y[j])] += math.exp(-sum(apart) / len(apart))
            assert float(p[place]) == pytest.approx(votes[int(y[i])] / sum(votes), rel=1e-3)
            seen += 1
    assert seen == 30


def test_labels_without_meaning_are_judged_near_chance() -> None:
    """Members that saw a row know its label by heart; those of its fold must not."""
    generator = torch.Generator().manual_seed(2)
    numeric = torch.randn(200, 3, generator=generator)
    y = torch.randint(0, 2, (200,), generator=generator)
    history = cross_fit(new_model(), (numeric, torch.zeros(200, 1, dtype=torch.int64)), y, steps=100)
    found = history.attrs
    assert abs(found["out_of_fold_accuracy"] - 0.5) < 4 * math.sqrt(0.25 / 200)
    assert found["out_of_fold_loss"] < 0.75  # the scale says that nothing is known: log 2 = 0.693


def test_all_rows_vote_with_all_members_at_the_scale_of_the_out_of_fold_votes() -> None:
    inputs, y = data()
    model = new_model()
    history = cross_fit(model, inputs, y, steps=30)
    assert len(model.references) == 60
    torch.testing.assert_close(model.references.embeddings, embed(model, inputs))
    again = fit_out_of_fold(model, inputs, y, folds_of(y), rescale=False)
    assert float(again.losses.mean()) == pytest.approx(history.attrs["out_of_fold_loss"], rel=1e-4)
    assert len(history) == 10
    assert history.attrs["ended"] == "finished"


def test_a_row_alone_in_its_class_is_not_judged() -> None:
    inputs, y = data()
    y[7] = 2
    model = new_model()
    model.n_classes = 3
    model.eval()
    rows = torch.cat([rows for rows, _ in out_of_fold(model, embed(model, inputs), y, folds_of(y))])
    assert sorted(rows.tolist()) == [row for row in range(60) if row != 7]


def test_too_few_rows_and_other_ensembles_are_refused() -> None:
    inputs, y = data(12)
    with pytest.raises(ShapeError, match="at least 20 training rows; got 12"):
        cross_fit(new_model(), inputs, y)
    inputs, y = data()
    with pytest.raises(InputError, match="multiple of 5"):
        cross_fit(new_model(members=4), inputs, y)
    with pytest.raises(InputError, match="wide ensemble"):
        cross_fit(WeightedAverage(Ensemble([torch.nn.Linear(3, 2)] * 5), 2), inputs, y)


def test_wide_ensemble_computes_what_its_networks_would() -> None:
    inputs, _ = data()
    torch.manual_seed(0)
    ensemble = WideEnsemble(3, WideNetwork(3, [2], 8, dropout=0.3)).eval()
    features = ensemble(*inputs)
    assert features.shape == (60, 3, 3 + 2 + 8)
    for m in range(3):
        alone = WideNetwork(3, [2], 8, dropout=0.3).eval()
        with torch.no_grad():
            alone.weight.copy_(ensemble.weight[m].T)
            alone.bias.copy_(ensemble.bias[m, 0])
        torch.testing.assert_close(features[:, m], alone(*inputs))
    codes = features[:, 0, 3:5]
    torch.testing.assert_close(codes.sum(dim=1), (inputs[1][:, 0] > 0).float())  # an unknown category is all zeros
