"""What a monitor watches: scores of the model, columns of a table, predictions and groups of voters.

Scores are compared with those of calibration rows, columns with those of training rows, which are just as exchangeable
with new rows if no model is involved. A model that keeps no training rows has no columns to compare with.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.encoders import TabularEncoder
from dwac.errors import CalibrationError, InputError
from dwac.explain import privacy
from dwac.monitoring import gauges as measures
from dwac.monitoring import watching
from dwac.monitoring.gauges import CategoryGauge, CellCounts, Gauge, NumberGauge, VoterGroups
from dwac.monitoring.martingale import COLUMN, MODEL, PRIVATE_SHARES, SHARES, Watched, hash_categories, scores_of
from dwac.monitoring.watching import ObservedRows
from dwac.tasks import CLASSES

Floats = NDArray[np.float64]

_TRAINING_ROWS = 2000  # that columns are compared with, drawn at random


class WatchedValues(NamedTuple):
    """What gauges need of readable rows: the values of each watched column, the votes and h."""

    columns: list[Any]
    votes: Floats
    h: Tensor
    rows: int  # with those that could not be read


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
        columns = watching.columns_of(self.clf)
        known = [column.name for column in columns]
        for name in self.ignored:
            if name not in known:
                raise InputError(f"ignore must name columns of the model, {checks.listed(known)}; got {name!r}")
        return [column for column in columns if column.kind != "empty" and column.name not in self.ignored]

    def _training_rows(self, seed: int) -> pd.DataFrame:
        """Training rows to compare columns with; if there are none, a note says why, and no column is watched."""
        if not self._columns:
            return pd.DataFrame()
        rows: pd.DataFrame | None = None
        reason = "the model is private, and training rows stay hidden"
        if not self.private:
            rows = watching.training_rows(self.clf, _TRAINING_ROWS, seed)
            reason = "the model keeps no training rows, or only representatives"
        if rows is None:
            self.notes.append(f"columns are not compared one by one: {reason}")
            self._columns = []
        return pd.DataFrame() if rows is None else rows

    def _make_watched(self, scores: dict[str, Floats], before: pd.DataFrame) -> list[Watched]:
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
            watched.append(Watched(str(column.name), COLUMN, _column_scores(_column_values(before, column), column)))
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

    def _make_gauges(self, predicted: Floats | None, before: pd.DataFrame) -> list[Gauge]:
        gauges = [
            measures.column_gauge(before[column.name], column.name, column.kind, column.categories)
            for column in self._columns
        ]
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

    def columns(self, rows: ObservedRows) -> list[Any]:
        """The values of each watched column in the readable rows; none if no row could be read."""
        if not self._columns or not rows.X:
            return []
        encoder = self.clf.encoder_
        assert isinstance(encoder, TabularEncoder)
        parts = rows.X if all(isinstance(X, pd.DataFrame) for X in rows.X) else [encoder.records(X) for X in rows.X]
        frame = encoder.records(parts[0] if len(parts) == 1 else pd.concat(parts)).reset_index(drop=True)
        return [_column_values(frame, column) for column in self._columns]

    def scores(self, rows: ObservedRows, columns: list[Any]) -> list[Floats]:
        """D scores (n,), one for each player; inf for rows that could not be read."""
        by_name, scores = watching.model_scores(self.clf, rows), []
        for player in self.watched:
            if player.kind == MODEL:
                values = self._round(player.name, by_name[player.name])
                scores.append(values if player.fold is None else values[:, player.fold])
        for column, known in zip_longest(self._columns, columns):
            values = np.full(len(rows.readable), np.inf)
            if known is not None:
                values[rows.readable] = _column_scores(known, column)
            scores.append(values)
        return scores

    def watched_values(self, rows: ObservedRows, columns: list[Any], part: slice) -> WatchedValues:
        """What gauges need of some of the rows."""
        own = slice(int(rows.readable[: part.start].sum()), int(rows.readable[: part.stop].sum()))
        return WatchedValues(
            [each[own] for each in columns],
            rows.votes[part][rows.readable[part]],
            rows.h[own],
            part.stop - part.start,
        )

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


def _column_values(frame: pd.DataFrame, column: Any) -> Any:
    """The values of a column of a table: categories, or numbers with NaN where missing."""
    series = frame[column.name]
    return (
        series.tolist() if column.kind == "categorical" else measures.column_numbers(series, column.name, column.kind)
    )


def _column_scores(values: Any, column: Any) -> Floats:
    return hash_categories(values) if column.kind == "categorical" else scores_of(values)
