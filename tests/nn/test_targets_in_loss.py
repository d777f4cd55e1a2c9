"""The leave-one-out loss of numbers, ordered labels and several labels: value and gradient against a double loop."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dwac.errors import InputError, ShapeError
from dwac.kernels import KERNELS
from dwac.nn import Ensemble, SoftmaxTwin, WeightedAverage
from dwac.nn.loss import Support, leave_one_out_loss
from tests.named import refuses

CLASSES = 6
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
every_device = pytest.mark.parametrize("device", DEVICES)


def data(n: int = 14, d: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(n, d, generator=generator, dtype=torch.float64).requires_grad_()
    return h, torch.randint(CLASSES, (n,), generator=generator)


def moved(device: str, *tensors: Tensor) -> list[Tensor]:
    return [part.detach().to(device).requires_grad_(part.requires_grad) for part in tensors]


def table(kind: str) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(7)
    if kind == "likeness":
        return {kind: 0.01 + torch.rand(CLASSES, CLASSES, generator=generator, dtype=torch.float64)}
    return {kind: torch.randn(CLASSES, 4, generator=generator, dtype=torch.float64)}


def oracle(h: Tensor, y: Tensor, kernel: str, weights: Tensor, ids: Tensor, **tables: Any) -> Tensor:
    """The definition: all others vote on each example."""
    losses, counts = [], []
    for j in range(len(h)):
        others = [i for i in range(len(h)) if ids[i] != ids[j]]
        if not others:
            continue
        squared = [(h[j] - h[i]).square().sum() for i in others]
        shapes = {"gaussian": lambda s: (-s).exp(), "laplace": lambda s: (-s.sqrt()).exp()}
        w = torch.stack([shapes.get(kernel, lambda s: 1 / (1 + s))(part) for part in squared])
        p = w / w.sum()
        if "likeness" in tables:
            losses.append(-sum(p[k] * tables["likeness"][y[j], y[i]] for k, i in enumerate(others)).log())
        else:
            mean = sum(p[k] * tables["averaged"][y[i]] for k, i in enumerate(others))
            losses.append((mean - tables["averaged"][y[j]]).square().sum())
        counts.append(weights[j])
    return (torch.stack(counts) * torch.stack(losses)).sum() / torch.stack(counts).sum()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", ["likeness", "averaged"])
@pytest.mark.parametrize("shared", [False, True])
def test_loss_and_gradient_are_those_of_the_definition(kernel: str, kind: str, shared: bool) -> None:
    h, y = data()
    weights = torch.linspace(0.1, 2, len(h), dtype=torch.float64)
    ids = torch.arange(len(h)) // (2 if shared else 1)
    found = leave_one_out_loss(h, y, ids=ids, kernel=kernel, weights=weights, **table(kind))
    wanted = oracle(h, y, kernel, weights, ids, **table(kind))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    slopes = [torch.autograd.grad(loss, h, retain_graph=True)[0] for loss in (found, wanted)]
    torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-10)


@every_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["likeness", "averaged"])
@pytest.mark.parametrize("d", [3, 40])
def test_every_device_has_the_loss_and_the_gradient_of_the_definition(
    device: str, dtype: torch.dtype, kind: str, d: int
) -> None:
    h, y = data(24, d)
    h = (h.detach() / d**0.5).to(dtype).double().requires_grad_()
    weights, ids = torch.linspace(0.1, 2, len(h), dtype=torch.float64), torch.arange(len(h)) // 2
    wanted = oracle(h, y, "gaussian", weights, ids, **table(kind))
    tables = {name: value.to(device) for name, value in table(kind).items()}
    there, codes, own, counts = moved(device, h.to(dtype), y, ids, weights)
    found = leave_one_out_loss(there, codes, ids=own, weights=counts, **tables)
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-8, "atol": 1e-10}
    torch.testing.assert_close(found.cpu().double(), wanted, **close)
    slopes = torch.autograd.grad(found, there)[0].cpu().double(), torch.autograd.grad(wanted, h)[0]
    torch.testing.assert_close(*slopes, **close)


@every_device
@pytest.mark.parametrize("kind", ["likeness", "averaged"])
def test_members_with_batches_of_their_own_have_the_mean_of_their_losses(kind: str, device: str) -> None:
    h = torch.stack([data(seed=seed)[0].detach() for seed in range(3)]).to(device).requires_grad_()
    y = torch.stack([data(seed=seed)[1] for seed in range(3)]).to(device)
    tables = {name: value.to(device) for name, value in table(kind).items()}
    together = leave_one_out_loss(h, y, **tables)
    alone = torch.stack([leave_one_out_loss(h[m], y[m], **tables) for m in range(3)]).mean()
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(torch.autograd.grad(together, h)[0], torch.autograd.grad(alone, h)[0])


@pytest.mark.parametrize("kind", ["likeness", "averaged"])
def test_the_gradient_can_be_differentiated(kind: str) -> None:
    h, y = data(8)
    assert torch.autograd.gradcheck(lambda x: leave_one_out_loss(x, y, **table(kind)), [h])
    assert torch.autograd.gradgradcheck(lambda x: leave_one_out_loss(x, y, **table(kind)), [h])


@pytest.mark.parametrize("kind", ["likeness", "averaged"])
def test_a_support_votes_too(kind: str) -> None:
    h, y = data(20)
    support = Support(h[12:].detach(), y[12:], torch.arange(12, 20))
    found = leave_one_out_loss(h[:12], y[:12], ids=torch.arange(12), support=support, **table(kind))
    every = torch.zeros(20, dtype=torch.float64)
    every[:12] = 1
    torch.testing.assert_close(found, leave_one_out_loss(h, y, weights=every, **table(kind)))


def test_classes_are_labels_that_are_like_themselves_alone() -> None:
    h, y = data(40)
    apart = torch.eye(CLASSES, dtype=torch.float64).clamp_min(1e-300)
    torch.testing.assert_close(leave_one_out_loss(h, y), leave_one_out_loss(h, y, likeness=apart))


def test_a_batch_without_other_voters_has_no_loss() -> None:
    h, y = data(3)
    for kind in ("likeness", "averaged"):
        loss = leave_one_out_loss(h, y, ids=torch.zeros(3, dtype=torch.int64), **table(kind))
        assert loss.item() == 0
        assert not torch.autograd.grad(loss, h)[0].any()


def test_an_ensemble_takes_the_loss_of_all_its_networks_at_once() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(30, 4), torch.randint(CLASSES, (30,))
    for kind in ("likeness", "averaged"):
        tables = {name: value.float() for name, value in table(kind).items()}
        model = WeightedAverage(Ensemble([nn.Linear(4, 5) for _ in range(3)]), CLASSES, 2, **tables)
        weights = torch.rand(30)
        at_once, one_by_one = (model.loss(x, y, weights=weights, ids=ids) for ids in (None, torch.arange(30)))
        torch.testing.assert_close(at_once, one_by_one)


def test_tables_that_do_not_fit_are_refused() -> None:
    h, y = data()
    with refuses(InputError, "likeness", "averaged", "both"):
        leave_one_out_loss(h, y, **table("likeness"), **table("averaged"))
    with refuses(ShapeError, "averaged", "(3, B)"):
        WeightedAverage(nn.Linear(2, 2), 3, averaged=torch.zeros(4, 1))


def test_the_twin_fits_numbers_by_squared_error_and_labels_by_logistic_loss() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(12, 4), torch.arange(12) % 3
    numbers = torch.tensor([[0.5], [1.0], [-2.0]])
    model = SoftmaxTwin(nn.Linear(4, 5), 3, 6, targets=numbers)
    torch.testing.assert_close(model.loss(x, y), (model(x) - numbers[y]).square().mean())
    held = torch.tensor([[True, False], [True, True], [False, False]])
    model = SoftmaxTwin(nn.Linear(4, 5), 3, 6, targets=held)
    wanted = nn.functional.binary_cross_entropy_with_logits(model(x), held[y].float())
    torch.testing.assert_close(model.loss(x, y), wanted)
    several = SoftmaxTwin(Ensemble([nn.Linear(4, 5) for _ in range(2)]), 3, 6, targets=held)
    each = several.logits.each(several.embed(x))  # type: ignore[operator]
    losses = [nn.functional.binary_cross_entropy_with_logits(part, held[y].float()) for part in each.unbind(1)]
    torch.testing.assert_close(several.loss(x, y), torch.stack(losses).mean())
