"""An ensemble learns as its members would alone, and votes with the mean of their squared distances."""

import copy
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dwac
from dwac.errors import InputError, NotRememberedError, ShapeError
from dwac.kernels import KERNELS
from dwac.nn import Ensemble, SoftmaxTwin, WeightedAverage
from dwac.nn.ensemble import EnsembleLogits, join_members, map_members, split_members
from dwac.nn.loss import Support
from dwac.training import evaluate, train
from dwac.training.validation import fit_scale
from tests import oracle
from tests.named import refuses

HEADS = [WeightedAverage, SoftmaxTwin]
K, FEATURES, M = 3, 8, 3


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, FEATURES), nn.BatchNorm1d(FEATURES), nn.Tanh())


def ensemble(head: Any = WeightedAverage, ensemble_size: int = M, size: int | None = None, **options: Any) -> Any:
    """In float64, so that what must be equal is equal to many digits."""
    torch.manual_seed(0)
    backbone = Ensemble(network() for _ in range(ensemble_size))
    return head(backbone, K, size, n_features=FEATURES, **options).double()


def terms(head: Any, **terms: float) -> dict[str, Any]:
    """Further terms of the loss, for the head that has them."""
    return terms if head is WeightedAverage else {}


def data(n: int = 24, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator, dtype=torch.float64), torch.arange(n) % K


def alone(model: Any) -> list[Any]:
    """Each member of an ensemble as a model of its own, with copies of its weights."""
    members, size = model.ensemble_size, model.embedding_size // model.ensemble_size
    names = ("kernel", "penalty", "auxiliary_weight") if isinstance(model, WeightedAverage) else ()
    options = {name: getattr(model, name) for name in names}
    answer = []
    for m, part in enumerate(model.backbone.members):
        own = type(model)(copy.deepcopy(part), K, size, n_features=FEATURES, **options).double()
        for name in ("embedding", "logits", "auxiliary_head"):
            for parameter, whole in zip(parameters(own, name), parameters(model, name), strict=True):
                parameter.data = whole.detach().chunk(members)[m].clone()
        answer.append(own)
    return answer


def parameters(model: Any, name: str) -> list[Any]:
    return list(getattr(model, name).parameters()) if hasattr(model, name) else []


def grads(model: Any) -> list[list[Tensor]]:
    """The gradients of each member, in the order of `alone(model)`'s parameters."""
    whole = [
        p.grad.chunk(model.ensemble_size)
        for name in ("embedding", "logits", "auxiliary_head")
        for p in parameters(model, name)
    ]
    return [
        [*(p.grad for p in part.parameters()), *(chunks[m] for chunks in whole)]
        for m, part in enumerate(model.backbone.members)
    ]


def own_grads(model: Any) -> list[Tensor]:
    return [p.grad for name in ("backbone", "embedding", "logits", "auxiliary_head") for p in parameters(model, name)]


def assert_close(actual: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-7) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


# The vote


def test_the_joined_squared_distance_is_the_mean_of_the_members() -> None:
    model = ensemble(size=5).eval()
    x, _ = data()
    with torch.no_grad():
        h, each = model.embed(x), [own.eval().embed(x) for own in alone(model)]
    assert h.shape == (24, M * 5)
    expected = np.mean([oracle.squared_distances(part, part) for part in each], axis=0)
    np.testing.assert_allclose(oracle.squared_distances(h, h), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_prediction_is_one_vote_by_the_mean_squared_distance(kernel: str) -> None:
    model = ensemble(kernel=kernel).eval()
    x, y = data()
    queries, _ = data(5, seed=1)
    model.remember([(x, y)])
    with torch.no_grad():
        pairs = [(own.eval().embed(queries), own.embed(x)) for own in alone(model)]
        votes = model.log_class_weights(queries)
    squared = np.mean([oracle.squared_distances(h, ref_h) for h, ref_h in pairs], axis=0)
    log_w = [[oracle.LOG_WEIGHT[kernel](s) for s in row] for row in squared]
    expected = [[oracle.log_sum_exp([w for w, k in zip(r, y, strict=True) if k == c]) for c in range(K)] for r in log_w]
    np.testing.assert_allclose(votes, expected, rtol=1e-5, atol=1e-6)


def test_a_softmax_takes_the_mean_of_the_members_logits() -> None:
    for size in (None, 5):
        model = ensemble(SoftmaxTwin, size=size).eval()
        x, _ = data()
        logits = torch.stack([own.eval().log_class_weights(x) for own in alone(model)])
        assert_close(model.log_class_weights(x), logits.mean(dim=0))
        assert_close(model(x).double(), torch.log_softmax(logits.mean(dim=0), dim=1), rtol=1e-5, atol=1e-6)


def test_the_order_of_the_members_does_not_matter() -> None:
    model = ensemble(size=5).eval()
    x, y = data()
    model.remember([(x, y)])
    other = copy.deepcopy(model)
    order = [2, 0, 1]
    other.backbone.members = nn.ModuleList(model.backbone.members[m] for m in order)
    for parameter in other.embedding.parameters():
        parameter.data = torch.cat([parameter.detach().chunk(M)[m] for m in order])
    other.remember([(x, y)])
    assert_close(other.log_class_weights(x), model.log_class_weights(x))


def test_if_members_disagree_everything_is_far() -> None:
    # Two members of one number each. Both put the first query on the first reference; the second query is there for
    # one of them, but on the second reference for the other: no example is near.
    references = join_members(torch.tensor([[[0.0], [0.0]], [[4.0], [4.0]]]))
    agreed, torn = join_members(torch.tensor([[[0.0], [0.0]], [[0.0], [4.0]]]))
    refs = dwac.ReferenceSet(references, [0, 1])
    assert refs.log_class_weights(agreed[None]).max() == pytest.approx(0, abs=1e-6)
    assert refs.log_class_weights(torn[None]).max() == pytest.approx(-8, rel=1e-6)


def test_joining_and_taking_apart_are_inverse() -> None:
    h = torch.randn(7, 4, 5, dtype=torch.float64)
    assert_close(split_members(join_members(h), 4), h)
    assert_close(join_members(h).square().sum(dim=1), h.square().sum(dim=2).mean(dim=1))
    assert split_members(h[:0].flatten(1), 4).shape == (0, 4, 5)
    assert_close(split_members(join_members(h).T.contiguous().T, 4), h)  # however it lies in memory


def test_each_member_has_its_own_linear_map() -> None:
    features, weight, bias = torch.randn(6, 3, 4), torch.randn(3 * 2, 4), torch.randn(3 * 2)
    for m in range(3):
        expected = nn.functional.linear(features[:, m], weight[2 * m : 2 * m + 2], bias[2 * m : 2 * m + 2])
        assert_close(map_members(features, weight, bias)[:, m], expected, rtol=1e-5, atol=1e-5)


# The loss


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [None, 5])
@pytest.mark.parametrize("head", HEADS)
def test_the_loss_is_the_mean_of_the_members_own(head: Any, size: int | None, weighted: bool) -> None:
    model = ensemble(head, size=size, **terms(head, penalty=0.1, auxiliary_weight=0.7))
    x, y = data()
    options: dict[str, Any] = {"ids": torch.arange(24) // 2}  # twins, who do not vote on one another
    if weighted:
        options["weights"] = torch.rand(24, generator=torch.Generator().manual_seed(1))
    loss = model.loss(x, y, **options)
    loss.backward()
    others = alone(model)
    each = [own.loss(x, y, **options) for own in others]
    for own_loss in each:
        own_loss.backward()
    assert_close(loss.double(), torch.stack(each).mean().double())
    for found, own in zip(grads(model), others, strict=True):
        assert len(found) == len(own_grads(own))
        for grad, expected in zip(found, own_grads(own), strict=True):
            assert_close(grad * M, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [None, 5])
def test_each_member_uses_its_own_part_of_the_support(kernel: str, size: int | None) -> None:
    model = ensemble(size=size, kernel=kernel)
    x, y = data()
    ids, weights = torch.arange(24), torch.rand(24, generator=torch.Generator().manual_seed(1))
    h = torch.randn(9, model.embedding_size, dtype=torch.float64)
    support = Support(h, torch.arange(9) % K, torch.arange(20, 29))  # four of them are in the batch too
    loss = model.loss(x, y, ids=ids, support=support, weights=weights)
    loss.backward()
    each = []
    for m, (own, found) in enumerate(zip(alone(model), grads(model), strict=True)):
        part = support._replace(h=h.reshape(9, M, -1)[:, m] * math.sqrt(M))
        each.append(own.loss(x, y, ids=ids, support=part, weights=weights))
        each[-1].backward()
        for grad, expected in zip(found, own_grads(own), strict=True):
            assert_close(grad * M, expected)
    assert_close(loss, torch.stack(each).mean())


def test_the_models_own_sample_is_a_support_for_every_member() -> None:
    model = ensemble().eval()
    x, y = data()
    model.remember([(x, y, torch.arange(24))])
    support = model.support(10, generator=torch.Generator().manual_seed(0))
    assert support.h.shape == (10, model.embedding_size)
    assert torch.isfinite(model.loss(x, y, ids=torch.arange(24), support=support))


@pytest.mark.parametrize("head", HEADS)
def test_members_do_not_influence_one_another(head: Any) -> None:
    x, y = data()
    seen = []
    for change in (0.0, 1.0):
        model = ensemble(head, size=5)
        with torch.no_grad():
            for parameter in model.backbone.members[1].parameters():
                parameter.add_(change)
        model.loss(x, y).backward()
        seen.append(grads(model))
    for m in (0, 2):
        assert all(torch.equal(a, b) for a, b in zip(seen[0][m], seen[1][m], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(seen[0][1], seen[1][1], strict=True))


@pytest.mark.parametrize("size", [None, 5])
@pytest.mark.parametrize("head", HEADS)
def test_a_ensemble_of_one_is_the_plain_network(head: Any, size: int | None) -> None:
    model = ensemble(head, ensemble_size=1, size=size, **terms(head, auxiliary_weight=0.5))
    (own,) = alone(model)
    x, y = data()
    for some in (model, own):
        some.loss(x, y).backward()
    for grad, expected in zip(grads(model)[0], own_grads(own), strict=True):
        assert_close(grad, expected, rtol=1e-5, atol=1e-7)
    for some in (model.eval(), own.eval()):
        some.remember([(x, y)])
    assert model.embedding_size == own.embedding_size == (size or K)
    assert_close(model(x), own(x))
    assert_close(model.embed(x), own.embed(x))


# Training


@pytest.mark.parametrize("size", [None, 5])
@pytest.mark.parametrize("head", HEADS)
def test_training_gives_each_member_what_it_would_learn_alone(head: Any, size: int | None) -> None:
    # The mean of M losses has an M-th of each gradient, which AdamW's steps do not know from the whole.
    model = ensemble(head, size=size, **terms(head, auxiliary_weight=0.5))
    others, before = alone(model), copy.deepcopy(model)
    x, y = data(60)
    for some in (model, *others):
        train(some, x, y, epochs=3, batch_size=20, learning_rate=1e-2)
    each = split_members(model.embed(x).detach(), M)
    assert (each - split_members(before.eval().embed(x).detach(), M)).abs().max() > 0.05
    for m, own in enumerate(others):
        assert_close(each[:, m], own.embed(x).detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("head", HEADS)
def test_a_ensemble_learns_is_rescaled_and_judged_like_any_model(head: Any) -> None:
    torch.manual_seed(0)
    model = head(Ensemble(nn.Sequential(nn.Linear(4, 16), nn.ReLU()) for _ in range(2)), K, 5)
    y = torch.arange(120) % K
    x = torch.randn(120, 4) + 3 * nn.functional.one_hot(y, 4)
    history = train(
        model, x[:90], y[:90], validation=(x[90:], y[90:]), rescale=True, epochs=12, batch_size=30, learning_rate=2e-2
    )
    assert history["loss"].iloc[-1] < history["loss"].iloc[0] / 2
    assert evaluate(model, x[90:], y[90:])[1] > 0.9
    h, logits = model.embed(x[90:]), model.log_class_weights(x[90:])
    factor = fit_scale(model, x[90:], y[90:])
    if head is SoftmaxTwin:
        assert_close(model.log_class_weights(x[90:]), logits * factor)
    else:
        assert_close(model.embed(x[90:]), h * factor)


@pytest.mark.parametrize("head", HEADS)
def test_a_ensemble_takes_its_size_from_the_first_batch(head: Any) -> None:
    torch.manual_seed(0)
    model = head(Ensemble(nn.Linear(4, 8) for _ in range(2)), K)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = data()
    x = x.float()
    model.loss(x, y)
    assert model.embedding.weight.shape == (2 * K, 8)
    before = copy.deepcopy(model.state_dict())
    model.loss(x, y).backward()
    optimizer.step()
    assert all(not torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_autocast_may_halve_the_members_but_never_h() -> None:
    model = WeightedAverage(Ensemble(nn.Linear(4, 8) for _ in range(2)), K, n_features=8)
    x, _ = data()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features, h = model.backbone(x.float()), model.embed(x.float())
    assert (features.dtype, h.dtype) == (torch.bfloat16, torch.float32)
    assert_close(h, join_members(map_members(features.float(), model.embedding.weight, model.embedding.bias)))


# Scaling


@pytest.mark.parametrize("size", [None, 5])
def test_scaling_a_ensemble_multiplies_its_logits_once(size: int | None) -> None:
    twin = ensemble(SoftmaxTwin, size=size).eval()
    x, _ = data()
    h, logits = twin.embed(x), twin.log_class_weights(x)
    twin.scale_embeddings(0.4)
    assert_close(twin.log_class_weights(x), logits * 0.4)
    assert_close(twin.embed(x), h if size else h * 0.4)


def test_scaling_a_ensemble_scales_every_log_weight_and_vote() -> None:
    model = ensemble(size=5).eval()
    x, y = data()
    model.remember([(x, y)])
    h, near = model.embed(x), model.references.nearest(model.embed(x), k=4)
    model.scale_embeddings(0.4)
    assert_close(model.embed(x), h * 0.4)
    after = model.references.nearest(model.embed(x), k=4)
    np.testing.assert_allclose(after.log_weights, near.log_weights * 0.16, rtol=1e-4, atol=1e-6)


# Its life


def test_a_ensemble_travels_in_the_state_dict_with_its_references() -> None:
    model, other = ensemble(size=5).eval(), ensemble(size=5).eval()
    x, y = data()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    model.remember([(x, y)])
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
    other.load_state_dict(ensemble(size=5).state_dict())
    with pytest.raises(NotRememberedError):
        other(x)


def test_a_far_query_keeps_finite_probabilities() -> None:
    model = ensemble().eval()
    x, y = data()
    model.remember([(x, y)])
    log_p = model(x * 1e9)
    assert torch.isfinite(log_p).all()


def test_members_are_counted_and_may_take_several_named_inputs() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 8)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.layer(a + b)  # type: ignore[no-any-return]

    backbone = Ensemble([Two(), Two()])
    assert len(backbone) == 2
    model = WeightedAverage(backbone, K)
    x = data()[0].float()
    assert torch.equal(model.embed((x, x)), model.embed({"a": x, "b": x}))
    assert model.embed((x, x)).shape == (24, 2 * K)


class Answering(nn.Module):
    """Answers in a form of its own."""

    def __init__(self, form: Any, width: int = 8) -> None:
        super().__init__()
        self.form, self.layer = form, nn.Linear(4, width)

    def forward(self, x: Tensor) -> Any:
        return self.form(self.layer(x))


def test_members_may_answer_as_any_backbone_may() -> None:
    x = data()[0].float()
    for form in (lambda h: SimpleNamespace(logits=h), lambda h: {"logits": h}, lambda h: (h, None)):
        members = [Answering(form), Answering(form)]
        features = Ensemble(members)(x)
        assert features.shape == (24, 2, 8)
        assert torch.equal(features[:, 1], members[1].layer(x))


def test_no_row_gives_no_logit() -> None:
    for size in (None, 5):
        assert ensemble(SoftmaxTwin, size=size).eval()(data()[0][:0]).shape == (0, K)
    assert EnsembleLogits(2, 5, K, linear=True)(torch.zeros(0, 10)).shape == (0, K)


def test_what_is_not_an_ensemble_is_refused() -> None:
    x, y = data()
    with refuses(InputError, "one"):
        Ensemble([])
    uneven = WeightedAverage(Ensemble([nn.Linear(4, 8), nn.Linear(4, 7)]), K)
    with refuses(ShapeError, (24, 8), (24, 7)):
        uneven.embed(x.float())
    with refuses(ShapeError, "features"):
        Ensemble([Answering(str)])(x.float())
    with refuses(ShapeError, "(2, 2, 2, 3, 3)", "nn.Flatten("):
        WeightedAverage(Ensemble([nn.Conv2d(1, 2, 1)] * 2), K).embed(torch.zeros(2, 1, 3, 3))
    with refuses(ShapeError, 8, 7):
        WeightedAverage(Ensemble([nn.Linear(4, 7)] * 2), K, n_features=8).embed(x.float())
    model = ensemble()
    for h in (torch.zeros(4, K), torch.zeros(4, model.embedding_size + 1), torch.zeros(4)):
        support = Support(h.double(), torch.arange(4) % K, torch.arange(4))
        with refuses(ShapeError, "support.h", f"(s, {model.embedding_size})"):
            model.loss(x, y, ids=torch.arange(24), support=support)
