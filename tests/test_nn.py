"""Networks: the loss against a float64 oracle, the model's life, its twin, and `convert`."""

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

from dwac.errors import (
    ConversionError,
    EmptyReferenceError,
    IdError,
    InputError,
    KernelError,
    LabelError,
    NonFiniteError,
    NotRememberedError,
    ShapeError,
)
from dwac.kernels import KERNELS
from dwac.nn import SoftmaxTwin, Support, WeightedAverage, convert, leave_one_out_loss

HEADS = [WeightedAverage, SoftmaxTwin]


def weight(a: Tensor, b: Tensor, kernel: str) -> Tensor:
    """w(a, b) written out, with the gradient 0 at distance 0."""
    squared = (a - b).square().sum()
    if kernel == "gaussian":
        return (-squared).exp()
    if kernel == "inverse_quadratic":
        return 1 / (1 + squared)
    return (-squared.sqrt()).exp() if squared > 0 else torch.ones((), dtype=a.dtype)


def oracle_loss(h: Tensor, y: Tensor, ids: Tensor, support: Support, kernel: str) -> Tensor:
    """The definition as a double loop: each example voted on by all others, lonely ones left out."""
    refs = [(h[i], int(y[i]), int(ids[i])) for i in range(len(h))]
    refs += [(support.h[i], int(support.y[i]), int(support.ids[i])) for i in range(len(support.h))]
    losses = []
    for j in range(len(h)):
        everyone = [weight(h[j], ref, kernel) for ref, _, name in refs if name != ids[j]]
        fellows = [weight(h[j], ref, kernel) for ref, label, name in refs if name != ids[j] and label == y[j]]
        if fellows:
            losses.append(-torch.log(torch.stack(fellows).sum() / torch.stack(everyone).sum()))
    return torch.stack(losses).mean() if losses else h.sum() * 0


def batch(n: int, d: int, n_classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64), torch.randint(
        n_classes, (n,), generator=generator
    )


def nobody(d: int) -> Support:
    return Support(
        torch.zeros(0, d, dtype=torch.float64), torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("n", "d", "n_classes"), [(2, 1, 1), (7, 2, 3), (20, 5, 4), (9, 3, 9)])
def test_loss_and_gradient_equal_the_oracle(kernel: str, n: int, d: int, n_classes: int) -> None:
    h, y = batch(n, d, n_classes)
    ours, theirs = h.clone().requires_grad_(), h.clone().requires_grad_()
    loss = leave_one_out_loss(ours, y, kernel=kernel)
    expected = oracle_loss(theirs, y, torch.arange(n), nobody(d), kernel)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_votes_but_never_on_itself(kernel: str) -> None:
    h, y = batch(8, 3, 3)
    extra_h, extra_y = batch(12, 3, 3, seed=1)
    ids, extra_ids = torch.arange(8), torch.arange(4, 16)  # rows 4 … 7 stand in both
    ours, theirs = h.clone().requires_grad_(), h.clone().requires_grad_()
    loss = leave_one_out_loss(ours, y, ids=ids, support=Support(extra_h, extra_y, extra_ids), kernel=kernel)
    expected = oracle_loss(theirs, y, ids, Support(extra_h, extra_y, extra_ids), kernel)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-10)


def test_float32_loss_is_close_to_float64_far_from_the_origin() -> None:
    h, y = batch(32, 4, 3)
    far = (h + 1000).float()
    torch.testing.assert_close(
        leave_one_out_loss(far, y).double(), leave_one_out_loss(far.double(), y), rtol=1e-5, atol=1e-6
    )


def test_members_with_one_id_never_vote_on_one_another() -> None:
    # A sampler with replacement may draw a row twice; its copy would be a perfect vote.
    h = torch.tensor([[0.0], [0.0], [1.0], [1.5]])
    y = torch.tensor([0, 0, 0, 1])
    leaky = leave_one_out_loss(h, y)
    masked = leave_one_out_loss(h, y, ids=torch.tensor([5, 5, 6, 7]))
    assert masked > leaky
    oracle = oracle_loss(h.double(), y, torch.tensor([5, 5, 6, 7]), nobody(1), "gaussian")
    assert float(masked) == pytest.approx(float(oracle), rel=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("h", "y"),
    [
        ([[1.0, 2.0]], [0]),  # alone
        ([[0.0, 0.0], [1.0, 1.0]], [0, 1]),  # two, each the only one of its class
        ([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], [1, 1, 1]),  # one class
        ([[3.0, 3.0]] * 4, [0, 0, 1, 1]),  # all the same point
        ([[0.0, 0.0], [1e4, 0.0], [0.0, 1e4], [5e3, 5e3]], [0, 0, 1, 1]),  # all weights underflow
        ([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0]], [0, 0, 1]),  # one lonely example
    ],
)
def test_odd_batches_have_finite_losses_and_gradients(kernel: str, h: list[list[float]], y: list[int]) -> None:
    x = torch.tensor(h, requires_grad=True)
    loss = leave_one_out_loss(x, torch.tensor(y), kernel=kernel)
    loss.backward()
    assert torch.isfinite(loss)
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("y", [[0], [0, 1], [1, 1, 1]])
def test_batches_that_decide_nothing_cost_nothing(y: list[int]) -> None:
    h = torch.randn(len(y), 2, requires_grad=True)
    loss = leave_one_out_loss(h, torch.tensor(y))
    loss.backward()
    assert loss.item() == 0
    assert h.grad is not None
    assert not h.grad.any()


def test_an_example_far_from_its_class_is_pulled_back() -> None:
    # With an epsilon inside the log this gradient is 0, and the example is lost for good.
    h = torch.tensor([[0.0], [0.1], [50.0], [51.0]], requires_grad=True)
    leave_one_out_loss(h, torch.tensor([0, 0, 0, 1])).backward()
    assert h.grad is not None
    assert h.grad[2] > 1


def test_loss_ignores_autocast_and_half_precision() -> None:
    h, y = batch(16, 4, 2)
    half = h.to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = leave_one_out_loss(half, y)
    torch.testing.assert_close(loss, leave_one_out_loss(half.float(), y))


def test_autocast_may_halve_the_backbone_but_never_h() -> None:
    model = small()
    x, _ = data()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features, h = model.backbone(x), model.embed(x)
    assert features.dtype == torch.bfloat16
    assert h.dtype == torch.float32
    torch.testing.assert_close(h, model.embedding(features.float()))


def test_bad_batches_are_named() -> None:
    h, y = torch.randn(4, 2), torch.tensor([0, 1, 0, 1])
    with pytest.raises(ShapeError, match=r"\(4,\) required, \(3,\) given"):
        leave_one_out_loss(h, y[:3])
    with pytest.raises(ShapeError, match="non-empty"):
        leave_one_out_loss(h[:0], y[:0])
    with pytest.raises(LabelError, match="long"):
        leave_one_out_loss(h, y.float())
    with pytest.raises(NonFiniteError, match="NaN"):
        leave_one_out_loss(h * torch.nan, y)
    with pytest.raises(KernelError, match="choose gaussian"):
        leave_one_out_loss(h, y, kernel="guassian")
    support = Support(torch.randn(3, 2), torch.zeros(3, dtype=torch.int64), torch.arange(3))
    with pytest.raises(IdError, match="give ids"):
        leave_one_out_loss(h, y, support=support)
    with pytest.raises(ShapeError, match=r"support\.h"):
        leave_one_out_loss(h, y, ids=torch.arange(4), support=support._replace(h=torch.randn(3, 5)))
    with pytest.raises(ShapeError, match="2 labels"):
        leave_one_out_loss(h, y, ids=torch.arange(4), support=support._replace(y=support.y[:2]))
    with pytest.raises(ShapeError, match="ids"):
        leave_one_out_loss(h, y, ids=torch.arange(3))
    with pytest.raises(InputError, match="y must be a tensor; got list"):
        leave_one_out_loss(h, y.tolist())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="ids must be a tensor; got list"):
        leave_one_out_loss(h, y, ids=[0, 1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(NonFiniteError, match="support's embeddings"):
        leave_one_out_loss(h, y, ids=torch.arange(4), support=support._replace(h=torch.full((3, 2), torch.nan)))


# The model's life


def small(head: Any = WeightedAverage, **options: Any) -> Any:
    torch.manual_seed(0)
    return head(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), n_classes=3, **options)


def data(n: int = 30) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 4, generator=generator), torch.arange(n) % 3


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
    with pytest.raises(NotRememberedError, match="remember"):
        small()(data()[0])


def test_a_failed_remember_changes_nothing() -> None:
    model = small().eval()
    x, y = data()
    model.remember([(x, y)])
    before = model(x)
    with pytest.raises(LabelError, match=r"0 … 2; got 7"):
        model.remember([(x, torch.full((30,), 7))])
    with pytest.raises(InputError, match="a batch must be"):
        model.remember([x])
    with pytest.raises(EmptyReferenceError, match="loader gave none"):
        model.remember([])
    with pytest.raises(IdError, match="every batch"):
        model.remember([(x, y, torch.arange(30)), (x, y)])
    with pytest.raises(ShapeError, match="4 required, 3 given"):
        model.remember([(x[:4], y[:3]), (x[4:8], y[3:8])])  # right in all, wrong in each
    with pytest.raises(IdError, match="got 'a'"):
        model.remember([(x[:2], y[:2], ["a", "b"])])
    with pytest.raises(IdError, match=r"got 0\.5"):
        model.remember([(x[:2], y[:2], [0.5, 1.5])])
    with pytest.raises(LabelError, match="whole numbers"):
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
    with pytest.raises(IdError, match="got 'note'"):
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


@pytest.mark.parametrize("head", HEADS)
def test_bad_arguments_are_named(head: Any) -> None:
    with pytest.raises(InputError, match="n_classes"):
        head(nn.Identity(), n_classes=0)
    with pytest.raises(InputError, match="embedding_size"):
        head(nn.Identity(), n_classes=2, embedding_size=0)
    x, y = data()
    with pytest.raises(LabelError, match="0 … 2; got 3"):
        small(head).loss(x, y + 1)
    with pytest.raises(NonFiniteError, match="NaN"):
        small(head).loss(x * torch.nan, y)
    with pytest.raises(ShapeError, match="Flatten"):
        head(nn.Conv2d(1, 2, 1), n_classes=2).embed(torch.zeros(2, 1, 3, 3))
    with pytest.raises(ShapeError, match="returns its features"):
        head(Wrapped(lambda x: {"hidden": x}), n_classes=2).embed(x)


def test_a_negative_penalty_is_refused() -> None:
    with pytest.raises(InputError, match="penalty"):
        WeightedAverage(nn.Identity(), 2, penalty=-1)
    with pytest.raises(InputError, match="penalty"):
        WeightedAverage(nn.Identity(), 2, penalty="a")  # type: ignore[arg-type]


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
    with pytest.raises(ConversionError, match=r"no nn\.Linear.*WeightedAverage"):
        convert(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), n_classes=2)


def test_convert_never_takes_the_inside_of_an_attention_layer() -> None:
    attention = nn.MultiheadAttention(8, 2)
    with pytest.raises(ConversionError, match=r"no nn\.Linear"):
        convert(attention, n_classes=2)


def test_convert_refuses_what_it_would_get_wrong() -> None:
    with pytest.raises(ConversionError, match="softmax follows the layer '0'"):
        convert(nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(dim=1)), n_classes=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls lazy layers new
        lazy = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(ConversionError, match="lazy"):
        convert(lazy, n_classes=3)
    with pytest.raises(ConversionError, match="got str"):
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
    with pytest.raises(ConversionError, match="choose one of head, body"):
        convert(HeadFirst(), n_classes=2, layer="hed")


def test_a_wrong_layer_shows_at_the_first_batch() -> None:
    class HeadElsewhere(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.side, self.head = nn.Linear(4, 6), nn.Linear(6, 3), nn.Conv1d(3, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.side(torch.relu(self.body(x)))[:, :3, None])[:, :, 0]  # type: ignore[no-any-return]

    with pytest.raises(ShapeError, match="layer="):
        convert(HeadElsewhere(), n_classes=2).embed(data()[0])
