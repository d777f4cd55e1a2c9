"""The leave-one-out loss: within a minibatch, all other examples vote on each example.

>>> import torch
>>> h, y = torch.tensor([[0.0], [0.1], [2.0], [2.1]], requires_grad=True), torch.tensor([0, 0, 1, 1])
>>> loss = leave_one_out_loss(h, y)
>>> loss.backward()
>>> h.grad.flatten() > 0  # a step against the gradient moves the two classes apart
tensor([ True,  True, False, False])

Targets other than classes only change what voters vote for, or what is averaged (docs/decisions/0022). For numbers, an
example votes for all labels similar to its own (`likeness`). For ordered labels, and several labels at once, the loss
is the distance of the voters' average from the example's own values (`averaged`).

Implementations of the same loss: fused CUDA kernels (`dwac.nn.fused_loss`, for other targets `dwac.nn.fused_members`),
an explicit gradient (`_GaussianVote`, and `_MemberVotes` for several networks with a batch each), and plain autograd
for everything else.
"""

from __future__ import annotations

import math
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dwac.errors import IdError, InputError, LabelError, NonFiniteError, ShapeError
from dwac.kernels import full_precision, get_kernel, log_weights

# Cells of the (n, m) matrix of log-weights held at a time: what fits in the cache, and on a GPU next to a network.
CELLS = {"cpu": 2**17}
_MOST_CELLS = 2**26
_MARGIN = 20  # log of the smallest share minus that of the smallest float, because shares are multiplied
_FAINT = 1e-18  # relative to the nearest voter: an example's own class with less weight is summed separately
_MUTUAL, _LABELS = 8, 32  # most pairs, in CELLS, and labels of a batch whose weights are summed by label


class Support(NamedTuple):
    """Extra references for the loss, besides the minibatch: embeddings (s, d), labels (s,) and row ids (s,).

    The ids identify the examples, so that none of them votes on itself.

    >>> old = Support(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.tensor([7, 8]))
    >>> h, y = torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])
    >>> float(leave_one_out_loss(h, y, ids=torch.tensor([5, 6]), support=old)) < 1
    True
    """

    h: Tensor
    y: Tensor
    ids: Tensor


def leave_one_out_loss(
    h: Tensor,
    y: Tensor,
    *,
    ids: Tensor | None = None,
    support: Support | None = None,
    kernel: str = "gaussian",
    weights: Tensor | None = None,
    likeness: Tensor | None = None,
    averaged: Tensor | None = None,
) -> Tensor:
    """Mean over j of -log P̂(y_j), where the other members of the minibatch vote on each example j.

        -log P̂(y_j) = log Σ_{i≠j} w(h_j, h_i) - log Σ_{i≠j, y_i=y_j} w(h_j, h_i)

    Both sums are true masked log-sum-exps. An epsilon inside the log, as in the research code, hides an
    example that is far from its class and leaves it without a gradient towards it (docs/decisions/0003).

    An example whose class has no other member among the references cannot be classified correctly: it is left out of
    the mean, though it still votes on the others. If no example remains, the loss is 0 with gradient 0.

    With `likeness`, all others vote for the label of j, as far as their own label is similar to it; the second sum is
    then log Σ_{i≠j} w(h_j, h_i) S(y_i, y_j). For numbers, the labels are bins, and near bins are similar.

    With `averaged`, the loss of j is the squared distance between the average of the voters' values and its own:

        ‖Σ_{i≠j} p_ji v(y_i) - v(y_j)‖²,    p_ji = w(h_j, h_i) / Σ_{l≠j} w(h_j, h_l)

    With a 1 for each label of an example, this is the Brier score. With a 1 for each threshold that a number does not
    exceed, weighted by the width to the next, it is the continuous ranked probability score. Every example with a voter
    counts.

    With the gaussian kernel the gradient is computed explicitly; autograd is used only if the gradient itself is
    differentiated (`create_graph=True`).

    For the M members of an ensemble, each with its own minibatch, h is (M, n, d), y and weights are (M, n), and
    the result is the mean of the members' losses, computed at once.

    Args:
        h: (n, d) embeddings of the minibatch; or (M, n, d), without ids and support.
        y: (n,) their labels.
        ids: (n,) their row ids. Members with the same id never vote on one another.
        support: further references; needs `ids`.
        kernel: see `dwac.kernels`.
        weights: (n,) how much each example's loss counts, at least 0: the mean becomes Σ_j weight_j loss_j /
            Σ_j weight_j. They weight the loss, not the vote: an example of weight 0 still votes on the others.
        likeness: (K, K) S > 0, how much a vote for one label counts for another; by default not at all.
        averaged: (K, B) v, the values of each label; by default labels are classes.
    """
    name = get_kernel(kernel).name
    if h.ndim == 3:
        _check_members(h, y, ids, support, weights)
        return _members_loss(h, y, name, weights, _Tables.of(likeness, averaged, h))
    _check_batch(h, y, ids, support)
    check_weights(weights, len(h))
    h = h.to(torch.promote_types(h.dtype, torch.float32))
    grad_enabled = torch.is_grad_enabled()
    voters = BatchVoters.of(y, ids, support)
    extra = None if support is None else support.h.to(h)
    tables = _Tables.of(likeness, averaged, h)
    if name != "gaussian" or (grad_enabled and weights is not None and weights.requires_grad):
        return plain_loss(h, extra, voters, name, weights, tables)
    weights = None if weights is None else weights.detach().to(h.dtype)
    if extra is None and tables is None and (fused := fused_kernel(h)) is not None:
        plain = partial(plain_loss, extra=None, voters=voters, kernel=name, weights=weights)
        return fused.leave_one_out_loss(h, y, ids, weights, plain)  # type: ignore[no-any-return]
    if extra is None and ids is None and tables is not None and _fused_members(h[None], tables) is not None:
        return _members_loss(h[None], y[None], name, None if weights is None else weights[None], tables)
    with_gradient = grad_enabled and (h.requires_grad or (extra is not None and extra.requires_grad))
    loss: Tensor = _GaussianVote.apply(h, extra, voters, weights, tables, with_gradient)  # type: ignore[no-untyped-call]
    return loss


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """Σ_j weight_j loss_j / Σ_j weight_j; 0 with gradient 0 if all weights are 0."""
    return (weights * losses).sum() / weights.sum().clamp_min(torch.finfo(losses.dtype).tiny)


def plain_loss(
    h: Tensor,
    extra: Tensor | None,
    voters: BatchVoters,
    kernel: str,
    weights: Tensor | None,
    tables: _Tables | None = None,
) -> Tensor:
    """The loss in operations that autograd can differentiate: for any kernel, to any order."""
    ref_h = h if extra is None else torch.cat([h, extra])
    own = voters.own(slice(None))
    if own is None:
        own = torch.eye(len(h), dtype=torch.bool, device=h.device)
    if tables is not None and tables.averaged is not None:
        averaged, has_voters = tables.averaged, (~own).any(dim=1, keepdim=True)
        p = torch.softmax(log_weights(h, ref_h, kernel).masked_fill(own & has_voters, -torch.inf), dim=1)
        errors = p @ averaged[voters.ref_y] - averaged[voters.y]
        counted = has_voters[:, 0].to(p.dtype)
        return weighted_mean(errors.square().sum(dim=1), counted if weights is None else counted * weights.to(p.dtype))
    same_class = ~own if tables is not None else (voters.y[:, None] == voters.ref_y) & ~own
    has_same = same_class.any(dim=1, keepdim=True)
    # If no voter has the label, the two sums are over the same terms: loss and gradient vanish.
    own = own & (~own).any(dim=1, keepdim=True)
    log_w = log_weights(h, ref_h, kernel).masked_fill(own, -torch.inf)
    log_same = log_w.masked_fill(~(same_class | ~has_same), -torch.inf)
    if tables is not None and tables.log_likeness is not None:
        log_same = log_same + tables.log_likeness[voters.y][:, voters.ref_y]
    losses = torch.logsumexp(log_w, dim=1) - torch.logsumexp(log_same, dim=1)
    counted = has_same[:, 0].to(losses.dtype)
    return weighted_mean(losses, counted if weights is None else counted * weights.to(losses.dtype))


class BatchVoters(NamedTuple):
    """Labels and ids of the minibatch (n,) and of all voters (m,), the minibatch first."""

    y: Tensor
    ref_y: Tensor
    ids: Tensor | None
    ref_ids: Tensor | None

    @staticmethod
    def of(y: Tensor, ids: Tensor | None, support: Support | None) -> BatchVoters:
        """The minibatch and its support; ids only if examples may recur."""
        if support is not None and ids is not None:
            return BatchVoters(y, torch.cat([y, support.y.to(y)]), ids, torch.cat([ids, support.ids.to(ids)]))
        if ids is not None and ids.device.type == "cpu" and len(ids.unique()) == len(ids):
            ids = None  # all differ: only the diagonal must not vote, which is much cheaper to mask
        return BatchVoters(y, y, ids, ids)

    def own(self, rows: slice | Tensor) -> Tensor | None:
        """Which voters are the example itself, (rows, m); None if that is the diagonal."""
        return None if self.ids is None or self.ref_ids is None else self.ids[rows, None] == self.ref_ids


class _Tables(NamedTuple):
    """What labels stand for if they are not classes: one of the two fields is set."""

    log_likeness: Tensor | None  # (K, K)
    averaged: Tensor | None  # (K, B)

    @staticmethod
    def of(likeness: Tensor | None, averaged: Tensor | None, h: Tensor) -> _Tables | None:
        if likeness is None and averaged is None:
            return None
        if likeness is not None and averaged is not None:
            raise InputError("labels are given either likeness=… or averaged=…; got both; leave one of them out")
        return _Tables(None if likeness is None else likeness.to(h).log(), None if averaged is None else averaged.to(h))


class _GaussianVote(torch.autograd.Function):
    """The loss with its gradient. P and Q are the softmax over all others, and over the others of j's class:

        ∂ loss_j / ∂ log w_ji = P_ji - Q_ji,    log w_ji = -‖h_j - h_i‖²,    G_ji = (P_ji - Q_ji) weight_j / Σ weight
        ∂ loss / ∂ h_j = 2 Σ_i (G_ji + G_ij) (h_i - h_j)

    For averages, ∂ loss_j / ∂ log w_ji = P_ji (s_ji - Σ_l P_jl s_jl), s_ji = 2 v(y_i) · (Σ_l P_jl v(y_l) - v(y_j)).

    It is computed together with the loss, one block of rows at a time: no (n, m) matrix is kept for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        extra: Tensor | None,
        voters: BatchVoters,
        weights: Tensor | None,
        tables: _Tables | None,
        with_gradient: bool,
    ) -> Tensor:
        n = len(h)
        averaged = None if tables is None else tables.averaged
        masks = _Masks(voters, h.dtype, tables)
        losses, counted = [], []
        with full_precision(h.device):
            ref_h = h if extra is None else torch.cat([h, extra])
            lifted = ref_h.new_ones(len(ref_h), ref_h.shape[1] + 1)  # (h_i, 1): the ones accumulate the sums of G
            ref_h = torch.sub(ref_h, ref_h.mean(dim=0), out=lifted[:, :-1])
            squared = ref_h.square().sum(dim=1)
            pulls = torch.zeros_like(lifted)  # Σ_i (G_ji + G_ij) (h_i, 1)
            step = max(1, CELLS.get(h.device.type, _MOST_CELLS) // len(ref_h))
            blocks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
            if masks.mutual:
                loss, counts = masks.vote_mutually(lifted, squared, weights, pulls)
                losses, counted, blocks = [loss], [counts], []
            for rows in blocks:
                if averaged is None:
                    loss, difference, has_voters = masks.vote(ref_h, squared, rows)
                else:
                    p, nearest = shares_of(masks.others(ref_h, squared, rows))
                    loss, difference = _average_losses(p, averaged[voters.ref_y], averaged[voters.y[rows]])
                    has_voters = nearest > masks.silent / 2
                losses.append(loss)
                counted.append(has_voters.to(h.dtype) if weights is None else has_voters * weights[rows])
                if with_gradient:
                    counts = counted[-1][:, None]
                    pulls[rows].addcmul_(difference @ lifted, counts)
                    pulls.addmm_(difference.mT, lifted[rows] * counts)
            counts = torch.cat(counted)
            if with_gradient:
                total = counts.sum().clamp_min(torch.finfo(h.dtype).tiny)
                ctx.save_for_backward(h, extra, (pulls[:, :-1] - pulls[:, -1:] * ref_h) * (2 / total))
                ctx.voters, ctx.weights, ctx.tables = voters, weights, tables
            return weighted_mean(torch.cat(losses), counts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, extra, grad = ctx.saved_tensors
        needed = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():  # create_graph=True: this gradient will be differentiated
            loss = plain_loss(h, extra, ctx.voters, "gaussian", ctx.weights, ctx.tables)
            inputs = [part for part, is_needed in zip((h, extra), needed, strict=True) if is_needed]
            gradients = iter(torch.autograd.grad(loss, inputs, grads[0], create_graph=True))
            return *(next(gradients) if is_needed else None for is_needed in needed), *[None] * 4
        grad = grad * grads[0]
        return grad[: len(h)] if needed[0] else None, grad[len(h) :] if needed[1] else None, *[None] * 4


def shares_of(log_w: Tensor) -> tuple[Tensor, Tensor]:
    """w / Σ w of each row (…, n, m), and the log of its largest w, (…, n).

    On a CPU, negligible shares are raised to a small normal float: subnormal numbers make exp and every product many
    times slower.
    """
    nearest = log_w.amax(dim=-1)
    if log_w.device.type == "cpu":
        log_w = torch.maximum(log_w, nearest[..., None] + _least(log_w.dtype))
    return torch.softmax(log_w, dim=-1), nearest


def _least(dtype: torch.dtype) -> float:
    """The log of the smallest share."""
    return math.log(torch.finfo(dtype).tiny) + _MARGIN


def _average_losses(p: Tensor, ref_v: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The losses (…, n) of shares p (…, n, m), for voters with values (…, m, B) and examples with values (…, n, B).

    Also their gradient in the log weights, (…, n, m), which overwrites p.
    """
    errors = p @ ref_v - v
    slopes = (2 * errors) @ ref_v.mT
    slopes.sub_((p * slopes).sum(dim=-1, keepdim=True))
    return errors.square().sum(dim=-1), p.mul_(slopes)


def _members_loss(h: Tensor, y: Tensor, kernel: str, weights: Tensor | None, tables: _Tables | None) -> Tensor:
    """The mean of the members' losses: h (M, n, d), y and weights (M, n)."""
    h = h.to(torch.promote_types(h.dtype, torch.float32))
    if kernel != "gaussian" or (weights is not None and weights.requires_grad and torch.is_grad_enabled()):
        return _plain_members_loss(h, y, kernel, weights, tables)
    weights = None if weights is None else weights.detach().to(h.dtype)
    if tables is not None and (fused := _fused_members(h, tables)) is not None:
        plain = partial(_plain_members_loss, y=y, kernel=kernel, weights=weights, tables=tables)
        return fused.members_loss(h, y, weights, *tables, plain)  # type: ignore[no-any-return]
    loss: Tensor = _MemberVotes.apply(h, y, weights, tables)  # type: ignore[no-untyped-call]
    return loss


def _plain_members_loss(h: Tensor, y: Tensor, kernel: str, weights: Tensor | None, tables: _Tables | None) -> Tensor:
    weights_of = [None] * len(h) if weights is None else weights.unbind(0)
    parts = zip(h.unbind(0), y.unbind(0), weights_of, strict=True)
    return torch.stack(
        [plain_loss(part, None, BatchVoters.of(own, None, None), kernel, weight, tables) for part, own, weight in parts]
    ).mean()


class _MemberVotes(torch.autograd.Function):
    """`_GaussianVote` for M members at once, (M, n, n); on a CPU, for as many at a time as fit in its cache."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, y: Tensor, weights: Tensor | None, tables: _Tables | None) -> Tensor:
        members, n, _ = h.shape
        size = max(1, CELLS.get(h.device.type, _MOST_CELLS) // n**2)
        total = h.new_zeros(())
        with full_precision(h.device):
            lifted = h.new_ones(members, n, h.shape[2] + 1)  # (h_i, 1): the ones accumulate the sums of G
            ref_h = torch.sub(h, h.mean(dim=1, keepdim=True), out=lifted[:, :, :-1])
            squared = ref_h.square().sum(dim=2)
            pulls = torch.empty_like(lifted)  # Σ_i (G_ji + G_ij) (h_i, 1)
            for part in (slice(start, start + size) for start in range(0, members, size)):
                losses, difference, has_voters = _vote_apart(lifted[part], squared[part], y[part], tables)
                counts = has_voters.to(h.dtype) if weights is None else has_voters * weights[part]
                shares = counts / counts.sum(dim=1, keepdim=True).clamp_min(torch.finfo(h.dtype).tiny) / members
                total += (shares * losses).sum()
                if h.requires_grad:
                    g = difference.mul_(shares[:, :, None])
                    torch.bmm(g, lifted[part], out=pulls[part]).baddbmm_(g.mT, lifted[part])
            if h.requires_grad:
                ctx.save_for_backward(h, 2 * (pulls[:, :, :-1] - pulls[:, :, -1:] * ref_h))
                ctx.y, ctx.weights, ctx.tables = y, weights, tables
            return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, grad = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: this gradient will be differentiated
            loss = _plain_members_loss(h, ctx.y, "gaussian", ctx.weights, ctx.tables)
            return *torch.autograd.grad(loss, [h], grads[0], create_graph=True), None, None, None
        return grad * grads[0], None, None, None


def _vote_apart(lifted: Tensor, squared: Tensor, y: Tensor, tables: _Tables | None) -> tuple[Tensor, Tensor, Tensor]:
    """`_Masks.vote` for members with a batch each: (M, n), (M, n, n) and (M, n)."""
    ref_h, silent = lifted[:, :, :-1], torch.finfo(lifted.dtype).min / 4
    # As in _Masks.others: ‖h_j‖² is left out of each row, and squared distances are not negative. The ones of `lifted`
    # bring in -‖h_i‖², in half the time of baddbmm.
    log_w = torch.bmm(lifted, torch.cat([2 * ref_h, -squared[:, :, None]], dim=2).mT)
    torch.minimum(log_w, squared[:, :, None], out=log_w)
    log_w.diagonal(dim1=1, dim2=2).fill_(silent)
    if tables is not None and tables.averaged is not None:
        p, nearest = shares_of(log_w)
        return *_average_losses(p, tables.averaged[y], tables.averaged[y]), nearest > silent / 2
    if log_w.device.type != "cpu":
        return _vote_twice(log_w, y, y, tables)
    if tables is not None and tables.log_likeness is not None:
        likeness = tables.log_likeness.exp()
        same = torch.stack([likeness.index_select(1, own).index_select(0, own) for own in y])
        has_voters = torch.full_like(y, y.shape[1] > 1, dtype=torch.bool)
    else:
        labels = y.to(log_w.dtype)  # comparing floats, with a float as the result, is several times as fast
        same = torch.eq(labels[:, :, None], labels[:, None, :], out=torch.empty_like(log_w))
        has_voters = same.sum(dim=2) > 1
    losses, difference, faint = _vote_once(log_w, same, has_voters)
    if len(faint):
        members, rows = faint.unbind(1)
        log_w = torch.bmm(ref_h[members], ref_h[members, rows][:, :, None])[:, :, 0].mul_(2).sub_(squared[members])
        log_w = torch.minimum(log_w, squared[members, rows][:, None]).scatter_(1, rows[:, None], silent)
        few, slopes, _ = _vote_twice(log_w[:, None], y[members, rows][:, None], y[members], tables)
        losses[members, rows], difference[members, rows] = few[:, 0], slopes[:, 0]
    return losses, difference, has_voters


def _vote_once(log_w: Tensor, same: Tensor, has_voters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Losses (…, n), their gradient P - Q in log_w (…, n, m), which it overwrites, and positions of faint rows.

    The weights of j's class are among those of all others, so one exponential per pair is enough. With the sums s
    over the class and r over the rest, the loss is log(1 + r / s). P - Q is P in the rest, and -P r / s in the class:
    precise, however small r is. With a likeness S, the share S of a voter's weight is in the class.

    same: 1 for voters of j's class and 0 for the rest, or the likeness; overwritten, too. In a faint row, s is so small
    that its terms may underflow: `_vote_twice` must replace it. Only on a CPU: to find such rows is to wait for a GPU.
    """
    w = log_w.sub_(log_w.amax(dim=-1, keepdim=True)).clamp_min_(_least(log_w.dtype)).exp_()
    s = same.mul_(w).sum(dim=-1).masked_fill_(~has_voters, 1.0)
    rest = w.sub_(same)
    r = rest.sum(dim=-1)
    ratio = r / s
    difference = rest.addcmul_(same, ratio[..., None], value=-1).mul_((r + s).reciprocal_()[..., None])
    return ratio.log1p(), difference, (s < _FAINT).nonzero()


def _vote_twice(log_w: Tensor, y: Tensor, ref_y: Tensor, tables: _Tables | None) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, their gradient and whether others have j's label, of labels y (…, n) and ref_y (…, m).

    Voters for j's own label have separate exponentials and a separate unit: nothing underflows. log_w (…, n, m) is
    overwritten.
    """
    silent = torch.finfo(log_w.dtype).min / 4
    p, nearest = shares_of(log_w)
    if tables is not None and tables.log_likeness is not None:
        log_w += tables.log_likeness[y[..., :, None], ref_y[..., None, :]]
    else:
        log_w.masked_fill_(y[..., :, None] != ref_y[..., None, :], silent)
    q, nearest_same = shares_of(log_w)
    # log Σ w is the largest log w minus the log of its softmax, which is never below 1/m.
    losses = nearest - nearest_same + (q.amax(dim=-1) / p.amax(dim=-1)).log()
    return losses, p.sub_(q), nearest_same > silent / 2


class _Masks:
    """Log-weights of blocks of rows, with -10³⁷ or less for references that must not vote.

    The number is finite, so that a row without voters stays finite too; it is not counted.
    """

    def __init__(self, voters: BatchVoters, dtype: torch.dtype, tables: _Tables | None) -> None:
        self.voters, self.tables = voters, tables
        self.silent = torch.finfo(dtype).min / 4
        self.same: Tensor | None = None
        if voters.y.device.type == "cpu":  # on a CPU, copying table rows is three times as fast as comparing
            names, self.codes, counts = _number_labels(voters.ref_y)
            if tables is not None and tables.log_likeness is not None:
                self.same = tables.log_likeness[names].exp()[:, voters.ref_y]
                self.several = torch.full_like(names, len(self.codes) > 1, dtype=torch.bool)
            else:
                self.same = torch.zeros(len(names), len(self.codes), dtype=dtype).scatter_(0, self.codes[None], 1.0)
                self.several = counts > 1

    def vote(self, ref_h: Tensor, squared: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """For rows j: the loss, its gradient P - Q in the log weights, and whether others have j's label."""
        log_w = self.others(ref_h, squared, rows)
        if self.same is None:
            return _vote_twice(log_w, self.voters.y[rows], self.voters.ref_y, self.tables)
        same = self.same.index_select(0, self.codes[rows])
        own = self.voters.own(rows)
        if own is None:
            has_voters = self.several[self.codes[rows]]
        else:
            same.masked_fill_(own, 0.0)
            has_voters = same.amax(dim=1) > 0
        losses, difference, faint = _vote_once(log_w, same, has_voters)
        if len(faint):
            few, again = faint[:, 0], faint[:, 0] + rows.start
            log_w = self.others(ref_h, squared, again)
            losses[few], difference[few], _ = _vote_twice(log_w, self.voters.y[again], self.voters.ref_y, self.tables)
        return losses, difference, has_voters

    @property
    def mutual(self) -> bool:
        """Whether all examples of a small batch of few classes vote on one another."""
        n = len(self.voters.ref_y)
        if self.same is None or self.tables is not None or self.voters.ids is not None or len(self.voters.y) != n:
            return False
        return len(self.same) <= _LABELS and n**2 <= _MUTUAL * CELLS["cpu"]

    def vote_mutually(
        self, lifted: Tensor, squared: Tensor, weights: Tensor | None, pulls: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The losses and weights of all examples; pulls += Σ_i (G_ji + G_ij) (h_i, 1), with G_ji = weight_j (P - Q)_ji.

        Weights are symmetric and need no unit of their own in each row: with the sums of each label, n × C, both terms
        of the gradient are one product of the weights with slopes a_j(y_i) + a_i(y_j), of rank 2C.
        """
        assert self.same is not None
        ref_h, ones, norms, own = lifted[:, :-1], lifted[:, -1:], squared[:, None], self.codes[:, None]
        w = torch.cat([2 * ref_h, -norms, -ones], dim=1) @ torch.cat([ref_h, ones, norms], dim=1).mT  # -‖h_j - h_i‖²
        w.clamp_(_least(w.dtype), 0).exp_().fill_diagonal_(0)
        has_voters, labels = self.several[self.codes], self.same.mT
        counts = has_voters.to(w.dtype) if weights is None else has_voters * weights
        sums = w @ labels
        s = sums.gather(1, own).masked_fill_(~has_voters[:, None], 1.0)
        r = sums.scatter_(1, own, 0.0).sum(dim=1, keepdim=True)
        faint = (s[:, 0] < _FAINT).nonzero()[:, 0]
        slopes = (counts[:, None] / (r + s)).index_fill_(0, faint, 0.0)
        slopes = slopes.expand(-1, labels.shape[1]).scatter(1, own, -slopes * r / s)
        g = torch.cat([slopes, labels], dim=1) @ torch.cat([labels, slopes], dim=1).mT
        pulls.addmm_(g.mul_(w), lifted)
        losses = (r / s).log1p()[:, 0]
        if len(faint):
            log_w = self.others(ref_h, squared, faint)
            losses[faint], g, _ = _vote_twice(log_w, self.voters.y[faint], self.voters.ref_y, None)
            g *= counts[faint, None]
            pulls.index_add_(0, faint, g @ lifted).addmm_(g.mT, lifted[faint])
        return losses, counts

    def others(self, ref_h: Tensor, squared: Tensor, rows: slice | Tensor) -> Tensor:
        """log w_ji + ‖h_j‖² where i ≠ j: (rows, m)."""
        # log w_ji = 2 h_j·h_i - ‖h_i‖² - ‖h_j‖², where the last term is the same for all i and cancels. Leaving it
        # out keeps small numbers small if j is far away. Squared distances ≥ 0 mean that the result is ≤ ‖h_j‖².
        log_w = torch.addmm(squared, ref_h[rows], ref_h.mT, beta=-1, alpha=2).clamp_(max=squared[rows, None])
        own = self.voters.own(rows)
        if own is not None:
            return log_w.masked_fill_(own, self.silent)
        if isinstance(rows, Tensor):
            return log_w.scatter_(1, rows[:, None], self.silent)
        log_w.diagonal(rows.start).fill_(self.silent)
        return log_w


def _number_labels(y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Labels as numbers 0 … C-1: the label of each number, the number of each example, and how many have it."""
    low, high = (int(end) for end in y.aminmax())
    if low < 0 or high > len(y) + 64:
        return y.unique(return_inverse=True, return_counts=True)  # type: ignore[no-any-return]
    counts = torch.bincount(y)  # already 0 … C-1, and few: no sorting needed
    return torch.arange(len(counts)), y, counts


@cache
def triton_module() -> ModuleType | None:
    """The module of the fused kernel, if Triton is installed."""
    try:
        from dwac.nn import fused_loss
    except ImportError:
        return None
    return fused_loss


def fused_kernel(h: Tensor) -> ModuleType | None:
    """The fused kernel, if it supports these embeddings."""
    if not h.is_cuda or h.dtype != torch.float32:
        return None
    module = triton_module()
    return module if module is not None and module.serves(h) else None


def _fused_members(h: Tensor, tables: _Tables) -> ModuleType | None:
    """The fused kernels for several networks, if they support these embeddings (M, n, d) and tables."""
    if not h.is_cuda or triton_module() is None:
        return None
    from dwac.nn import fused_members

    return fused_members if fused_members.serves(h, tables.averaged) else None


def _check_batch(h: Tensor, y: Tensor, ids: Tensor | None, support: Support | None) -> None:
    if h.ndim != 2 or len(h) == 0:
        raise ShapeError(f"h must be a non-empty (n, d) batch of embeddings; got shape {tuple(h.shape)}")
    check_labels(y, len(h), None)
    check_tensors(ids=ids)
    if ids is not None and ids.shape != y.shape:
        raise ShapeError(f"ids must have one entry per row: {len(h)} required; got shape {tuple(ids.shape)}")
    check_finite(h, "the batch's embeddings")
    if support is None:
        return
    check_tensors(**support._asdict())
    check_finite(support.h, "the support's embeddings")
    if ids is None:
        raise IdError("a support needs the ids of the batch, or an example could vote on itself; got none; give ids=…")
    if support.h.ndim != 2 or support.h.shape[1] != h.shape[1]:
        raise ShapeError(f"support.h must be (s, {h.shape[1]}); got shape {tuple(support.h.shape)}")
    if not len(support.h) == len(support.y) == len(support.ids):
        raise ShapeError(
            f"a support must have one label and one id per row; got {len(support.h)} embeddings, "
            f"{len(support.y)} labels and {len(support.ids)} ids"
        )


def _check_members(h: Tensor, y: Tensor, ids: Tensor | None, support: Support | None, weights: Tensor | None) -> None:
    if ids is not None or support is not None:
        raise InputError("members with batches of their own, h (M, n, d), take neither ids nor support; leave them out")
    if h.numel() == 0 or y.shape != h.shape[:2]:
        raise ShapeError(
            f"h must be (M, n, d), not empty, with labels (M, n); got shapes {tuple(h.shape)} and {tuple(y.shape)}"
        )
    check_labels(y.flatten(), y.numel(), None)
    check_weights(None if weights is None else weights.flatten(), y.numel())
    if weights is not None and weights.shape != y.shape:
        raise ShapeError(f"weights must have the shape of the labels, {tuple(y.shape)}; got {tuple(weights.shape)}")
    check_finite(h, "the batch's embeddings")


def check_tensors(**tensors: Any) -> None:
    """Raise unless each is a tensor or None."""
    for name, value in tensors.items():
        if value is not None and not isinstance(value, Tensor):
            raise InputError(f"{name} must be a tensor; got {type(value).__name__}; use torch.as_tensor")


def check_finite(h: Tensor, name: str) -> None:
    """Raise on NaN or infinity; checked only on a CPU, because a GPU would have to wait."""
    # The sum is a quick check. It may also be infinite if no single number is.
    if h.device.type == "cpu" and not math.isfinite(h.detach().sum()) and not bool(torch.isfinite(h).all()):
        raise NonFiniteError(f"{name} must be finite; got NaN or infinity; check the inputs and the learning rate")


def check_labels(y: Tensor, n: int, n_classes: int | None) -> None:
    """Check shape and type; the range only on a CPU, because a GPU would have to wait."""
    check_tensors(y=y)
    if y.shape != (n,):
        raise ShapeError(f"y must have one label per row: shape ({n},) required; got {tuple(y.shape)}")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise LabelError(f"y must be whole numbers (torch.int64); got {y.dtype}; use y.long()")
    if n_classes is not None and y.device.type == "cpu" and n:
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= n_classes:
            raise LabelError(f"y must lie in 0 … {n_classes - 1}; got {low if low < 0 else high}")


def check_weights(weights: Tensor | None, n: int) -> None:
    """Check the shape; the values only on a CPU, because a GPU would have to wait."""
    check_tensors(weights=weights)
    if weights is None:
        return
    if weights.shape != (n,):
        raise ShapeError(f"weights must have one entry per row: shape ({n},) required; got {tuple(weights.shape)}")
    if weights.device.type == "cpu" and not bool(((weights >= 0) & (weights < torch.inf)).all()):
        raise InputError(
            "weights must be finite numbers of at least 0; got negative, infinite or NaN ones; drop those examples"
        )
