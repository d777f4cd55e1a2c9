"""Cross-fitting: no member sees its fold, and out-of-fold votes choose how much each view counts."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from dwac.conformal import CrossCalibration
from dwac.encoders.tabular_networks import WideEnsemble, WideNetwork
from dwac.errors import InputError, ShapeError
from dwac.nn import Ensemble, WeightedAverage
from dwac.nn.batches import embed
from dwac.training.cross_fit import (
    _RIDGE,
    _RIDGES,
    FOLDS,
    CrossFitRun,
    _choose_ridge,
    cross_fit,
    fit_votes,
    folds_of,
    part_of,
    ridge_directions,
)
from tests.named import refuses

Data = tuple[tuple[Tensor, Tensor], Tensor]
EDGES = [[-2.0, 0.0, 1.0, 3.0]] * 2 + [[]]


def data(n: int = 60, *, signal: float = 2.0, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    numeric = torch.randn(n, 3, generator=generator)
    numeric[:, 0] += signal * y
    return (numeric, torch.randint(0, 3, (n, 1), generator=generator)), y


def new_model(members: int = 10, seed: int = 0, n_classes: int = 2) -> WeightedAverage:
    torch.manual_seed(seed)
    network = WideNetwork(EDGES, 0, [2], 8, dropout=0.3, coordinates=[0, 1, 2])
    return WeightedAverage(WideEnsemble(members, network), n_classes, 4)


def started(model: WeightedAverage, x: tuple[Tensor, Tensor], y: Tensor, folds: Tensor) -> CrossFitRun:
    model.embed(x)  # lazy layers take their shape
    torch.manual_seed(1)
    return CrossFitRun(model, x, y, None, folds, seed=0, steps=20)


def test_folds_are_even_overall_and_do_not_look_at_classes() -> None:
    folds = folds_of(53, seed=4)
    assert sorted(torch.bincount(folds).tolist()) == [10, 10, 11, 11, 11]
    assert folds.equal(folds_of(53, seed=4))
    assert not folds.equal(folds_of(53, seed=5))
    # Two rows are in one fold as often as any two: of 20 rows, 3 of the 19 others are in the fold of the first.
    together = [int((found[1:] == found[0]).sum()) for found in (folds_of(20, seed=seed) for seed in range(40))]
    assert together == [3] * 40
    assert {int(folds_of(20, seed=seed)[:2].unique().numel()) for seed in range(40)} == {1, 2}


def test_shares_of_classes_suit_new_rows_as_well_as_those_that_calibrate() -> None:
    """Without any signal, votes are the shares of classes outside a fold; sets at ε = .2 must hold 80 % of new rows."""
    rng, covered = np.random.default_rng(0), []
    for seed in range(300):
        own, new = np.eye(10)[rng.integers(10, size=60)], rng.integers(10, size=200)
        folds = folds_of(60, seed=seed).numpy()
        shares = np.stack([own[folds != fold].mean(axis=0) for fold in range(FOLDS)])
        calibration = CrossCalibration(-(own * shares[folds]).sum(axis=1), folds, tolerance=1e-9)
        covered.append((calibration.p_values(-shares.T[new]) > 0.2).mean())
    assert np.mean(covered) > 0.8  # of classes spread evenly over the folds .72


def test_groups_stay_in_one_fold_and_folds_are_as_even_as_they_allow() -> None:
    groups = np.repeat(np.arange(12), [9, 1, 1, 2, 5, 5, 5, 4, 1, 1, 3, 3])
    folds = folds_of(40, groups, seed=1)
    assert all(len(folds[groups == group].unique()) == 1 for group in range(12))
    assert sorted(torch.bincount(folds).tolist()) == [7, 8, 8, 8, 9]
    assert folds.equal(folds_of(40, groups, seed=1))
    assert not folds.equal(folds_of(40, groups, seed=2))


def test_no_member_is_trained_on_a_row_of_its_fold() -> None:
    (numeric, categorical), y = data()
    folds = folds_of(len(y))
    changed = numeric.clone()
    changed[folds == 2] = 1e3 * torch.randn(int((folds == 2).sum()), 3)
    weights = []
    for x in (numeric, changed):
        model = new_model()
        list(started(model, (x, categorical), y, folds).rounds(None))
        weights.append(model.embedding.weight.detach().view(10, -1))  # with its start, a ridge regression
    same = [bool((weights[0][m] == weights[1][m]).all()) for m in range(10)]
    assert same == [m % FOLDS == 2 for m in range(10)]


def test_every_member_is_trained_on_all_rows_outside_its_fold() -> None:
    inputs, y = data(640)  # four batches without a fold
    folds = folds_of(len(y))
    batches = started(new_model(), inputs, y, folds).batches()
    seen = torch.cat([next(batches) for _ in range(12)], dim=1)
    for m, rows in enumerate(seen):
        assert set(rows.tolist()) == set(torch.nonzero(folds != m % FOLDS)[:, 0].tolist())


def test_part_of_a_fold_has_the_mean_distance_of_its_members() -> None:
    inputs, y = data(30)
    model, folds = new_model(), folds_of(len(y))
    cross_fit(model, inputs, y, folds, steps=10, rescale=False)
    parts = model.backbone(*inputs).detach()  # (n, M, features)
    weight = model.embedding.weight.detach().view(10, 4, -1)
    part = part_of(embed(model, inputs), 3, 10).double()
    for i, j in ((0, 1), (4, 17)):
        apart = [(weight[m] @ (parts[i, m] - parts[j, m])).double().square().sum() for m in (3, 8)]
        assert float((part[i] - part[j]).square().sum()) == pytest.approx(float(sum(apart)) / 2, rel=1e-4)


def test_chosen_votes_have_the_loss_of_a_double_loop() -> None:
    inputs, y = data(40, signal=1.0)
    model, folds = new_model(), folds_of(len(y))
    cross_fit(model, inputs, y, folds, steps=20, rescale=False)
    found = fit_votes(model, inputs, y, folds)
    h, losses, wrong = embed(model, inputs), 0.0, 0.0
    for i in range(40):
        own = part_of(h, int(folds[i]), 10).double()
        votes = [0.0, 0.0]
        for j in range(40):
            if folds[j] != folds[i]:
                votes[int(y[j])] += math.exp(-float((own[i] - own[j]).square().sum())) + found.base
        p = votes[int(y[i])] / sum(votes)
        losses, wrong = losses - math.log(p), wrong - math.log(1 - p) / 40
    assert found.loss == pytest.approx((losses + wrong) / 41, rel=1e-3)


def test_labels_without_meaning_are_judged_near_chance() -> None:
    """Members that saw a row know its label by heart; those of its fold must not."""
    generator = torch.Generator().manual_seed(2)
    numeric = torch.randn(200, 3, generator=generator)
    y = torch.randint(0, 2, (200,), generator=generator)
    inputs = numeric, torch.zeros(200, 1, dtype=torch.int64)
    model = new_model()
    cross_fit(model, inputs, y, folds_of(len(y)), steps=100)
    p = model(inputs).detach().exp()
    assert float(p.amax(dim=1).mean()) < 0.75  # though every row votes for itself here
    assert fit_votes(model, inputs, y, folds_of(len(y))).loss < 0.75  # nothing is known: log 2 = 0.693


def test_a_curve_is_left_to_the_members_that_see_bins() -> None:
    generator = torch.Generator().manual_seed(3)
    numeric = torch.randn(300, 3, generator=generator)
    inputs, y = (numeric, torch.zeros(300, 1, dtype=torch.int64)), (numeric[:, 0].abs() < 0.7).long()
    model, folds = new_model(), folds_of(len(y))
    cross_fit(model, inputs, y, folds, steps=5, rescale=False)
    spreads = embed(model, inputs).view(300, 2, -1).var(dim=0).sum(dim=1)
    parts = torch.tensor(fit_votes(model, inputs, y, folds).scales) * spreads
    assert parts[1] / parts.sum() > 0.6


def test_all_rows_vote_with_all_members() -> None:
    inputs, y = data()
    model = new_model()
    history = cross_fit(model, inputs, y, folds_of(len(y)), steps=30)
    assert len(model.references) == 60
    torch.testing.assert_close(model.references.embeddings, embed(model, inputs))
    assert len(history) == 10
    assert history.attrs["ended"] == "finished"


def test_a_row_alone_in_its_class_and_a_single_class_are_no_problem() -> None:
    inputs, y = data()
    y[7] = 2
    model = new_model(n_classes=3)
    cross_fit(model, inputs, y, folds_of(len(y)), steps=5)
    assert model(inputs).isfinite().all()
    model = new_model(n_classes=1)
    cross_fit(model, inputs, torch.zeros_like(y), folds_of(len(y)), steps=5)
    assert (model(inputs) == 0).all()


def test_too_few_rows_and_other_ensembles_are_refused() -> None:
    inputs, y = data(12)
    with refuses(ShapeError, 20, 12):
        cross_fit(new_model(), inputs, y, folds_of(len(y)))
    inputs, y = data()
    for model in (new_model(members=4), WeightedAverage(Ensemble([torch.nn.Linear(3, 2)] * 10), 2)):
        with refuses(InputError, 10):
            cross_fit(model, inputs, y, folds_of(len(y)))


def test_linear_start_is_the_same_whether_columns_or_rows_are_more() -> None:
    generator = torch.Generator().manual_seed(4)
    x, y = torch.randn(30, 12, generator=generator).double(), torch.eye(3).double()[torch.arange(30) % 3]
    some = ridge_directions(x, y, 8)
    wide = ridge_directions(torch.cat([x, torch.zeros(30, 40).double()], dim=1), y, 8)[:, :12]
    assert some.shape == (3, 12)
    directions = [part / part.norm() for part in (some, wide)]
    assert float((directions[0] * directions[1]).sum()) > 0.95  # the penalty depends on the number of columns
    assert ridge_directions(x, y, 2).shape == (2, 12)
    assert ridge_directions(x, y[:, :1], 8).shape == (1, 12)
    h = (x - x.mean(dim=0)) @ some.T
    assert float(h.square().sum(dim=1).mean()) == pytest.approx(1.5**2)


def test_penalty_of_the_linear_start_is_chosen_by_leaving_out_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 90, generator=generator).double()
    for noise in (0.1, 3.0):
        y = (x[:, :3].sum(dim=1, keepdim=True) + noise * torch.randn(40, 1, generator=generator)).double()
        losses = []
        for ridge in _RIDGES:
            penalty, errors = ridge * _RIDGE * (x - x.mean(dim=0)).square().sum() / 90, []
            for row in range(40):
                rest = torch.arange(40) != row
                own, values = x[rest] - x[rest].mean(dim=0), y[rest] - y[rest].mean(dim=0)
                line = own.T @ torch.linalg.solve(own @ own.T + penalty * torch.eye(39), values)
                errors.append((x[row] - x[rest].mean(dim=0)) @ line + y[rest].mean(dim=0) - y[row])
            losses.append(float(torch.stack(errors).square().sum()))
        assert _choose_ridge(x, y) == _RIDGES[int(np.argmin(losses))]


def test_wide_ensemble_computes_what_its_networks_would() -> None:
    inputs, _ = data()
    torch.manual_seed(0)
    ensemble = WideEnsemble(3, WideNetwork(EDGES, 0, [2], 8, dropout=0.3)).eval()
    features = ensemble(*inputs)
    assert features.shape == (60, 3, 3 + 2 + 6 + 8)
    for m in range(3):
        alone = WideNetwork(EDGES, 0, [2], 8, dropout=0.3).eval()
        with torch.no_grad():
            alone.weight.copy_(ensemble.weight[m])
            alone.bias.copy_(ensemble.bias[m, 0])
            if m == 0:  # the first of three does not see the bins
                alone.weight[5:] = 0
                assert not features[:, 0, 5:11].any()
        seen = slice(None) if m else [*range(5), *range(11, 19)]
        torch.testing.assert_close(features[:, m, seen], alone(*inputs)[:, seen])
    codes = features[:, 0, 3:5]
    torch.testing.assert_close(codes.sum(dim=1), (inputs[1][:, 0] > 0).float())  # an unknown category is all zeros


def test_bins_rise_from_0_to_1_between_their_edges() -> None:
    network = WideNetwork(EDGES, 0, [], 4, dropout=0.0)
    numeric = torch.tensor([[-9.0, 0.0, 0.0], [-1.0, 0.5, 0.0], [9.0, 2.0, 0.0]])
    bins = network.numbers(numeric, torch.zeros(3, 0, dtype=torch.int64))[:, 3:]
    expected = [[0, 0, 0, 1, 0, 0], [0.5, 0, 0, 1, 0.5, 0], [1, 1, 1, 1, 1, 0.5]]
    torch.testing.assert_close(bins, torch.tensor(expected))
