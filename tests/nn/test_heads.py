"""Networks: the model's life, its twin, and `convert`."""

import copy
import io
import warnings
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import dwac
from dwac.errors import (
    ConversionError,
    EmptyReferenceError,
    IdError,
    InputError,
    LabelError,
    NonFiniteError,
    NotRememberedError,
    ShapeError,
)
from dwac.nn import Ensemble, SoftmaxTwin, WeightedAverage, convert
from dwac.nn.loss import leave_one_out_loss
from tests.named import refuses

HEADS = [WeightedAverage, SoftmaxTwin]


def small(head: Any = WeightedAverage, **options: Any) -> Any:
    torch.manual_seed(0)
    return head(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), n_classes=3, **options)


def data(n: int = 30) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 4, generator=generator), torch.arange(n) % 3


def test_autocast_may_halve_the_backbone_but_never_h() -> None:
    model = small()
    x, _ = data()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features, h = model.backbone(x), model.embed(x)
    assert features.dtype == torch.bfloat16
    assert h.dtype == torch.float32
    torch.testing.assert_close(h, model.embedding(features.float()))


@pytest.mark.parametrize("head", HEADS)
def test_an_optimiser_made_before_the_first_batch_trains_every_weight(head: Any) -> None:
    model = small(head)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = data()
    model.loss(x, y)
    before = copy.deepcopy(model.state_dict())
    model.loss(x, y).backward()
    optimizer.step()
    assert all(not torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("head", HEADS)
def test_forward_gives_log_probabilities(head: Any) -> None:
    model = small(head)
    x, y = data()
    model.remember(DataLoader(TensorDataset(x, y), batch_size=7))
    log_p = model(x)
    assert log_p.shape == (30, 3)
    assert log_p.dtype == torch.float32
    torch.testing.assert_close(log_p.exp().sum(dim=1), torch.ones(30))
    torch.testing.assert_close(log_p.double(), torch.log_softmax(model.log_class_weights(x), 1), rtol=1e-6, atol=1e-6)


def test_forward_is_the_kernel_vote_of_the_remembered_examples() -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x[:20], y[:20]), (x[20:], y[20:])])
    queries = torch.randn(5, 4)
    h, ref_h = model.embed(queries).double(), model.embed(x).double()
    votes = torch.exp(-(h[:, None] - ref_h).square().sum(dim=2)) @ nn.functional.one_hot(y).double()
    torch.testing.assert_close(model(queries).exp().double(), votes / votes.sum(1, keepdim=True), rtol=1e-5, atol=1e-6)


def test_far_query_keeps_finite_log_probabilities() -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x, y)])
    log_p = model(x * 1e6)
    assert torch.isfinite(log_p).all()


def test_forward_is_differentiable_in_its_input() -> None:
    model = small().double().eval()
    x, y = data()
    x = x.double()
    model.remember([(x, y)])
    queries = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(model.log_class_weights, (queries,))


def test_a_prediction_does_not_depend_on_its_batch() -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x, y)])
    alone = torch.cat([model(row[None]) for row in x])
    torch.testing.assert_close(model(x), alone, rtol=1e-5, atol=1e-6)


def test_remember_embeds_in_evaluation_mode_and_restores_the_mode() -> None:
    model = WeightedAverage(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.9)), n_classes=3)
    x, y = data()
    model.train()
    model.remember([(x, y)])
    assert model.training
    model.eval()
    torch.testing.assert_close(model.references.embeddings, model.embed(x).detach())


def test_asking_before_remembering_says_what_to_do() -> None:
    with refuses(NotRememberedError, "remember(loader"):
        small()(data()[0])


def test_a_failed_remember_changes_nothing() -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x, y)])
    before = model(x)
    with refuses(LabelError, "y", "0 … 2", 7, "row 0"):
        model.remember([(x, torch.full((30,), 7))])
    with refuses(InputError, "batch"):
        model.remember([x])
    with refuses(EmptyReferenceError, "loader"):
        model.remember([])
    with refuses(IdError, "ids"):
        model.remember([(x, y, torch.arange(30)), (x, y)])
    with refuses(ShapeError, "y", 4, 3):
        model.remember([(x[:4], y[:3]), (x[4:8], y[3:8])])  # right in all, wrong in each
    with refuses(IdError, "ids", "whole numbers", "'a'"):
        model.remember([(x[:2], y[:2], ["a", "b"])])
    with refuses(IdError, "ids", "whole numbers", 0.5):
        model.remember([(x[:2], y[:2], [0.5, 1.5])])
    with refuses(LabelError, "y", "whole numbers", "'no'", "row 0", "LabelEncoder"):
        model.remember([(x[:2], ["no", "yes"])])
    assert torch.equal(model(x), before)


def test_ids_of_the_loader_name_the_references() -> None:
    model = small()
    x, y = data()
    shuffled = torch.randperm(30)
    model.remember([(x[shuffled], y[shuffled], shuffled)])
    assert model.references.ids.tolist() == shuffled.tolist()


def test_editing_the_references_changes_the_prediction_at_once() -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x, y)])
    model.references.remove(np.flatnonzero(y.numpy() == 2))
    assert model(x).argmax(dim=1).max() < 2


def test_references_travel_in_the_state_dict_as_plain_tensors() -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x, y, torch.arange(30) * 2)])
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    twin = small().eval()
    twin.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(model(x), twin(x))
    assert twin.references.ids.tolist() == list(range(0, 60, 2))


def test_weights_without_references_forget_the_old_ones() -> None:
    model, fresh = small(), small()
    x, y = data()
    fresh.embed(x)
    model.remember([(x, y)])
    model.load_state_dict(fresh.state_dict())
    with pytest.raises(NotRememberedError):
        model(x)


def test_a_model_inside_another_keeps_its_references() -> None:
    outer = nn.ModuleDict({"head": small()}).eval()
    x, y = data()
    outer["head"].remember([(x, y)])  # type: ignore[operator]
    again = nn.ModuleDict({"head": small()}).eval()
    again.load_state_dict(outer.state_dict())
    assert torch.equal(again["head"](x), outer["head"](x))


def test_references_move_with_the_model_and_stay_the_same_object() -> None:
    model = small()
    x, y = data()
    model.remember([(x, y)])
    held = model.references
    assert model.to("meta").references.embeddings.device.type == "meta"
    assert model.float().references.embeddings.device.type == "meta"  # another type is no other device
    assert model.references is held


def test_ids_that_are_no_whole_numbers_are_named_and_can_be_taken_out() -> None:
    model = small()
    x, y = data()
    model.remember([(x, y)])
    model.references.add(torch.zeros(1, 3), [0], ids=["note"])
    with refuses(IdError, "ids", "whole numbers", "'note'"):
        model.state_dict()
    model.references.remove(["note"])
    model.state_dict()


def test_remember_leaves_frozen_layers_frozen() -> None:
    norm = nn.BatchNorm1d(8)
    model = WeightedAverage(nn.Sequential(nn.Linear(4, 8), norm), n_classes=3).train()
    norm.eval()
    model.remember([data()])
    assert model.training
    assert not norm.training


def test_a_copy_is_independent() -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x, y)])
    other = copy.deepcopy(model)
    before = model(x)
    other.references.remove([0, 1, 2])
    assert torch.equal(model(x), before)


def test_support_is_a_sample_of_the_remembered() -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x, y, torch.arange(30) + 50)])
    support = model.support(10, generator=torch.Generator().manual_seed(0))
    assert len(set(support.ids.tolist())) == 10
    rows = support.ids - 50
    assert torch.equal(support.y, y[rows])
    torch.testing.assert_close(support.h, model.embed(x[rows]).detach())
    loss = model.loss(x, y, ids=torch.arange(30) + 50, support=support)
    assert not torch.equal(loss, model.loss(x, y, ids=torch.arange(30) + 50))
    assert len(model.support(1000).y) == 30


def test_the_penalty_is_mean_squared_length() -> None:
    x, y = data()
    plain, penalised = small(penalty=0.0, n_features=8), small(penalty=0.5, n_features=8)
    h = plain.embed(x)
    expected = plain.loss(x, y) + 0.5 * h.square().sum(dim=1).mean()
    torch.testing.assert_close(penalised.loss(x, y), expected)


def test_the_auxiliary_loss_is_a_weighted_cross_entropy_of_a_softmax_over_h() -> None:
    x, y = data()
    for weights in (None, torch.rand(30, generator=torch.Generator().manual_seed(1))):
        plain, guided = small(n_features=8), small(n_features=8, auxiliary_weight=0.7)
        guided.load_state_dict(
            plain.state_dict() | {f"auxiliary_head.{k}": v for k, v in guided.auxiliary_head.state_dict().items()}
        )
        logits = nn.functional.linear(plain.embed(x), guided.auxiliary_head.weight, guided.auxiliary_head.bias)
        each = nn.functional.cross_entropy(logits, y, reduction="none")
        cross_entropy = each.mean() if weights is None else (weights * each).sum() / weights.sum()
        expected, loss = plain.loss(x, y, weights=weights) + 0.7 * cross_entropy, guided.loss(x, y, weights=weights)
        torch.testing.assert_close(loss, expected)
        for model, value in ((plain, expected), (guided, loss)):
            model.zero_grad()
            value.backward(inputs=[*model.backbone.parameters(), *model.embedding.parameters()])
        for one, other in zip(plain.parameters(), guided.parameters(), strict=False):
            torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("ensemble_size", [1, 3])
def test_no_prediction_depends_on_the_guide(ensemble_size: int) -> None:
    torch.manual_seed(0)
    backbone = nn.Linear(4, 8) if ensemble_size == 1 else Ensemble(nn.Linear(4, 8) for _ in range(ensemble_size))
    model = WeightedAverage(backbone, n_classes=3, embedding_size=5, auxiliary_weight=1.0).eval()
    x, y = data()
    model.loss(x, y).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    model.remember([(x, y)])
    before, loss = model(x), model.loss(x, y)
    with torch.no_grad():
        for parameter in model.auxiliary_head.parameters():
            parameter.normal_(std=100)
    assert torch.equal(model(x), before)
    assert not torch.equal(model.loss(x, y), loss)


def test_without_an_auxiliary_loss_there_is_no_auxiliary_head() -> None:
    assert not any(name.startswith("auxiliary_head") for name in small(n_features=8).state_dict())
    assert {"auxiliary_head.weight", "auxiliary_head.bias"} <= set(
        small(n_features=8, auxiliary_weight=0.1).state_dict()
    )
    assert small(auxiliary_weight=np.float32(0.5)).auxiliary_weight == 0.5


def test_the_twin_shares_the_shape_of_its_embedding() -> None:
    x, _ = data()
    assert small(SoftmaxTwin).embed(x).shape == small().embed(x).shape == (30, 3)
    twin = small(SoftmaxTwin, embedding_size=7)
    assert twin.embed(x).shape == (30, 7)
    assert twin(x).shape == (30, 3)


def test_the_twin_is_plain_cross_entropy() -> None:
    twin = small(SoftmaxTwin)
    x, y = data()
    torch.testing.assert_close(twin.loss(x, y), nn.functional.cross_entropy(twin.embed(x), y))


def test_the_networks_face_offers_the_loss() -> None:
    assert dwac.nn.leave_one_out_loss is leave_one_out_loss
    assert dwac.nn.Support is dwac.nn.loss.Support


def test_weights_weigh_the_vote_of_the_loss_but_not_the_penalty() -> None:
    model = small(penalty=0.5)
    x, y = data()
    weights = torch.rand(30, generator=torch.Generator().manual_seed(1))
    h = model.embed(x)
    expected = leave_one_out_loss(h, y, weights=weights) + 0.5 * h.square().sum(dim=1).mean()
    torch.testing.assert_close(model.loss(x, y, weights=weights), expected)


def test_the_twin_takes_a_weighted_mean_of_cross_entropies() -> None:
    twin = small(SoftmaxTwin)
    x, y = data()
    weights = torch.rand(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    each = nn.functional.cross_entropy(twin.embed(x), y, reduction="none").double()
    torch.testing.assert_close(twin.loss(x, y, weights=weights).double(), (weights * each).sum() / weights.sum())
    torch.testing.assert_close(twin.loss(x, y, weights=torch.full((30,), 7)), twin.loss(x, y))


def test_a_twin_whose_examples_all_weigh_nothing_learns_nothing() -> None:
    twin = small(SoftmaxTwin)
    x, y = data()
    loss = twin.loss(x, y, weights=torch.zeros(30))
    loss.backward()
    assert loss.item() == 0
    assert not any(parameter.grad.any() for parameter in twin.parameters())


@pytest.mark.parametrize("head", HEADS)
def test_bad_weights_are_named(head: Any) -> None:
    x, y = data()
    with refuses(ShapeError, "weights", "(30,)", "(29,)"):
        small(head).loss(x, y, weights=torch.ones(29))
    with refuses(InputError, "weights", 0, "negative"):
        small(head).loss(x, y, weights=torch.full((30,), -1.0))


# Scaling the embeddings


@pytest.mark.parametrize("factor", [0.3, 1, np.float32(2)])
def test_scaled_embeddings_scale_every_log_weight(factor: float) -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x, y, torch.arange(30) + 5)])
    queries = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    h, ref_h, held = model.embed(queries), model.references.embeddings.clone(), model.references
    before = held.nearest(h, k=4)
    model.scale_embeddings(factor)
    torch.testing.assert_close(model.embed(queries), h * float(factor))
    torch.testing.assert_close(model.references.embeddings, ref_h * float(factor))
    torch.testing.assert_close(model.embed(x), model.references.embeddings)
    after = model.references.nearest(model.embed(queries), k=4)
    assert np.array_equal(before.ids, after.ids)
    np.testing.assert_allclose(after.log_weights, before.log_weights * float(factor) ** 2, rtol=1e-4, atol=1e-6)
    squared = (h[:, None] - ref_h).square().sum(dim=2).double() * float(factor) ** 2
    votes = torch.exp(-squared) @ nn.functional.one_hot(y).double()
    torch.testing.assert_close(model(queries).exp().double(), votes / votes.sum(1, keepdim=True), rtol=1e-4, atol=1e-6)
    assert model.references is held
    assert held.ids.tolist() == list(range(5, 35))


def test_scaling_keeps_the_numbering_of_references() -> None:
    model = small()
    model.remember([data()])
    model.scale_embeddings(2.0)
    assert model.references.add(torch.zeros(1, 3), [0]) == [30]


def test_scaling_before_remembering_and_back_again_changes_nothing_but_h() -> None:
    model = small().eval()
    x, _ = data()
    h = model.embed(x)
    model.scale_embeddings(4.0)
    model.scale_embeddings(0.25)
    assert torch.equal(model.embed(x), h)
    with pytest.raises(NotRememberedError):
        model(x)


@pytest.mark.parametrize("size", [3, 7])
def test_scaling_the_twin_multiplies_its_logits(size: int) -> None:
    twin = small(SoftmaxTwin, embedding_size=size).eval()
    x, _ = data()
    h, logits = twin.embed(x), twin.log_class_weights(x)
    twin.scale_embeddings(0.4)
    torch.testing.assert_close(twin.log_class_weights(x), logits * 0.4, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(twin.embed(x), h if size == 7 else h * 0.4)


def test_scaled_weights_go_on_learning() -> None:
    model = small()
    x, y = data()
    model.embed(x)
    model.scale_embeddings(2.0)
    model.loss(x, y).backward()
    assert all(parameter.requires_grad and parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("factor", [0, -1.0, float("nan"), float("inf"), True, "2"])
@pytest.mark.parametrize("head", HEADS)
def test_a_wrong_factor_is_refused(head: Any, factor: Any) -> None:
    model = small(head)
    h = model.embed(data()[0])
    with refuses(InputError, "factor", 0):
        model.scale_embeddings(factor)
    assert torch.equal(model.embed(data()[0]), h)


def test_a_factor_that_takes_references_out_of_range_changes_nothing() -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x, y)])
    before = model(x)
    with refuses(NonFiniteError, "embeddings"):
        model.scale_embeddings(1e39)
    assert torch.equal(model(x), before)


def test_a_layer_without_a_size_cannot_be_scaled() -> None:
    with refuses(InputError, "batch"):
        small().scale_embeddings(2.0)


@pytest.mark.parametrize("head", HEADS)
def test_bad_arguments_are_named(head: Any) -> None:
    with refuses(InputError, "n_classes", 1, 0):
        head(nn.Identity(), n_classes=0)
    with refuses(InputError, "embedding_size", 1, 0):
        head(nn.Identity(), n_classes=2, embedding_size=0)
    x, y = data()
    with refuses(LabelError, "y", "0 … 2", 3):
        small(head).loss(x, y + 1)
    with refuses(NonFiniteError, "batch", "NaN", "learning rate"):
        small(head).loss(x * torch.nan, y)
    with refuses(ShapeError, "(2, 2, 3, 3)", "nn.Flatten("):
        head(nn.Conv2d(1, 2, 1), n_classes=2).embed(torch.zeros(2, 1, 3, 3))
    with refuses(ShapeError, "features"):
        head(Wrapped(lambda x: {"hidden": x}), n_classes=2).embed(x)


@pytest.mark.parametrize("name", ["penalty", "auxiliary_weight"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "a"])
def test_a_weight_below_0_or_without_end_is_refused(name: str, value: Any) -> None:
    with refuses(InputError, name, repr(value), 0):
        WeightedAverage(nn.Identity(), 2, **{name: value})


# Converting a classifier


class Wrapped(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.conv2(torch.relu(self.conv1(x))))


class ResNet(nn.Module):
    """Named and wired as torchvision's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.layer1 = nn.Conv2d(3, 8, 3), nn.Sequential(Block(8), Block(8))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.layer1(self.conv1(x)))
        return self.fc(torch.flatten(x, 1))  # type: ignore[no-any-return]


class TextClassifier(nn.Module):
    """Called and answering as Hugging Face's: keyword tensors in, an object with `.logits` out."""

    def __init__(self, output: str = "object") -> None:
        super().__init__()
        self.embeddings, self.dense, self.classifier = nn.Embedding(50, 12), nn.Linear(12, 12), nn.Linear(12, 2)
        self.output = output

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        mask = attention_mask[:, :, None].float()
        pooled = (self.embeddings(input_ids) * mask).sum(1) / mask.sum(1)
        logits = self.classifier(torch.tanh(self.dense(pooled)))
        outputs = {
            "object": SimpleNamespace(loss=None, logits=logits),
            "dict": OrderedDict(logits=logits),
            "tuple": (logits,),
        }
        return outputs[self.output]


def test_convert_swaps_the_last_linear_of_a_sequential() -> None:
    network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 5))
    model = convert(network, n_classes=3, embedding_size=6)
    x, y = data()
    assert model.embed(x).shape == (30, 6)
    torch.testing.assert_close(model.backbone(x), network[:2](x))
    assert network(x).shape == (30, 5)  # the one passed in is untouched
    model.remember([(x, y)])
    assert model(x).shape == (30, 3)


def test_convert_keeps_the_trained_weights_of_a_resnet() -> None:
    resnet = ResNet()
    model = convert(resnet, n_classes=10)
    images, y = torch.randn(6, 3, 9, 9), torch.arange(6) % 3
    assert model.embed(images).shape == (6, 10)
    assert torch.equal(model.backbone.conv1.weight, resnet.conv1.weight)  # type: ignore[union-attr,arg-type]
    model.loss(images, y).backward()


@pytest.mark.parametrize("output", ["object", "dict", "tuple"])
def test_convert_takes_a_text_model_with_a_classifier(output: str) -> None:
    model = convert(TextClassifier(output), n_classes=2).eval()
    tokens = {"input_ids": torch.randint(50, (8, 5)), "attention_mask": torch.ones(8, 5, dtype=torch.int64)}
    y = torch.arange(8) % 2
    model.loss(tokens, y).backward()
    model.remember([(tokens, y)])
    assert model(tokens).shape == (8, 2)


def test_convert_takes_a_bare_linear_layer() -> None:
    assert convert(nn.Linear(4, 9), n_classes=2).embed(torch.zeros(3, 4)).shape == (3, 2)


def test_convert_without_a_linear_layer_says_what_to_do() -> None:
    with refuses(ConversionError, "nn.Linear", "WeightedAverage"):
        convert(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), n_classes=2)


def test_convert_never_takes_the_inside_of_an_attention_layer() -> None:
    attention = nn.MultiheadAttention(8, 2)
    with refuses(ConversionError, "nn.Linear"):
        convert(attention, n_classes=2)


def test_convert_refuses_what_it_would_get_wrong() -> None:
    with refuses(ConversionError, "softmax", "0"):
        convert(nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(dim=1)), n_classes=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls lazy layers new
        lazy = nn.Sequential(nn.LazyLinear(3))
    with refuses(ConversionError, "'0'", "lazy"):
        convert(lazy, n_classes=3)
    with refuses(ConversionError, "nn.Module", "str"):
        convert("resnet18", n_classes=3)  # type: ignore[arg-type]


def test_convert_takes_the_named_layer() -> None:
    class HeadFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.body = nn.Linear(6, 2), nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.relu(self.body(x)))  # type: ignore[no-any-return]

    x, _ = data()
    assert convert(HeadFirst(), n_classes=2, layer="head").embed(x).shape == (30, 2)
    with refuses(ConversionError, "head", "body"):
        convert(HeadFirst(), n_classes=2, layer="hed")


def test_a_wrong_layer_shows_at_the_first_batch() -> None:
    class HeadElsewhere(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.side, self.head = nn.Linear(4, 6), nn.Linear(6, 3), nn.Conv1d(3, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.side(torch.relu(self.body(x)))[:, :3, None])[:, :, 0]  # type: ignore[no-any-return]

    with refuses(ShapeError, 6, 2, "layer=…"):
        convert(HeadElsewhere(), n_classes=2).embed(data()[0])
