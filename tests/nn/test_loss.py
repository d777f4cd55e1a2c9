"""The leave-one-out loss: value and gradient against a float64 oracle, on every path that computes it."""

import itertools
import math
import os
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dwac.errors import IdError, InputError, KernelError, LabelError, NonFiniteError, ShapeError
from dwac.kernels import KERNELS
from dwac.nn import loss as losses
from dwac.nn.loss import Support, leave_one_out_loss
from tests.named import refuses


def weight(a: Tensor, b: Tensor, kernel: str) -> Tensor:
    """w(a, b) written out, with the gradient 0 at distance 0."""
    squared = (a - b).square().sum()
    if kernel == "gaussian":
        return (-squared).exp()
    if kernel == "inverse_quadratic":
        return 1 / (1 + squared)
    return (-squared.sqrt()).exp() if squared > 0 else torch.ones((), dtype=a.dtype)


def oracle_loss(
    h: Tensor, y: Tensor, ids: Tensor, support: Support, kernel: str = "gaussian", weights: Tensor | None = None
) -> Tensor:
    """The definition as a double loop: all others vote on each example; those alone in their class are left out."""
    refs = [(h[i], int(y[i]), int(ids[i])) for i in range(len(h))]
    refs += [(support.h[i], int(support.y[i]), int(support.ids[i])) for i in range(len(support.h))]
    losses, counts = [], []
    for j in range(len(h)):
        everyone = [weight(h[j], ref, kernel) for ref, _, name in refs if name != ids[j]]
        same_class = [weight(h[j], ref, kernel) for ref, label, name in refs if name != ids[j] and label == y[j]]
        if same_class:
            losses.append(-torch.log(torch.stack(same_class).sum() / torch.stack(everyone).sum()))
            counts.append(1.0 if weights is None else float(weights[j]))
    if not sum(counts):
        return h.sum() * 0
    return torch.stack([count * loss for count, loss in zip(counts, losses, strict=True)]).sum() / sum(counts)


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
    ids, extra_ids = torch.arange(8), torch.arange(4, 16)  # rows 4 … 7 are in both
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


def test_members_with_the_same_id_never_vote_on_each_other() -> None:
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
        ([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0]], [0, 0, 1]),  # one example alone in its class
    ],
)
def test_unusual_batches_have_finite_losses_and_gradients(kernel: str, h: list[list[float]], y: list[int]) -> None:
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


def test_bad_batches_are_named() -> None:
    h, y = torch.randn(4, 2), torch.tensor([0, 1, 0, 1])
    with refuses(ShapeError, "y", "(4,)", "(3,)"):
        leave_one_out_loss(h, y[:3])
    with refuses(ShapeError, "h", "non-empty", "(0, 2)"):
        leave_one_out_loss(h[:0], y[:0])
    with refuses(LabelError, "y", "torch.int64", "torch.float32", "y.long("):
        leave_one_out_loss(h, y.float())
    with refuses(NonFiniteError, "batch", "NaN", "learning rate"):
        leave_one_out_loss(h * torch.nan, y)
    with refuses(KernelError, "'guassian'", "gaussian"):
        leave_one_out_loss(h, y, kernel="guassian")
    support = Support(torch.randn(3, 2), torch.zeros(3, dtype=torch.int64), torch.arange(3))
    with refuses(IdError, "support", "ids=…"):
        leave_one_out_loss(h, y, support=support)
    with refuses(ShapeError, "support.h", "(s, 2)", "(3, 5)"):
        leave_one_out_loss(h, y, ids=torch.arange(4), support=support._replace(h=torch.randn(3, 5)))
    with refuses(ShapeError, "support", "3 embeddings", "2 labels", "3 ids"):
        leave_one_out_loss(h, y, ids=torch.arange(4), support=support._replace(y=support.y[:2]))
    with refuses(ShapeError, "ids", 4, "(3,)"):
        leave_one_out_loss(h, y, ids=torch.arange(3))
    with refuses(InputError, "y", "tensor", "list"):
        leave_one_out_loss(h, y.tolist())  # type: ignore[arg-type]
    with refuses(InputError, "ids", "tensor", "list"):
        leave_one_out_loss(h, y, ids=[0, 1, 2, 3])  # type: ignore[arg-type]
    with refuses(NonFiniteError, "support", "NaN", "learning rate"):
        leave_one_out_loss(h, y, ids=torch.arange(4), support=support._replace(h=torch.full((3, 2), torch.nan)))
    with refuses(ShapeError, "weights", "(4,)", "(3,)"):
        leave_one_out_loss(h, y, weights=torch.ones(3))
    with refuses(InputError, "weights", "tensor", "list"):
        leave_one_out_loss(h, y, weights=[1.0] * 4)  # type: ignore[arg-type]
    for wrong in (-1.0, torch.nan, torch.inf):
        with refuses(InputError, 0):
            leave_one_out_loss(h, y, weights=torch.tensor([1.0, 1.0, wrong, 1.0]))


# The explicit gradient


def plain(h: Tensor, y: Tensor, ids: Tensor | None = None, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The plain formula in float64, and its gradient by autograd."""
    h = h.detach().double().cpu().requires_grad_()
    y, ids, weights = (None if part is None else part.cpu() for part in (y, ids, weights))  # type: ignore[assignment]
    loss = losses.plain_loss(h, None, losses.BatchVoters.of(y, ids, None), "gaussian", weights)
    return loss.detach(), torch.autograd.grad(loss, h)[0]


def both(loss: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    return loss.detach(), torch.autograd.grad(loss, h)[0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_the_explicit_gradient_passes_gradcheck(weighted: bool, repeated: bool) -> None:
    h, y = batch(9, 3, 3)
    ids = torch.tensor([0, 1, 2, 2, 4, 5, 6, 6, 6]) if repeated else None
    weights = torch.linspace(0, 2, 9, dtype=torch.float64) if weighted else None
    assert torch.autograd.gradcheck(lambda h: leave_one_out_loss(h, y, ids=ids, weights=weights), (h.requires_grad_(),))


def test_the_gradient_reaches_the_support() -> None:
    h, y = batch(6, 2, 2)
    extra_h, extra_y = batch(5, 2, 2, seed=1)

    def loss(h: Tensor, extra_h: Tensor) -> Tensor:
        support = Support(extra_h, extra_y, torch.arange(4, 9))
        return leave_one_out_loss(h, y, ids=torch.arange(6), support=support)

    assert torch.autograd.gradcheck(loss, (h.requires_grad_(), extra_h.requires_grad_()))
    assert torch.autograd.gradcheck(lambda extra_h: loss(h.detach(), extra_h), (extra_h,))


@settings(max_examples=30)
@given(data=st.data())
def test_any_batch_equals_the_plain_formula(data: st.DataObject) -> None:
    n, d = data.draw(st.integers(1, 24)), data.draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))
    h = torch.randn(n, d, generator=generator, dtype=torch.float64) * data.draw(st.sampled_from([0.0, 0.1, 1.0, 30.0]))
    y = torch.randint(-3, -3 + data.draw(st.integers(1, 6)), (n,), generator=generator)
    ids = torch.randint(n, (n,), generator=generator) if data.draw(st.booleans()) else None
    weights = torch.randint(3, (n,), generator=generator) if data.draw(st.booleans()) else None
    h.requires_grad_()
    ours = both(leave_one_out_loss(h, y, ids=ids, weights=weights), h)
    for value, expected in zip(ours, plain(h, y, ids, weights), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("cells", [1, 40, 100, 10_000])
def test_splitting_into_blocks_changes_nothing(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    h, y = batch(20, 3, 4)
    h.requires_grad_()
    extra = Support(*batch(7, 3, 4, seed=1), ids=torch.arange(15, 22))
    weights = torch.rand(20, generator=torch.Generator().manual_seed(2))
    ids = [None, torch.arange(20), torch.arange(20) // 2]
    cases: list[dict[str, Any]] = [{"ids": part, "weights": weights} for part in ids]
    cases.append({"ids": ids[1], "support": extra, "weights": weights})
    whole = [both(leave_one_out_loss(h, y, **case), h) for case in cases]
    monkeypatch.setitem(losses.CELLS, "cpu", cells)
    for case, expected in zip(cases, whole, strict=True):
        for ours, theirs in zip(both(leave_one_out_loss(h, y, **case), h), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("distance", [1e2, 1e3, 1e4])
def test_examples_far_from_everything_get_right_gradients(distance: float) -> None:
    # Squared distances of 10⁴ … 10⁸: every weight underflows, the gradient of float32 is still that of float64.
    h, y = batch(40, 4, 3)
    h[3] += distance
    h[7] -= distance
    h = h.float().requires_grad_()
    loss, grad = both(leave_one_out_loss(h, y), h)
    expected, expected_grad = plain(h, y)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(grad.double(), expected_grad, rtol=1e-5, atol=1e-6 * distance)
    assert (grad[[3, 7]].norm(dim=1) > 1e-3).all()


def test_the_gradient_can_be_differentiated() -> None:
    h, y = batch(6, 2, 2)
    extra_h, extra_y = batch(4, 2, 2, seed=1)
    ids, weights = torch.arange(6), torch.linspace(0, 2, 6)
    h.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda h: leave_one_out_loss(h, y, weights=weights), (h,))

    def loss(h: Tensor, extra_h: Tensor) -> Tensor:
        return leave_one_out_loss(h, y, ids=ids, support=Support(extra_h, extra_y, torch.arange(4, 8)))

    assert torch.autograd.gradgradcheck(loss, (h, extra_h.requires_grad_()))
    assert torch.autograd.gradgradcheck(lambda extra_h: loss(h.detach(), extra_h), (extra_h,))


def test_the_gradient_may_be_computed_again() -> None:
    h, y = batch(6, 2, 2)
    h.requires_grad_()
    loss = leave_one_out_loss(h, y)
    first = torch.autograd.grad(loss, h, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(3 * loss, h)[0], 3 * first)


def test_without_a_gradient_the_loss_is_the_same() -> None:
    h, y = batch(12, 3, 3)
    expected = leave_one_out_loss(h.clone().requires_grad_(), y)
    assert torch.equal(leave_one_out_loss(h, y), expected)
    with torch.no_grad():
        assert not leave_one_out_loss(h.clone().requires_grad_(), y).requires_grad
    with torch.inference_mode():
        assert torch.equal(leave_one_out_loss(h, y), expected)


def test_half_precision_gets_a_half_precision_gradient() -> None:
    h, y = batch(12, 3, 3)
    half = h.to(torch.bfloat16).requires_grad_()
    loss, grad = both(leave_one_out_loss(half, y), half)
    assert (loss.dtype, grad.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(grad.double(), plain(half, y)[1], rtol=1e-2, atol=1e-3)


def test_reduced_precision_products_are_never_used() -> None:
    h, y = batch(64, 16, 3)
    h = (30 * h).float().requires_grad_()
    expected = both(leave_one_out_loss(h, y), h)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours = both(leave_one_out_loss(h, y), h)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))


# Weights


@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_equal_the_oracle(kernel: str) -> None:
    h, y = batch(12, 3, 4)
    y[0] = 9  # alone in its class: its weight does not count
    weights = torch.rand(12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    weights[4] = 0
    extra = Support(*batch(5, 3, 4, seed=1), ids=torch.arange(10, 15))
    h.requires_grad_()
    for support in (nobody(3), extra):
        ours = both(leave_one_out_loss(h, y, ids=torch.arange(12), support=support, kernel=kernel, weights=weights), h)
        theirs = both(oracle_loss(h, y, torch.arange(12), support, kernel, weights), h)
        for value, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_equal_weights_equal_no_weights(kernel: str) -> None:
    h, y = batch(12, 3, 3)
    plain_mean = leave_one_out_loss(h, y, kernel=kernel)
    torch.testing.assert_close(leave_one_out_loss(h, y, kernel=kernel, weights=torch.full((12,), 0.3)), plain_mean)


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_example_of_no_weight_still_votes(kernel: str) -> None:
    h, y = torch.tensor([[0.0], [0.2], [1.0]]), torch.tensor([0, 0, 1])
    with_it = leave_one_out_loss(h, y, kernel=kernel, weights=torch.tensor([1.0, 1.0, 0.0]))
    assert with_it > leave_one_out_loss(h[:2], y[:2], kernel=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_examples_that_all_weigh_nothing_cost_nothing(kernel: str) -> None:
    h, y = batch(6, 2, 2)
    h.requires_grad_()
    loss, grad = both(leave_one_out_loss(h, y, kernel=kernel, weights=torch.zeros(6)), h)
    assert loss == 0
    assert not grad.any()


def test_weights_may_be_learned() -> None:
    h, y = batch(8, 2, 2)
    weights = torch.linspace(0.5, 2, 8, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda h, weights: leave_one_out_loss(h, y, weights=weights), (h.requires_grad_(), weights.requires_grad_())
    )


# The fused kernels: on a GPU, or slowly in Triton's interpreter (TRITON_INTERPRET=1)

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
fused = pytest.mark.skipif(
    losses.triton_module() is None or not (CUDA or INTERPRETED),
    reason="needs triton, and a CUDA GPU or TRITON_INTERPRET=1",
)
cuda = pytest.mark.skipif(not CUDA, reason="needs a CUDA GPU")
DEVICE = "cuda" if CUDA else "cpu"
MANY = list(itertools.product([1, 2, 17, 256, 1000], [1, 2, 7, 16, 32, 100]))
SIZES = (
    MANY if CUDA else [(1, 2), (2, 100), (17, 1), (17, 7), (17, 32), (130, 3)]
)  # one of each kind, because it is slow


def fused_batch(n: int, d: int) -> dict[str, Tensor]:
    """A batch with everything unusual: far points, an example alone in its class, repeated ids, weights of 0."""
    generator = torch.Generator().manual_seed(n * d)
    h = torch.randn(n, d, generator=generator)
    y, weights = torch.randint(4, (n,), generator=generator), torch.rand(n, generator=generator)
    ids = torch.randint(n, (n,), generator=generator)
    if n > 9:
        h[1] += 100 / d**0.5
        h[5:7] -= 30
        y[3] = 9
        weights[2] = 0
    return {name: part.to(DEVICE) for name, part in {"h": h, "y": y, "ids": ids, "weights": weights}.items()}


def fused_loss(h: Tensor, y: Tensor, ids: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
    from dwac.nn import fused_loss as fused_kernels

    voters = losses.BatchVoters.of(y, ids, None)
    return fused_kernels.leave_one_out_loss(
        h, y, ids, weights, lambda h: losses.plain_loss(h, None, voters, "gaussian", weights)
    )


@fused
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's NumPy warns of log 0, which is intended
@pytest.mark.parametrize(("n", "d"), SIZES)
@pytest.mark.parametrize("given", [(), ("ids",), ("weights",), ("ids", "weights")], ids=" ".join)
def test_fused_loss_and_gradient_equal_the_plain_formula(n: int, d: int, given: tuple[str, ...]) -> None:
    parts = fused_batch(n, d)
    h, y = parts["h"].requires_grad_(), parts["y"]
    options = {name: parts[name] for name in given}
    loss, grad = both(2 * fused_loss(h, y, **options), h)
    expected, expected_grad = plain(h, y, **options)
    torch.testing.assert_close(loss.cpu().double(), 2 * expected, rtol=2e-5, atol=1e-5)
    largest = float(expected_grad.abs().max())
    torch.testing.assert_close(grad.cpu().double(), 2 * expected_grad, rtol=1e-4, atol=1e-4 * largest + 1e-7)


@fused
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("y", [[0], [0, 1], [1, 1, 1]])
def test_fused_batches_that_decide_nothing_cost_nothing(y: list[int]) -> None:
    h = torch.randn(len(y), 2, device=DEVICE, requires_grad=True)
    loss, grad = both(fused_loss(h, torch.tensor(y, device=DEVICE)), h)
    assert loss == 0
    assert not grad.any()


@fused
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_fused_loss_keeps_its_accuracy_far_from_the_origin() -> None:
    parts = fused_batch(40, 4)
    h = (parts["h"] + 1000).requires_grad_()
    loss, grad = both(fused_loss(h, parts["y"]), h)
    expected, expected_grad = plain(h, parts["y"])
    torch.testing.assert_close(loss.cpu().double(), expected, rtol=2e-5, atol=1e-5)
    torch.testing.assert_close(grad.cpu().double(), expected_grad, rtol=1e-4, atol=1e-4)


@fused
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_fused_loss_shows_what_is_not_a_number() -> None:
    parts = fused_batch(20, 3)
    h = parts["h"].index_fill(0, torch.tensor([4], device=DEVICE), torch.nan)
    assert fused_loss(h, parts["y"]).isnan()


MEMBERS = [(1, 1, 2), (3, 2, 1), (2, 17, 7), (1, 40, 16)] + ([(4, 64, 16), (4, 512, 16), (3, 1000, 33)] if CUDA else [])


def fused_members(h: Tensor, y: Tensor, weights: Tensor | None, tables: Any) -> Tensor:
    from dwac.nn import fused_members as kernels

    rounded = losses._Tables(*(None if table is None else table.float() for table in tables))
    return kernels.members_loss(
        h, y, weights, *rounded, lambda h: losses._plain_members_loss(h, y, "gaussian", weights, rounded)
    )


def members_batch(members: int, n: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Batches of several networks, with a far point and an example of no weight."""
    generator = torch.Generator().manual_seed(n * d)
    h, y = torch.randn(members, n, d, generator=generator), torch.randint(5, (members, n), generator=generator)
    weights = torch.rand(members, n, generator=generator)
    if n > 9:
        h[:, 1] += 30 / d**0.5
        weights[:, 2] = 0
    return h.to(DEVICE), y.to(DEVICE), weights.to(DEVICE)


def tables_of(kind: str) -> Any:
    generator = torch.Generator().manual_seed(0)
    if kind == "likeness":  # not symmetric
        return losses._Tables((torch.rand(5, 5, generator=generator) + 1e-4).log().to(DEVICE), None)
    return losses._Tables(None, torch.rand(5, int(kind), generator=generator).to(DEVICE))


@fused
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("members", "n", "d"), MEMBERS)
@pytest.mark.parametrize("kind", ["likeness", "1", "14"])
@pytest.mark.parametrize("weighted", [False, True])
def test_fused_members_equal_the_plain_formula(members: int, n: int, d: int, kind: str, weighted: bool) -> None:
    h, y, weights = members_batch(members, n, d)
    tables, given = tables_of(kind), weights if weighted else None
    h.requires_grad_()
    loss, grad = both(2 * fused_members(h, y, given, tables), h)
    precise = h.detach().cpu().double().requires_grad_()
    wide = losses._Tables(*(None if table is None else table.cpu().double() for table in tables))
    expected, expected_grad = both(
        2
        * losses._plain_members_loss(precise, y.cpu(), "gaussian", weights.cpu().double() if weighted else None, wide),
        precise,
    )
    torch.testing.assert_close(loss.cpu().double(), expected, rtol=2e-5, atol=1e-5)
    largest = float(expected_grad.abs().max())
    torch.testing.assert_close(grad.cpu().double(), expected_grad, rtol=1e-4, atol=1e-4 * largest + 1e-6)


@fused
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["likeness", "3"])
def test_fused_members_show_what_is_not_a_number_and_can_be_differentiated_twice(kind: str) -> None:
    h, y, weights = members_batch(2, 8, 2)
    tables = tables_of(kind)
    assert fused_members(h.index_fill(1, torch.tensor([4], device=DEVICE), torch.nan), y, weights, tables).isnan()
    h.requires_grad_()
    (grad,) = torch.autograd.grad(3 * fused_members(h, y, weights, tables), h, create_graph=True)
    ours = torch.autograd.grad(grad.square().sum(), h)[0]
    (grad,) = torch.autograd.grad(
        3 * losses._plain_members_loss(h, y, "gaussian", weights, tables), h, create_graph=True
    )
    torch.testing.assert_close(ours, torch.autograd.grad(grad.square().sum(), h)[0], rtol=1e-4, atol=1e-5)


@fused
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_fused_gradient_can_be_differentiated() -> None:
    parts = fused_batch(8, 2)
    h = parts.pop("h").requires_grad_()
    (grad,) = torch.autograd.grad(3 * fused_loss(h, **parts), h, create_graph=True)
    ours = torch.autograd.grad(grad.square().sum(), h)[0].cpu().double()
    h, parts = h.detach().cpu().double().requires_grad_(), {name: part.cpu() for name, part in parts.items()}
    (grad,) = torch.autograd.grad(3 * leave_one_out_loss(h, **parts), h, create_graph=True)  # type: ignore[arg-type]
    torch.testing.assert_close(ours, torch.autograd.grad(grad.square().sum(), h)[0], rtol=1e-4, atol=1e-5)


@fused
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_fused_loss_accepts_any_layout() -> None:
    parts = fused_batch(20, 6)
    strided = parts["h"][:, ::2].requires_grad_()
    y = parts["y"].repeat_interleave(2)[::2]
    ours = both(fused_loss(strided, y, parts["ids"].int()), strided)
    for value, expected in zip(ours, plain(strided, y, parts["ids"]), strict=True):
        torch.testing.assert_close(value.cpu().double(), expected, rtol=1e-4, atol=1e-4)


@cuda
def test_cuda_embeddings_go_to_the_fused_kernels() -> None:
    h = torch.zeros(4, 3, device="cuda")
    assert (losses.fused_kernel(h) is None) == (losses.triton_module() is None)
    assert losses.fused_kernel(h.double()) is None
    assert losses.fused_kernel(torch.zeros(4, 129, device="cuda")) is None


@cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("d", [7, 200])
def test_every_cuda_path_equals_the_plain_formula(dtype: torch.dtype, d: int) -> None:
    parts = fused_batch(100, d)
    h = parts.pop("h").to(dtype).requires_grad_()
    loss, grad = both(leave_one_out_loss(h, **parts), h)  # type: ignore[arg-type]
    expected, expected_grad = plain(h, **parts)
    torch.testing.assert_close(loss.cpu().double(), expected, rtol=2e-5, atol=1e-5)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-4
    torch.testing.assert_close(
        grad.cpu().double(), expected_grad, rtol=tolerance, atol=tolerance * float(expected_grad.abs().max())
    )


@cuda
@pytest.mark.parametrize("d", [7, 200])
def test_cuda_loss_never_waits_and_can_be_captured_in_a_graph(d: int) -> None:
    parts = fused_batch(100, d)
    h = parts.pop("h")
    static = torch.zeros_like(h).requires_grad_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            both(leave_one_out_loss(static, **parts), static)  # type: ignore[arg-type]
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss, grad = both(leave_one_out_loss(static, **parts), static)  # type: ignore[arg-type]
    with torch.no_grad():
        static.copy_(h)
    graph.replay()
    expected, expected_grad = plain(h, **parts)
    torch.testing.assert_close(loss.cpu().double(), expected, rtol=2e-5, atol=1e-5)
    torch.testing.assert_close(
        grad.cpu().double(), expected_grad, rtol=1e-4, atol=1e-4 * float(expected_grad.abs().max())
    )


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("weighted", [False, True])
def test_members_with_own_batches_have_the_mean_of_their_losses_and_gradients(kernel: str, weighted: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    h = (3 * torch.randn(4, 12, 2, generator=generator, dtype=torch.float64)).requires_grad_()
    y = torch.randint(3, (4, 12), generator=generator)
    y[0, 0] = 7  # alone in its class
    y[1] = torch.arange(12)  # no example has another one of its class
    weights = torch.rand(4, 12, generator=generator, dtype=torch.float64) if weighted else None
    together = leave_one_out_loss(h, y, kernel=kernel, weights=weights)
    apart = torch.stack(
        [
            leave_one_out_loss(h[m], y[m], kernel=kernel, weights=None if weights is None else weights[m])
            for m in range(4)
        ]
    ).mean()
    torch.testing.assert_close(together, apart)
    (a,), (b,) = torch.autograd.grad(together, [h]), torch.autograd.grad(apart, [h])
    torch.testing.assert_close(a, b)


def test_gradient_of_members_can_be_differentiated_again() -> None:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(2, 6, 2, generator=generator, dtype=torch.float64).requires_grad_()
    y = torch.randint(2, (2, 6), generator=generator)
    assert torch.autograd.gradcheck(lambda h: leave_one_out_loss(h, y), (h,))
    assert torch.autograd.gradgradcheck(lambda h: leave_one_out_loss(h, y), (h,))


def test_members_far_apart_keep_a_finite_gradient() -> None:
    h = torch.tensor([[[0.0], [0.1], [1e4], [2e4]]]).requires_grad_()
    leave_one_out_loss(h, torch.tensor([[0, 1, 0, 1]])).backward()
    assert h.grad is not None
    assert bool(h.grad.isfinite().all())
    assert bool((h.grad != 0).any())


@pytest.mark.parametrize("alike", [False, True])
def test_members_with_a_faint_class_have_the_loss_and_gradient_of_the_plain_formula(alike: bool) -> None:
    """The weights of some classes underflow beside those of the nearest voters."""
    h = 8 * torch.randn(3, 40, 2, generator=torch.Generator().manual_seed(6))
    h, y = h.requires_grad_(), torch.randint(4, (3, 40), generator=torch.Generator().manual_seed(7))
    likeness = (-8.0 * (torch.arange(4.0)[:, None] - torch.arange(4.0)).abs()).exp() if alike else None
    loss = leave_one_out_loss(h, y, likeness=likeness)
    precise = h.detach().double().requires_grad_()
    tables = losses._Tables.of(None if likeness is None else likeness.double(), None, precise)
    expected = losses._plain_members_loss(precise, y, "gaussian", None, tables)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)
    (grad,), (expected_grad,) = torch.autograd.grad(loss, [h]), torch.autograd.grad(expected, [precise])
    torch.testing.assert_close(grad.double(), expected_grad, rtol=1e-4, atol=1e-5)


def test_members_with_own_batches_take_no_ids() -> None:
    h, y = torch.zeros(2, 3, 1), torch.zeros(2, 3, dtype=torch.int64)
    with refuses(InputError, "ids", "support"):
        leave_one_out_loss(h, y, ids=torch.arange(3))
    with refuses(ShapeError, "h", "(M, n, d)", "(2, 3, 1)", "(3,)"):
        leave_one_out_loss(h, y[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shares_of_votes_are_never_subnormal_and_are_those_of_a_softmax(dtype: torch.dtype) -> None:
    tiny, smallest = torch.finfo(dtype).tiny, -math.log(torch.finfo(dtype).tiny)
    log_w = -2 * smallest * torch.rand(4, 50, generator=torch.Generator().manual_seed(0), dtype=dtype)
    assert ((log_w.softmax(dim=1) > 0) & (log_w.softmax(dim=1) < tiny)).any()  # else the test would be too easy
    shares, nearest = losses.shares_of(log_w - 1000)
    assert (shares >= tiny).all()
    torch.testing.assert_close(shares, (log_w - 1000).softmax(dim=1), rtol=1e-6, atol=1e-28)
    torch.testing.assert_close(nearest, log_w.amax(dim=1) - 1000)
