"""A fitted model as one module of tensors: from columns to label, probabilities, set, typicality and heaviest voters.

The network, the kernel and the sums of votes are those of the model. What follows them is computed here by operations
that every runtime has: p-values and quantiles by bisection, in float64. ONNX rounds plain numbers to float32, so those
that float32 does not hold are tensors here.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dwac.conformal import Calibration, IntervalCalibration, extended_range, tails_of
from dwac.conformal.guarantees import allowed_misses
from dwac.encoders.scales import count_below
from dwac.encoders.table_graph import TableGraph
from dwac.engine.backends import sum_by_label
from dwac.estimator.fitted import Fitted
from dwac.estimator.novelty import EMBEDDED
from dwac.reference.novelty import LEAST, NEAREST
from dwac.reference.voters import Voters, unit
from dwac.tasks.base import LABELS, NUMBERS, ORDERED
from dwac.training.cross_fit import parts_of

_SLACK = 1 - 1e-12  # a share reaches a level if it does so up to rounding


class _Constants(nn.Module):
    """A module whose tensors are constants."""

    def keep(self, **tensors: Any) -> None:
        """Register tensors, or arrays, by name."""
        for name, values in tensors.items():
            self.register_buffer(name, torch.as_tensor(values).detach().cpu().contiguous(), persistent=False)


class _Votes(_Constants):
    """The votes of a set of voters on embeddings h (n, d)."""

    points: Tensor
    centre: Tensor
    labels: Tensor
    log_factors: Tensor

    def __init__(self, voters: Voters) -> None:
        super().__init__()
        self._log_weights, self.n_classes = voters.log_weights_at, voters.n_classes
        own = voters.log_factors.cpu() + torch.as_tensor(voters.log_class_factors)[voters.labels.cpu()]
        points = voters.embeddings
        self.keep(points=points, centre=points.double().mean(dim=0), labels=voters.labels, log_factors=own)

    def squared(self, h: Tensor) -> Tensor:
        """(n, m) float64: squared distances."""
        a, b = h.double() - self.centre, self.points.double() - self.centre
        norms = a.square().sum(dim=1)[:, None] + b.square().sum(dim=1)
        return (norms - 2 * (a @ b.T)).clamp_min(0)

    def log_votes(self, squared: Tensor) -> Tensor:
        """(n, m): log votes at squared distances, all weights included."""
        return self._log_weights(squared) + self.log_factors

    def by_class(self, log_votes: Tensor) -> Tensor:
        """(n, K): log class weights."""
        return sum_by_label(log_votes, self.labels, self.n_classes)


class _PValues(_Constants):
    """p-values of scores by fold, (n, F, K) → (n, K)."""

    table: Tensor
    starts: Tensor
    counts: Tensor
    tolerance: Tensor

    def __init__(self, calibration: Calibration, n_labels: int) -> None:
        super().__init__()
        lists = calibration.tables(n_labels)
        self._width = max(len(scores) for fold in lists for scores in fold)
        table = np.full((len(lists), len(lists[0]), self._width), np.inf)
        for fold, own in enumerate(lists):
            for label, scores in enumerate(own):
                table[fold, label, : len(scores)] = scores
        starts = self._width * np.arange(table[..., 0].size).reshape(table.shape[:2])
        counts = np.array([[len(scores) for scores in fold] for fold in lists]).sum(axis=0)
        self.keep(table=table.ravel(), starts=np.broadcast_to(starts, (len(lists), n_labels)).copy(), counts=counts)
        self.keep(tolerance=np.array(calibration.tolerance))

    def forward(self, scores: Tensor) -> Tensor:
        """(#{calibration scores ≥ score} + 1) / (n + 1)."""
        own = scores[:, : self.starts.shape[0]] - self.tolerance
        below = count_below(lambda places: self.table[places + self.starts], self._width, own)
        return (self.counts - below.sum(dim=1) + 1).double() / (self.counts + 1).double()


class _Novelty(_Constants):
    """The novelty of rows by fold, (n, F): see `dwac.estimator.novelty`."""

    known: Tensor
    inside: Tensor
    usual: Tensor
    least: Tensor

    sets: Any
    directions: Any

    def __init__(self, fitted: Fitted, sets: list[Voters], shared: bool) -> None:
        super().__init__()
        self._rescaled, self._shared = fitted.novelty.usual is not None, shared
        self.keep(usual=np.array(fitted.novelty.usual or [[0.0, 1.0]] * 2), least=np.array(LEAST**2))
        self.sets = nn.ModuleList(_Votes(voters.each_once) for voters in sets if not shared)
        directions = fitted.novelty.directions
        self.directions = nn.ModuleList(_Votes(voters.directions) for voters in sets if directions)
        known = fitted.novelty.known
        self._compares = known is not None and self._rescaled
        if known is not None:
            inside = np.stack([known.ids.isin(voters.ids) for voters in sets], axis=1)
            some = inside.any(axis=1)
            self.keep(known=known.z[torch.as_tensor(some)], inside=inside[some])

    def forward(self, h: list[Tensor], z: Tensor | None, squared: list[Tensor]) -> Tensor:
        """h: embeddings by fold. z: compared features. squared: by fold, if votes have the same voters."""
        if not self._shared:
            squared = [votes.squared(part) for votes, part in zip(self.sets, h, strict=True)]
        nu = torch.stack([self._log_mean(each) for each in squared], dim=1)
        if self.directions:
            pairs = zip(self.directions, h, strict=True)
            nu = nu + torch.stack([self._log_mean(votes.squared(unit(part))) for votes, part in pairs], dim=1)
        if not self._rescaled:
            return nu
        (middle, spread), (raw_middle, raw_spread) = self.usual
        scores: Tensor = EMBEDDED * (nu - middle) / spread
        if not self._compares or z is None:
            return scores
        centre = self.known.double().mean(dim=0)
        a, b = z.double() - centre, self.known.double() - centre
        apart = (a.square().sum(dim=1)[:, None] + b.square().sum(dim=1) - 2 * (a @ b.T)).clamp_min(0)
        nearest = torch.where(self.inside, apart[:, :, None], torch.inf).amin(dim=1)
        nearest = torch.where(nearest.isinf(), 0.0, nearest)  # none of the voters is known
        return torch.maximum(scores, (nearest - raw_middle) / raw_spread)

    def _log_mean(self, squared: Tensor) -> Tensor:
        """(n,): log (d² + ε²), d² the mean of the nearest of squared distances (n, m)."""
        k = min(NEAREST, squared.shape[1])
        return (squared.topk(k, dim=1, largest=False).values.mean(dim=1) + self.least).log()


class _Quantiles(_Constants):
    """Quantiles of the votes on one number, and intervals."""

    order: Tensor
    values: Tensor

    def __init__(self, voters: Voters, t: int) -> None:
        super().__init__()
        assert voters.targets is not None
        values, order = voters.targets[:, t].double().sort(stable=True)
        self.keep(order=order, values=values)

    def lower(self, log_votes: Tensor, levels: Tensor) -> Tensor:
        """The first target at which the votes from below reach each share of `levels` (C,): (n, C)."""
        return self._reach(log_votes[:, self.order], levels, self.values)

    def upper(self, log_votes: Tensor, levels: Tensor) -> Tensor:
        """The same from above."""
        return self._reach(log_votes[:, self.order.flip(0)], levels, self.values.flip(0))

    def _reach(self, log_votes: Tensor, levels: Tensor, values: Tensor) -> Tensor:
        sums = (log_votes - log_votes.amax(dim=1, keepdim=True)).exp().cumsum(dim=1)
        goals, m = levels * sums[:, -1:], self.values.shape[0]
        places = count_below(lambda places: sums.gather(1, places), m, goals)
        return values[places.clamp_max(m - 1)]

    def ends(self, log_votes: Tensor, levels: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """(n, C), twice: the ends of {y : score ≤ s}, for levels (C,) or, where these are 0, fixed ends (C,)."""
        below, above = self.lower(log_votes, levels), self.upper(log_votes, levels)
        return torch.where(levels > 0, below, low), torch.where(levels > 0, above, high)


class _Interval(_Constants):
    """The interval of one number, from the votes by fold."""

    quantiles: Any

    def __init__(self, sets: list[Voters], calibration: Any, t: int, epsilon: float) -> None:
        super().__init__()
        self.quantiles = nn.ModuleList(_Quantiles(voters, t) for voters in sets)
        self.crossed = not isinstance(calibration, IntervalCalibration)
        self.least = allowed_misses(epsilon, len(calibration.scores))
        for fold, voters in enumerate(sets):
            scores = calibration.scores[calibration.folds == fold] if self.crossed else calibration.score_at(epsilon)
            assert voters.targets is not None
            least, most = (float(end) for end in voters.targets[:, t].aminmax())
            log_tails, beyond = tails_of(np.atleast_1d(scores))
            low, high = extended_range(least, most, np.where(np.isfinite(log_tails), 0.0, beyond))
            levels = np.exp(np.minimum(log_tails, np.log(0.5))) * _SLACK
            self.keep(**{f"levels{fold}": levels, f"low{fold}": low, f"high{fold}": high})

    def forward(self, log_votes: list[Tensor]) -> Tensor:
        """(n, 2)."""
        each: list[Any] = []
        for fold, (votes, quantiles) in enumerate(zip(log_votes, self.quantiles, strict=True)):
            each.append(quantiles.ends(votes, *(getattr(self, f"{name}{fold}") for name in ("levels", "low", "high"))))
        lows, highs = (torch.cat(ends, dim=1) for ends in zip(*each, strict=True))
        if not self.crossed:
            return torch.cat([lows, highs], dim=1)
        lows, highs = torch.minimum(lows, highs), torch.maximum(lows, highs)
        if self.least == 0:
            return torch.stack([torch.full_like(lows[:, 0], -torch.inf), torch.full_like(lows[:, 0], torch.inf)], dim=1)
        return torch.stack([self._lowest(lows, highs), -self._lowest(-highs, -lows)], dim=1)

    def _lowest(self, lows: Tensor, highs: Tensor) -> Tensor:
        """(n,): the lowest number in at least `least` of the intervals (n, c), or else in the most."""
        m = lows.shape[1]
        begins, ends = (side.topk(m, dim=1, largest=False).values for side in (lows, highs))
        # Where one begins and another ends, both contain the number.
        counts = torch.arange(1, m + 1) - count_below(lambda places: ends.gather(1, places), m, begins)
        enough = counts >= counts.amax(dim=1, keepdim=True).clamp_max(self.least)
        return begins.gather(1, enough.int().argmax(dim=1, keepdim=True))[:, 0]


class ReadTable(nn.Module):
    """numbers, codes of texts → the inputs of the network of a table; without one of the two, it is not an input."""

    def __init__(self, table: TableGraph) -> None:
        super().__init__()
        self.table = table

    def forward(self, *inputs: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """The inputs of the network, and which rows can be read."""
        numbers = inputs[0] if self.table.numbers else inputs[0][:, :0].double()
        codes = inputs[-1] if self.table.texts else inputs[0][:, :0].long()
        numeric, categorical, readable = self.table(numbers, codes)
        return (numeric, categorical), readable


class ReadImages(nn.Module):
    """Images (n, …) in the layout of training → (n, C, H, W)."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.layout = layout

    def forward(self, images: Tensor) -> tuple[tuple[Tensor, ...], None]:
        """The input of the network."""
        other = images[:, None] if self.layout == "HW" else images.permute(0, 3, 1, 2)
        return (images if self.layout == "CHW" else other,), None


class ReadTexts(nn.Module):
    """Numbers of words and n-grams as the encoder of texts gives them; linear scores have no shift."""

    def __init__(self, n_shifted: int = 0) -> None:
        super().__init__()
        self.n_shifted = n_shifted

    def forward(self, *inputs: Tensor) -> tuple[tuple[Tensor, ...], None]:
        """The inputs of the network."""
        parts = [part if part.is_floating_point() else part.long() for part in inputs]
        if self.n_shifted:
            parts.append(parts[-1].new_zeros(parts[-1].shape[0], self.n_shifted))
        return tuple(parts), None


class ModelGraph(_Constants):
    """A fitted model: the inputs of its network, or numbers and codes of a table → the values of `outputs`.

    read: turns the inputs of the graph into those of the network, and says which rows can be read, or None. sets: the
    calibrated sets or intervals of the model. k: how many voters to name.
    """

    folds: Any
    medians: Any
    intervals: Any
    epsilon: Tensor
    threshold: Tensor
    targets: Tensor
    middle: Tensor
    median_level: Tensor
    table: Tensor

    def __init__(self, fitted: Fitted, sets: Any, read: nn.Module | None, epsilon: float, k: int) -> None:
        super().__init__()
        references, target = fitted.references, fitted.target
        self.read, self.model = read, copy(fitted.model)
        self.model._frozen = None
        self.kind, self.ordered, self.k = target.kind, target.kind == ORDERED, min(k, len(references))
        self.keep(epsilon=np.array(epsilon))
        self.crossed, self.members = fitted.folds is not None, 0 if fitted.folds is None else fitted.folds.members
        self.votes, self.calibrated = _Votes(references.voters), fitted.calibrated
        voters = [references.voters] if fitted.folds is None else list(fitted.folds.together(references).sets)
        self.folds = nn.ModuleList(_Votes(own) for own in voters if self.crossed)
        fixed = fitted.novelty.voters
        if self.calibrated:
            apart = voters if fixed is None else [fixed.voters]
            if fixed is not None and fitted.folds is not None:
                apart = list(fitted.folds.together(fixed).sets)
            self.novelty = _Novelty(fitted, apart, shared=fixed is None)
            self.typicality = _PValues(fitted.typical_scores(), 1)
            self._calibrate(sets, voters, epsilon)
        if self.kind == NUMBERS:
            assert references.targets is not None
            targets = references.targets.double()
            self.keep(targets=targets, middle=targets.mean(dim=0), median_level=np.array([0.5 * _SLACK]))
            self.medians = nn.ModuleList(
                _Quantiles(references.voters, t) for t in range(targets.shape[1]) if sets.average == "median"
            )
        if self.kind == LABELS:
            self.keep(table=target.table)
        self.outputs = list(self._names())

    def _calibrate(self, sets: Any, voters: list[Voters], epsilon: float) -> None:
        """Keep what sets or intervals need."""
        if self.kind == NUMBERS:
            each = enumerate(sets.calibration())
            self.intervals = nn.ModuleList(_Interval(voters, own, t, epsilon) for t, own in each)
        elif self.kind == LABELS:
            self.keep(threshold=np.array(sets.calibration.misses.threshold(epsilon)))
        else:
            self.score, self.p_values = sets.score, _PValues(sets.calibration, self.votes.n_classes)

    def _names(self) -> list[str]:
        own = {NUMBERS: ["prediction", "interval"], LABELS: ["labels", "probabilities", "prediction_set"]}
        names = own.get(self.kind, ["label", "probabilities", "prediction_set", "credibility"])
        names = [*names, "typicality", "voter_ids", "voter_shares"]
        if not self.calibrated:
            names = [name for name in names if name not in ("interval", "prediction_set", "credibility", "typicality")]
        return [*names, "readable"] if isinstance(self.read, ReadTable) else names

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The values of `outputs`; labels and voters as their numbers."""
        readable = None
        if self.read is not None:
            inputs, readable = self.read(*inputs)
        h = self.model.embed(inputs)
        squared = self.votes.squared(h)
        log_votes = self.votes.log_votes(squared)
        heaviest, rows = log_votes.topk(self.k, dim=1)
        shares = (heaviest - log_votes.logsumexp(dim=1, keepdim=True)).exp()
        parts, by_fold, apart = [h], [log_votes], [squared]
        if self.crossed and self.calibrated:
            parts = list(parts_of(h, self.members).unbind(0))
            apart = [fold.squared(part) for fold, part in zip(self.folds, parts, strict=True)]
            by_fold = [fold.log_votes(each) for fold, each in zip(self.folds, apart, strict=True)]
        values = self._answers(log_votes, by_fold) | {"voter_ids": rows, "voter_shares": shares}
        if self.calibrated:
            z = self.model.compared_features(inputs) if self.model.n_compared_features else None
            novelty = self.novelty(parts, z, apart)
            values["typicality"] = self.typicality(novelty[:, :, None])[:, 0]
        if readable is not None:
            values = {name: _masked(value, readable) for name, value in values.items()} | {"readable": readable}
        return tuple(values[name] for name in self.outputs)

    def _answers(self, log_votes: Tensor, by_fold: list[Tensor]) -> dict[str, Tensor]:
        if self.kind == NUMBERS:
            return self._numbers(log_votes, by_fold)
        votes = self.votes.by_class(log_votes)
        p = votes.softmax(dim=1)
        if self.kind == LABELS:
            p = (p @ self.table).clamp(0, 1)
            sets = {"prediction_set": p >= self.threshold} if self.calibrated else {}
            return {"labels": p >= 0.5, "probabilities": p, **sets}
        values = {"label": votes.argmax(dim=1), "probabilities": p}
        if not self.calibrated:
            return values
        each = [fold.by_class(own) for fold, own in zip(self.folds, by_fold, strict=True)] if self.crossed else [votes]
        p_values = self.p_values(torch.stack([self._scores(own) for own in each], dim=1))
        sets = p_values > self.epsilon
        if self.ordered:
            after = sets.flip(1).cumsum(dim=1).flip(1)
            sets = (sets.cumsum(dim=1) > 0) & (after > 0)
        return values | {"prediction_set": sets, "credibility": p_values.amax(dim=1)}

    def _scores(self, votes: Tensor) -> Tensor:
        """(n, K): see `dwac.conformal.nonconformity`."""
        if self.score == "weights":
            return -votes
        p = votes.softmax(dim=1)
        if self.score == "probability":
            return -p
        return -torch.minimum(p.cumsum(dim=1).clamp_max(1), p.flip(1).cumsum(dim=1).clamp_max(1).flip(1))

    def _numbers(self, log_votes: Tensor, by_fold: list[Tensor]) -> dict[str, Tensor]:
        values = {"prediction": log_votes.softmax(dim=1) @ (self.targets - self.middle) + self.middle}
        if self.medians:
            values["prediction"] = torch.cat([each.lower(log_votes, self.median_level) for each in self.medians], dim=1)
        if self.calibrated:
            values["interval"] = torch.stack([interval(by_fold) for interval in self.intervals], dim=1)
        return values


def _masked(value: Tensor, readable: Tensor) -> Tensor:
    """NaN, or False, for rows that cannot be read."""
    where = readable.view(-1, *[1] * (value.ndim - 1))
    if value.dtype == torch.bool:
        return value & where
    return torch.where(where, value, torch.nan) if value.is_floating_point() else value
