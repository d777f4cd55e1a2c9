"""Held-out examples judge a model during training; afterwards they choose its scale, raw features and look-alikes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

from dwac.engine.backends import exp_
from dwac.kernels import Kernel, full_precision, get_kernel, squared_distances
from dwac.nn import Model, SoftmaxTwin, WeightedAverage
from dwac.nn.batches import Inputs, batches_of, embed, inputs_of, move_to, take_rows
from dwac.nn.ensemble import SharedBackbone
from dwac.nn.ranks import agree, over_ranks
from dwac.training.rows import even_size

SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)
FINE_SCALES = tuple(1.1**step for step in range(-15, 16))  # 0.24 … 4.2
_VoteFunction = Callable[[Tensor, Sequence[float], Tensor | None], "Iterator[_Sums]"]
_CELLS = {"cpu": 2**22, "cuda": 2**26}  # distances in memory at once
_TILE, _FEWEST_ROWS = 2**18, 32  # on a CPU: votes in its cache, and rows whose distances to all voters are not
_BLOCK = 16  # voters of a label that are added up before they meet their values
_RAW_WEIGHTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
_RAW_FACTORS = tuple(2 ** (step / 2) for step in range(-5, 2))  # powers of √2, so that weights are squares
_BALANCE_SHARES = (0.5, 0.1, 0.2, 0.35, 0.65, 0.8, 0.9)  # shares of networks beside a pretrained one
_BALANCE_SCALES = tuple(1.2**step for step in range(-5, 9))
_KERNEL_FACTORS = tuple(2 ** (step / 2) for step in range(2, 6))
_VOTE_FACTORS = (0.1, 1.0, 10.0, 100.0, 1000.0)
_SHARE, _FIRST, _FINALISTS = 4, 100, 6  # one example in 4, but at least 100, narrows many candidates down to 6
_ROWS = 64  # rows embedded at once on a CPU
_PAIRS = 3 * 10**7  # pairs of an example and a voter
_FEW, _MANY, _GPU_PAIRS = 1000, 5000, 5 * 10**9  # examples used to choose the scale
_VOTERS = 8192  # voters, on a CPU or for shares


class Candidates(NamedTuple):
    """How well each of C candidates predicts n held-out examples; every field is (C, n).

    Shares of the vote below 10⁻³⁰ count as 10⁻³⁰, so that a single outlier cannot dominate the loss.
    """

    losses: Tensor  # -log P(y), or the distance of the voters' average from y's own values
    rivals: Tensor  # -log P of the most likely other label: what a wrong answer would cost; 0 if values are averaged
    right: Tensor  # whether y is the predicted label

    def choose(self, default: int, prior: Sequence[float] | float = 0.0) -> int:
        """The candidate with the lowest loss, if it is clearly better than the default one; else the default one.

        However few mistakes there are among n examples, another one must be expected (Laplace's rule of
        succession): one mistake, at its average cost, is added to the losses. Every example is judged by the candidate
        that the other examples would choose: this gives the out-of-sample gain, which must exceed its standard error.
        """
        n, mistakes = self.losses.shape[1], self.rivals.mean(dim=1)
        totals = self.totals(prior)
        best = int(agree([int(totals.argmin())])[0])
        if best == default or n < 2:
            return default
        others = (totals[:, None] - self.losses).argmin(dim=0)
        gain = self.losses[default] - self.losses.gather(0, others[None])[0]
        extra_cost = (mistakes[best] - mistakes[default]).clamp_min(0) / (n + 2)
        return int(agree([best if gain.mean() - extra_cost > gain.std() / math.sqrt(n) else default])[0])

    def totals(self, prior: Sequence[float] | float = 0.0) -> Tensor:
        """(C,): the loss of each candidate on all examples and one expected mistake, plus its prior."""
        return self.losses.sum(dim=1) + self.rivals.mean(dim=1) + torch.tensor(prior).to(self.losses)


def race(judge: Callable[[int, list[int]], Candidates], n: int, n_candidates: int, default: int = 0) -> int:
    """The number of the candidate that n examples choose: some of them first choose the few that all of them judge.

    If half of the examples prefer the default one among these few, it stays, and the others need not judge them.
    judge(step, numbers): the candidates with these numbers, judged by every step-th example.
    """
    numbers, step = list(range(n_candidates)), n // max(_FIRST, n // _SHARE)
    if step > 1 and len(numbers) > _FINALISTS:
        first = judge(step, numbers).totals().argsort()[:_FINALISTS]
        numbers = sorted({default, *map(int, agree(first.tolist()))})
        if numbers[int(agree([int(judge(2, numbers).totals().argmin())])[0])] == default:
            return default
    return numbers[judge(1, numbers).choose(numbers.index(default))]


def _judge_votes(votes: Tensor, y: Tensor) -> Tensor:
    """`Candidates`, (3, n), of votes (n, K) with labels (n,)."""
    p = (votes / votes.sum(dim=1, keepdim=True)).double()
    own = p.gather(1, y[:, None])
    rival = p.scatter(1, y[:, None], -1.0).amax(dim=1).clamp_min(1e-30)
    right = (votes.argmax(dim=1) == y).double()
    return torch.stack([-own[:, 0].clamp_min(1e-30).log(), -rival.log(), right])


def _judge_averages(sums: Tensor, y: Tensor, averaged: Tensor) -> Tensor:
    """`Candidates`, (3, n), of sums of values and of votes, (n, B + 1)."""
    losses = (sums[:, :-1] / sums[:, -1:] - averaged[y]).square().sum(dim=1).double()
    return torch.stack([losses, torch.zeros_like(losses), torch.zeros_like(losses)])


def average_losses(p: Tensor, y: Tensor, averaged: Tensor) -> Tensor:
    """(…, n): ‖Σ_k p_k v(k) - v(y)‖² of probabilities (…, n, K), as in the leave-one-out loss."""
    return (p @ averaged.to(p) - averaged.to(p)[y]).square().sum(dim=-1)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Embeddings of held-out examples, and the model's predictions for them if all embeddings were scaled."""

    model: Model
    h: Tensor
    y: Tensor
    voters: tuple[Tensor, Tensor] | None  # embeddings and labels; None for a softmax
    class_weights: Tensor  # (K,) factors on the votes

    def judge(self, factors: Sequence[float], *, step: int = 1, columns: Tensor | None = None) -> Candidates:
        """How well each factor predicts every step-th example. columns: (d,) more factors, on single columns."""
        h, y = self.h[::step], self.y[::step]
        if isinstance(self.model, SoftmaxTwin) and self.model.targets is not None:  # targets are not scaled
            losses = self.model.target_losses(self.model.logits(h).float(), y).double()
            same = losses.expand(len(factors), -1)
            return Candidates(same, torch.zeros_like(same), torch.zeros_like(same))

        def judge_rows(h: Tensor, y: Tensor) -> Tensor:
            parts = [
                torch.stack([self.judge_sums(sums.votes, labels) for sums in self._votes(part, factors, columns)])
                for part, labels in zip(h.split(self._size), y.split(self._size), strict=True)
            ]
            return torch.cat(parts, dim=2).permute(2, 1, 0)

        return Candidates(*over_ranks(judge_rows, h, y).permute(1, 2, 0))

    def judge_sums(self, sums: Tensor, y: Tensor) -> Tensor:
        """`Candidates`, (3, n), of summed votes, as `_votes` gives them, on examples with labels (n,)."""
        return _judge_votes(sums, y) if self._averaged is None else _judge_averages(sums, y, self._averaged.to(sums))

    @property
    def _averaged(self) -> Tensor | None:
        """The values of the labels, if predictions average them."""
        return getattr(self.model, "averaged", None)

    def sums(self, factors: Sequence[float], *, step: int = 1) -> Tensor:
        """(n, C, B + 1) float64: the votes for every step-th example by factor, and last the log of their unit."""

        def sum_rows(h: Tensor) -> Tensor:
            parts = (self._votes(part, factors, None) for part in h.split(self._size))
            return torch.cat([torch.stack([sums.joined for sums in part], dim=1) for part in parts])

        return over_ranks(sum_rows, self.h[::step])

    @property
    def _size(self) -> int:
        """How many examples are judged at once."""
        n_voters = 1 if self.voters is None else len(self.voters[1])
        most = _CELLS.get(self.h.device.type, 2**22) // n_voters
        return max(1, most if self.h.is_cuda else min(most, max(_FEWEST_ROWS, _TILE // n_voters)))

    def best_scale(self, factors: Sequence[float], *, step: int = 1) -> float:
        """The factor with the lowest loss, if it is also better out of sample; else 1.

        A log-normal prior around 1 with standard deviation ½ keeps a few correct answers from favouring ever larger
        factors.
        """
        prior = [math.log(factor) ** 2 / (2 * 0.5**2) for factor in factors]
        return factors[self.judge(factors, step=step).choose(factors.index(1.0), prior)]

    @cached_property
    def _votes(self) -> _VoteFunction:
        """A function from rows (n, d) to their class votes (n, K) for each factor.

        If values are averaged, it gives their sums, (n, B), and that of the votes, because there may be many labels.
        """
        if isinstance(self.model, SoftmaxTwin):
            return partial(_softmax_votes, self.model)
        assert self.voters is not None
        ref_h, labels = self.voters
        if self._averaged is None:
            table = torch.diag(self.class_weights)
        else:
            ones = torch.ones_like(self._averaged[:, :1])
            table = torch.cat([self._averaged, ones], dim=1) * self.class_weights[:, None]
        if self.model.kernel == "gaussian":
            return _GaussianSums(ref_h, labels, table, torch.promote_types(self.h.dtype, ref_h.dtype))
        return partial(_sums, get_kernel(self.model.kernel), ref_h, table[labels])


class _Sums(NamedTuple):
    """Σ_i w_i values_i of voters' values (m, B), in units of the largest vote."""

    votes: Tensor  # (n, B)
    log_unit: Tensor  # (n, 1)

    @property
    def joined(self) -> Tensor:
        """(n, B + 1) float64."""
        return torch.cat([self.votes.double(), self.log_unit.double()], dim=1)


def _softmax_votes(model: SoftmaxTwin, h: Tensor, factors: Sequence[float], _: Tensor | None) -> Iterator[_Sums]:
    logits = model.logits(h).float()
    return (_Sums(torch.softmax(factor * logits, dim=1), torch.zeros_like(logits[:, :1])) for factor in factors)


def _sums(
    kernel: Kernel, ref_h: Tensor, values: Tensor, h: Tensor, factors: Sequence[float], columns: Tensor | None
) -> Iterator[_Sums]:
    """The sums with any kernel."""
    squared = squared_distances(*((h, ref_h) if columns is None else (h * columns, ref_h * columns)))
    for factor in factors:
        log_w = kernel.log_weights(factor**2 * squared)
        most = log_w.amax(dim=1, keepdim=True)
        with full_precision(h.device):
            yield _Sums(exp_(log_w.sub_(most)) @ values.to(log_w), most)


class _GaussianSums:
    """The sums of gaussian weights of voters with labels (m,), whose values are in a table (K, B).

    In fewer passes: the nearest voter is the same at every scale, and at √2 times the scale every weight is the square
    of the one before. Voters are sorted by label into blocks of `_BLOCK`, padded with voters infinitely far away; the
    members of a block are added up before they meet their values.
    """

    def __init__(self, ref_h: Tensor, labels: Tensor, table: Tensor, dtype: torch.dtype) -> None:
        dtype = torch.promote_types(dtype, torch.float32)
        ref_h = ref_h.to(dtype)
        with full_precision(ref_h.device):
            self.centre = ref_h.mean(dim=0)
        counts = torch.bincount(labels, minlength=len(table))
        blocks = (counts + _BLOCK - 1) // _BLOCK
        self.values = table.to(dtype).repeat_interleave(blocks, dim=0)
        # The member `number` of its label is in place number % _BLOCK of a block of the label.
        order = torch.argsort(labels, stable=True)
        numbers = torch.arange(len(labels), device=labels.device) - (counts.cumsum(0) - counts)[labels[order]]
        first = (blocks.cumsum(0) - blocks)[labels[order]]
        places = numbers % _BLOCK * len(self.values) + first + numbers // _BLOCK
        self.padding = ref_h.new_full((_BLOCK * len(self.values),), torch.inf)
        self.padding[places] = 0
        self.ref_h = ref_h.new_zeros(ref_h.shape[1], len(self.padding))  # by column: twice as fast as by row
        self.ref_h[:, places] = ref_h[order].sub_(self.centre).mT
        self.columns = self.gains = self.weights = ref_h.new_empty(0)  # of the latest call
        self.norms = self.padding

    def __call__(self, h: Tensor, factors: Sequence[float], columns: Tensor | None) -> Iterator[_Sums]:
        queries = h.to(self.centre) - self.centre
        columns = torch.ones_like(self.centre) if columns is None else columns.to(self.centre)
        if not torch.equal(columns, self.columns):
            self.columns, self.norms = columns, (self.ref_h * columns[:, None]).square_().sum(dim=0).add_(self.padding)
        if len(self.gains) != len(h):
            self.gains = self.norms.new_empty(len(h), len(self.norms))
        with full_precision(h.device):
            # ‖h‖² - ‖h - h_i‖²; ‖h‖² is the same for all voters, and the largest is subtracted anyway.
            torch.addmm(self.norms, queries * columns.square(), self.ref_h, beta=-1, alpha=2, out=self.gains)
        most = self.gains.amax(dim=1, keepdim=True)
        gains = self.gains.sub_(most).view(len(h), _BLOCK, -1)
        nearest = ((queries * columns).square_().sum(dim=1, keepdim=True) - most).clamp_min_(0)
        sums = gains.new_zeros(len(factors), len(h), self.values.shape[1])
        step = max(1, len(self.values) if h.is_cuda else _TILE // max(1, _BLOCK * len(h)))
        least = math.sqrt(torch.finfo(gains.dtype).tiny)  # a smaller square would underflow, which is slow
        for part, values in zip(gains.split(step, dim=2), self.values.split(step), strict=True):
            if self.weights.shape != part.shape:
                self.weights = torch.empty_like(part)
            for total, factor, squares in zip(sums, factors, _squares(factors), strict=True):
                if squares == 0:
                    exp_(torch.mul(part, factor**2, out=self.weights))
                for _ in range(squares):
                    self.weights.clamp_min_(least).square_()
                with full_precision(h.device):
                    total.addmm_(self.weights.sum(dim=1), values)
        return (_Sums(total, -(factor**2) * nearest) for total, factor in zip(sums, factors, strict=True))


def _squares(factors: Sequence[float]) -> list[int]:
    """How often the weights at the factor before are squared to get those at each factor; 0 to compute them anew."""
    doubled = [2 * math.log2(factor / before) for before, factor in pairwise(factors)]
    whole = [round(number) for number in doubled]
    fits = [1 <= n <= 3 and abs(n - number) < 1e-9 for n, number in zip(whole, doubled, strict=True)]
    return [0, *(n if fit else 0 for n, fit in zip(whole, fits, strict=True))][: len(factors)]


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
    share = candidates[results.choose(candidates.index((0.5, 1.0)))][0]
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
    about 1,000 examples, of which one in 4 narrows the candidates down (`race`). All references vote, because the
    nearest are nearer the more there are. x: the training data, in the order of the references.
    """
    if not isinstance(model, WeightedAverage) or model.n_raw_features == 0:
        return 0.0
    references = model.references
    most = max(200, min(1000, _PAIRS // len(references)))
    held_inputs, y, held_h = _sample_rows(model, held_x, held_y, most, torch.Generator().manual_seed(0))
    z, held_z = (
        torch.cat([model.raw_features(move_to(rows, model.device)) for (rows,) in batches_of(part, size=2**16)])
        for part in (inputs_of(x), held_inputs)
    )
    h = references.embeddings
    voters = torch.cat([h, z], dim=1), references.labels
    held_out = HeldOut(model, torch.cat([held_h, held_z], dim=1), y, voters, vote_factors(model, class_weights))
    candidates = [(0.0, 1.0), *((weight, factor) for weight in _RAW_WEIGHTS for factor in _RAW_FACTORS)]

    def judge(step: int, numbers: list[int]) -> Candidates:
        chosen, parts = [candidates[number] for number in numbers], []
        for weight, group in groupby(chosen, key=itemgetter(0)):
            columns = torch.cat([torch.ones_like(held_h[0]), torch.full_like(held_z[0], weight)])
            parts.append(held_out.judge([factor for _, factor in group], step=step, columns=columns))
        return Candidates(*(torch.cat(part) for part in zip(*parts, strict=True)))

    weight, factor = candidates[race(judge, len(y), len(candidates))]
    if weight:
        model.scale_embeddings(factor)
        model.raw_feature_weight = factor * weight
        model.references = model.references.replaced(embeddings=factor * torch.cat([h, weight * z], dim=1))
    return model.raw_feature_weight


@torch.no_grad()
def fit_look_alikes(
    model: Model, held_x: Tensor | Inputs, held_y: Tensor, *, class_weights: Sequence[float] | None = None
) -> tuple[float, float] | None:
    """Let near voters count more, w = k(d) + b k(s d), if that lowers -log P(y) of held-out data; returns (s, b).

    If a network gathers each class in a small cloud, all its members vote alike; near neighbours may still know more. s
    and b are chosen together, out of sample (`choose`), on at most about 2,000 examples, of which one in 4 narrows the
    candidates down (`race`); b in units of the weight at which both kernels have the same votes on an average example.
    """
    if not isinstance(model, WeightedAverage):
        return None
    references = model.references
    most = max(200, min(2000, 10 * _PAIRS // len(references)))
    _, y, h = _sample_rows(model, held_x, held_y, most, torch.Generator().manual_seed(0))
    voters = references.embeddings, references.labels
    held_out = HeldOut(model, h, y, voters, vote_factors(model, class_weights))
    candidates = [(1.0, 0.0), *((factor, part) for factor in _KERNEL_FACTORS for part in _VOTE_FACTORS)]
    counted = slice(None) if model.averaged is None else slice(-1, None)  # beside averaged values, all votes are last
    equal: dict[float, float] = {}  # by factor: the log of the weight at which both kernels have the same votes

    def judge(step: int, numbers: list[int]) -> Candidates:
        chosen, labels = [candidates[number] for number in numbers], y[::step]
        factors = sorted({1.0, *(factor for factor, _ in chosen)})
        sums = dict(zip(factors, held_out.sums(factors, step=step).unbind(dim=1), strict=True))
        wide, unit = sums[1.0][:, :-1], sums[1.0][:, -1:]
        results = []
        for factor, part in chosen:
            narrow, below = sums[factor][:, :-1], sums[factor][:, -1:] - unit
            ratio = wide[:, counted].sum(dim=1) / narrow[:, counted].sum(dim=1)
            equal[factor] = float((ratio.log() - below[:, 0]).median().clamp(-500, 500))
            results.append(held_out.judge_sums(wide + part * (equal[factor] + below).exp() * narrow, labels))
        return Candidates(*torch.stack(results, dim=1))

    factor, part = candidates[race(judge, len(y), len(candidates))]
    chosen = (factor, part * math.exp(equal[factor])) if part else None
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
