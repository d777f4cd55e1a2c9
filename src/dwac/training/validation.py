"""Held-out examples judge a model during training; afterwards they choose its scale, raw features and look-alikes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dwac.engine.backends import exp_
from dwac.kernels import Kernel, full_precision, get_kernel, squared_distances
from dwac.nn import Model, SoftmaxTwin, WeightedAverage
from dwac.nn.batches import Inputs, batches_of, embed, inputs_of, move_to, take_rows
from dwac.nn.ensemble import SharedBackbone
from dwac.nn.ranks import agree, over_ranks
from dwac.training.rows import even_size

SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)
FINE_SCALES = tuple(1.1**step for step in range(-15, 16))  # 0.24 … 4.2
_VoteFunction = Callable[[Tensor, Sequence[float]], Iterator[Tensor]]
_CELLS = {"cpu": 2**18, "cuda": 2**26}  # votes in memory at once; on a CPU, in its cache
_RAW_WEIGHTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
_RAW_FACTORS = (0.15, 0.22, 0.33, 0.5, 0.7, 1.0, 1.4)
_BALANCE_SHARES = (0.5, 0.1, 0.2, 0.35, 0.65, 0.8, 0.9)  # shares of networks beside a pretrained one
_BALANCE_SCALES = tuple(1.2**step for step in range(-5, 9))
_KERNEL_FACTORS = (2.0, 3.0, 4.0, 6.0)
_VOTE_FACTORS = (0.1, 1.0, 10.0, 100.0, 1000.0)
_ROWS = 64  # rows embedded at once on a CPU
_PAIRS = 10**8  # pairs of an example and a voter
_FEW, _MANY, _GPU_PAIRS = 1000, 5000, 5 * 10**9  # examples used to choose the scale
_VOTERS = 8192  # voters, on a CPU or for shares


class Candidates(NamedTuple):
    """How well each of C candidates predicts n held-out examples; every field is (C, n).

    Shares of the vote below 10⁻³⁰ count as 10⁻³⁰, so that a single outlier cannot dominate the loss.
    """

    losses: Tensor  # -log P(y), or the distance of the voters' average from y's own values
    rivals: Tensor  # -log P of the most likely other label: what a wrong answer would cost; 0 if values are averaged
    right: Tensor  # whether y is the predicted label

    def choose(self, default: int, prior: Sequence[float]) -> int:
        """The candidate with the lowest loss, if it is clearly better than the default one; else the default one.

        However few mistakes there are among n examples, another one must be expected (Laplace's rule of
        succession): one mistake, at its average cost, is added to the losses. Every example is judged by the candidate
        that the other examples would choose: this gives the out-of-sample gain, which must exceed its standard error.
        """
        n, mistakes = self.losses.shape[1], self.rivals.mean(dim=1)
        totals = self.losses.sum(dim=1) + mistakes + torch.tensor(prior).to(self.losses)
        best = int(agree([int(totals.argmin())])[0])
        if best == default or n < 2:
            return default
        others = (totals[:, None] - self.losses).argmin(dim=0)
        gain = self.losses[default] - self.losses.gather(0, others[None])[0]
        extra_cost = (mistakes[best] - mistakes[default]).clamp_min(0) / (n + 2)
        return int(agree([best if gain.mean() - extra_cost > gain.std() / math.sqrt(n) else default])[0])


def judge_votes(votes: Tensor, y: Tensor, averaged: Tensor | None = None) -> Tensor:
    """`Candidates`, (3, n), of votes (n, K) with labels (n,); averaged: (K, B) values of each label, if averaged."""
    p = (votes / votes.sum(dim=1, keepdim=True)).double()
    if averaged is not None:
        losses = average_losses(p, y, averaged)
        return torch.stack([losses, torch.zeros_like(losses), (votes.argmax(dim=1) == y).double()])
    own = p.gather(1, y[:, None])
    rival = p.scatter(1, y[:, None], -1.0).amax(dim=1).clamp_min(1e-30)
    right = (votes.argmax(dim=1) == y).double()
    return torch.stack([-own[:, 0].clamp_min(1e-30).log(), -rival.log(), right])


def average_losses(p: Tensor, y: Tensor, averaged: Tensor) -> Tensor:
    """(…, n): ‖Σ_k p_k v(k) - v(y)‖² of probabilities (…, n, K), as in the leave-one-out loss."""
    return (p @ averaged.to(p) - averaged.to(p)[y]).square().sum(dim=-1)


class HeldOut(NamedTuple):
    """Embeddings of held-out examples, and the model's predictions for them if all embeddings were scaled."""

    model: Model
    h: Tensor
    y: Tensor
    voters: tuple[Tensor, Tensor] | None  # embeddings and labels; None for a softmax
    class_weights: Tensor  # (K,) factors on the votes

    def some(self, most: int) -> HeldOut:
        """At most `most` of the examples, evenly spaced."""
        step = -(-len(self.y) // most)
        return self._replace(h=self.h[::step], y=self.y[::step])

    def judge(self, factors: Sequence[float]) -> Candidates:
        """How well each factor predicts every example."""
        if isinstance(self.model, SoftmaxTwin) and self.model.targets is not None:  # targets are not scaled
            losses = self.model.target_losses(self.model.logits(self.h).float(), self.y).double()
            same = losses.expand(len(factors), -1)
            return Candidates(same, torch.zeros_like(same), torch.zeros_like(same))
        size = _CELLS.get(self.h.device.type, 2**18) // (1 if self.voters is None else len(self.voters[1]))
        return Candidates(
            *over_ranks(lambda h, y: self._judge(h, y, factors, max(1, size)), self.h, self.y).permute(1, 2, 0)
        )

    def _judge(self, h: Tensor, y: Tensor, factors: Sequence[float], size: int) -> Tensor:
        """`Candidates` of some rows, (n, 3, C), `size` rows at a time."""
        averaged: Tensor | None = getattr(self.model, "averaged", None)
        votes = self._votes(averaged)
        judge = judge_votes if averaged is None else partial(_judge_averages, averaged=averaged)
        parts = [
            torch.stack([judge(sums, labels) for sums in votes(part, factors)], dim=1)
            for part, labels in zip(h.split(size), y.split(size), strict=True)
        ]
        return torch.cat(parts, dim=2).permute(2, 0, 1)

    def best_scale(self, factors: Sequence[float]) -> float:
        """The factor with the lowest loss, if it is also better out of sample; else 1.

        A log-normal prior around 1 with standard deviation ½ keeps a few correct answers from favouring ever larger
        factors.
        """
        prior = [math.log(factor) ** 2 / (2 * 0.5**2) for factor in factors]
        return factors[self.judge(factors).choose(factors.index(1.0), prior)]

    def _votes(self, averaged: Tensor | None) -> _VoteFunction:
        """A function from rows (n, d) to class votes (n, K), in units of the largest vote, for each factor.

        If values are averaged, it gives their sums, (n, B), and that of the votes, because there may be many labels.
        """
        if isinstance(self.model, SoftmaxTwin):
            return partial(_softmax_votes, self.model)
        assert self.voters is not None
        ref_h, labels = self.voters
        if averaged is None:
            values = F.one_hot(labels, self.model.n_classes) * self.class_weights
        else:
            values = torch.cat([averaged, torch.ones_like(averaged[:, :1])], dim=1)[labels]
            values *= self.class_weights[labels, None]
        if self.model.kernel == "gaussian":
            return _GaussianSums(ref_h, values, torch.promote_types(self.h.dtype, ref_h.dtype))
        return partial(_sums, get_kernel(self.model.kernel), ref_h, values)


def _judge_averages(sums: Tensor, y: Tensor, *, averaged: Tensor) -> Tensor:
    """`Candidates`, (3, n), of sums of values and of votes, (n, B + 1)."""
    losses = (sums[:, :-1] / sums[:, -1:] - averaged[y]).square().sum(dim=1).double()
    return torch.stack([losses, torch.zeros_like(losses), torch.zeros_like(losses)])


def _softmax_votes(model: SoftmaxTwin, h: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
    logits = model.logits(h).float()
    return (torch.softmax(factor * logits, dim=1) for factor in factors)


def _sums(kernel: Kernel, ref_h: Tensor, values: Tensor, h: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
    """Σ_i w_i values_i of voters' values (m, B): (n, B), in units of the largest vote, for each factor."""
    squared = squared_distances(h, ref_h)
    for factor in factors:
        log_w = kernel.log_weights(factor**2 * squared)
        with full_precision(h.device):
            yield exp_(log_w.sub_(log_w.amax(dim=1, keepdim=True))) @ values.to(log_w)


class _GaussianSums:
    """`_sums` of gaussian weights, in fewer passes: the nearest voter is the same at every scale."""

    def __init__(self, ref_h: Tensor, values: Tensor, dtype: torch.dtype) -> None:
        dtype = torch.promote_types(dtype, torch.float32)
        ref_h = ref_h.to(dtype)
        with full_precision(ref_h.device):
            self.centre = ref_h.mean(dim=0)
        self.ref_h, self.values = ref_h - self.centre, values.to(dtype)
        self.norms = self.ref_h.square().sum(dim=1)

    def __call__(self, h: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
        with full_precision(h.device):
            # ‖h‖² - ‖h - h_i‖²; ‖h‖² is the same for all voters, and the largest is subtracted anyway.
            gains = torch.addmm(self.norms, h.to(self.ref_h) - self.centre, self.ref_h.mT, beta=-1, alpha=2)
        gains.sub_(gains.amax(dim=1, keepdim=True))
        log_w = gains if len(factors) == 1 else torch.empty_like(gains)
        for factor in factors:
            exp_(torch.mul(gains, factor**2, out=log_w))
            with full_precision(h.device):
                sums = log_w @ self.values
            yield sums


class Sampler:
    """Draws random rows, each class in proportion and at least once; sorts rows by class once for all draws."""

    def __init__(self, y: Tensor) -> None:
        self.by_class = torch.argsort(y, stable=True)
        changes = torch.nonzero(y[self.by_class][1:] != y[self.by_class][:-1])[:, 0] + 1
        self.firsts = torch.cat([changes.new_zeros(1), changes])

    def __call__(self, most: int, generator: torch.Generator) -> Tensor:
        """About `most` rows at most: one random row from each of `most` equal segments, plus one per class."""
        n, device = len(self.by_class), self.by_class.device
        if n <= most:
            return torch.arange(n, device=device)
        places = (torch.arange(most) + torch.rand(most, generator=generator)) * (n / most)
        positions = torch.cat([places.long().clamp_max(n - 1).to(device), self.firsts])
        rows: Tensor = torch.unique(self.by_class[positions])
        return rows


def sample(y: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """A single draw of `Sampler`."""
    return Sampler(y)(most, generator)


# Fits after training


@torch.no_grad()
def fit_scale(model: Model, x: Tensor | Inputs, y: Tensor, *, class_weights: Sequence[float] | None = None) -> float:
    """Multiply a model's embeddings by the factor that minimises -log P(y) of held-out data; return it.

    In training a batch of examples votes, in prediction all of them; this adjusts the probabilities to that. The factor
    is 1 unless another one is better out of sample (`choose`), so a few examples cannot decide it. On a CPU at
    most about 1,000 examples are used, and about 8,192 references vote on them; on a GPU up to 5,000, and all
    references vote: among half a million, the nearest are nearer than in a sample, and a narrower kernel is better. The
    factor becomes part of the embedding layer, so weights, shares and explanations still add up. For a softmax it
    scales the logits: temperature scaling.
    """
    if isinstance(model, SoftmaxTwin) and model.targets is not None:
        return 1.0
    generator = torch.Generator().manual_seed(0)
    many = model.device.type == "cuda"
    n_voters = len(model.references) if isinstance(model, WeightedAverage) else 0
    most = max(_FEW, min(_MANY, _GPU_PAIRS // max(n_voters, 1))) if many else _FEW
    _, y, h = _sample_rows(model, x, y, most, generator)
    voters = None
    if isinstance(model, WeightedAverage):
        rows = sample(model.references.labels, n_voters if many else _VOTERS, generator)
        voters = model.references.embeddings[rows], model.references.labels[rows]
    factor = HeldOut(model, h, y, voters, vote_factors(model, class_weights)).best_scale(FINE_SCALES)
    model.scale_embeddings(factor)
    return factor


@torch.no_grad()
def fit_balance(model: Model, x: Tensor | Inputs, y: Tensor, *, class_weights: Sequence[float] | None = None) -> float:
    """Weight the networks beside a pretrained one: return their share of ‖h - h_i‖² that fits held-out data best.

    Both kinds count equally unless another share is better out of sample (`choose`). For a softmax, it is the share of
    the logits.
    """
    backbone = model.backbone
    if not isinstance(backbone, SharedBackbone) or not len(backbone.beside):
        return 0.0
    if isinstance(model, SoftmaxTwin) and model.targets is not None:
        return 0.0
    kinds = torch.tensor([len(backbone.members), len(backbone.beside)], device=model.device)
    generator = torch.Generator().manual_seed(0)
    x, y, h = _sample_rows(model, x, y, _FEW, generator)
    rows = sample(model.references.labels, _VOTERS, generator) if isinstance(model, WeightedAverage) else None

    def factors(share: float) -> Tensor:
        parts = torch.tensor([1 - share, share], device=model.device) * len(backbone) / kinds
        return (parts.sqrt() if isinstance(model, WeightedAverage) else parts).repeat_interleave(kinds)

    def judge(share: float) -> Candidates:
        weights = vote_factors(model, class_weights)
        if isinstance(model, WeightedAverage):
            assert rows is not None
            voters = model.scale_parts(model.references.embeddings[rows], factors(share))
            labels = model.references.labels[rows]
            scaled = model.scale_parts(h, factors(share))
            return HeldOut(model, scaled, y, (voters, labels), weights).judge(_BALANCE_SCALES)
        with _restoring(model):
            model.scale_members(factors(share))
            return HeldOut(model, _embed(model, x), y, None, weights).judge(_BALANCE_SCALES)

    candidates = [(share, scale) for share in _BALANCE_SHARES for scale in _BALANCE_SCALES]
    results = Candidates(*(torch.cat(part) for part in zip(*map(judge, _BALANCE_SHARES), strict=True)))
    share = candidates[results.choose(candidates.index((0.5, 1.0)), [0.0] * len(candidates))][0]
    model.scale_members(factors(share))
    return share


@contextmanager
def _restoring(model: Model) -> Iterator[None]:
    """Restore the parameters afterwards."""
    parameters = [part for part in model.parameters() if part.requires_grad]
    copies = [part.clone() for part in parameters]
    yield
    for part, before in zip(parameters, copies, strict=True):
        part.copy_(before)


@torch.no_grad()
def fit_raw_features(
    model: Model,
    x: Tensor | Inputs,
    held_x: Tensor | Inputs,
    held_y: Tensor,
    *,
    class_weights: Sequence[float] | None = None,
) -> float:
    """Add raw features z to the embedding, [h, λ z], if that lowers -log P(y) of held-out data; returns λ.

    A network discards information that does not separate its classes, so it cannot see that a row is unlike any other.
    With λ, voters are near in z too. λ and a factor for both are chosen together, out of sample (`choose`), on at most
    about 1,000 examples. All references vote, because the nearest are nearer the more there are. x: the training data,
    in the order of the references.
    """
    if not isinstance(model, WeightedAverage) or model.n_raw_features == 0:
        return 0.0
    references = model.references
    most = max(200, min(1000, _PAIRS // len(references)))
    held_inputs, y, held_h = _sample_rows(model, held_x, held_y, most, torch.Generator().manual_seed(0))
    h = references.embeddings, held_h
    z = tuple(
        torch.cat([model.raw_features(move_to(rows, model.device)) for (rows,) in batches_of(part, size=2**16)])
        for part in (inputs_of(x), held_inputs)
    )

    def with_raw_features(weight: float) -> list[Tensor]:
        return [torch.cat([a, weight * b], dim=1) for a, b in zip(h, z, strict=True)]

    def judge(weight: float, factors: Sequence[float]) -> Candidates:
        voters, queries = with_raw_features(weight)
        held_out = HeldOut(model, queries, y, (voters, references.labels), vote_factors(model, class_weights))
        return held_out.judge(factors)

    candidates = [(1.0, 0.0), *((factor, weight) for weight in _RAW_WEIGHTS for factor in _RAW_FACTORS)]
    parts = [judge(0.0, (1.0,)), *(judge(weight, _RAW_FACTORS) for weight in _RAW_WEIGHTS)]
    results = Candidates(*(torch.cat(part) for part in zip(*parts, strict=True)))
    factor, weight = candidates[results.choose(0, [0.0] * len(candidates))]
    if weight:
        model.scale_embeddings(factor)
        model.raw_feature_weight = factor * weight
        model.references = model.references.replaced(embeddings=factor * with_raw_features(weight)[0])
    return model.raw_feature_weight


@torch.no_grad()
def fit_look_alikes(
    model: Model, held_x: Tensor | Inputs, held_y: Tensor, *, class_weights: Sequence[float] | None = None
) -> tuple[float, float] | None:
    """Let near voters count more, w = k(d) + b k(s d), if that lowers -log P(y) of held-out data; returns (s, b).

    If a network gathers each class in a small cloud, all its members vote alike; near neighbours may still know more. s
    and b are chosen together, out of sample (`choose`), on at most about 2,000 examples; b in units of the weight at
    which both kernels have the same votes on an average example.
    """
    if not isinstance(model, WeightedAverage):
        return None
    references = model.references
    most = max(200, min(2000, 10 * _PAIRS // len(references)))
    _, y, h = _sample_rows(model, held_x, held_y, most, torch.Generator().manual_seed(0))
    wide, factors = over_ranks(references.log_class_weights, h), vote_factors(model, class_weights).double().log()
    candidates: list[tuple[float, float] | None] = [None]
    results = [judge_votes(torch.softmax(wide + factors, dim=1), y, model.averaged)]
    for factor in _KERNEL_FACTORS:
        scaled = references.replaced(embeddings=factor * references.embeddings)
        narrow = over_ranks(scaled.log_class_weights, factor * h)
        equal = float((wide.logsumexp(dim=1) - narrow.logsumexp(dim=1)).median().clamp(-500, 500))
        for part in _VOTE_FACTORS:
            votes = torch.logaddexp(wide, narrow + equal + math.log(part)) + factors
            candidates.append((factor, part * math.exp(equal)))
            results.append(judge_votes(torch.softmax(votes, dim=1), y, model.averaged))
    chosen = candidates[Candidates(*torch.stack(results, dim=1)).choose(0, [0.0] * len(candidates))]
    if chosen is not None:
        model.references = references.replaced(look_alikes=chosen)
    return chosen


def _sample_rows(
    model: Model, x: Tensor | Inputs, y: Tensor, most: int, generator: torch.Generator
) -> tuple[Inputs, Tensor, Tensor]:
    """At most about `most` held-out rows: their inputs, labels and embeddings."""
    rows = sample(y, most, generator)
    inputs = take_rows(inputs_of(x), rows)
    return inputs, y[rows.to(y.device)].to(model.device), _embed(model, inputs)


def _embed(model: Model, inputs: Inputs) -> Tensor:
    """h, on a CPU in large batches: a choice does not need the exact rounding of single rows."""
    return embed(model, inputs, batch_size=None if model.device.type == "cuda" else even_size(len(inputs[0]), _ROWS))


def vote_factors(model: Model, class_weights: Sequence[float] | None) -> Tensor:
    """(K,): the factor of each class's votes."""
    return torch.tensor([1.0] * model.n_classes if class_weights is None else class_weights, device=model.device)
