"""Numbers: training examples vote for their own, and the prediction is the mean of the votes (or their median)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac.drawing.records import plain
from dwac.errors import InputError
from dwac.estimator.evaluation import NumberPredictions
from dwac.kernels import squared_distances
from dwac.reference import ReferenceSet
from dwac.report.measures import Measure
from dwac.server.answers import silent
from dwac.server.explorer.edits import Edits
from dwac.server.explorer.tasks import Floats, Ints, PageTask, Recount, groups_of, places_after

_LEAST = 0.05  # share of the votes that must remain for a difference to be exact to about 1e-8
_MOVED = 1e-3  # of the spread of the numbers: smaller moves are not listed
_CELLS = 2**22  # votes in memory at once


@dataclass(frozen=True, eq=False, kw_only=True)
class ExploredNumbers(NumberPredictions):
    """The predictions from the votes on n examples."""

    of_training: bool
    _intervals: dict[float, Floats | None] = field(default_factory=dict)

    def intervals(self, epsilon: float) -> Floats | None:
        """(n, T, 2) at ε; None without calibration rows, or for training examples, as these calibrate or vote."""
        if self.of_training or len(self) == 0:
            return None
        if epsilon not in self._intervals:
            with silent():
                self._intervals.clear()
                self._intervals[epsilon] = super().intervals(epsilon)
        return self._intervals[epsilon]


class NumberTask(PageTask):
    """Numbers (n, T). Votes are (n, 1 + 2T): the log of all votes, their means, and the predictions."""

    columns: ClassVar[Mapping[str, str]] = {"label": "<f8", "predicted": "<f8", "interval": "<f8"}

    predicts: ClassVar[str] = "numbers"

    def comparable(self, other: PageTask) -> bool:
        """Whether both predict the same number of targets."""
        return isinstance(other, NumberTask) and self._width == other._width

    @property
    def _width(self) -> int:
        return int(self.clf.target_.table.shape[1])

    @cached_property
    def _spread(self) -> Floats:
        return np.asarray(self.clf.target_.scale[1])

    def unknown(self, n: int) -> Floats:
        """NaN."""
        return np.full((n, self._width), np.nan)

    def of_voters(self, references: ReferenceSet) -> Floats:
        """(m, T)."""
        assert references.targets is not None
        return np.asarray(references.targets.cpu().numpy())

    def known(self, truth: NDArray[Any]) -> NDArray[np.bool_]:
        """(n,)."""
        return np.asarray(np.isfinite(truth).all(axis=1))

    def named(self, value: Any) -> Any:
        """The number, or a list of several."""
        values = plain(np.asarray(value, dtype=np.float64))
        return None if None in values else values[0] if self.clf.target_.single else values

    def value_of(self, references: ReferenceSet, place: int) -> tuple[float, ...]:
        """The numbers of a training example."""
        return tuple(self.of_voters(references)[place].tolist())

    def new_value(self, step: Any) -> tuple[float, ...]:
        """The new numbers: one, or a list of several."""
        numbers = step.label if isinstance(step.label, list) else [step.label]
        if len(numbers) != self._width or not all(
            isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value) for value in numbers
        ):
            wanted = "a number" if self._width == 1 else f"a list of {self._width} numbers"
            raise InputError(f"label must be {wanted}; got {step.label!r:.60}")
        return tuple(map(float, numbers))

    # Votes

    def no_votes(self) -> Floats:
        """(0, 1 + 2T)."""
        return np.zeros((0, 1 + 2 * self._width))

    @property
    def _median(self) -> bool:
        return bool(self.clf.average == "median")

    def count_votes(self, references: ReferenceSet, examples: Any, rows: Ints, edits: Edits) -> Floats:
        """(r, 1 + 2T)."""
        h = torch.as_tensor(examples.h[rows]).to(references.embeddings)
        votes = references.distribution(h)
        log_total, mean = votes.log_total.cpu().numpy(), votes.mean.cpu().numpy()
        totals = np.concatenate(
            [log_total[:, None], mean, votes.median.cpu().numpy() if self._median else mean], axis=1
        )
        if not examples.of_training:
            return np.asarray(totals)
        own, voting = places_after(examples.own[rows], edits)
        for row, share in zip(
            np.flatnonzero(voting), self._own_shares(references, own, log_total)[voting], strict=True
        ):
            place = int(own[row])
            if share > 1 - _LEAST or self._median:
                totals[row] = self._without(references, h[row], place)
            else:
                mean_of_others = (mean[row] - share * self.of_voters(references)[place]) / (1 - share)
                totals[row] = [log_total[row] + np.log1p(-share), *mean_of_others, *mean_of_others]
        return np.asarray(totals)

    def _own_shares(self, references: ReferenceSet, own: Ints, log_total: Floats) -> Floats:
        """(n,): the share of each training example in the votes on itself."""
        at_home = float(references.voters.log_weights_at(torch.zeros(1, dtype=torch.float64)))
        places = np.clip(own, 0, len(references) - 1)
        return np.asarray(np.minimum(np.exp(at_home + np.log(references.weights[places]) - log_total), 1.0))

    def _without(self, references: ReferenceSet, h: torch.Tensor, place: int) -> list[float]:
        """The votes on a query by all voters but one, counted one by one."""
        log_w = np.delete(references.voters.log_votes(h).cpu().numpy(), place)
        targets = np.delete(self.of_voters(references), place, axis=0)
        log_total = float(np.logaddexp.reduce(log_w))
        shares = np.exp(log_w - log_total)
        mean = shares @ targets / shares.sum()
        values = mean
        if self._median:
            order = np.argsort(targets, axis=0, kind="stable")
            half = [np.searchsorted(np.cumsum(shares[column]), 0.5 * shares.sum()) for column in order.T]
            values = np.array([targets[order[min(at, len(order) - 1), t], t] for t, at in enumerate(half)])
        return [log_total, *mean, *values]

    def update_votes(
        self, votes: Floats, examples: Any, references: ReferenceSet, edits: Edits, recount: Recount
    ) -> Floats:
        """(n, 1 + 2T): the mean after subtracting removed votes and adding new ones, over the remaining weight."""
        every = np.arange(len(votes))
        if not edits or self._median:
            return votes if not edits else recount(every)
        places, width = np.fromiter(edits, dtype=np.int64), self._width
        before = self.of_voters(references)[places]
        now = np.array([[0.0] * width if value is None else value for value in edits.values()])
        removed = np.array([value is None for value in edits.values()])
        ref_h = references.embeddings[torch.as_tensor(places, device=references.embeddings.device)].cpu().double()
        after, step = np.array(votes), max(1, _CELLS // len(places))
        gone = np.empty(len(votes))
        for start in range(0, len(votes), step):
            part = slice(start, start + step)
            squared = squared_distances(torch.as_tensor(examples.h[part]).double(), ref_h)
            log_w = references.voters.log_weights_at(squared).numpy() + np.log(references.weights[places])
            shares = np.where(examples.own[part, None] == places, 0.0, np.exp(log_w - votes[part, :1]))
            gone[part] = shares[:, removed].sum(axis=1)
            moved = votes[part, 1 : 1 + width] - shares @ before + shares @ now  # removed votes are 0 now
            left = np.maximum(1 - gone[part], _LEAST)
            after[part, 0] += np.log(left)
            after[part, 1:] = np.tile(moved / left[:, None], 2)
        doubtful = np.flatnonzero(gone > 1 - _LEAST)
        if len(doubtful):
            after[doubtful] = recount(doubtful)
        return np.asarray(after)

    def predictions(self, clf: Any, votes: Floats, examples: Any, *, private: bool) -> ExploredNumbers:
        """Numbers and typicality."""
        typicality = None
        if len(votes) and len(clf.calibration_y_):
            typicality = clf.fitted_.typicality(examples.novelty, private=private)
        h = torch.as_tensor(examples.h).to(clf.references_.embeddings)
        values = votes[:, 1 + self._width :]
        known: dict[str, Any] = {"within": groups_of(clf, examples), "of_training": examples.of_training}
        return ExploredNumbers(clf.sets_, h, values, typicality, None, private, **known)

    def codes(self, predictions: ExploredNumbers) -> Ints:
        """(n,): the bins of the predicted numbers."""
        return np.asarray(self.clf.target_.codes(predictions.values))

    # The page

    def column(self, name: str, points: Any, view: Any, epsilon: float) -> NDArray[Any]:
        """Numbers and predictions of all points, intervals of those with predictions."""
        match name:
            case "label":
                return np.asarray(points.values(view), dtype="<f8")
            case "predicted":
                return np.asarray(points.spread(view.predictions.shown, np.nan, "<f8", self._width))
            case _:
                ends = view.predictions.intervals(epsilon)
                return np.zeros(0) if ends is None else np.asarray(ends, dtype="<f8")

    def start(self, explorer: Any) -> dict[str, Any]:
        """The range of the numbers: of the predictions alone if private."""
        shown = explorer.first.predictions.shown
        if not explorer.private:
            shown = np.concatenate([shown, self.of_voters(explorer.clf.references_)])
        if len(shown) == 0:
            shown = self.clf.target_.scale[:1]
        low, high = np.quantile(shown, [0.02, 0.98], axis=0)
        return {"low": low.tolist(), "high": np.maximum(high, low).tolist(), "n_numbers": self._width}

    def disc(self, references: ReferenceSet) -> dict[str, list[Any]]:
        """The mean numbers of each disc."""
        groups, targets = references.groups, self.of_voters(references)
        sums = [np.bincount(groups.leaves, references.sizes * column, len(groups.parents)) for column in targets.T]
        sizes = np.bincount(groups.leaves, references.sizes, len(groups.parents))
        return {**super().disc(references), "value": (np.stack(sums, axis=1) / sizes[:, None]).tolist()}

    def measure(self, predictions: ExploredNumbers, truth: NDArray[Any]) -> Measure:
        """The size of the errors."""
        return Measure.of_numbers(predictions.shown, truth, self._spread)

    def named_disc(self, references: ReferenceSet, disc: int) -> Any:
        """The mean of their numbers."""
        return self.named(self.disc(references)["value"][disc])

    def changed_rows(self, before: ExploredNumbers, after: ExploredNumbers) -> Ints:
        """Rows whose numbers move by more than a thousandth of the spread of all, the largest moves first."""
        by = (np.abs(after.shown - before.shown) / self._spread).max(axis=1, initial=0.0)
        rows = np.flatnonzero(by > _MOVED)
        return rows[np.argsort(-by[rows], kind="stable")]

    def summary(self, predictions: ExploredNumbers, row: int) -> dict[str, Any]:
        """The number."""
        return {"label": self.named(predictions.shown[row])}

    def frame(self, predictions: ExploredNumbers, truth: NDArray[Any], epsilon: float) -> pd.DataFrame:
        """The columns of an answer, and before each prediction the true number."""
        frame = predictions.frame(epsilon).drop(columns="unreadable")  # all rows can be read
        for t, name in enumerate(predictions.names):
            ending = "" if self.clf.target_.single else f"_{name}"
            frame.insert(frame.columns.tolist().index(f"prediction{ending}"), f"number{ending}", truth[:, t])
        return frame

    def disagreeing_rows(self, ours: ExploredNumbers, theirs: Any) -> Ints:
        """All rows, those on which the two models differ most first."""
        gap = (np.abs(ours.shown - theirs.shown) / self._spread).max(axis=1)
        return np.argsort(-gap, kind="stable")

    def errors(self, predictions: ExploredNumbers, truth: NDArray[Any]) -> list[dict[str, Any]]:
        """The examples that are furthest from their predictions."""
        rows = np.flatnonzero(self.known(truth))
        by = np.abs(predictions.shown[rows] - truth[rows]) / self._spread
        order = np.argsort(-by.max(axis=1, initial=0.0), kind="stable")
        return [
            {"row": int(row), "true": self.named(truth[row]), **self.summary(predictions, int(row))}
            for row in rows[order]
        ]

    # One example

    def explain_voter(self, clf: Any, h: Any, k: int, epsilon: float, **options: Any) -> Any:
        """The explanation of a training example by the others, with an interval at ε."""
        for name in ("fold_votes", "descriptions"):  # these belong to bins; intervals and groups do not use bins
            options.pop(name, None)
        return super().explain_voter(clf, h, k, epsilon, **options)

    def scores(self, clf: Any, X: Any) -> Floats:
        """(n, T): the predicted numbers."""
        return np.asarray(clf.predict(X), dtype=np.float64).reshape(-1, self._width)

    @property
    def subjects(self) -> list[Any]:
        """The names of the numbers."""
        return list(self.clf.target_.names)

    def predicted_code(self, explanation: Any) -> int:
        """The bin of the predicted number."""
        value = np.atleast_2d(np.asarray(explanation.prediction, dtype=np.float64))
        return int(self.clf.target_.codes(value)[0])

    def goal(self, other: Any, label: int) -> Any:
        """A range."""
        del label
        return other.ends

    def which(self, label: int) -> dict[str, Any]:
        """The name of one of several numbers."""
        return {} if self.clf.target_.single else {"name": self.clf.target_.plain_names[label]}
