"""Look-alikes: a second, narrower kernel. Votes still add up, so everything that is certified stays exact."""

from copy import copy
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dwac
from dwac import DWACClassifier, ReferenceSet, Training
from dwac.errors import InputError
from dwac.explain import explain
from dwac.nn import WeightedAverage
from dwac.reference.references import without_look_alikes
from dwac.report.wrong_labels import leave_one_out
from dwac.training.validation import fit_look_alikes
from tests.named import refuses

RNG = np.random.default_rng(0)
H, Y, QUERIES = RNG.normal(size=(40, 3)), RNG.integers(0, 3, 40), RNG.normal(size=(7, 3))
KERNELS = {
    "gaussian": lambda squared: np.exp(-squared),
    "laplace": lambda squared: np.exp(-np.sqrt(squared)),
    "inverse_quadratic": lambda squared: 1 / (1 + squared),
}
NEAR = (3.0, 20.0)


def weights(kernel: str, queries: Any = QUERIES) -> Any:
    """(n, m): the definition."""
    squared = np.square(queries[:, None] - H).sum(axis=2)
    return KERNELS[kernel](squared) + NEAR[1] * KERNELS[kernel](NEAR[0] ** 2 * squared)


def refs(kernel: str = "gaussian", **options: Any) -> ReferenceSet:
    return ReferenceSet(H, Y, kernel=kernel, look_alikes=NEAR, **options)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("class_weights", [None, [1.0, 2.0, 0.5]])
def test_votes_are_those_of_the_definition(kernel, class_weights) -> None:
    w, factors = weights(kernel), np.ones(3) if class_weights is None else np.array(class_weights)
    want = np.log(np.stack([w[:, k == Y].sum(axis=1) for k in range(3)], axis=1) * factors)
    some = refs(kernel, class_weights=class_weights)
    votes, near = some.query(QUERIES, k=5)
    np.testing.assert_allclose(votes, want, atol=1e-9)
    rows = near.ids  # by default the rows
    np.testing.assert_array_equal(rows, np.argsort(-w, axis=1)[:, :5])
    np.testing.assert_allclose(
        near.log_weights, np.log(np.take_along_axis(w, rows, axis=1) * factors[Y[rows]]), atol=1e-9
    )
    grouped = np.log(
        np.stack([w[:, some.groups.of == g].sum(axis=1) for g in range(len(some.groups))], axis=1)
        * factors[some.groups.labels]
    )
    np.testing.assert_allclose(some.log_group_weights(QUERIES), grouped, atol=1e-9)
    np.testing.assert_allclose(some.voters.log_votes(torch.tensor(QUERIES[0])), np.log(w[0]), atol=1e-9)


def test_one_query_has_the_same_votes_alone_and_in_a_batch() -> None:
    some = refs()
    every = some.log_class_weights(QUERIES)
    np.testing.assert_array_equal(np.concatenate([some.log_class_weights(q[None]) for q in QUERIES]), every)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_flow_through_both_kernels(kernel) -> None:
    queries = torch.tensor(QUERIES, requires_grad=True)
    refs(kernel).log_class_weights(queries)[:, 0].sum().backward()
    own = torch.tensor(QUERIES, requires_grad=True)
    squared = (own[:, None] - torch.tensor(H)).square().sum(dim=2)
    shapes = {
        "gaussian": lambda s: (-s).exp(),
        "laplace": lambda s: (-s.sqrt()).exp(),
        "inverse_quadratic": lambda s: 1 / (1 + s),
    }
    w = shapes[kernel](squared) + NEAR[1] * shapes[kernel](NEAR[0] ** 2 * squared)
    w[:, torch.tensor(Y) == 0].sum(dim=1).log().sum().backward()
    torch.testing.assert_close(queries.grad, own.grad, atol=1e-6, rtol=1e-5)


def test_edits_and_copies_keep_the_kernel_and_a_crowd_has_none() -> None:
    some = refs()
    some.remove([3])
    some.add([[0.0, 0.0, 0.0]], [1])
    some.relabel([5], [2])
    for other in (some, some.to("cpu"), copy(some), some.replaced(class_weights=[1, 2, 3])):
        assert other.voters.look_alikes == NEAR
    assert without_look_alikes(some).voters.look_alikes is None
    few = some.condensed()
    assert few.voters.look_alikes is None
    assert few.members is not None
    assert few.members.voters.look_alikes == NEAR


@pytest.mark.parametrize("values", [(1.0, 2.0), (0.5, 1.0), (2.0, 0.0), (2.0, np.inf), (2.0,), (2.0, -1.0)])
def test_values_without_a_meaning_are_refused(values) -> None:
    with refuses(InputError, 1, 0):
        ReferenceSet(H, Y, look_alikes=values)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_base_vote_is_added_at_any_distance(kernel: str) -> None:
    base, counts = 0.03, np.linspace(1, 5, 40)
    squared = np.square(QUERIES[:, None] - H).sum(axis=2)
    for some, n in (
        (ReferenceSet(H, Y, kernel=kernel, look_alikes=(0.0, base)), np.ones(40)),
        (ReferenceSet(H, Y, kernel=kernel, look_alikes=(0.0, base), weights=counts), counts),
    ):
        w = (KERNELS[kernel](squared) + base) * n
        want = np.log(np.stack([w[:, k == Y].sum(axis=1) for k in range(3)], axis=1))
        np.testing.assert_allclose(some.log_class_weights(QUERIES), want, atol=1e-6)
        np.testing.assert_allclose(some.voters.log_votes(torch.tensor(QUERIES[0])), np.log(w[0]), atol=1e-6)
        grouped = np.log(np.stack([w[:, some.groups.of == g].sum(axis=1) for g in range(len(some.groups))], axis=1))
        np.testing.assert_allclose(some.log_group_weights(QUERIES), grouped, atol=1e-6)
        shares = np.stack([n[k == Y].sum() for k in range(3)]) / n.sum()
        if kernel == "gaussian":
            np.testing.assert_allclose(some.probabilities(np.full((1, 3), 1e4))[0], shares, atol=1e-9)
        few = some.condensed()
        assert few.voters.look_alikes == without_look_alikes(some).voters.look_alikes == (0.0, base)
    assert isinstance(few.members, ReferenceSet)


def test_representatives_have_no_look_alikes() -> None:
    with refuses(InputError, "look_alikes", "weights", "leave one out"):
        ReferenceSet(H, Y, look_alikes=NEAR, weights=np.full(40, 2.0))


@pytest.mark.slow
def test_certificates_hold() -> None:
    """The set that flips a label is the smallest, by trying them all; few votes decide whatever the others are."""
    h, y = H[:9], Y[:9]
    some = ReferenceSet(h, y, n_classes=3, look_alikes=NEAR)
    for e, query in zip(explain(some, QUERIES, k=3), QUERIES, strict=True):
        label = e.label
        size = next(
            (
                size
                for size in range(1, 9)
                for gone in combinations(range(9), size)
                if _label(h, y, gone, query) != label
            ),
            None,
        )
        assert e.flip_size == size
        order = np.argsort(-some.voters.log_votes(torch.tensor(query)).numpy(), kind="stable")
        for rival in {0, 1, 2} - {label}:
            worst = y.copy()
            worst[order[e.deciding :]] = rival
            assert _label(h, worst, (), query) == label
        assert sum(group.share for group in e.groups) == pytest.approx(1)


def _label(h: Any, y: Any, gone: Any, query: Any) -> int:
    keep = np.setdiff1d(np.arange(len(h)), gone)
    left = ReferenceSet(h[keep], y[keep], n_classes=3, look_alikes=NEAR)
    return int(left.log_class_weights(query[None])[0].argmax())


def test_leaving_one_out_is_removing_it() -> None:
    some = refs()
    for row, votes in enumerate(leave_one_out(some)):
        other = refs()
        other.remove([row])
        np.testing.assert_allclose(votes, other.log_class_weights(H[row : row + 1])[0], atol=1e-7)


# Chosen on validation rows


def crowded(n: int, seed: int, *, local: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on a line; where `local`, labels alternate on a scale much smaller than the kernel."""
    x = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed))
    y = (x[:, 0] * 20).long() % 2 if local else (x[:, 0] > 0.5).long()
    return x, y


@pytest.mark.parametrize(("local", "chosen"), [(True, True), (False, False)])
def test_look_alikes_speak_up_only_where_validation_rows_gain(local, chosen) -> None:
    model = WeightedAverage(nn.Identity(), n_classes=2, embedding_size=1, n_features=1)
    with torch.no_grad():
        model.embedding.weight.fill_(6.0)
        model.embedding.bias.zero_()
    x, y = crowded(2000, 0, local=local)
    if not local:
        y = torch.where(torch.rand(2000, generator=torch.Generator().manual_seed(2)) < 0.3, 1 - y, y)
    model.remember([(x[:1500], y[:1500])])
    found = fit_look_alikes(model, x[1500:], y[1500:])
    assert (found is not None) == chosen
    assert (model.references.voters.look_alikes is not None) == chosen
    if found is not None:
        assert found == pytest.approx(model.references.voters.look_alikes)
        again = WeightedAverage(nn.Identity(), n_classes=2, embedding_size=1, n_features=1)
        again.load_state_dict(model.state_dict())
        assert again.references.voters.look_alikes == model.references.voters.look_alikes
        torch.testing.assert_close(again(x[:5]), model(x[:5]))


def test_a_folder_keeps_the_kernel(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(120, 3))
    y = (X[:, 0] > 0).astype(int)
    clf = DWACClassifier(epochs=3, random_state=0, device="cpu").fit(X, y)
    assert (
        not DWACClassifier(epochs=3, random_state=0, device="cpu", training=Training(look_alikes=False))
        .fit(X, y)
        .references_.voters.look_alikes
    )
    clf.model_.references = clf.references_.replaced(look_alikes=NEAR)
    again = dwac.load(clf.save(tmp_path / "model"), device="cpu")
    assert again.references_.voters.look_alikes == NEAR
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_array_equal(again.conformal(X).p_values, clf.conformal(X).p_values)
