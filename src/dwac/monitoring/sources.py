"""What a monitor watches: scores of the model, columns of a table, predictions and groups of voters.

Scores are compared with those of calibration rows, columns with those of training rows, which are just as exchangeable
with new rows if no model is involved. A model that keeps no training rows has no columns to compare with.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.encoders import TabularEncoder
from dwac.errors import CalibrationError, InputError
from dwac.estimator.observed import Observed
from dwac.explain import privacy
from dwac.monitoring import gauges as measures
from dwac.monitoring import watching
from dwac.monitoring.gauges import CategoryGauge, CellCounts, Gauge, NumberGauge, VoterGroups
from dwac.monitoring.martingale import COLUMN, MODEL, PRIVATE_SHARES, SHARES, Watched, hash_categories, scores_of
from dwac.tasks import CLASSES

Floats = NDArray[np.float64]

_TRAINING_ROWS = 2000  # that columns are compared with, drawn at random


class WatchedValues(NamedTuple):
    """What gauges need of readable rows: the values of each watched column, the votes and h."""

    columns: list[Any]
    votes: Floats
    h: Tensor


class Sources:
    """Turns the rows of a model into scores to bet on (`scores`) and counts to compare (`tallies`).

    Args:
        clf: a fitted model.
        ignore: columns that are not watched.
        seed: for drawing the training rows that columns are compared with.
        private: name no value of a training row.
    """

    def __init__(self, clf: Any, ignore: Iterable[Hashable], seed: int, private: bool) -> None:
        self.clf, self.private, self.ignored = clf, private, list(ignore)
        self.notes: list[str] = []
        self._columns = self._watched_columns()
        calibration, before = watching.calibration_scores(clf), self._training_rows(seed)
        self.watched = self._make_watched(calibration, before)
        self.gauges = self._make_gauges(calibration.get(watching.PREDICTION), before)

    def _watched_columns(self) -> list[Any]:
        """The columns to watch; an error for a name that no column has."""
        columns = columns_of(self.clf)
        known = [column.name for column in columns]
        for name in self.ignored:
            if name not in known:
                raise InputError(f"ignore must name columns of the model, {checks.listed(known)}; got {name!r}")
        return [column for column in columns if column.kind != "empty" and column.name not in self.ignored]

    def _training_rows(self, seed: int) -> pd.DataFrame | None:
        """Training rows to compare columns with; None, with a note, if there are none."""
        if not self._columns:
            return None
        rows: pd.DataFrame | None = None
        reason = "the model is private, and training rows stay hidden"
        if not self.private:
            rows = watching.training_rows(self.clf, _TRAINING_ROWS, seed)
            reason = "the model keeps no training rows, or only representatives"
        if rows is None:
            self.notes.append(f"columns are not compared one by one: {reason}")
            self._columns = []
        return rows

    def _make_watched(self, scores: dict[str, Floats], before: pd.DataFrame | None) -> list[Watched]:
        folds = watching.calibration_folds(self.clf)
        watched: list[Watched] = []
        if not scores:
            self.notes.append("the model has no calibration rows: only columns are watched; see recalibrate(X, y)")
        elif folds is None and self.clf.calibration_ids_.isin(self.clf.validation_ids_).any():
            self.notes.append(
                "the calibration rows also decided when training stopped, so new rows may seem a little atypical; fit "
                "with separate calibration rows"
            )
        for name, values in scores.items():
            parts = [None] if folds is None else np.unique(folds).tolist()
            shares = PRIVATE_SHARES if self.private and name == watching.NOVELTY else SHARES
            values = self._round(name, values)
            watched += [Watched(name, MODEL, values if f is None else values[folds == f], f, shares) for f in parts]
        for column in self._columns:
            assert before is not None
            watched.append(Watched(str(column.name), COLUMN, self._column_scores(before, column)))
        if not watched:
            raise CalibrationError(
                "a monitor needs calibration rows, and the model has none; call recalibrate(X, y) with rows that it "
                "was not trained on"
            )
        return watched

    def _round(self, name: str, scores: Floats) -> Floats:
        """Scores, rounded like answers if private."""
        if not self.private or name == watching.PREDICTION:
            return scores
        return privacy.novelty(scores) if name == watching.NOVELTY else np.round(scores, 2)

    @staticmethod
    def _column_scores(frame: pd.DataFrame, column: Any) -> Floats:
        series = frame[column.name]
        if column.kind == "categorical":
            return hash_categories(series.tolist())
        return scores_of(measures.column_numbers(series, column.name, column.kind))

    def _make_gauges(self, predicted: Floats | None, before: pd.DataFrame | None) -> list[Gauge]:
        gauges: list[Gauge] = []
        for column in self._columns:
            assert before is not None
            gauges.append(measures.column_gauge(before[column.name], column.name, column.kind, column.categories))
        self._predicts = predicted is not None
        if predicted is not None:
            gauges.append(self._prediction_gauge(predicted))
            gauges.append(VoterGroups(self._group_names(), watching.calibration_groups(self.clf)))
        return gauges

    def _prediction_gauge(self, predicted: Floats) -> Gauge:
        if self.clf.target_.kind == CLASSES:
            return CategoryGauge("predictions", measures.PREDICTION, self._labels(predicted), self._labels(None))
        return NumberGauge("predictions", measures.PREDICTION, predicted)

    def _labels(self, codes: Floats | None) -> list[Any]:
        names = self.clf.target_.names
        return list(names if codes is None else names[codes.astype(np.int64)])

    def _group_names(self) -> list[str]:
        """A name for each group of voters: its label, and what sets it apart unless that is private."""
        clf, groups = self.clf, self.clf.references_.groups
        outcomes = clf.target_.outcomes
        descriptions = None if self.private else clf.descriptions_
        names = []
        for group, label in enumerate(groups.labels.tolist()):
            what = None if descriptions is None or len(descriptions) != len(groups) else descriptions[group]
            voters = f"voters for {outcomes[label]!s:.60}" if clf.target_.kind == CLASSES else "voters"
            names.append(f"group {group + 1} ({voters}{'' if what is None else f': {what}'})")
        return names

    # Rows

    def frame(self, observed: Observed) -> pd.DataFrame | None:
        """The readable rows as a table, if columns are watched."""
        if not self._columns or not observed.rows.readable.any():
            return None
        assert isinstance(self.clf.encoder_, TabularEncoder)
        return self.clf.encoder_.records(observed.rows.X).reset_index(drop=True)

    def scores(self, observed: Observed, frame: pd.DataFrame | None) -> list[Floats]:
        """D scores (n,), one for each player; inf for rows that could not be read."""
        by_name, scores = watching.model_scores(self.clf, observed), []
        for player in self.watched:
            if player.kind == MODEL:
                values = self._round(player.name, by_name[player.name])
                scores.append(values if player.fold is None else values[:, player.fold])
        for column in self._columns:
            values = np.full(len(observed), np.inf)
            if frame is not None:
                values[observed.rows.readable] = self._column_scores(frame, column)
            scores.append(values)
        return scores

    def seen(self, observed: Observed, frame: pd.DataFrame | None) -> WatchedValues:
        """The values of readable rows to count; `values` computes the rest, for many rows at once."""
        columns: list[Any] = []
        for column in self._columns:
            if frame is None:  # no row could be read
                break
            series, numeric = frame[column.name], column.kind != "categorical"
            columns.append(measures.column_numbers(series, column.name, column.kind) if numeric else series.tolist())
        return WatchedValues(columns, observed.votes[observed.readable], observed.h)

    def values(self, seen: Sequence[WatchedValues]) -> list[Any]:
        """The values of these rows for each gauge."""
        seen = [each for each in seen if len(each.votes)]
        if not seen:
            return [[] for _ in self.gauges]
        votes = np.concatenate([each.votes for each in seen])
        values: list[Any] = [
            np.concatenate(parts) if isinstance(parts[0], np.ndarray) else list(chain.from_iterable(parts))
            for parts in zip(*(each.columns for each in seen), strict=True)
        ]
        if self._predicts:
            codes = watching.votes_scores(self.clf, votes)[watching.PREDICTION]
            values.append(self._labels(codes) if self.clf.target_.kind == CLASSES else codes)
            values.append(watching.nearest_groups(self.clf, torch.cat([each.h for each in seen])))
        return values

    def tallies(self, values: list[Any], part: slice) -> list[CellCounts]:
        """The counts of some of these rows."""
        if part.start == part.stop:
            return [gauge.empty() for gauge in self.gauges]
        return [gauge.tally(each[part]) for gauge, each in zip(self.gauges, values, strict=True)]


def columns_of(clf: Any) -> list[Any]:
    """The columns of a model's table; none for other data."""
    encoder = getattr(clf, "encoder_", None)
    return list(encoder.columns) if isinstance(encoder, TabularEncoder) else []
