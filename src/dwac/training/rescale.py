"""Fits to validation data after training: scale, raw features and look-alikes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from dwac.nn import Model, SoftmaxTwin, WeightedAverage
from dwac.nn.batches import Inputs, batches_of, embed, inputs_of, move_to, take_rows
from dwac.nn.ensemble import SharedBackbone
from dwac.nn.ranks import over_ranks
from dwac.training.rows import even_size
from dwac.training.validation import FINE_SCALES, Candidates, HeldOut, judge_votes, sample

_WEIGHTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
_FACTORS = (0.15, 0.22, 0.33, 0.5, 0.7, 1.0, 1.4)
_SHARES = (0.5, 0.1, 0.2, 0.35, 0.65, 0.8, 0.9)  # shares of networks beside a pretrained one
_SCALES = tuple(1.2**step for step in range(-5, 9))
_KERNEL_FACTORS = (2.0, 3.0, 4.0, 6.0)
_VOTE_FACTORS = (0.1, 1.0, 10.0, 100.0, 1000.0)
_ROWS = 64  # rows embedded at once on a CPU
_PAIRS = 10**8  # pairs of an example and a voter
_FEW, _MANY, _GPU_PAIRS = 1000, 5000, 5 * 10**9  # examples used to choose the scale
_VOTERS = 8192  # voters, on a CPU or for shares


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
            return HeldOut(model, model.scale_parts(h, factors(share)), y, (voters, labels), weights).judge(_SCALES)
        with _restoring(model):
            model.scale_members(factors(share))
            return HeldOut(model, _embed(model, x), y, None, weights).judge(_SCALES)

    candidates = [(share, scale) for share in _SHARES for scale in _SCALES]
    results = Candidates(*(torch.cat(part) for part in zip(*map(judge, _SHARES), strict=True)))
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

    candidates = [(1.0, 0.0), *((factor, weight) for weight in _WEIGHTS for factor in _FACTORS)]
    parts = [judge(0.0, (1.0,)), *(judge(weight, _FACTORS) for weight in _WEIGHTS)]
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
